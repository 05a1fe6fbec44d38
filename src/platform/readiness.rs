//! Registering a descriptor with the runtime.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor for being read.
///
/// # Errors
/// When the kernel cannot poll it, or outside a tokio runtime.
pub fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    registered(fd, Interest::READABLE)
}

/// Registers a descriptor for being written.
///
/// # Errors
/// When the kernel cannot poll it, or outside a tokio runtime.
pub fn writable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    registered(fd, Interest::WRITABLE)
}

#[allow(unsafe_code, reason = "the safe face of tokio's registration")]
fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` gives one and the same open descriptor until it is dropped, and the
    // `AsyncFd` that owns it gives no mutable access to it away from here.
    unsafe { Ok(AsyncFd::register_with_interest(fd, interest)?) }
}
