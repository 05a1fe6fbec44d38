//! A doorman's seat in a session: the lock, the lines, the sign of life.
//!
//! Only who holds the lock carries lines and writes the heartbeat. The last one, `stopped` or
//! `switched`, is written before the lock is given back, so that a successor's word comes after it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use uuid::Uuid;

use super::deliver::{Delivery, Offer};
use super::reach::Reach;
use crate::inbox::{Counter, Heartbeat, Inbox, State};
use crate::platform::process::Identity;
use crate::platform::{clock, host};
use crate::store::{Lock, LockError};

/// The time between two signs of life. The contract says five seconds at most.
pub const INTERVAL: Duration = Duration::from_secs(4);

/// A doorman's seat in a session.
#[derive(Debug)]
pub struct Seat {
    inbox: Inbox,
    reach: Reach,
    own: Option<Identity>,
    boot_id: Option<String>,
    /// The lock, and what only its holder does.
    post: Option<(Lock, Delivery)>,
    standby: Standby,
    counter: Counter,
    state: State,
    next: Instant,
    beaten_at: Option<Timestamp>,
    trouble: Option<String>,
}

/// Whether another doorman has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standby {
    /// Not that it is known.
    No,
    /// Yes, and nobody waits for it yet.
    Held,
    /// Yes, and somebody waits for it on behalf of this seat.
    WaitedFor,
}

impl Seat {
    /// Sits down: takes the lock if it is free, and says so.
    #[must_use]
    pub fn take(inbox: Inbox, reach: Reach) -> Self {
        let mut seat = Self {
            counter: Counter::new(inbox.clone()),
            inbox,
            reach,
            own: Identity::own(),
            boot_id: host::boot_id(),
            post: None,
            standby: Standby::No,
            state: State::Standby,
            next: Instant::now(),
            beaten_at: None,
            trouble: None,
        };
        seat.beat(State::Starting);
        seat
    }

