//! A doorman's seat in a session: the lock, the counts, the sign of life.
//!
//! Only who holds the lock writes the heartbeat. The last one, `stopped`, is written before the
//! lock is given back, so that a successor's word comes after it.

use std::time::Duration;

use jiff::Timestamp;

use crate::inbox::{Counter, Counts, Heartbeat, Inbox, State};
use crate::platform::process::Identity;
use crate::platform::{clock, host};
use crate::store::{Lock, LockError};

/// The time between two signs of life. The contract says five seconds at most.
pub const INTERVAL: Duration = Duration::from_secs(4);

/// A doorman's seat in a session.
#[derive(Debug)]
pub struct Seat {
    inbox: Inbox,
    peer: Identity,
    own: Option<Identity>,
    boot_id: Option<String>,
    lock: Option<Lock>,
    counter: Counter,
    counts: Counts,
    state: State,
    beaten_at: Option<Timestamp>,
    trouble: Option<String>,
}

impl Seat {
    /// Sits down: takes the lock if it is free, and says so.
    #[must_use]
    pub fn take(inbox: Inbox, peer: Identity) -> Self {
        let mut seat = Self {
            counter: Counter::new(inbox.clone()),
            inbox,
            peer,
            own: Identity::own(),
            boot_id: host::boot_id(),
            lock: None,
            counts: Counts::default(),
            state: State::Standby,
            beaten_at: None,
            trouble: None,
        };
        seat.beat(State::Starting);
        seat
    }

    /// Gives a sign of life with this state, or stands by when another doorman has the lock.
    pub fn beat(&mut self, state: State) {
        self.counts = self.counter.counts();
        if !self.has_lock() {
            self.state = State::Standby;
            return;
        }
        self.state = state;
        let Some(own) = &self.own else {
            self.trouble = Some("/proc does not show this process".to_owned());
            return;
        };
        let heartbeat = Heartbeat {
            session_id: self.inbox.session(),
            pid: own.pid,
            proc_start: own.proc_start.clone(),
            peer_pid: Some(self.peer.pid),
            state,
            at: clock::now(),
            boot_id: self.boot_id.clone(),
            delivered: self.counts.delivered,
            pending: self.counts.pending,
            oo_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        match heartbeat.write(&self.inbox.heartbeat()) {
            Ok(()) => {
                self.beaten_at = Some(heartbeat.at);
                self.trouble = None;
            }
            // A full disk may have room again in a moment; the next one tries again.
            Err(e) => self.trouble = Some(e.to_string()),
        }
    }

    /// Gets up: says so, and gives the lock back.
    pub fn leave(&mut self) {
        if self.lock.is_some() {
            self.beat(State::Stopped);
            self.lock = None;
        }
    }

    /// What it is doing.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The inbox it keeps.
    #[must_use]
    pub const fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The claude it serves.
    #[must_use]
    pub const fn peer(&self) -> &Identity {
        &self.peer
    }

    /// The counts, new if they changed.
    pub fn counts(&mut self) -> Counts {
        self.counts = self.counter.counts();
        self.counts
    }

    /// When it last gave a sign of life.
    #[must_use]
    pub const fn beaten_at(&self) -> Option<Timestamp> {
        self.beaten_at
    }

    /// What goes wrong, if anything.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn has_lock(&mut self) -> bool {
        if self.lock.is_none() {
            match Lock::try_take(&self.inbox.doorman_lock()) {
                Ok(lock) => self.lock = Some(lock),
                Err(LockError::Held) => {
                    self.trouble = Some("another doorman has the lock of this inbox".to_owned());
                }
                Err(LockError::Broken(e)) => self.trouble = Some(e.to_string()),
            }
        }
        self.lock.is_some()
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use super::super::tests::scratch;
    use super::*;

    fn seat(inbox: &Inbox) -> Seat {
        Seat::take(inbox.clone(), Identity::own().unwrap())
    }

    fn on_disk(inbox: &Inbox) -> Heartbeat {
        Heartbeat::read(&inbox.heartbeat()).unwrap().unwrap()
    }

    #[test]
    fn one_follows_another_stands_by_and_takes_over() {
        let (_folder, inbox) = scratch();
        inbox.create().unwrap();
        let mut first = seat(&inbox);
        assert_eq!(first.state(), State::Starting);
        first.beat(State::Following);
        assert!(on_disk(&inbox).is_fresh());

        let mut second = seat(&inbox);
        second.beat(State::Following);
        assert_eq!(second.state(), State::Standby);
        assert!(second.trouble().is_some());
        assert_eq!(on_disk(&inbox).state, State::Following);

        first.leave();
        assert_eq!(on_disk(&inbox).state, State::Stopped);
        second.beat(State::Following);
        assert_eq!((second.state(), second.trouble()), (State::Following, None));
        assert!(on_disk(&inbox).is_fresh());
        // Who has left says nothing any more.
        first.leave();
        assert!(on_disk(&inbox).is_fresh());
    }

    #[test]
    fn the_counts_go_with_it() {
        let (_folder, inbox) = scratch();
        inbox.create().unwrap();
        let mut seat = seat(&inbox);
        std::fs::write(inbox.lines(), "a\nb\n").unwrap();
        seat.beat(State::Following);
        assert_eq!((on_disk(&inbox).pending, on_disk(&inbox).delivered), (2, 0));
        assert_eq!(on_disk(&inbox).peer_pid, Some(Identity::own().unwrap().pid));
    }

    #[test]
    fn what_cannot_be_written_is_told_and_tried_again() {
        let (folder, inbox) = scratch();
        let mut seat = seat(&inbox);
        let path = folder.path().join("inbox");
        std::fs::remove_dir_all(&path).unwrap();
        seat.beat(State::Following);
        assert!(seat.trouble().is_some());
        std::fs::create_dir(&path).unwrap();
        seat.beat(State::Following);
        assert_eq!(seat.trouble(), None);
        assert!(on_disk(&inbox).is_fresh());
    }
}
