//! The inbox: the file of lines that wait for a session, and what lies beside it.
//!
//! The contract is `docs/contracts/inbox-v1.md`. What stands here is paths, creation, counts,
//! heartbeat, and the sender's side: appending a line, the throttle, following a line's acks.
//! Carrying lines is the doorman's.
//!
//! - Whoever creates an inbox writes its offset `0` first: an inbox without an offset is one of
//!   an older writer.
//! - An inbox is a regular file of our own. A link, a folder or another user's file is refused.
//! - Counting streams: an inbox may be larger than memory.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::error::{Error, Kind, Result};
use crate::store::{self, StateDir};

mod ack;
mod append;
mod backlog;
mod counts;
mod follow;
pub mod frame;
mod heartbeat;
mod message;
mod past;
mod throttle;

pub use ack::{Ack, AckClass, LineState};
pub use append::{LockedInbox, PATIENCE, Written};
pub use backlog::{Backlog, Entry};
pub use counts::{Arrivals, Counter, Counts};
pub use follow::Follower;
pub use heartbeat::{FRESH_FOR, Heartbeat, State};
pub use message::{LONGEST_SENDER, Message, Place, Priority, Refusal, check_sender, sha256};
pub use past::Past;
pub use throttle::{LONGEST_INTERVAL, Senders};

/// The most bytes that a line may have, its line feed included.
pub const LONGEST_LINE: usize = 1024 * 1024;

/// The inbox of one session.
#[derive(Clone, Debug)]
pub struct Inbox {
    session: Uuid,
    folder: PathBuf,
}

/// What [`Inbox::create`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// There was none.
    New,
    /// There was one; it is as it was.
    Existing,
}

/// What came of [`Inbox::adopt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It is read from this byte on.
    AtEnd(u64),
    /// Its place is known, or it has no lines.
    NotNeeded,
    /// A doorman is at work there.
    HasDoorman,
}

impl Inbox {
    /// Every inbox in this state folder, by session.
    ///
    /// # Errors
    /// When the folder is there and cannot be read.
    pub fn all(state: &StateDir) -> Result<Vec<Self>> {
        let sessions = Self::sessions(state)?.into_iter();
        Ok(sessions.map(|session| Self::of(state, session)).collect())
    }

