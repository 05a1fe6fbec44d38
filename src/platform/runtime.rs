//! The runtime that waits for files, processes, signals and clocks.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// A runtime on the thread that asks for it.
///
/// # Errors
/// When the kernel has no descriptor left for it.
pub fn on_this_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
