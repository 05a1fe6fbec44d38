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
    /// The door.
    Peer { origin: Row },
    /// A background task that ended.
    Task {
        origin: Row,
        tools_used: Option<String>,
    },
}

/// Something that waits to be said to the model.
#[derive(Clone)]
pub(crate) struct Command {
    pub(crate) uuid: String,
    pub(crate) text: String,
    pub(crate) priority: Priority,
    pub(crate) source: Source,
    pub(crate) at_ms: u64,
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
    /// No more lines are taken.
    pub(crate) closing: bool,
}

impl State {
    /// Takes the command that is due: by priority, then by age.
    pub(crate) fn take(&mut self) -> Option<Command> {
        let best = self.queue.iter().map(|c| c.priority).min()?;
        let at = self.queue.iter().position(|c| c.priority == best)?;
        Some(self.queue.remove(at))
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
