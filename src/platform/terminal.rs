//! The terminal: how wide it is.

use std::os::fd::{AsFd, AsRawFd};

/// How many columns the terminal behind `fd` has; nothing when it is none, or does not tell.
#[must_use]
#[allow(unsafe_code, reason = "an ioctl that fills a struct")]
pub fn columns(fd: impl AsFd) -> Option<u16> {
    nix::ioctl_read_bad!(window_size, nix::libc::TIOCGWINSZ, nix::libc::winsize);
    let mut size = nix::libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the descriptor is borrowed for the call, and the struct is the one that
    // TIOCGWINSZ fills.
    unsafe { window_size(fd.as_fd().as_raw_fd(), &raw mut size) }.ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}
