//! Where every thread of the process leaves word and the main thread waits.
//!
//! Invariants: all state that threads share for steering a run is in [`State`], under one lock;
//! whoever changes it rings the bell. The main thread never blocks anywhere else for long.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::row::Row;

/// Takes a lock; a thread that panicked while holding it does not matter here.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A termination signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Int,
    Term,
    Hup,
}

impl Stop {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Int => 0,
            Self::Term => 143,
            Self::Hup => 129,
        }
    }
}

/// When a waiting command is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    Now,
    Next,
    Later,
}

/// Where a command comes from.
#[derive(Clone)]
pub(crate) enum Source {
    /// stdin, or the prompt argument. `named`: the line had a uuid of its own.
    Sdk { named: bool },
    /// The door. `sender`: the name it goes by, and its process.
    Peer { origin: Row, sender: String },
    /// A background task that ended.
    Task {
        origin: Row,
        tools_used: Option<String>,
    },
}

/// Something that waits to be said to the model.
#[derive(Clone)]
pub(crate) struct Command {
    /// Earlier commands whose texts were put before this one's: a turn begins with all of them.
    pub(crate) merged: Vec<Command>,
    pub(crate) uuid: String,
    pub(crate) text: String,
    pub(crate) priority: Priority,
    pub(crate) source: Source,
    pub(crate) at_ms: u64,
}

impl Command {
    /// All commands that are in this one, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Self> {
        self.merged.iter().chain(std::iter::once(self))
    }

    /// Whether another one, waiting behind this one, starts the same turn.
    fn takes(&self, other: &Self) -> bool {
        match (&self.source, &other.source) {
            (Source::Sdk { .. }, Source::Sdk { .. }) => true,
            (Source::Peer { sender: ours, .. }, Source::Peer { sender: theirs, .. }) => {
                ours == theirs
            }
            _ => false,
        }
    }

    /// Several as one: the last one's uuid, the first one's origin and time, all the texts.
    fn join(mut batch: Vec<Self>) -> Option<Self> {
        let last = batch.pop()?;
        let Some(first) = batch.first() else {
            return Some(last);
        };
        let texts: Vec<&str> = batch.iter().chain([&last]).map(|c| &*c.text).collect();
        let text = texts.join("\n");
        let source = match last.source {
            Source::Peer { .. } => first.source.clone(),
            other => other,
        };
        Some(Self {
            uuid: last.uuid,
            text,
            priority: first.priority,
            source,
            at_ms: first.at_ms,
            merged: batch,
        })
    }
}

/// What becomes of a line that comes through the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Intake {
    /// It waits for its turn.
    #[default]
    Open,
    /// The last result was given: it is queued and taken out again, and nobody sees it.
    Late,
    /// It leaves no trace.
    Shut,
}

/// A live background task.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) run_id: String,
    pub(crate) tool_use_id: String,
    pub(crate) description: String,
    /// The sub-agent's type; `None` for a command.
    pub(crate) agent: Option<String>,
}

/// What threads share.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) queue: Vec<Command>,
    pub(crate) stop: Option<Stop>,
    /// A control request asked to end the turn.
    pub(crate) interrupt: bool,
    /// A turn is running.
    pub(crate) in_turn: bool,
    /// stdin may still bring commands.
    pub(crate) input_open: bool,
    /// stdin held something that cannot be parsed: the text for stderr.
    pub(crate) input_error: Option<String>,
    pub(crate) tasks: Vec<Task>,
    /// Commands that are about to be queued.
    pub(crate) input_pending: usize,
    /// Foreground things that ended, by the id of their tool call.
    pub(crate) ended: Vec<String>,
    /// Lines that are held at the door: message, hold and the sender's pid.
    pub(crate) held: Vec<(String, String, u32)>,
    /// What becomes of lines; unless it is open, nothing new begins.
    pub(crate) intake: Intake,
}

