//! Waiting for and signalling exactly one process, whatever becomes of its number.

use std::io;
use std::os::fd::OwnedFd;

pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use super::process::Identity;
use super::readiness;

/// A handle on one process.
#[derive(Debug)]
pub struct PidFd {
    fd: AsyncFd<OwnedFd>,
}

impl PidFd {
    /// Opens a handle on the process that has this pid now. For a child that was not yet waited
    /// for, and for a parent, that is the right one.
    ///
    /// # Errors
    /// When there is no such process, or outside a tokio runtime.
    pub fn open(pid: i32) -> io::Result<Self> {
        Ok(Self {
            fd: readiness::readable(open(pid)?)?,
        })
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub async fn ended(&self) -> io::Result<()> {
        // A pidfd stays readable once its process has ended, so readiness is never cleared.
        self.fd.readable().await.map(drop)
    }
}

/// Sends a signal to exactly this process; nothing happens when it is gone or was replaced.
pub fn signal(target: &Identity, signal: Signal) {
    // First the handle, then the look at the start time: the pid cannot change hands in between.
    if let Ok(fd) = open(target.pid)
        && target.lives()
    {
        // It may end at any moment; a signal that comes too late is no fault.
        let _ = pidfd_send_signal(fd, signal);
    }
}

fn open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}
