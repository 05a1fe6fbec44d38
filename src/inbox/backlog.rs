//! What waits in an inbox: its lines from the offset on, less those that acks tell to be handled.
//!
//! - The offset is the earliest byte not handled. One that is garbage, lies behind the end or
//!   inside a line, or was written for a file that was replaced says nothing: then reading begins
//!   at the start, and the acks tell.
//! - An ack speaks of a line by inode, offset and sha256. All three have to fit: a file that was
//!   replaced, or cut and written anew, has other lines.
//! - Nothing is held but the line that is being read; a line of gigabytes is hashed as it comes.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::message::{self, Message, Place, Refusal};
use super::past::{self, Last, Past};
use super::{Ack, Inbox, LONGEST_LINE, check};
use crate::error::{Error, Result};
use crate::store;

const CHUNK: usize = 64 * 1024;

/// A line that is not handled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it lies.
    pub place: Place,
    /// Its length in bytes, with its line feed.
    pub length: u64,
    /// sha256 of its bytes without the line feed.
    pub sha256: String,
    /// What it says, or why it cannot be carried.
    pub message: std::result::Result<Message, Refusal>,
    /// The last ack of it, if something was begun.
    pub ack: Option<Ack>,
}

/// A reader of an inbox.
#[derive(Debug)]
pub struct Backlog {
    file: File,
    inode: u64,
    /// Where the line that is being read begins.
    start: u64,
    /// What is there of it, if it is not too long.
    line: Vec<u8>,
    /// The hash of a line that is too long, and its length so far.
    passing: Option<(Sha256, u64)>,
    /// The last acks of lines that were not read yet.
    acks: HashMap<u64, Ack>,
    past: Past,
    rebuilt: bool,
}

impl Backlog {
    /// Opens an inbox for reading; nothing when there is none.
    ///
    /// # Errors
    /// Refused when what is there is no file of ours; failed when it, its offset or its acks
    /// cannot be read.
    pub fn open(inbox: &Inbox) -> Result<Option<Self>> {
        let path = inbox.lines();
        if !check(&path)? {
            return Ok(None);
        }
        let fail = |e| Error::io("read", &path, e);
        // A link that took its place since is not followed.
        let file = store::open_to_read(&path)?;
        let meta = file.metadata().map_err(fail)?;
        let told = read_offset(&inbox.offset())?;
        let (mut acks, past, last) = past::read(&inbox.acks(), meta.ino())?;
        let of_another = match last {
            Last::None => false,
            Last::OfAnother => true,
            Last::Of(at) => match acks.get(&at) {
                Some(ack) => !fits(&file, ack, meta.len()).map_err(fail)?,
                None => false,
            },
        };
        let offset = match told {
            Offset::At(_) if of_another => None,
            Offset::At(at) if is_start_of_line(&file, at, meta.len()).map_err(fail)? => Some(at),
            Offset::At(_) | Offset::Garbage | Offset::None => None,
        };
        acks.retain(|at, _| *at >= offset.unwrap_or(0));
        Ok(Some(Self {
            file,
            inode: meta.ino(),
            start: offset.unwrap_or(0),
            line: Vec::new(),
            passing: None,
            acks,
            past,
            // No offset at all is how a foreign writer creates an inbox.
            rebuilt: offset.is_none() && told != Offset::None,
        }))
    }