impl State {
    /// Takes the command that is due: by priority, then by age. Those of the same priority and
    /// sender that stand behind it come along, up to the first of another sender.
    pub(crate) fn take(&mut self) -> Option<Command> {
        let best = self.queue.iter().map(|c| c.priority).min()?;
        let mut batch: Vec<Command> = Vec::new();
        let mut kept = Vec::new();
        let mut over = false;
        for command in std::mem::take(&mut self.queue) {
            over |= command.priority == best
                && batch.first().is_some_and(|first| !first.takes(&command));
            if command.priority == best && !over {
                batch.push(command);
            } else {
                kept.push(command);
            }
        }
        self.queue = kept;
        Command::join(batch)
    }

    pub(crate) fn agents_alive(&self) -> bool {
        self.tasks.iter().any(|task| task.agent.is_some())
    }

    pub(crate) fn peers_waiting(&self) -> usize {
        self.queue
            .iter()
            .filter(|c| matches!(c.source, Source::Peer { .. }))
            .count()
    }
}

#[derive(Default)]
pub(crate) struct Hub {
    state: Mutex<State>,
    bell: Condvar,
}

impl Hub {
    /// Changes the state and wakes whoever waits.
    pub(crate) fn tell<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let answer = change(&mut lock(&self.state));
        self.bell.notify_all();
        answer
    }

    /// Reads the state.
    pub(crate) fn look<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&lock(&self.state))
    }

    /// Waits until `ready` gives something, or until the deadline.
    pub(crate) fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            if let Some(answer) = ready(&mut state) {
                return Some(answer);
            }
            let left = match deadline {
                Some(deadline) => deadline.checked_duration_since(Instant::now())?,
                None => Duration::from_secs(3600),
            };
            state = self
                .bell
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Sleeps; true when something wants the turn to end before that.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        self.wait(Some(Instant::now() + time), |s| {
            (s.stop.is_some() || s.interrupt).then_some(())
        })
        .is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::row;

    fn command(text: &str, priority: Priority, source: Source) -> Command {
        Command {
            merged: Vec::new(),
            uuid: format!("uuid of {text}"),
            text: text.to_owned(),
            priority,
            source,
            at_ms: 0,
        }
    }

    fn peer(text: &str, from: &str, priority: Priority) -> Command {
        let origin = row! { "msg_id": text };
        let sender = from.to_owned();
        command(text, priority, Source::Peer { origin, sender })
    }

    #[test]
    fn what_one_sender_sent_in_a_row_is_taken_as_one() {
        use Priority::{Later, Next};
        let mut state = State {
            queue: vec![
                peer("n0", "a", Next),
                peer("t0", "a", Later),
                peer("n1", "a", Next),
                peer("b0", "b", Next),
                peer("n2", "a", Next),
                command("typed", Next, Source::Sdk { named: true }),
                command("more", Next, Source::Sdk { named: true }),
            ],
            ..State::default()
        };
        let mut taken = Vec::new();
        while let Some(command) = state.take() {
            taken.push((command.text, command.uuid, command.merged.len()));
        }
        let expected = [
            ("n0\nn1", "n1", 1),
            ("b0", "b0", 0),
            ("n2", "n2", 0),
            ("typed\nmore", "more", 1),
            ("t0", "t0", 0),
        ];
        let expected =
            expected.map(|(text, last, n)| (text.to_owned(), format!("uuid of {last}"), n));
        assert_eq!(taken, expected);
    }

    #[test]
    fn the_first_one_s_origin_stands_for_all() {
        let mut state = State {
            queue: vec![
                peer("1", "a", Priority::Next),
                peer("2", "a", Priority::Next),
            ],
            ..State::default()
        };
        let Some(Source::Peer { origin, .. }) = state.take().map(|c| c.source) else {
            panic!("no line was taken");
        };
        assert_eq!(origin.line(), r#"{"msg_id":"1"}"#);
    }
}
