//! Ending a run: why, and the ladder of rungs.
//!
//! The ladder is data: interrupt, grace, terminate, grace, kill of the whole group and of every
//! process that was seen below claude. A held session that rests has a gentler rung before these:
//! its stdin is closed, and it leaves by itself. The ladder is climbed by whoever holds the clock; a request for
//! haste skips to the last rung. claude ends its tools and servers by itself on the first two
//! rungs, which is why those go to claude alone; a killed claude leaves its tools behind, since
//! each is in a session of its own (measured: 2.1.332), so the last rung goes to all.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::watchdog::Clock;

/// Why oo ended a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "what")]
pub enum StopReason {
    /// A clock ran out.
    Clock(Clock),
    /// oo got a signal: its name.
    Signal(String),
    /// The API refuses the credentials, and claude would go on trying.
    Auth,
    /// The doorman is not connected.
    Doorman,
}

/// The record of a decision to end a run; written to `process.json` before the first rung.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRecord {
    /// Why.
    pub reason: StopReason,
    /// When.
    pub at: Timestamp,
    /// Whether the answer was whole before: then the run is a success all the same.
    pub after_answer: bool,
}

/// A rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// stdin of a held session is closed: claude leaves when it has nothing to do.
    Close,
    /// stdin is closed and SIGINT goes to claude: the turn ends, and a result may come.
    Interrupt,
    /// SIGTERM to claude.
    Terminate,
    /// SIGKILL to its group and all that was below it.
    Kill,
    /// Nothing more can be done: a process that not even SIGKILL ends is left to the kernel.
    Abandon,
}

/// What a run does when the ladder is put to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foot {
    /// It rests between turns, and its stdin is open.
    Rest,
    /// Anything else.
    Work,
}

/// Where on the ladder a run is.
#[derive(Clone, Debug)]
pub struct Ladder {
    grace: Duration,
    next: Option<Rung>,
    at: Duration,
}

impl Ladder {
    /// At its foot; the first rung is due at once.
    #[must_use]
    pub const fn new(now: Duration, grace: Duration, foot: Foot) -> Self {
        Self {
            grace,
            next: Some(match foot {
                Foot::Rest => Rung::Close,
                Foot::Work => Rung::Interrupt,
            }),
            at: now,
        }
    }

    /// When the next rung is due; nothing at the top.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.next.map(|_| self.at)
    }

    /// The rung that is due, if one is; it counts as climbed.
    pub fn climb(&mut self, now: Duration) -> Option<Rung> {
        let rung = self.next.filter(|_| self.at <= now)?;
        self.at = now.saturating_add(self.grace);
        self.next = match rung {
            Rung::Close => Some(Rung::Interrupt),
            Rung::Interrupt => Some(Rung::Terminate),
            Rung::Terminate => Some(Rung::Kill),
            Rung::Kill => Some(Rung::Abandon),
            Rung::Abandon => None,
        };
        Some(rung)
    }

    /// A turn is under way: it gets no grace to come to its end. Whether it had one, which is so
    /// when stdin was closed on a session that rested and a line came before that.
    pub fn turn_began(&mut self, now: Duration) -> bool {
        let waits = self.next == Some(Rung::Interrupt) && self.at > now;
        if waits {
            self.at = now;
        }
        waits
    }

    /// Skips to the last rung, unless it was climbed already.
    pub fn hurry(&mut self, now: Duration) {
        if matches!(
            self.next,
            Some(Rung::Close | Rung::Interrupt | Rung::Terminate)
        ) {
            self.next = Some(Rung::Kill);
            self.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_rungs_come_one_grace_apart() {
        let mut ladder = Ladder::new(s(10), s(5), Foot::Work);
        assert_eq!(ladder.climb(s(10)), Some(Rung::Interrupt));
        assert_eq!(ladder.climb(s(14)), None);
        assert_eq!(ladder.next(), Some(s(15)));
        assert_eq!(ladder.climb(s(15)), Some(Rung::Terminate));
        assert_eq!(ladder.climb(s(20)), Some(Rung::Kill));
        assert_eq!(ladder.climb(s(25)), Some(Rung::Abandon));
        assert_eq!((ladder.climb(s(99)), ladder.next()), (None, None));
    }

    #[test]
    fn haste_skips_to_the_kill_and_does_not_repeat_it() {
        let mut ladder = Ladder::new(s(0), s(5), Foot::Work);
        assert_eq!(ladder.climb(s(0)), Some(Rung::Interrupt));
        ladder.hurry(s(1));
        assert_eq!(ladder.climb(s(1)), Some(Rung::Kill));
        ladder.hurry(s(2));
        assert_eq!(ladder.climb(s(2)), None);
        assert_eq!(ladder.climb(s(6)), Some(Rung::Abandon));
    }
    #[test]
    fn a_session_that_rests_is_closed_first() {
        let mut ladder = Ladder::new(s(10), s(5), Foot::Rest);
        assert_eq!(ladder.climb(s(10)), Some(Rung::Close));
        assert_eq!(ladder.climb(s(14)), None);
        assert_eq!(ladder.climb(s(15)), Some(Rung::Interrupt));
        assert_eq!(ladder.climb(s(20)), Some(Rung::Terminate));
        let mut ladder = Ladder::new(s(10), s(5), Foot::Rest);
        assert_eq!(ladder.climb(s(10)), Some(Rung::Close));
        ladder.hurry(s(11));
        assert_eq!(ladder.climb(s(11)), Some(Rung::Kill));
    }

    #[test]
    fn a_turn_that_began_too_late_is_interrupted_at_once() {
        let mut ladder = Ladder::new(s(10), s(5), Foot::Rest);
        assert_eq!(ladder.climb(s(10)), Some(Rung::Close));
        assert!(ladder.turn_began(s(11)));
        assert!(!ladder.turn_began(s(11)), "it is due already");
        assert_eq!(ladder.climb(s(11)), Some(Rung::Interrupt));
        // From there on the graces are as ever.
        assert!(!ladder.turn_began(s(12)));
        assert_eq!(ladder.next(), Some(s(16)));
    }
}
