//! Being told when files change, by inotify: no polling.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::io::unix::AsyncFd;

use super::readiness;

/// A set of watched folders.
#[derive(Debug)]
pub struct Watch {
    inotify: Inotify,
    /// A second descriptor of the same instance, which the runtime polls.
    ready: AsyncFd<OwnedFd>,
}

/// Names one watched folder in what [`Watch::changed`] returns.
pub type Folder = WatchDescriptor;

impl Watch {
    /// An empty set.
    ///
    /// # Errors
    /// When the kernel has no instance left for this user, or outside a tokio runtime.
    pub fn new() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let ready = readiness::readable(inotify.as_fd().try_clone_to_owned()?)?;
        Ok(Self { inotify, ready })
    }

    /// Adds a folder: writes to its files, and files that appear in it by rename.
    ///
    /// # Errors
    /// When it is not there or the kernel's limit of watches is reached.
    pub fn add(&self, folder: &Path) -> io::Result<Folder> {
        let flags =
            AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR;
        Ok(self.inotify.add_watch(folder, flags)?)
    }

    /// Waits for changes and returns them: folder and file name, each pair once. An overflow of
    /// the kernel's queue gives an empty list: anything may have changed.
    ///
    /// # Errors
    /// When the descriptor cannot be read.
    pub async fn changed(&self) -> io::Result<Vec<(Folder, OsString)>> {
        loop {
            let mut guard = self.ready.readable().await?;
            match guard.try_io(|_| Ok(self.inotify.read_events()?)) {
                Err(_would_block) => {}
                Ok(events) => {
                    let mut changes: Vec<(Folder, OsString)> = Vec::new();
                    for event in events? {
                        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                            return Ok(Vec::new());
                        }
                        let Some(name) = event.name else { continue };
                        if !changes
                            .iter()
                            .any(|(wd, known)| *wd == event.wd && *known == name)
                        {
                            changes.push((event.wd, name));
                        }
                    }
                    if !changes.is_empty() {
                        return Ok(changes);
                    }
                }
            }
        }
    }
}