    /// The inbox of `session` in this state folder; nothing is created.
    #[must_use]
    pub fn of(state: &StateDir, session: Uuid) -> Self {
        Self {
            session,
            folder: state.inbox().to_owned(),
        }
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> Uuid {
        self.session
    }

    /// The lines: `<sid>.inbox`.
    #[must_use]
    pub fn lines(&self) -> PathBuf {
        self.beside("inbox")
    }

    /// The first byte not yet handled, in decimal: `<sid>.inbox.offset`.
    #[must_use]
    pub fn offset(&self) -> PathBuf {
        self.beside("inbox.offset")
    }

    /// One verdict for each line carried: `<sid>.inbox.acks`.
    #[must_use]
    pub fn acks(&self) -> PathBuf {
        self.beside("inbox.acks")
    }

    /// When each sender last wrote: `<sid>.inbox.senders`.
    #[must_use]
    pub fn senders(&self) -> PathBuf {
        self.beside("inbox.senders")
    }

    /// The doorman's sign of life: `<sid>.inbox.heartbeat`.
    #[must_use]
    pub fn heartbeat(&self) -> PathBuf {
        self.beside("inbox.heartbeat")
    }

    /// The lock of the one doorman that delivers: `<sid>.doorman.lock`.
    #[must_use]
    pub fn doorman_lock(&self) -> PathBuf {
        self.beside("doorman.lock")
    }

    /// Creates the inbox (0600) if there is none: its offset `0` first, then the empty file.
    ///
    /// # Errors
    /// Refused when what is there is not a file of ours; failed when it cannot be written.
    pub fn create(&self) -> Result<Created> {
        let lines = self.lines();
        if check(&lines)? {
            return Ok(Created::Existing);
        }
        // A leftover of an inbox that is gone says nothing about the new one.
        store::replace_unsynced(&self.offset(), b"0")?;
        match store::create_private(&lines, b"") {
            Ok(_file) => Ok(Created::New),
            // Somebody was faster; lines handled since are known by their acks.
            Err(e) if e.io_kind() == Some(io::ErrorKind::AlreadyExists) => Ok(Created::Existing),
            Err(e) => Err(e),
        }
    }

    /// Writes down the first byte that is not handled. Not synced: after a reboot acks and
    /// transcript tell what an old offset does not.
    ///
    /// # Errors
    /// When it cannot be written; then the old one stays.
    pub fn write_offset(&self, offset: u64) -> Result<()> {
        store::replace_unsynced(&self.offset(), offset.to_string().as_bytes())
    }

    /// Whether it has lines, but neither an offset nor an ack: an older reader left it, and its place
    /// is not known.
    ///
    /// # Errors
    /// When it is no file of ours.
    pub fn adoptable(&self) -> Result<bool> {
        let length = |path: PathBuf| std::fs::metadata(path).map_or(0, |meta| meta.len());
        let known = self.offset().exists() || length(self.acks()) > 0;
        Ok(check(&self.lines())? && length(self.lines()) > 0 && !known)
    }

    /// Takes over an inbox whose place is not known, behind its last whole line.
    ///
    /// # Errors
    /// When it is no file of ours, or cannot be read or written.
    pub fn adopt(&self) -> Result<Adoption> {
        if !self.adoptable()? {
            return Ok(Adoption::NotNeeded);
        }
        let _lock = match store::Lock::try_take(&self.doorman_lock()) {
            Ok(lock) => lock,
            Err(store::LockError::Held) => return Ok(Adoption::HasDoorman),
            Err(store::LockError::Broken(error)) => return Err(error),
        };
        let Some(mut backlog) = Backlog::open(self)? else {
            return Ok(Adoption::NotNeeded);
        };
        backlog
            .read_new(u64::MAX, |_| {})
            .map_err(|e| Error::io("read", &self.lines(), e))?;
        self.write_offset(backlog.position())?;
        Ok(Adoption::AtEnd(backlog.position()))
    }

    /// Whether there is one.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.lines().symlink_metadata().is_ok()
    }

    /// The sessions that have an inbox in this state folder, in the order of their ids.
    ///
    /// # Errors
    /// When the folder is there and cannot be read.
    pub fn sessions(state: &StateDir) -> Result<Vec<Uuid>> {
        let entries = match std::fs::read_dir(state.inbox()) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("list", state.inbox(), e).with_kind(Kind::NotFound)),
        };
        let mut sessions: Vec<Uuid> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name();
                Uuid::try_parse(name.to_str()?.strip_suffix(".inbox")?).ok()
            })
            .collect();
        sessions.sort_unstable();
        Ok(sessions)
    }

    /// Makes the lines durable.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn sync(&self) -> Result<()> {
        store::sync(&self.lines())
    }

    /// Takes an inbox away again that was just created, for a session that never came to be.
    pub fn discard(&self) {
        // Best effort by nature: the refusal that led here is what the caller reports.
        for path in [self.lines(), self.offset()] {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Counts what waits and what has arrived; see [`Counts`].
    ///
    /// # Errors
    /// When one of the files is there and cannot be read.
    pub fn counts(&self) -> Result<Counts> {
        counts::count(self)
    }

    /// The lines that reached the model's context since then; see [`Arrivals`].
    ///
    /// # Errors
    /// When the acks are there and cannot be read.
    pub fn arrivals(&self, since: jiff::Timestamp) -> Result<Arrivals> {
        counts::arrivals(self, since)
    }

    fn beside(&self, what: &str) -> PathBuf {
        self.folder.join(format!("{}.{what}", self.session))
    }
}

/// Whether there is something at `path`, which then has to be a regular file of ours.
fn check(path: &Path) -> Result<bool> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(Error::io("read", path, e).with_kind(Kind::Refused)),
    };
    check_own(path, &meta)?;
    Ok(true)
}

