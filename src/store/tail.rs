//! Following a file that somebody else writes: whole lines, as they come.
//!
//! No line is too long, unless the caller says so, and none is held longer than needed: the buffer
//! that a huge line took is given back after it. No look takes for ever: its caller says how much
//! it reads at most, since whoever writes may be faster than whoever reads.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::file::regular;
use crate::error::{Error, Result};

/// How much is read at a time, and kept of the buffer after a longer line.
const CHUNK: usize = 64 * 1024;

/// Where a reader stands in a growing file.
#[derive(Debug)]
pub struct Tail {
    file: File,
    position: u64,
    line: Vec<u8>,
    chunk: Vec<u8>,
    longest: usize,
    /// Whether the rest of a line that is too long is being passed by.
    passing: bool,
}

impl Tail {
    /// Begins at the start of a file.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_at(path, 0, usize::MAX)
    }

    /// Begins at `position`, and passes by lines of more than `longest` bytes.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open_at(path: &Path, position: u64, longest: usize) -> Result<Self> {
        let fail = |e| Error::io("open", path, e);
        let mut file = regular(path).map_err(fail)?;
        if position > 0 {
            file.seek(SeekFrom::Start(position)).map_err(fail)?;
        }
        Ok(Self {
            longest,
            ..Self::of(file, position)
        })
    }

    /// Begins where an opened file ends now: only what comes is read.
    ///
    /// # Errors
    /// When its end cannot be found.
    pub fn at_end(mut file: File) -> io::Result<Self> {
        let position = file.seek(SeekFrom::End(0))?;
        Ok(Self::of(file, position))
    }

    /// Begins at the start of an opened file.
    #[must_use]
    pub fn of_file(file: File) -> Self {
        Self::of(file, 0)
    }

    fn of(file: File, position: u64) -> Self {
        Self {
            file,
            position,
            line: Vec::new(),
            chunk: vec![0; CHUNK],
            longest: usize::MAX,
            passing: false,
        }
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// How far was read.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// How much there is right now that was not read.
    ///
    /// # Errors
    /// When the file cannot be asked.
    pub fn pending(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(self.position))
    }

    /// Reads what is new, up to `most` bytes, and hands out each whole line, without its line
    /// feed. Returns how many bytes were new; fewer than `most` means that the end was reached.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_new(&mut self, most: u64, mut each: impl FnMut(&[u8])) -> io::Result<u64> {
        let mut total: u64 = 0;
        loop {
            let left = usize::try_from(most - total).unwrap_or(usize::MAX);
            let room = left.min(self.chunk.len());
            let count = match self.file.read(&mut self.chunk[..room]) {
                Ok(0) => return Ok(total),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let new = u64::try_from(count).unwrap_or(u64::MAX);
            total += new;
            self.position += new;
            let mut rest = &self.chunk[..count];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let (head, tail) = rest.split_at(end);
                if self.passing || self.line.len() + head.len() > self.longest {
                    self.passing = false;
                } else if self.line.is_empty() {
                    each(head);
                } else {
                    self.line.extend_from_slice(head);
                    each(&self.line);
                }
                self.line.clear();
                self.line.shrink_to(CHUNK);
                rest = &tail[1..];
            }
            if self.passing || self.line.len() + rest.len() > self.longest {
                self.passing = true;
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(rest);
            }
        }
    }

    /// The end of the file without a line feed, once no more will come.
    pub fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.line.is_empty() {
            each(&self.line);
            self.line = Vec::new();
        }
    }
}

/// The last `most` bytes of a file as text; bytes that are not UTF-8 are replaced. Empty when the
/// file is not there.
#[must_use]
pub fn end_of(path: &Path, most: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = regular(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(most)))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_written() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut tail = Tail::open(file.path()).unwrap();
        let mut lines: Vec<String> = Vec::new();
        let long = "x".repeat(3 * CHUNK);
        for part in ["a", "b\nc", "\n\n", &long, "\nend"] {
            file.write_all(part.as_bytes()).unwrap();
            let new = tail
                .read_new(u64::MAX, |line| {
                    lines.push(String::from_utf8(line.to_vec()).unwrap());
                })
                .unwrap();
            assert_eq!((new, tail.pending().unwrap()), (part.len() as u64, 0));
        }
        assert_eq!(lines, ["ab", "c", "", &long]);
        assert!(tail.line.capacity() <= CHUNK);
        tail.finish(|line| lines.push(String::from_utf8(line.to_vec()).unwrap()));
        assert_eq!(lines.last().map(String::as_str), Some("end"));
    }

    #[test]
    fn a_look_reads_no_more_than_it_may() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one\ntwo\nthree\n").unwrap();
        let mut tail = Tail::open(file.path()).unwrap();
        let mut lines: Vec<String> = Vec::new();
        let mut counts = Vec::new();
        for most in [6, 0, 4, u64::MAX] {
            counts.push(
                tail.read_new(most, |line| {
                    lines.push(String::from_utf8(line.to_vec()).unwrap());
                })
                .unwrap(),
            );
            counts.push(tail.pending().unwrap());
        }
        assert_eq!(counts, [6, 8, 0, 8, 4, 4, 4, 0]);
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_by_and_not_kept() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut tail = Tail::open_at(file.path(), 2, 4).unwrap();
        let mut lines: Vec<String> = Vec::new();
        for part in [
            "x\nfour\nfiver\n",
            "a",
            "bcd",
            "e",
            "f\nok\n",
            "toolong",
            "er\n\n",
        ] {
            file.write_all(part.as_bytes()).unwrap();
            tail.read_new(u64::MAX, |line| {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
            })
            .unwrap();
        }
        assert_eq!(lines, ["four", "ok", ""]);
        assert_eq!(tail.position(), file.as_file().metadata().unwrap().len());
    }

    #[test]
    fn the_end_is_bounded() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"0123456789").unwrap();
        assert_eq!(end_of(file.path(), 4), "6789");
        assert_eq!(end_of(Path::new("/nonexistent/file"), 4), "");
    }
}
