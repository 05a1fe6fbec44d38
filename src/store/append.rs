//! Appending to a file of lines that several programs append to, under a lock on the file itself.
//!
//! - A line is one write on an `O_APPEND` descriptor, and its place is taken from where the
//!   descriptor stands afterwards: right even when somebody wrote without the lock.
//! - What was written is never taken back: a reader may stand behind it already. A line that a
//!   full disk cut short has no line feed and so does not count; the next writer closes it.
//! - The room for a line is asked for before it is written, so that a full disk is told before
//!   half a line is there.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use super::file::open_to_append;
use crate::error::{Error, Result};

/// The pause before a lock that is held is asked for again.
const PAUSE: Duration = Duration::from_millis(5);

/// A file of lines whose lock we hold, until this value is dropped.
#[derive(Debug)]
pub struct Appender {
    file: File,
    path: PathBuf,
    inode: u64,
}

impl Appender {
    /// Opens the file and takes its lock, waiting for it no longer than until `deadline`. `check`
    /// looks at what was opened. Nothing when the file was replaced or removed meanwhile: then it
    /// has to be made again.
    ///
    /// # Errors
    /// Refused when the lock is held until the deadline; else what opening and `check` say.
    pub fn lock(
        path: &Path,
        deadline: Instant,
        check: impl FnOnce(&std::fs::Metadata) -> Result<()>,
    ) -> Result<Option<Self>> {
        let file = match open_to_append(path) {
            Ok(file) => file,
            Err(e) if e.io_kind() == Some(io::ErrorKind::NotFound) => return Ok(None),
            Err(e) => return Err(e),
        };
        let meta = file.metadata().map_err(|e| Error::io("read", path, e))?;
        check(&meta)?;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::refused(format!(
                        "somebody else keeps {} locked",
                        path.display()
                    )));
                }
                Err(TryLockError::Error(e)) => return Err(Error::io("lock", path, e)),
            }
        }
        let there = std::fs::symlink_metadata(path);
        let same = there.is_ok_and(|now| now.ino() == meta.ino() && now.dev() == meta.dev());
        Ok(same.then(|| Self {
            file,
            path: path.to_owned(),
            inode: meta.ino(),
        }))
    }

    /// The inode of the file.
    #[must_use]
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// Appends a line, which ends in its line feed, and returns the offset of its first byte. If
    /// the file ends in the middle of a line, a line feed is written in front.
    ///
    /// # Errors
    /// When it cannot be written whole; then it does not count as written.
    pub fn append(&mut self, line: &[u8]) -> Result<u64> {
        let path = self.path.clone();
        let path = path.as_path();
        let fail = |act| move |e| Error::io(act, path, e);
        let torn = ends_torn(&mut self.file).map_err(fail("read"))?;
        let closed;
        let bytes = if torn {
            closed = [b"\n", line].concat();
            &closed[..]
        } else {
            line
        };
        self.reserve(bytes.len()).map_err(fail("append to"))?;
        let written = loop {
            match self.file.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                written => break written.map_err(fail("append to"))?,
            }
        };
        // A line that lacks nothing but its line feed counts: the next writer completes it.
        if written + 1 < bytes.len() {
            return Err(Error::failed(format!(
                "cannot append to {}: only {written} of {} bytes could be written, which count for nothing",
                self.path.display(),
                bytes.len()
            )));
        }
        let end = self.file.stream_position().map_err(fail("read"))?;
        Ok(end - (written - usize::from(torn)) as u64)
    }

    /// Asks for room at the end of the file; it does not grow by this.
    fn reserve(&self, bytes: usize) -> io::Result<()> {
        let end = self.file.metadata()?.len();
        let signed = |number: u64| i64::try_from(number).map_err(io::Error::other);
        let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match fallocate(&self.file, keep, signed(end)?, signed(bytes as u64)?) {
            Err(errno @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)) => Err(errno.into()),
            // Not every file system can; the write itself will tell.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Whether a file has an end without a line feed.
pub(super) fn ends_torn(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write what others wrote")]
mod tests {
    use std::fs;

    use super::*;
    use crate::error::Kind;

    fn lock(path: &Path, patience: Duration) -> Result<Option<Appender>> {
        Appender::lock(path, Instant::now() + patience, |_| Ok(()))
    }

    #[test]
    fn lines_are_appended_where_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        assert!(lock(&path, Duration::ZERO).unwrap().is_none());
        // before, offset, after
        let table = [
            ("", 0, "new\n"),
            ("old\n", 4, "old\nnew\n"),
            ("torn", 5, "torn\nnew\n"),
            ("old\ntorn", 9, "old\ntorn\nnew\n"),
        ];
        for (before, offset, after) in table {
            fs::write(&path, before).unwrap();
            let mut appender = lock(&path, Duration::ZERO).unwrap().unwrap();
            assert_eq!(appender.append(b"new\n").unwrap(), offset, "{before:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn the_lock_keeps_others_out_and_their_patience_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        fs::write(&path, "").unwrap();
        let held = lock(&path, Duration::ZERO).unwrap().unwrap();
        let error = lock(&path, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), Kind::Refused);
        drop(held);
        assert!(lock(&path, Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn a_file_that_was_replaced_meanwhile_is_not_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        fs::write(&path, "").unwrap();
        let held = lock(&path, Duration::ZERO).unwrap().unwrap();
        let waiting = {
            let path = path.clone();
            std::thread::spawn(move || {
                let deadline = Instant::now() + Duration::from_secs(20);
                Appender::lock(&path, deadline, |_| Ok(())).unwrap()
            })
        };
        // The other one has it open or will open the new one: either way it ends on the new one.
        std::thread::sleep(Duration::from_millis(30));
        fs::write(folder.path().join("new"), "").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        drop(held);
        let found = waiting.join().unwrap();
        assert!(found.is_none_or(|found| found.inode() == inode));
    }

    #[test]
    fn a_link_is_not_followed_and_a_pipe_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let real = folder.path().join("real");
        fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, &path).unwrap();
        assert!(lock(&path, Duration::ZERO).is_err());
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refuse = |meta: &fs::Metadata| {
            if meta.is_file() {
                return Ok(());
            }
            Err(Error::refused("no file"))
        };
        assert!(Appender::lock(&path, Instant::now(), refuse).is_err());
    }
}
