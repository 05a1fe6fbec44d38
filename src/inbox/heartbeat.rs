//! The heartbeat: by which a doorman shows that it lives.
//!
//! It is written by whoever holds the doorman's lock of that inbox, and by nobody else, so that a
//! second doorman on standby cannot write over the sign of the first.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Kind, Result};
use crate::platform::process::Identity;
use crate::platform::{clock, host};
use crate::store;

/// How old a heartbeat may be and still be fresh.
pub const FRESH_FOR: Duration = Duration::from_secs(15);

/// What a doorman is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum State {
    /// It has the lock; claude has not shaken hands yet.
    Starting,
    /// It is at its post.
    Following,
    /// Another one is; it waits for the lock.
    Standby,
    /// It has left.
    Stopped,
    /// It has gone over to another session of the same claude.
    Switched,
    /// Something that this version does not know.
    #[serde(other)]
    Unknown,
}

/// The content of `<sid>.inbox.heartbeat`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The session.
    pub session_id: Uuid,
    /// The doorman's pid.
    pub pid: i32,
    /// The doorman's start time; see [`Identity`].
    pub proc_start: String,
    /// The pid of the claude that it serves.
    #[serde(default)]
    pub peer_pid: Option<i32>,
    /// What it is doing.
    pub state: State,
    /// When this was written.
    pub at: Timestamp,
    /// The boot in which pid and start time mean something.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// Lines that reached the model's context.
    #[serde(default)]
    pub delivered: u64,
    /// Lines that wait.
    #[serde(default)]
    pub pending: u64,
    /// The version of oo that wrote it.
    #[serde(default)]
    pub oo_version: String,
}

impl Heartbeat {
    /// Reads the heartbeat at [`super::Inbox::heartbeat`]; there may be none.
    ///
    /// # Errors
    /// When it is there and cannot be read or parsed.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        match store::read_json(path) {
            Ok(heartbeat) => Ok(Some(heartbeat)),
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Replaces it at once; not synced, since a reboot makes it worthless.
    ///
    /// # Errors
    /// When it cannot be written; then the old one stays.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut bytes = serde_json::to_vec(self)
            .map_err(|e| Error::failed(format!("cannot encode {}: {e}", path.display())))?;
        bytes.push(b'\n');
        store::replace_unsynced(path, &bytes)
    }

    /// The doorman that wrote it.
    #[must_use]
    pub fn doorman(&self) -> Identity {
        Identity {
            pid: self.pid,
            proc_start: self.proc_start.clone(),
        }
    }

    /// Whether that doorman is at its post right now: it says so, it said so less than
    /// [`FRESH_FOR`] ago and in this boot, and its process lives.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.state == State::Following
            && clock::age(self.at) < FRESH_FOR
            && clock::ahead(self.at) < FRESH_FOR
            && self.boot_id == host::boot_id()
            && self.doorman().lives()
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use super::*;

    fn heartbeat() -> Heartbeat {
        let own = Identity::own().unwrap();
        Heartbeat {
            session_id: Uuid::from_u128(7),
            pid: own.pid,
            proc_start: own.proc_start,
            peer_pid: Some(1),
            state: State::Following,
            at: clock::now(),
            boot_id: host::boot_id(),
            delivered: 0,
            pending: 0,
            oo_version: "0.1.0".to_owned(),
        }
    }

    #[test]
    fn fresh_means_young_following_alive_and_of_this_boot() {
        let old = clock::now() - jiff::SignedDuration::from_secs(15);
        type Change = fn(&mut Heartbeat);
        let table: [(&str, Change, bool); 8] = [
            ("as it is", |_| {}, true),
            ("starting", |h| h.state = State::Starting, false),
            ("standby", |h| h.state = State::Standby, false),
            ("stopped", |h| h.state = State::Stopped, false),
            ("another boot", |h| h.boot_id = Some("x".to_owned()), false),
            ("another start", |h| h.proc_start = "1".to_owned(), false),
            (
                "from the future",
                |h| h.at = clock::now() + jiff::SignedDuration::from_hours(1),
                false,
            ),
            ("no such pid", |h| h.pid = i32::MAX, false),
        ];
        for (what, change, fresh) in table {
            let mut heartbeat = heartbeat();
            change(&mut heartbeat);
            assert_eq!(heartbeat.is_fresh(), fresh, "{what}");
        }
        let stale = Heartbeat {
            at: old,
            ..heartbeat()
        };
        assert!(!stale.is_fresh());
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h");
        assert_eq!(Heartbeat::read(&path).unwrap(), None);
        let written = heartbeat();
        written.write(&path).unwrap();
        assert_eq!(Heartbeat::read(&path).unwrap(), Some(written));
        std::fs::write(&path, "{").unwrap();
        assert!(
            Heartbeat::read(&path)
                .unwrap_err()
                .to_string()
                .contains("cannot parse")
        );
    }

    #[test]
    fn what_is_new_is_passed_by() {
        let text = r#"{"session_id":"00000000-0000-0000-0000-000000000007","pid":1,"proc_start":"2","state":"dancing","at":"2026-11-30T20:58:01.039Z","more":[1]}"#;
        let heartbeat: Heartbeat = serde_json::from_str(text).unwrap();
        assert_eq!(heartbeat.state, State::Unknown);
        assert!(!heartbeat.is_fresh());
    }
}
