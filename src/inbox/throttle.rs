//! The throttle: a sender that writes to one session again and again is held back.
//!
//! `<sid>.inbox.senders` is a JSON object: sender to the RFC 3339 time of its last line. It is
//! read and replaced by whoever holds the lock of the lines, so of two lines that one sender
//! writes at once exactly one is let in.
//!
//! It is a courtesy and no record. So it never keeps a line out for longer than the interval: a
//! time that lies ahead (the clock was set back) counts for nothing, and a file that cannot be
//! read lets the line pass, is named, and is written anew.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::error::{Error, Kind, Result};
use crate::store;

/// The longest interval, and how long a sender is remembered.
pub const LONGEST_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// How many senders are remembered at most; the oldest are forgotten.
const MOST: usize = 1000;

/// When each sender last wrote to a session.
#[derive(Debug)]
pub struct Senders {
    path: PathBuf,
    last: BTreeMap<String, Timestamp>,
    /// Why the file could not be read.
    damage: Option<Error>,
}

impl Senders {
    pub(super) fn read(path: PathBuf) -> Self {
        let (last, damage) = match store::read_json(&path) {
            Ok(last) => (last, None),
            Err(error) if error.kind() == Kind::NotFound => (BTreeMap::new(), None),
            Err(error) => (BTreeMap::new(), Some(error)),
        };
        Self { path, last, damage }
    }

    /// Why the file could not be read, if it could not.
    #[must_use]
    pub const fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// When a sender may write again; nothing when it may now. No interval keeps nobody out.
    #[must_use]
    pub fn not_before(
        &self,
        sender: &str,
        interval: Duration,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let last = *self.last.get(sender).filter(|last| **last <= now)?;
        let next = last
            .checked_add(SignedDuration::try_from(interval).ok()?)
            .ok()?;
        (next > now).then_some(next)
    }

    /// Notes that a sender has written, and forgets those who have not for long.
    ///
    /// # Errors
    /// When the file cannot be replaced; then the next line of the sender is let in too.
    pub fn record(&mut self, sender: &str, now: Timestamp) -> Result<()> {
        let kept = SignedDuration::try_from(LONGEST_INTERVAL).unwrap_or(SignedDuration::MAX);
        self.last
            .retain(|_, last| *last <= now && now.duration_since(*last) <= kept);
        self.last.insert(sender.to_owned(), now);
        while self.last.len() > MOST {
            let oldest = self.last.iter().min_by_key(|(_, last)| **last);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                break;
            };
            self.last.remove(&oldest);
        }
        let text = serde_json::to_vec(&self.last)
            .map_err(|e| Error::failed(format!("cannot encode {}: {e}", self.path.display())))?;
        store::replace_unsynced(&self.path, &text)
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn senders(text: &str) -> (tempfile::TempDir, Senders) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        std::fs::write(&path, text).unwrap();
        let senders = Senders::read(path);
        (folder, senders)
    }

    #[test]
    fn who_may_write_when() {
        let (_folder, senders) =
            senders(r#"{"alice":"2026-12-01T12:00:00Z","ahead":"2026-12-01T13:00:00Z"}"#);
        let table = [
            ("alice", 30, "12:00:00", Some("12:00:30")),
            ("alice", 30, "12:00:29.999", Some("12:00:30")),
            ("alice", 30, "12:00:30", None),
            ("alice", 90, "12:00:30", Some("12:01:30")),
            ("alice", 0, "12:00:00", None),
            ("alice", 30, "11:59:00", None),
            ("ahead", 30, "12:00:00", None),
            ("bob", 30, "12:00:00", None),
        ];
        for (sender, interval, now, not_before) in table {
            let day = |time: &str| at(&format!("2026-12-01T{time}Z"));
            assert_eq!(
                senders.not_before(sender, Duration::from_secs(interval), day(now)),
                not_before.map(day),
                "{sender} after {interval} s at {now}"
            );
        }
    }

    #[test]
    fn what_is_old_or_lies_ahead_is_forgotten() {
        let (_folder, mut found) = senders(
            r#"{"old":"2026-11-29T12:00:00Z","ahead":"2026-12-02T13:00:00Z","new":"2026-12-01T11:00:00Z"}"#,
        );
        found.record("alice", at("2026-12-01T12:00:00Z")).unwrap();
        let again = Senders::read(found.path.clone());
        assert_eq!(again.last.keys().collect::<Vec<_>>(), ["alice", "new"]);
    }

    #[test]
    fn the_names_have_a_bound() {
        let (_folder, mut found) = senders("{}");
        let now = at("2026-12-01T12:00:00Z");
        for number in 0..MOST + 5 {
            let earlier = SignedDuration::from_secs(i64::try_from(MOST + 9 - number).unwrap());
            found.last.insert(number.to_string(), now - earlier);
        }
        found.record("alice", now).unwrap();
        assert_eq!(found.last.len(), MOST);
        assert!(found.last.contains_key("alice") && !found.last.contains_key("0"));
    }

    #[test]
    fn garbage_is_named_keeps_nobody_out_and_is_written_anew() {
        for garbage in ["", "{", "[1]", r#"{"alice":7}"#] {
            let (_folder, mut found) = senders(garbage);
            let damage = found.damage().unwrap().to_string();
            assert!(damage.contains("cannot parse"), "{damage}");
            let now = at("2026-12-01T12:00:00Z");
            let minute = Duration::from_secs(60);
            assert_eq!(found.not_before("alice", minute, now), None);
            found.record("alice", now).unwrap();
            let again = Senders::read(found.path.clone());
            assert!(again.damage().is_none());
            assert!(again.not_before("alice", minute, now).is_some());
        }
    }
}
