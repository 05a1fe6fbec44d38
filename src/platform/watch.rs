//! Being told when files change, by inotify: no polling.
//!
//! An instance that is closed with watches in it makes its process wait until the kernel has done
//! with every reader of them: 10 to 20 ms, in the last moment of a program's life. One without
//! watches is closed at once, so they are taken out first.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::io::unix::AsyncFd;

use super::readiness;

/// A set of watched folders and files.
#[derive(Debug)]
pub struct Watch {
    inotify: Inotify,
    /// A second descriptor of the same instance, which the runtime polls.
    ready: AsyncFd<OwnedFd>,
    watched: RefCell<Vec<Watched>>,
}

/// Names one watched folder or file in what [`Watch::changed`] returns.
pub type Watched = WatchDescriptor;

impl Watch {
    /// An empty set.
    ///
    /// # Errors
    /// When the kernel has no instance left for this user, or outside a tokio runtime.
    pub fn new() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let ready = readiness::readable(inotify.as_fd().try_clone_to_owned()?)?;
        Ok(Self {
            inotify,
            ready,
            watched: RefCell::default(),
        })
    }

    /// Adds a folder: writes to its files, and files that appear in it by rename.
    ///
    /// # Errors
    /// When it is not there or the kernel's limit of watches is reached.
    pub fn add(&self, folder: &Path) -> io::Result<Watched> {
        let flags =
            AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR;
        self.add_with(folder, flags)
    }

    /// Adds one file: writes to it, and its removal or replacement. A change of it comes without
    /// a name. The watch is on the file that has this path now, not on one that takes its place.
    ///
    /// # Errors
    /// When it is not there or the kernel's limit of watches is reached.
    pub fn add_file(&self, file: &Path) -> io::Result<Watched> {
        let flags = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_DONT_FOLLOW;
        self.add_with(file, flags)
    }

    fn add_with(&self, path: &Path, flags: AddWatchFlags) -> io::Result<Watched> {
        let watched = self.inotify.add_watch(path, flags)?;
        self.watched.borrow_mut().push(watched);
        Ok(watched)
    }

    /// Waits for changes and returns them: folder and file name, each pair once; a watched file
    /// has an empty name. An overflow of the kernel's queue gives an empty list: anything may
    /// have changed.
    ///
    /// # Errors
    /// When the descriptor cannot be read.
    pub async fn changed(&self) -> io::Result<Vec<(Watched, OsString)>> {
        loop {
            let mut guard = self.ready.readable().await?;
            match guard.try_io(|_| Ok(self.inotify.read_events()?)) {
                Err(_would_block) => {}
                Ok(events) => {
                    let mut changes: Vec<(Watched, OsString)> = Vec::new();
                    for event in events? {
                        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                            return Ok(Vec::new());
                        }
                        // A watch that ended with what it watched.
                        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                            continue;
                        }
                        let name = event.name.unwrap_or_default();
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

impl Drop for Watch {
    fn drop(&mut self) {
        for watched in self.watched.get_mut().drain(..) {
            // What is gone has taken its watch with it.
            let _ = self.inotify.rm_watch(watched);
        }
    }
}
