//! What a run's result says of lines: those that reached the model, and those that wait.

use std::path::Path;

use jiff::Timestamp;
use uuid::Uuid;

use crate::doorman::deliver;
use crate::error::Error;
use crate::inbox::{Arrivals, Heartbeat, Inbox, State};

/// How many senders a note names.
const NAMED: usize = 3;

/// The lines of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    /// Those that reached the model's context since the run began.
    pub(super) arrived: Option<Arrivals>,
    /// How many wait.
    pub(super) pending: Option<u64>,
    /// Why it is not known, if it is not.
    pub(super) trouble: Option<String>,
    /// Whether the doorman died at its post.
    pub(super) doorman_died: bool,
}

impl Lines {
    /// Of a run that began at `since`. An inbox that cannot be read does not keep a run from
    /// having a result: what is not known is not told, and why.
    pub(super) fn of(inbox: &Inbox, since: Timestamp) -> Self {
        let beat = Heartbeat::read(&inbox.heartbeat()).ok().flatten();
        let (arrived, counts) = (inbox.arrivals(since), inbox.counts());
        Self {
            trouble: arrived
                .as_ref()
                .err()
                .or(counts.as_ref().err())
                .map(Error::to_string),
            arrived: arrived.ok(),
            pending: counts.ok().map(|counts| counts.pending),
            doorman_died: beat.is_some_and(|beat| {
                matches!(beat.state, State::Starting | State::Following) && !beat.doorman().lives()
            }),
        }
    }

    /// The same once the run is over: what nobody saw arrive, since the doorman died or left
    /// before, is looked for in the transcript, and waits again if it is not there.
    pub(super) fn at_the_end(inbox: &Inbox, since: Timestamp, config: Option<&Path>) -> Self {
        let lines = Self::of(inbox, since);
        // Mostly no line waits, and that is all.
        if lines.pending.is_none_or(|pending| pending == 0) {
            return lines;
        }
        deliver::settle(inbox, config);
        Self::of(inbox, since)
    }

    /// Whether there is anything to tell.
    pub(super) fn is_nothing(&self) -> bool {
        let none = |arrived: &Arrivals| arrived.count == 0;
        self.arrived.as_ref().is_none_or(none) && self.pending.unwrap_or_default() == 0
    }

    /// What a person has to know.
    pub(super) fn notes(&self, session: Uuid) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(why) = &self.trouble {
            notes.push(format!("what became of lines is not known: {why}"));
        }
        if let Some(Arrivals { count, senders }) = &self.arrived
            && *count > 0
        {
            let named = match senders.len() {
                0..=NAMED => senders.join(", "),
                more => format!(
                    "{} and {} others",
                    senders[..NAMED].join(", "),
                    more - NAMED
                ),
            };
            let what = if *count == 1 {
                "a line that came during the run".to_owned()
            } else {
                format!("{count} lines that came during the run")
            };
            notes.push(format!("{what} may have shaped the answer, from {named}"));
        }
        if let Some(pending) = self.pending.filter(|pending| *pending > 0) {
            let (what, they) = match pending {
                1 => ("1 line waits".to_owned(), "it comes"),
                count => (format!("{count} lines wait"), "they come"),
            };
            let why = if self.doorman_died {
                ", since the doorman died"
            } else {
                ""
            };
            notes.push(format!(
                "{what} in the inbox unseen{why}; {they} with the next turn: oo resume \
                 {session} \"…\""
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_say_who_may_have_shaped_the_answer_and_what_waits() {
        let lines = |count, senders: &[&str], pending, doorman_died| Lines {
            arrived: Some(Arrivals {
                count,
                senders: senders.iter().map(|&name| name.to_owned()).collect(),
            }),
            pending: Some(pending),
            trouble: None,
            doorman_died,
        };
        let session = Uuid::from_u128(7);
        let table = [
            (lines(0, &[], 0, true), vec![]),
            (
                lines(1, &["a"], 0, false),
                vec!["a line that came during the run may have shaped the answer, from a"],
            ),
            (
                lines(9, &["a", "b", "c", "d", "e"], 0, false),
                vec![
                    "9 lines that came during the run may have shaped the answer, from a, b, c and 2 others",
                ],
            ),
            (
                lines(0, &[], 1, false),
                vec![
                    "1 line waits in the inbox unseen; it comes with the next turn: oo resume 00000000-0000-0000-0000-000000000007 \"…\"",
                ],
            ),
        ];
        for (lines, expected) in table {
            assert_eq!(lines.notes(session), expected);
        }
        let died = lines(0, &[], 2, true).notes(session);
        assert!(
            died[0]
                .starts_with("2 lines wait in the inbox unseen, since the doorman died; they come")
        );
    }
}