    /// The inode that this reads.
    #[must_use]
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// The first byte of the first line that was not read.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.start
    }

    /// What the acks told when it was opened.
    #[must_use]
    pub const fn past(&self) -> &Past {
        &self.past
    }

    /// Hands over what the acks told; it is not needed for reading.
    pub fn take_past(&mut self) -> Past {
        std::mem::take(&mut self.past)
    }

    /// Whether the offset was no use, so that lines may come up again that were handled.
    #[must_use]
    pub const fn rebuilt(&self) -> bool {
        self.rebuilt
    }

    /// Whether the inbox is still the file that this reads, and as long as it was.
    #[must_use]
    pub fn is_current(&self, inbox: &Inbox) -> bool {
        std::fs::symlink_metadata(inbox.lines())
            .is_ok_and(|meta| meta.ino() == self.inode && meta.len() >= self.end())
    }

    /// Reads up to about `most` bytes of what was not read, and hands out each whole line that is
    /// not handled. Returns how many bytes were read; 0 means that the end was reached.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_new(&mut self, most: u64, mut each: impl FnMut(Entry)) -> io::Result<u64> {
        let mut chunk = vec![0; CHUNK];
        let mut total = 0;
        while total < most {
            let count = match self.file.read_at(&mut chunk, self.end()) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            total += count as u64;
            let mut rest = &chunk[..count];
            while let Some(at) = memchr::memchr(b'\n', rest) {
                self.take(&rest[..at]);
                if let Some(entry) = self.finish_line() {
                    each(entry);
                }
                rest = &rest[at + 1..];
            }
            self.take(rest);
        }
        Ok(total)
    }

    /// The message of a line that was read before. Nothing when there is another line there now.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn message(&self, offset: u64, length: u64) -> io::Result<Option<(Message, String)>> {
        let mut line = vec![
            0;
            usize::try_from(length)
                .unwrap_or(LONGEST_LINE)
                .min(LONGEST_LINE)
        ];
        match self.file.read_exact_at(&mut line, offset) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e),
        }
        if memchr::memchr(b'\n', &line) != Some(line.len() - 1) {
            return Ok(None);
        }
        line.pop();
        let place = Place {
            inode: self.inode,
            offset,
        };
        let message = Message::decode(&line, place).ok().flatten();
        Ok(message.map(|message| (message, message::sha256(&line))))
    }

    /// How far the file was read.
    fn end(&self) -> u64 {
        let length = match &self.passing {
            Some((_, length)) => *length,
            None => self.line.len() as u64,
        };
        self.start + length
    }

    fn take(&mut self, piece: &[u8]) {
        if let Some((hash, length)) = &mut self.passing {
            hash.update(piece);
            *length += piece.len() as u64;
        } else if self.line.len() + piece.len() < LONGEST_LINE {
            self.line.extend_from_slice(piece);
        } else {
            let hash = Sha256::new().chain_update(&self.line).chain_update(piece);
            let length = self.line.len() + piece.len();
            self.passing = Some((hash, length as u64));
            self.line = Vec::new();
        }
    }

    /// The line feed came.
    fn finish_line(&mut self) -> Option<Entry> {
        let place = Place {
            inode: self.inode,
            offset: self.start,
        };
        let length = self.end() - self.start + 1;
        self.start += length;
        let ack = self.acks.remove(&place.offset);
        let (sha256, message) = match self.passing.take() {
            Some((hash, length)) => (
                message::hex(&hash.finalize()),
                Err(message::too_long(length.saturating_add(1))),
            ),
            None => {
                let message = Message::decode(&self.line, place);
                let sha256 = message::sha256(&self.line);
                self.line.clear();
                self.line.shrink_to(CHUNK);
                (sha256, message.transpose()?)
            }
        };
        let ack = ack.filter(|ack| ack.sha256 == sha256);
        if ack.as_ref().is_some_and(Ack::handled) {
            return None;
        }
        Some(Entry {
            place,
            length,
            sha256,
            message,
            ack,
        })
    }
}

/// What an offset file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offset {
    At(u64),
    Garbage,
    None,
}

fn read_offset(path: &Path) -> Result<Offset> {
    match store::read_file(path) {
        Ok(bytes) => Ok(std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .map_or(Offset::Garbage, Offset::At)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Offset::None),
        Err(e) => Err(Error::io("read", path, e)),
    }
}

fn is_start_of_line(file: &File, offset: u64, length: u64) -> io::Result<bool> {
    if offset == 0 || offset > length {
        return Ok(offset == 0);
    }
    let mut before = [0];
    file.read_exact_at(&mut before, offset - 1)?;
    Ok(before == *b"\n")
}

