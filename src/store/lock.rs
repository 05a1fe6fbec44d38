//! `flock` locks: taken without waiting, held by a value, never unlinked.
//!
//! A lock lives in a descriptor, so the kernel gives it back whatever kills its holder. The
//! descriptor is close-on-exec: no child can hold the lock for a dead parent.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::Error;

/// A lock that is held until this value is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
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
    /// Takes the lock at `path` if nobody holds it; creates the file (0600) when it is missing.
    ///
    /// # Errors
    /// [`LockError::Held`] when somebody has it, [`LockError::Broken`] when it cannot be used.
    pub fn try_take(path: &Path) -> Result<Self, LockError> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(LockError::Held),
            Err(TryLockError::Error(e)) => {
                Err(LockError::Broken(Error::io("take the lock", path, e)))
            }
        }
    }

    /// Takes the lock at `path`, however long another one holds it. For a thread of its own.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn wait(path: &Path) -> Result<Self, LockError> {
        let file = open(path)?;
        let locked = file.lock();
        locked.map_err(|e| LockError::Broken(Error::io("take the lock", path, e)))?;
        Ok(Self { _file: file })
    }
}

fn open(path: &Path) -> Result<File, LockError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
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
