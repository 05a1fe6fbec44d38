//! Append-only files of JSON lines: lineage, receipts.
//!
//! A line is one `write(2)` on an `O_APPEND` descriptor, so that writers do not tear each other's
//! lines. A writer that dies mid-line can leave a torn end; the next one closes it with a line
//! feed of its own, and readers tell a torn last line from a bad one in the middle.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::append::ends_torn;
use super::file::{read_file, replace};
use crate::error::{Error, Result};

/// An append-only file of JSON lines.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
}

/// What a ledger holds.
#[derive(Debug)]
pub struct LedgerLines<T> {
    /// The lines that parse, in order.
    pub lines: Vec<T>,
    /// Numbers (from 1) of lines that do not parse, but for a torn last one.
    pub bad: Vec<usize>,
    /// Whether the last line has no line feed and does not parse.
    pub torn: bool,
}

impl Ledger {
    /// The ledger at `path`; nothing is created.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Appends one line, in one write.
    ///
    /// # Errors
    /// When it cannot be opened or written whole.
    pub fn append<T: Serialize>(&self, line: &T) -> Result<()> {
        let fail = |act| move |e| Error::io(act, &self.path, e);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)
            .map_err(fail("open"))?;
        let mut bytes = Vec::with_capacity(256);
        if ends_torn(&mut file).map_err(fail("read"))? {
            bytes.push(b'\n');
        }
        serde_json::to_writer(&mut bytes, line)
            .map_err(|e| Error::failed(format!("cannot encode {}: {e}", self.path.display())))?;
        bytes.push(b'\n');
        let written = file.write(&bytes).map_err(fail("append to"))?;
        if written != bytes.len() {
            let short = io::Error::new(io::ErrorKind::StorageFull, "the line was cut short");
            return Err(fail("append to")(short));
        }
        Ok(())
    }

    /// Makes the ledger hold these lines and nothing else, for whoever alone may write to it. What
    /// is missing at its end is appended, a torn line's rest included, so that a reader who follows
    /// the file loses nothing; one that differs is replaced.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn settle<T: Serialize>(&self, lines: impl Iterator<Item = T>) -> Result<()> {
        let mut wanted = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut wanted, &line).map_err(|e| {
                Error::failed(format!("cannot encode {}: {e}", self.path.display()))
            })?;
            wanted.push(b'\n');
        }
        let found = match read_file(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return replace(&self.path, &wanted),
            Err(e) => return Err(Error::io("read", &self.path, e)),
        };
        let Some(missing) = wanted.strip_prefix(found.as_slice()) else {
            return replace(&self.path, &wanted);
        };
        if missing.is_empty() {
            return Ok(());
        }
        OpenOptions::new()
            .append(true)
            .open(&self.path)
            .and_then(|mut file| file.write_all(missing))
            .map_err(|e| Error::io("append to", &self.path, e))
    }

    /// Reads every line; an absent file has none.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn read<T: DeserializeOwned>(&self) -> Result<LedgerLines<T>> {
        let bytes = match read_file(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io("read", &self.path, e)),
        };
        let mut found = LedgerLines {
            lines: Vec::new(),
            bad: Vec::new(),
            torn: false,
        };
        for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let whole = line.ends_with(b"\n");
            if line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(value) => found.lines.push(value),
                Err(_) if !whole => found.torn = true,
                Err(_) => found.bad.push(index + 1),
            }
        }
        Ok(found)
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn a_torn_end_is_closed_and_told_from_a_bad_line() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::at(folder.path().join("ledger"));
        ledger.append(&1).unwrap();
        let mut file = OpenOptions::new().append(true).open(ledger.path()).unwrap();
        file.write_all(b"{\"tor").unwrap();
        let found: LedgerLines<u32> = ledger.read().unwrap();
        assert_eq!(
            (found.lines, found.bad, found.torn),
            (vec![1], vec![], true)
        );
        ledger.append(&2).unwrap();
        let found: LedgerLines<u32> = ledger.read().unwrap();
        assert_eq!(
            (found.lines, found.bad, found.torn),
            (vec![1, 2], vec![2], false)
        );
    }
    #[test]
    fn settling_appends_what_is_missing_and_replaces_what_differs() {
        let wanted = ["one", "two", "three"];
        let whole = b"\"one\"\n\"two\"\n\"three\"\n";
        for (found, replaced) in [
            (&b""[..], false),
            (b"\"one\"\n", false),
            (b"\"one\"\n\"tw", false),
            (whole, false),
            (b"\"one\"\n\"tx", true),
            (b"\"one\"\n\"two\"\n\"three\"\n\"four\"\n", true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let ledger = Ledger::at(folder.path().join("ledger"));
            let mut file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .open(ledger.path())
                .unwrap();
            file.write_all(found).unwrap();
            ledger.settle(wanted.iter()).unwrap();
            assert_eq!(std::fs::read(ledger.path()).unwrap(), whole);
            // Who had it open before sees the end too, unless there was no way.
            let mut seen = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut seen).unwrap();
            assert_eq!(seen != whole, replaced, "{}", found.escape_ascii());
        }
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::at(folder.path().join("missing"));
        ledger.settle(wanted.iter()).unwrap();
        assert_eq!(std::fs::read(ledger.path()).unwrap(), whole);
    }
}