    /// Gives a sign of life with this state, or stands by when another doorman has the lock.
    pub fn beat(&mut self, state: State) {
        self.next = Instant::now() + INTERVAL;
        self.take_post();
        if self.post.is_none() {
            self.state = State::Standby;
            return;
        }
        self.state = state;
        let (delivered, pending) = self.counted();
        let Some(own) = &self.own else {
            self.trouble = Some("/proc does not show this process".to_owned());
            return;
        };
        let heartbeat = Heartbeat {
            session_id: self.inbox.session(),
            pid: own.pid,
            proc_start: own.proc_start.clone(),
            peer_pid: Some(self.reach.peer().pid),
            state,
            at: clock::now(),
            boot_id: self.boot_id.clone(),
            delivered,
            pending,
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

    /// Gets up: the last word on every line, then on itself, then the lock.
    pub fn leave(&mut self, state: State) {
        let Some((_, delivery)) = &mut self.post else {
            return;
        };
        delivery.leave(match state {
            State::Switched => "the session's claude went over to another session",
            _ => "the session's doorman left before the line was seen",
        });
        self.beat(state);
        self.post = None;
    }

    /// The owner has gone over to another session. Whether the seat has to be kept for a while,
    /// since lines that it carried may turn up there.
    pub fn go_along(&mut self, to: Uuid) -> bool {
        let Some((_, delivery)) = &mut self.post else {
            return false;
        };
        if !delivery.expects() {
            return false;
        }
        delivery.go_along(to);
        self.beat(State::Switched);
        true
    }

    /// Of a seat whose session was left: whether it is still to be kept.
    pub fn lingers(&mut self, now: Instant) -> bool {
        let Some((_, delivery)) = &mut self.post else {
            return false;
        };
        while delivery.look_for_the_rest(now) {}
        delivery.expects()
    }

    /// Looks at what is new, and gives a sign of life if it is time. Whether there is more to
    /// look at, right now.
    pub fn wake(&mut self, state: State, now: Instant) -> bool {
        let mut more = false;
        if state == State::Following
            && let Some((_, delivery)) = &mut self.post
        {
            more = delivery.wake(now);
        }
        if now >= self.next || self.state != state {
            self.beat(state);
        }
        more
    }

    /// When it wants to be woken without news.
    #[must_use]
    pub fn due(&mut self, now: Instant) -> Instant {
        let delivery = match (&mut self.post, self.state) {
            (Some((_, delivery)), State::Following) => delivery.due(now),
            _ => None,
        };
        delivery.map_or(self.next, |at| at.min(self.next))
    }

    /// The next line for the door.
    pub fn offer(&mut self, now: Instant) -> Offer {
        match (&mut self.post, self.state) {
            (Some((_, delivery)), State::Following) => delivery.offer(now),
            _ => Offer::None,
        }
    }

    /// What became of the writing of the last offer.
    pub fn written(&mut self, result: std::io::Result<()>, now: Instant) {
        if let Some((_, delivery)) = &mut self.post {
            delivery.written(result, now);
        }
    }

    /// The files whose changes are news.
    #[must_use]
    pub fn watched(&self) -> Vec<PathBuf> {
        match &self.post {
            Some((_, delivery)) => delivery.watched(),
            None => self.reach.row_path().into_iter().collect(),
        }
    }

    /// The lock that is to be waited for, if another doorman has it and nobody waits yet.
    pub fn lock_to_wait_for(&mut self) -> Option<PathBuf> {
        if self.standby != Standby::Held {
            return None;
        }
        self.standby = Standby::WaitedFor;
        Some(self.inbox.doorman_lock())
    }

    /// The lock of that file is free at last, and ours; nothing when it cannot be waited for.
    pub fn give_lock(&mut self, path: &Path, lock: Option<Lock>) {
        if path != self.inbox.doorman_lock() {
            return;
        }
        self.standby = Standby::No;
        if let Some(lock) = lock {
            self.sit(lock);
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

    /// How the session is reached.
    #[must_use]
    pub const fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Lines that arrived, and lines that wait.
    pub fn counted(&mut self) -> (u64, u64) {
        match &self.post {
            Some((_, delivery)) if delivery.reads() => (delivery.delivered(), delivery.pending()),
            _ => {
                let counts = self.counter.counts();
                (counts.delivered, counts.pending)
            }
        }
    }

    /// When it last gave a sign of life.
    #[must_use]
    pub const fn beaten_at(&self) -> Option<Timestamp> {
        self.beaten_at
    }

    /// What goes wrong, if anything.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        let delivery = self
            .post
            .as_ref()
            .and_then(|(_, delivery)| delivery.trouble());
        self.trouble.as_deref().or(delivery)
    }

    fn take_post(&mut self) {
        let path = self.inbox.doorman_lock();
        if let Some((lock, delivery)) = &mut self.post {
            if lock.is_at(&path) {
                return;
            }
            // The file was taken away under it: what others lock now is another one.
            delivery.leave("the doorman's lock file was taken away");
            self.post = None;
        }
        if self.standby == Standby::WaitedFor {
            return;
        }
        match Lock::try_take(&path) {
            Ok(lock) => self.sit(lock),
            Err(LockError::Held) => {
                self.standby = Standby::Held;
                self.trouble = Some("another doorman has the lock of this inbox".to_owned());
            }
            Err(LockError::Broken(e)) => self.trouble = Some(e.to_string()),
        }
    }

    fn sit(&mut self, lock: Lock) {
        // A session that oo did not start has none yet. One that is no file of ours is told by
        // the delivery, which cannot read it.
        let _ = self.inbox.create();
        self.trouble = None;
        self.standby = Standby::No;
        self.post = Some((lock, Delivery::new(self.inbox.clone(), self.reach.clone())));
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use super::super::tests::{reach, scratch};
    use super::*;

    fn seat(inbox: &Inbox) -> Seat {
        Seat::take(inbox.clone(), reach())
    }

    fn on_disk(inbox: &Inbox) -> Heartbeat {
        Heartbeat::read(&inbox.heartbeat()).unwrap().unwrap()
    }

    #[test]
    fn one_follows_another_stands_by_and_takes_over() {
        let (_folder, inbox) = scratch();
        let mut first = seat(&inbox);
        assert_eq!(first.state(), State::Starting);
        first.beat(State::Following);
        assert!(on_disk(&inbox).is_fresh());

        let mut second = seat(&inbox);
        second.beat(State::Following);
        assert_eq!(second.state(), State::Standby);
        assert!(second.trouble().is_some());
        assert_eq!(on_disk(&inbox).state, State::Following);
        assert_eq!(second.lock_to_wait_for(), Some(inbox.doorman_lock()));
        assert_eq!(second.lock_to_wait_for(), None);

        first.leave(State::Stopped);
        assert_eq!(on_disk(&inbox).state, State::Stopped);
        let lock = Lock::wait(&inbox.doorman_lock()).unwrap();
        second.give_lock(&inbox.doorman_lock(), Some(lock));
        second.beat(State::Following);
        assert_eq!((second.state(), second.trouble()), (State::Following, None));
        assert!(on_disk(&inbox).is_fresh());
        // Who has left says nothing any more.
        first.leave(State::Stopped);
        assert!(on_disk(&inbox).is_fresh());
    }

    #[test]
    fn an_inbox_is_made_where_there_is_none() {
        let (_folder, inbox) = scratch();
        let _seat = seat(&inbox);
        assert_eq!(std::fs::read(inbox.offset()).unwrap(), b"0");
        assert_eq!(std::fs::read(inbox.lines()).unwrap(), b"");
    }

    #[test]
    fn the_counts_go_with_it() {
        let (_folder, inbox) = scratch();
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
