//! Appending a line to an inbox, under the lock that every sender takes.

use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use super::throttle::Senders;
use super::{Inbox, LONGEST_LINE, Place, check_own, sha256};
use crate::error::{Error, Kind, Result};
use crate::store::{self, Appender};

/// How long a sender waits for the lock: nobody needs it for longer than a write.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The pause before an inbox that was replaced while we waited is opened again.
const PAUSE: Duration = Duration::from_millis(1);

/// An inbox whose lock we hold, until this value is dropped.
#[derive(Debug)]
pub struct LockedInbox {
    inbox: Inbox,
    appender: Appender,
}

/// A line that was written: what its acks name it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it lies.
    pub place: Place,
    /// sha256 of its exact bytes, its line feed not included.
    pub sha256: String,
    /// How many bytes it has, its line feed included.
    pub length: usize,
}

impl Written {
    /// Where the line lies now: an inbox that was rewritten may still hold it at its offset, in a
    /// file of another inode. Nothing when it does not.
    ///
    /// # Errors
    /// When there is an inbox and it cannot be read.
    pub fn is_still_in(&self, inbox: &Inbox) -> Result<Option<Place>> {
        let lines = inbox.lines();
        match std::fs::symlink_metadata(&lines) {
            // It may have been cut. A line feed that is still to come is no cut.
            Ok(meta) if meta.ino() == self.place.inode => {
                let end = self.place.offset + self.length as u64;
                return Ok((meta.len() + 1 >= end).then_some(self.place));
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("read", &lines, e)),
        }
        let file = store::open_to_read(&lines)?;
        let fail = |e| Error::io("read", &lines, e);
        let meta = file.metadata().map_err(fail)?;
        check_own(&lines, &meta)?;
        let mut bytes = vec![0; self.length];
        match file.read_exact_at(&mut bytes, self.place.offset) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(fail(e)),
        }
        let same = bytes.pop() == Some(b'\n') && sha256(&bytes) == self.sha256;
        Ok(same.then_some(Place {
            inode: meta.ino(),
            offset: self.place.offset,
        }))
    }
}

