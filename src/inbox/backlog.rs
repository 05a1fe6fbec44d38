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
mod tests;
