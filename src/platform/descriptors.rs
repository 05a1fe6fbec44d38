//! Inherited descriptors: which of them a child may have.
//!
//! A parent may hand us descriptors that were never meant for claude, and a variable may name a
//! number under which we opened a file of our own. So, before anything is opened, [`Inherited`]
//! makes every descriptor close-on-exec and remembers which numbers were open; only those can be
//! passed on, and only by name.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;

/// The descriptors (other than 0, 1, 2) that were open when the program began.
#[derive(Clone, Debug, Default)]
pub struct Inherited {
    open: Vec<RawFd>,
}

impl Inherited {
    /// Takes stock, and makes all of them close-on-exec. To be called before anything is opened.
    #[must_use]
    pub fn take_stock() -> Self {
        let open = std::fs::read_dir("/proc/self/fd")
            .map(|entries| {
                entries
                    .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok())
                    .filter(|fd| *fd > 2)
                    .collect::<Vec<_>>()
            })
            .unwrap_or_default();
        // The folder's own descriptor is in the list and closed by now: only what answers is kept.
        let open = open
            .into_iter()
            .filter(|fd| set_close_on_exec(*fd))
            .collect();
        Self { open }
    }

    /// Whether `fd` was handed to us, and so can be handed on.
    #[must_use]
    pub fn has(&self, fd: RawFd) -> bool {
        self.open.contains(&fd)
    }
}

/// Whether `count` more descriptors can be had, as far as one moment tells.
///
/// # Errors
/// When they cannot.
pub fn room_for(count: usize) -> io::Result<()> {
    (0..count)
        .map(|_| File::open("/dev/null"))
        .collect::<io::Result<Vec<File>>>()
        .map(drop)
}

#[allow(unsafe_code, reason = "fcntl on a number that may not be open")]
fn set_close_on_exec(fd: RawFd) -> bool {
    // SAFETY: F_SETFD touches no memory; on a number that is not open it fails with EBADF.
    unsafe { nix::libc::fcntl(fd, nix::libc::F_SETFD, nix::libc::FD_CLOEXEC) == 0 }
}