impl Inbox {
    /// Takes the lock of the lines, and creates the inbox if there is none.
    ///
    /// # Errors
    /// Refused when what is there is not a file of ours, or the lock is held for longer than
    /// `patience`; failed when it cannot be opened or created.
    pub fn lock(&self, patience: Duration) -> Result<LockedInbox> {
        let deadline = Instant::now() + patience;
        let lines = self.lines();
        loop {
            self.create()?;
            let locked = Appender::lock(&lines, deadline, |meta| check_own(&lines, meta));
            let appender = locked.map_err(|error| match error.kind() {
                Kind::Refused if error.hint_text().is_none() => {
                    error.hint("nothing was written; try again")
                }
                _ => error,
            })?;
            if let Some(appender) = appender {
                return Ok(LockedInbox {
                    inbox: self.clone(),
                    appender,
                });
            }
            if Instant::now() >= deadline {
                return Err(Error::refused(format!(
                    "{} is replaced again and again",
                    lines.display()
                )));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl LockedInbox {
    /// Appends a line, its line feed included, in one write.
    ///
    /// # Errors
    /// Refused when it is no line of an inbox; failed when it could not be written whole, and
    /// then it does not count as written.
    pub fn append(&mut self, line: &[u8]) -> Result<Written> {
        let Some((b'\n', text)) = line.split_last() else {
            return Err(Error::refused("a line of an inbox ends in a line feed"));
        };
        if text.is_empty() || text.contains(&b'\n') || line.len() > LONGEST_LINE {
            return Err(Error::refused(format!(
                "a line of an inbox has a text, no line feed in it, and at most {LONGEST_LINE} bytes"
            )));
        }
        let offset = self.appender.append(line)?;
        Ok(Written {
            place: Place {
                inode: self.appender.inode(),
                offset,
            },
            sha256: sha256(text),
            length: line.len(),
        })
    }

    /// When each sender last wrote. Who holds the lock may read and change it.
    #[must_use]
    pub fn senders(&self) -> Senders {
        Senders::read(self.inbox.senders())
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use super::super::tests::scratch;
    use super::*;

    #[test]
    fn a_line_lies_where_it_is_said_to_lie() {
        let (_folder, inbox) = scratch();
        let mut locked = inbox.lock(PATIENCE).unwrap();
        let first = locked.append(b"one\n").unwrap();
        let second = locked.append(b"second\n").unwrap();
        drop(locked);
        std::fs::write(inbox.lines(), "one\nsecond\ntorn").unwrap();
        let third = inbox.lock(PATIENCE).unwrap().append(b"third\n").unwrap();
        let text = std::fs::read(inbox.lines()).unwrap();
        assert_eq!(text, b"one\nsecond\ntorn\nthird\n");
        assert_eq!(std::fs::read(inbox.offset()).unwrap(), b"0");
        let inode = std::fs::metadata(inbox.lines()).unwrap().ino();
        for (written, line) in [(first, "one"), (second, "second"), (third, "third")] {
            let at = usize::try_from(written.place.offset).unwrap();
            assert!(text[at..].starts_with(format!("{line}\n").as_bytes()));
            assert_eq!(written.place.inode, inode);
            assert_eq!(written.sha256, sha256(line.as_bytes()));
        }
    }

    #[test]
    fn a_rewritten_inbox_holds_the_line_or_it_does_not() {
        let (_folder, inbox) = scratch();
        let mut locked = inbox.lock(PATIENCE).unwrap();
        locked.append(b"one\n").unwrap();
        let written = locked.append(b"two\n").unwrap();
        assert_eq!(written.is_still_in(&inbox).unwrap(), Some(written.place));
        for (text, there) in [
            ("ONE\ntwo\n", true),
            ("two\n", false),
            ("one\nTWO\n", false),
        ] {
            let beside = inbox.lines().with_extension("new");
            std::fs::write(&beside, text).unwrap();
            let inode = std::fs::metadata(&beside).unwrap().ino();
            std::fs::rename(beside, inbox.lines()).unwrap();
            let found = written.is_still_in(&inbox).unwrap();
            let expected = there.then_some(Place { inode, offset: 4 });
            assert_eq!(found, expected, "{text:?}");
        }
        let there = Written {
            place: Place {
                inode: std::fs::metadata(inbox.lines()).unwrap().ino(),
                ..written.place
            },
            ..written.clone()
        };
        assert!(there.is_still_in(&inbox).unwrap().is_some());
        std::fs::write(inbox.lines(), "one\n").unwrap();
        assert_eq!(there.is_still_in(&inbox).unwrap(), None);
        std::fs::remove_file(inbox.lines()).unwrap();
        assert_eq!(written.is_still_in(&inbox).unwrap(), None);
    }

    #[test]
    fn what_is_no_line_is_not_written() {
        let (_folder, inbox) = scratch();
        let mut locked = inbox.lock(PATIENCE).unwrap();
        let long = [&vec![b'x'; LONGEST_LINE][..], b"\n"].concat();
        for line in [&b""[..], b"x", b"\n", b"a\nb\n", &long] {
            assert_eq!(locked.append(line).unwrap_err().kind(), Kind::Refused);
        }
        locked.append(&long[1..]).unwrap();
        assert_eq!(
            std::fs::metadata(inbox.lines()).unwrap().len(),
            LONGEST_LINE as u64
        );
    }

    #[test]
    fn a_lock_that_is_kept_is_not_waited_for_for_ever() {
        let (_folder, inbox) = scratch();
        let _held = inbox.lock(PATIENCE).unwrap();
        let error = inbox.lock(Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), Kind::Refused);
        assert!(error.to_string().contains(".inbox"), "{error}");
    }
}
