//! `flock` locks: taken without waiting, held by a value, never unlinked.
//!
//! A lock lives in a descriptor, so the kernel gives it back whatever kills its holder. The
//! descriptor is close-on-exec: no child can hold the lock for a dead parent.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

use crate::error::Error;

/// A lock that is held until this value is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// Why a lock was not taken. "In use" and "cannot be used" are different answers.
#[derive(Debug)]
pub enum LockError {
    /// Somebody holds it.
    Held,
    /// The lock file cannot be opened or locked.
    Broken(Error),
}

impl Lock {
    /// Whether the lock file is still the one at `path`. Nobody unlinks it, but a cleaner that
    /// does would let a second holder in.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        let there = std::fs::symlink_metadata(path);
        matches!((self.file.metadata(), there), (Ok(own), Ok(there))
            if (own.dev(), own.ino()) == (there.dev(), there.ino()))
    }

    /// Takes the lock at `path` if nobody holds it; creates the file (0600) when it is missing.
    ///
    /// # Errors
    /// [`LockError::Held`] when somebody has it, [`LockError::Broken`] when it cannot be used.
    pub fn try_take(path: &Path) -> Result<Self, LockError> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(LockError::Held),
            Err(TryLockError::Error(e)) => {
                Err(LockError::Broken(Error::io("take the lock", path, e)))
            }
        }
    }

    /// The process that holds the lock at `path`, as far as the kernel shows it.
    #[must_use]
    pub fn holder(path: &Path) -> Option<i32> {
        let inode = std::fs::metadata(path).ok()?.ino();
        holder_in(&std::fs::read_to_string("/proc/locks").ok()?, inode)
    }

    /// Takes the lock at `path`, however long another one holds it. For a thread of its own.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn wait(path: &Path) -> Result<Self, LockError> {
        let file = open(path)?;
        let locked = file.lock();
        locked.map_err(|e| LockError::Broken(Error::io("take the lock", path, e)))?;
        Ok(Self { file })
    }
}

/// The one process with a `flock` on this inode, in the form of proc(5)'s `locks`. The device in it
/// is not the one that files show on every file system, so it is not looked at; where two files
/// with one inode are locked, nobody is named.
fn holder_in(locks: &str, inode: u64) -> Option<i32> {
    let mut holders = locks.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        // A line of somebody who waits has an arrow here.
        (words.next()? == "FLOCK").then_some(())?;
        let pid: i32 = words.nth(2)?.parse().ok()?;
        let of: u64 = words.next()?.rsplit_once(':')?.1.parse().ok()?;
        (of == inode && pid > 0).then_some(pid)
    });
    let holder = holders.next()?;
    holders.next().is_none().then_some(holder)
}

fn open(path: &Path) -> Result<File, LockError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // A link in its place would lock, and make, a file of somebody else's choice.
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
        // Who can only read may look all the same, and has to keep others out meanwhile.
        .or_else(|e| match e.kind() {
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                File::open(path).map_err(|_| e)
            }
            _ => Err(e),
        })
        .map_err(|e| LockError::Broken(Error::io("open the lock", path, e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_the_process_that_took_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert_eq!(Lock::holder(&path), None);
        let lock = Lock::try_take(&path).unwrap();
        assert_eq!(Lock::holder(&path), Some(nix::unistd::getpid().as_raw()));
        drop(lock);
        assert_eq!(Lock::holder(&path), None);
    }

    #[test]
    fn only_a_flock_that_is_held_counts() {
        let text = "1: POSIX  ADVISORY  WRITE 11 08:01:7 0 EOF\n\
                    2: FLOCK  ADVISORY  WRITE 12 08:01:8 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 13 08:01:8 0 EOF\n\
                    3: FLOCK  ADVISORY  WRITE 14 00:2a:9 0 EOF\n\
                    4: FLOCK  ADVISORY  WRITE 15 00:2b:9 0 EOF\n\
                    5: FLOCK  ADVISORY  WRITE 0 00:2b:10 0 EOF\n";
        for (inode, expected) in [(7, None), (8, Some(12)), (9, None), (10, None), (11, None)] {
            assert_eq!(holder_in(text, inode), expected, "{inode}");
        }
    }
}