/// Whether the line that an ack is about is still there: a file that was cut and written anew may
/// be as long as it was.
fn fits(file: &File, ack: &Ack, length: u64) -> io::Result<bool> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    let mut at = ack.line_offset;
    while at < length {
        let count = match file.read_at(&mut chunk, at) {
            Ok(0) => break,
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if let Some(end) = memchr::memchr(b'\n', &chunk[..count]) {
            hash.update(&chunk[..end]);
            return Ok(message::hex(&hash.finalize()) == ack.sha256);
        }
        hash.update(&chunk[..count]);
        at += count as u64;
    }
    Ok(false)
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use std::io::Write;

    use uuid::Uuid;

    use super::super::tests::scratch;
    use super::super::{AckClass, LineState};
    use super::*;

    fn append(inbox: &Inbox, text: &[u8]) {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(inbox.lines())
            .unwrap();
        file.write_all(text).unwrap();
    }

    fn texts(backlog: &mut Backlog) -> Vec<(u64, String)> {
        let mut found = Vec::new();
        let mut take = |entry: Entry| {
            let text = match entry.message {
                Ok(message) => message.text,
                Err(Refusal(reason)) => format!("refused: {reason}"),
            };
            found.push((entry.place.offset, text));
        };
        while backlog.read_new(1, &mut take).unwrap() > 0 {}
        found
    }

    fn open(inbox: &Inbox) -> Backlog {
        Backlog::open(inbox).unwrap().unwrap()
    }

    fn ack(inbox: &Inbox, text: &str, offset: u64, state: &str, class: &str) -> String {
        let inode = std::fs::metadata(inbox.lines()).unwrap().ino();
        format!(
            "{{\"class\":{class},\"state\":\"{state}\",\"line_offset\":{offset},\"inode\":{inode},\"sha256\":\"{}\"}}\n",
            message::sha256(text.as_bytes())
        )
    }

    #[test]
    fn whole_lines_are_read_as_they_come() {
        let (_folder, inbox) = scratch();
        assert!(Backlog::open(&inbox).unwrap().is_none());
        append(&inbox, b"one\n\ntw");
        let mut backlog = open(&inbox);
        assert_eq!(texts(&mut backlog), [(0, "one".to_owned())]);
        assert_eq!(backlog.position(), 5);
        append(&inbox, b"o\n\xff\n");
        let refused = "refused: not UTF-8 at byte 0 of the line".to_owned();
        assert_eq!(texts(&mut backlog), [(5, "two".to_owned()), (9, refused)]);
        assert!(backlog.is_current(&inbox));
        let (message, sha256) = backlog.message(5, 4).unwrap().unwrap();
        assert_eq!(
            (message.text.as_str(), sha256),
            ("two", message::sha256(b"two"))
        );
        for (offset, length) in [(5, 3), (4, 4), (5, 5), (90, 4)] {
            assert_eq!(backlog.message(offset, length).unwrap(), None, "{offset}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_hashed_and_passed() {
        let (_folder, inbox) = scratch();
        let long = vec![b'x'; LONGEST_LINE];
        for part in [&b"one\n"[..], &long, b"\n", &long[1..], b"\nend\n"] {
            append(&inbox, part);
        }
        let mut entries = Vec::new();
        open(&inbox)
            .read_new(u64::MAX, |entry| entries.push(entry))
            .unwrap();
        let lengths: Vec<u64> = entries.iter().map(|entry| entry.length).collect();
        let most = LONGEST_LINE as u64;
        assert_eq!(lengths, [4, most + 1, most, 4]);
        assert!(entries[1].message.is_err() && entries[2].message.is_ok());
        assert_eq!(entries[1].sha256, message::sha256(&long));
    }

    #[test]
    fn the_offset_counts_when_it_is_the_start_of_a_line() {
        let all = [(0, "one".to_owned()), (4, "two".to_owned())];
        let table = [
            (None, &all[..], false),
            (Some("0"), &all[..], false),
            (Some("4\n"), &all[1..], false),
            (Some("8"), &[], false),
            (Some("3"), &all[..], true),
            (Some("9"), &all[..], true),
            (Some("-1"), &all[..], true),
            (Some("garbage"), &all[..], true),
            (Some(""), &all[..], true),
        ];
        for (offset, expected, rebuilt) in table {
            let (_folder, inbox) = scratch();
            append(&inbox, b"one\ntwo\n");
            if let Some(offset) = offset {
                std::fs::write(inbox.offset(), offset).unwrap();
            }
            let mut backlog = open(&inbox);
            assert_eq!(backlog.rebuilt(), rebuilt, "{offset:?}");
            assert_eq!(texts(&mut backlog), expected, "{offset:?}");
        }
    }

    #[test]
    fn acks_tell_what_was_handled_if_they_fit_the_line() {
        let (_folder, inbox) = scratch();
        append(&inbox, b"one\ntwo\ntri\nfor\nfiv\n");
        let id = "\"msg_id\":\"00000000-0000-0000-0000-000000000005\",";
        let acks = [
            ack(&inbox, "one", 0, "offered", "null"),
            ack(&inbox, "one", 0, "seen", "\"delivered-steer\"").replacen(
                '{',
                &format!("{{{id}"),
                1,
            ),
            ack(&inbox, "another", 4, "seen", "\"delivered-start\""),
            ack(&inbox, "tri", 8, "seen", "null").replace("\"inode\":", "\"inode\":9"),
            ack(&inbox, "for", 12, "queued", "\"refused\""),
            ack(&inbox, "fiv", 16, "accepted", "null"),
            "{\"torn\n".to_owned(),
        ];
        std::fs::write(inbox.acks(), acks.concat()).unwrap();
        let mut backlog = open(&inbox);
        let past = backlog.past();
        assert_eq!((past.delivered, past.bad), (3, 1));
        let seen = past.seen.get(&Uuid::from_u128(5));
        assert_eq!(seen, Some(&Some(AckClass::DeliveredSteer)));
        let mut entries = Vec::new();
        backlog
            .read_new(u64::MAX, |entry| entries.push(entry))
            .unwrap();
        let found: Vec<_> = entries
            .iter()
            .map(|entry| (entry.place.offset, entry.ack.as_ref().map(|ack| ack.state)))
            .collect();
        let expected = [(4, None), (8, None), (16, Some(LineState::Accepted))];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_offset_counts_only_while_the_last_ack_fits_its_line() {
        let (_folder, inbox) = scratch();
        append(&inbox, b"one\n");
        std::fs::write(inbox.acks(), ack(&inbox, "one", 0, "seen", "null")).unwrap();
        std::fs::write(inbox.offset(), "4").unwrap();
        assert_eq!(texts(&mut open(&inbox)), []);
        // Cut, and as long again with another line.
        std::fs::write(inbox.lines(), "two\n").unwrap();
        let mut backlog = open(&inbox);
        assert!(backlog.rebuilt());
        assert_eq!(texts(&mut backlog), [(0, "two".to_owned())]);
    }

    #[test]
    fn a_file_that_was_replaced_or_cut_is_noticed() {
        let (_folder, inbox) = scratch();
        append(&inbox, b"one\ntwo");
        let mut backlog = open(&inbox);
        texts(&mut backlog);
        assert!(backlog.is_current(&inbox));
        std::fs::write(inbox.lines(), "one\ntw").unwrap();
        assert!(!backlog.is_current(&inbox));
        std::fs::remove_file(inbox.lines()).unwrap();
        assert!(!backlog.is_current(&inbox));
        append(&inbox, b"one\ntwo\nthree\n");
        assert!(!backlog.is_current(&inbox));
    }
}
