//! Following the acks of one line.
//!
//! Only what is appended after the follower was made is read: the acks of years may lie before,
//! and none of them is about a line that is still to be written.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{Ack, Inbox, Written, check_own};
use crate::error::{Error, Result};
use crate::store::{self, Tail};

/// Reads the acks as they come.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    tail: Tail,
}

impl Follower {
    /// Begins at the end of the acks, which are created if there are none.
    ///
    /// # Errors
    /// Refused when what is there is not a file of ours; failed when it cannot be opened.
    pub fn new(inbox: &Inbox) -> Result<Self> {
        let path = inbox.acks();
        match store::create_appending(&path) {
            Ok(_) => {}
            Err(e) if e.io_kind() == Some(io::ErrorKind::AlreadyExists) => {}
            Err(e) => return Err(e),
        }
        let fail = |e| Error::io("read", &path, e);
        check_own(&path, &std::fs::symlink_metadata(&path).map_err(fail)?)?;
        let file = store::open_to_read(&path)?;
        check_own(&path, &file.metadata().map_err(fail)?)?;
        let tail = Tail::at_end(file).map_err(fail)?;
        Ok(Self { path, tail })
    }

    /// The last ack of a line among those that are new. Lines that are no acks are passed by.
    ///
    /// # Errors
    /// When the acks cannot be read.
    pub fn newest(&mut self, line: &Written) -> Result<Option<Ack>> {
        let mut newest = None;
        self.tail
            .read_new(u64::MAX, |bytes| {
                let ack: Option<Ack> = serde_json::from_slice(bytes).ok();
                newest = ack.filter(|ack| is_about(ack, line)).or(newest.take());
            })
            .map_err(|e| Error::io("read", &self.path, e))?;
        Ok(newest)
    }

    /// Begins again at the start if the acks were replaced or cut. Whether it did.
    ///
    /// # Errors
    /// When there are none any more, or they cannot be opened.
    pub fn reopen_if_replaced(&mut self) -> Result<bool> {
        let fail = |e| Error::io("read", &self.path, e);
        let ours = self.tail.file().metadata().map_err(fail)?;
        let there = std::fs::symlink_metadata(&self.path).map_err(fail)?;
        let same = (ours.ino(), ours.dev()) == (there.ino(), there.dev());
        if same && self.tail.position() <= ours.len() {
            return Ok(false);
        }
        check_own(&self.path, &there)?;
        self.tail = Tail::of_file(store::open_to_read(&self.path)?);
        Ok(true)
    }

    /// Where they lie.
    #[must_use]
    pub const fn path(&self) -> &PathBuf {
        &self.path
    }
}

fn is_about(ack: &Ack, line: &Written) -> bool {
    ack.line_offset == line.place.offset
        && ack.inode == line.place.inode
        && ack.sha256 == line.sha256
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::super::tests::scratch;
    use super::super::{LineState, Place};
    use super::*;
    use crate::error::Kind;

    fn line() -> Written {
        Written {
            place: Place {
                inode: 5,
                offset: 70,
            },
            sha256: "ab".to_owned(),
            length: 9,
        }
    }

    fn ack(state: &str, offset: u64, inode: u64, hash: &str) -> String {
        format!(
            "{{\"state\":\"{state}\",\"line_offset\":{offset},\"inode\":{inode},\"sha256\":\"{hash}\"}}\n"
        )
    }

    fn write(inbox: &Inbox, text: &str) {
        let mut file = OpenOptions::new().append(true).open(inbox.acks()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn only_exactly_that_line_counts_and_the_last_word() {
        let (_folder, inbox) = scratch();
        std::fs::write(inbox.acks(), ack("seen", 70, 5, "ab")).unwrap();
        let mut follower = Follower::new(&inbox).unwrap();
        assert_eq!(follower.newest(&line()).unwrap(), None);
        for other in [
            ack("seen", 71, 5, "ab"),
            ack("seen", 70, 6, "ab"),
            ack("seen", 70, 5, "ac"),
            ack("seen", 70, 5, ""),
            "{\"torn\n".to_owned(),
            "\n".to_owned(),
        ] {
            write(&inbox, &other);
            assert_eq!(follower.newest(&line()).unwrap(), None, "{other}");
        }
        write(&inbox, &ack("offered", 70, 5, "ab"));
        write(&inbox, &ack("accepted", 70, 5, "ab"));
        write(&inbox, &ack("seen", 0, 5, "ab"));
        let found = follower.newest(&line()).unwrap().unwrap();
        assert_eq!(found.state, LineState::Accepted);
        let whole = ack("seen", 70, 5, "ab");
        write(&inbox, &whole[..20]);
        assert_eq!(follower.newest(&line()).unwrap(), None);
        write(&inbox, &whole[20..]);
        let found = follower.newest(&line()).unwrap().unwrap();
        assert_eq!(found.state, LineState::Seen);
    }

    #[test]
    fn acks_that_were_replaced_or_cut_are_read_from_their_start() {
        let (_folder, inbox) = scratch();
        let mut follower = Follower::new(&inbox).unwrap();
        assert!(!follower.reopen_if_replaced().unwrap());
        write(&inbox, &ack("offered", 70, 5, "ab").repeat(2));
        assert!(follower.newest(&line()).unwrap().is_some());
        std::fs::write(inbox.acks(), ack("accepted", 70, 5, "ab")).unwrap();
        assert!(follower.reopen_if_replaced().unwrap());
        assert!(follower.newest(&line()).unwrap().is_some());
        std::fs::remove_file(inbox.acks()).unwrap();
        assert!(follower.reopen_if_replaced().is_err());
        std::fs::write(inbox.acks(), ack("seen", 70, 5, "ab")).unwrap();
        assert!(follower.reopen_if_replaced().unwrap());
        let found = follower.newest(&line()).unwrap().unwrap();
        assert_eq!(found.state, LineState::Seen);
    }

    #[test]
    fn what_is_no_file_of_ours_is_refused() {
        let (folder, inbox) = scratch();
        std::os::unix::fs::symlink(folder.path().join("x"), inbox.acks()).unwrap();
        assert_eq!(Follower::new(&inbox).unwrap_err().kind(), Kind::Refused);
        std::fs::remove_file(inbox.acks()).unwrap();
        std::fs::create_dir(inbox.acks()).unwrap();
        assert_eq!(Follower::new(&inbox).unwrap_err().kind(), Kind::Refused);
    }
}