/// Refuses what is not a regular file of ours.
fn check_own(path: &Path, meta: &std::fs::Metadata) -> Result<()> {
    let shown = path.display();
    if !meta.file_type().is_file() {
        return Err(
            Error::refused(format!("the inbox {shown} is not a regular file"))
                .hint("move it away, then try again"),
        );
    }
    if meta.uid() != nix::unistd::geteuid().as_raw() {
        return Err(Error::refused(format!(
            "the inbox {shown} belongs to user {}, not to you",
            meta.uid()
        )));
    }
    Ok(())
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::platform::environment::Environment;

    pub(super) fn scratch() -> (tempfile::TempDir, Inbox) {
        let folder = tempfile::tempdir().unwrap();
        let environment: Environment = [(
            OsString::from("OO_STATE_DIR"),
            folder.path().as_os_str().to_owned(),
        )]
        .into_iter()
        .collect();
        let state = StateDir::locate(&environment).unwrap();
        std::fs::create_dir(state.inbox()).unwrap();
        let inbox = Inbox::of(&state, Uuid::from_u128(7));
        (folder, inbox)
    }

    #[test]
    fn the_names_are_the_contract() {
        let (_folder, inbox) = scratch();
        let sid = "00000000-0000-0000-0000-000000000007";
        for (path, name) in [
            (inbox.lines(), "inbox"),
            (inbox.offset(), "inbox.offset"),
            (inbox.acks(), "inbox.acks"),
            (inbox.senders(), "inbox.senders"),
            (inbox.heartbeat(), "inbox.heartbeat"),
            (inbox.doorman_lock(), "doorman.lock"),
        ] {
            assert_eq!(
                path.file_name().unwrap().to_str().unwrap(),
                format!("{sid}.{name}")
            );
        }
    }

    #[test]
    fn a_new_inbox_is_empty_private_and_at_offset_0() {
        let (_folder, inbox) = scratch();
        std::fs::write(inbox.offset(), "912").unwrap();
        assert_eq!(inbox.create().unwrap(), Created::New);
        assert_eq!(std::fs::read(inbox.offset()).unwrap(), b"0");
        assert_eq!(std::fs::read(inbox.lines()).unwrap(), b"");
        for path in [inbox.offset(), inbox.lines()] {
            let mode = std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn an_existing_one_is_left_alone() {
        let (_folder, inbox) = scratch();
        std::fs::write(inbox.lines(), "a\nb\n").unwrap();
        std::fs::write(inbox.offset(), "2").unwrap();
        assert_eq!(inbox.create().unwrap(), Created::Existing);
        assert_eq!(std::fs::read(inbox.offset()).unwrap(), b"2");
        assert_eq!(std::fs::read(inbox.lines()).unwrap(), b"a\nb\n");
    }

    #[test]
    fn an_inbox_without_a_place_is_adopted_once_and_only_when_asked() {
        let (folder, inbox) = scratch();
        let state: Environment = [("OO_STATE_DIR".into(), folder.path().as_os_str().to_owned())]
            .into_iter()
            .collect();
        let state = StateDir::locate(&state).unwrap();
        assert_eq!(inbox.adopt().unwrap(), Adoption::NotNeeded);
        std::fs::write(inbox.lines(), "old\nolder\nto").unwrap();
        assert_eq!(Inbox::all(&state).unwrap().len(), 1);
        assert_eq!(inbox.counts().unwrap().pending, 2);
        let lock = store::Lock::try_take(&inbox.doorman_lock()).unwrap();
        assert_eq!(inbox.adopt().unwrap(), Adoption::HasDoorman);
        drop(lock);
        assert_eq!(inbox.adopt().unwrap(), Adoption::AtEnd(10));
        assert_eq!(inbox.adopt().unwrap(), Adoption::NotNeeded);
        assert_eq!(std::fs::read(inbox.offset()).unwrap(), b"10");
        assert_eq!(inbox.counts().unwrap().pending, 0);
    }

    #[test]
    fn what_is_no_file_of_ours_is_refused() {
        let (folder, inbox) = scratch();
        std::os::unix::fs::symlink(folder.path().join("x"), inbox.lines()).unwrap();
        assert_eq!(inbox.create().unwrap_err().kind(), Kind::Refused);
        std::fs::remove_file(inbox.lines()).unwrap();
        std::fs::create_dir(inbox.lines()).unwrap();
        assert_eq!(inbox.create().unwrap_err().kind(), Kind::Refused);
        assert!(!inbox.offset().exists());
    }
}
