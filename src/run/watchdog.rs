//! The clocks of a run: when has something taken too long?
//!
//! Each clock is of its own: a quiet tool does not eat the model's time, a heartbeat of a tool
//! does not feed the tool's clock, and a first result does not end the life of a sub-agent. While
//! a session is held open, its rest between turns has a clock that closes it and ends nothing. The
//! watchdog is plain data; times are durations since the spawn, so that it can be tested without
//! waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::observed::Observed;
use super::row::{Block, Message, Row};

/// How long each thing may take; nothing means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// From the spawn to the first byte.
    #[serde(with = "milliseconds")]
    pub first_output: Option<Duration>,
    /// Silence of the model.
    #[serde(with = "milliseconds")]
    pub idle: Option<Duration>,
    /// One tool call.
    #[serde(with = "milliseconds")]
    pub tool: Option<Duration>,
    /// Background tasks, after the last result.
    #[serde(with = "milliseconds")]
    pub background: Option<Duration>,
    /// From the last result to the exit, with nothing alive.
    #[serde(with = "milliseconds")]
    pub drain: Option<Duration>,
    /// The whole run.
    #[serde(with = "milliseconds")]
    pub wall: Option<Duration>,
    /// Between the rungs of the stop ladder.
    #[serde(with = "milliseconds::plain")]
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        Self {
            first_output: Some(Duration::from_secs(2 * MINUTE)),
            idle: Some(Duration::from_secs(10 * MINUTE)),
            tool: Some(Duration::from_secs(30 * MINUTE)),
            background: Some(Duration::from_secs(10 * MINUTE)),
            drain: Some(Duration::from_secs(15)),
            wall: None,
            grace: Duration::from_secs(5),
        }
    }
}

/// How a session is held open: stdin stays open, and each line that comes starts a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// How long it may be idle before its stdin is closed; nothing means for ever, zero that it is
    /// closed as soon as it is idle.
    #[serde(with = "milliseconds")]
    pub idle: Option<Duration>,
}

/// What is due when a time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A clock has run out: the run is to be ended.
    Clock(Clock),
    /// A held session was idle for as long as it may: its stdin is to be closed. No fault of
    /// anybody's, and so no clock.
    Close,
}

/// Names a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// [`Limits::first_output`].
    FirstOutput,
    /// [`Limits::idle`].
    Idle,
    /// [`Limits::tool`].
    Tool,
    /// [`Limits::background`].
    Background,
    /// [`Limits::drain`].
    Drain,
    /// [`Limits::wall`].
    Wall,
}

impl Clock {
    /// The option that sets it.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::FirstOutput => "--first-output",
            Self::Idle => "--idle-timeout",
            Self::Tool => "--tool-timeout",
            Self::Background => "--background-timeout",
            Self::Drain => "--drain",
            Self::Wall => "--timeout",
        }
    }

    /// What took too long, as a fragment.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::FirstOutput => "claude wrote nothing",
            Self::Idle => "the model was silent",
            Self::Tool => "a tool call did not end",
            Self::Background => "background tasks did not end after the last result",
            Self::Drain => "claude did not exit after its last result",
            Self::Wall => "the run took longer than allowed",
        }
    }

    /// Its limit.
    #[must_use]
    pub const fn limit(self, limits: &Limits) -> Option<Duration> {
        match self {
            Self::FirstOutput => limits.first_output,
            Self::Idle => limits.idle,
            Self::Tool => limits.tool,
            Self::Background => limits.background,
            Self::Drain => limits.drain,
            Self::Wall => limits.wall,
        }
    }
}

/// Which clocks run, and since when.
#[derive(Clone, Debug)]
pub struct Watchdog {
    limits: Limits,
    /// While stdin is open.
    hold: Option<Hold>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Not a byte yet.
    Starting,
    /// A turn is under way. With a tool in flight only the tools' clocks run.
    Turn {
        active: Duration,
        tools: BTreeMap<String, Duration>,
    },
    /// After a result.
    Resting { since: Duration, alive: bool },
}

impl Watchdog {
    /// The clocks at the spawn.
    #[must_use]
    pub const fn new(limits: Limits, hold: Option<Hold>) -> Self {
        Self {
            limits,
            hold,
            phase: Phase::Starting,
        }
    }

    /// Something was written, be it no whole row: the model's silence begins anew.
    pub fn bytes(&mut self, now: Duration) {
        match &mut self.phase {
            Phase::Starting => {
                self.phase = Phase::Turn {
                    active: now,
                    tools: BTreeMap::new(),
                }
            }
            Phase::Turn { active, .. } => *active = now,
            Phase::Resting { .. } => {}
        }
    }

    /// A row came; `observed` has taken it in already.
    pub fn row(&mut self, now: Duration, row: &Row, observed: &Observed) {
        self.bytes(now);
        if !observed.results.is_empty() && !observed.in_turn {
            let alive = observed.live_tasks() > 0 || !observed.tools.is_empty();
            let since = match self.phase {
                // The clock starts anew when the last of what lived has ended.
                Phase::Resting {
                    since,
                    alive: before,
                } if before == alive => since,
                Phase::Starting | Phase::Turn { .. } | Phase::Resting { .. } => now,
            };
            self.phase = Phase::Resting { since, alive };
            return;
        }
        if let Phase::Resting { .. } = self.phase {
            self.phase = Phase::Turn {
                active: now,
                tools: BTreeMap::new(),
            };
        }
        let Phase::Turn { active, tools } = &mut self.phase else {
            return;
        };
        match row {
            Row::Assistant(message) | Row::User(message) => tool_calls(tools, now, message),
            // claude waits on purpose; its silence starts when the wait is over.
            Row::Retry(retry) => {
                let wait = retry.retry_delay_ms.unwrap_or(0.0).max(0.0) / 1000.0;
                *active = now.saturating_add(Duration::try_from_secs_f64(wait).unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Something moved at that time, though stdout is silent: the transcript or a sub-agent's has
    /// grown, or claude wrote to stderr.
    pub fn moved(&mut self, at: Duration) {
        if let Phase::Turn { active, .. } = &mut self.phase {
            *active = at.max(*active);
        }
    }

    /// stdin was closed: a claude that rests is expected to leave, from now on.
    pub fn closed(&mut self, now: Duration) {
        if self.hold.take().is_some()
            && let Phase::Resting {
                since,
                alive: false,
            } = &mut self.phase
        {
            *since = now;
        }
    }

    /// What is due next, and when. Nothing when no clock runs.
    #[must_use]
    pub fn next(&self) -> Option<(Duration, Due)> {
        let phase = match &self.phase {
            Phase::Starting => self.at(Duration::ZERO, Clock::FirstOutput),
            Phase::Turn { active, tools } => match tools.values().min() {
                Some(oldest) => self.at(*oldest, Clock::Tool),
                None => self.at(*active, Clock::Idle),
            },
            Phase::Resting { since, alive: true } => self.at(*since, Clock::Background),
            Phase::Resting {
                since,
                alive: false,
            } => match self.hold {
                Some(hold) => hold
                    .idle
                    .and_then(|idle| Some((since.checked_add(idle)?, Due::Close))),
                None => self.at(*since, Clock::Drain),
            },
        };
        let wall = self.at(Duration::ZERO, Clock::Wall);
        phase.into_iter().chain(wall).min_by_key(|(at, _)| *at)
    }

    /// What is due now, if anything is.
    #[must_use]
    pub fn due(&self, now: Duration) -> Option<Due> {
        self.next().filter(|(at, _)| *at <= now).map(|(_, due)| due)
    }

    fn at(&self, since: Duration, clock: Clock) -> Option<(Duration, Due)> {
        let limit = clock.limit(&self.limits)?;
        Some((since.checked_add(limit)?, Due::Clock(clock)))
    }
}

/// Starts and stops the clocks of tool calls. A row of a sub-agent shows that the call it belongs
/// to moves, so that call's clock starts anew.
fn tool_calls(tools: &mut BTreeMap<String, Duration>, now: Duration, message: &Message) {
    if let Some(since) = message
        .parent
        .as_ref()
        .and_then(|parent| tools.get_mut(parent))
    {
        *since = now;
    }
    for block in &message.blocks {
        match block {
            Block::ToolUse { id, .. } => drop(tools.insert(id.clone(), now)),
            Block::ToolResult { id, .. } => drop(tools.remove(id)),
            Block::Text(_) | Block::Other => {}
        }
    }
}

/// Durations in records are whole milliseconds.
mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option, reason = "the signature that serde calls")]
    pub(super) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(whole).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }

    fn whole(value: Duration) -> u64 {
        u64::try_from(value.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) mod plain {
        use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, whole};

        pub(in super::super) fn serialize<S: Serializer>(
            value: &Duration,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            whole(*value).serialize(serializer)
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Duration, D::Error> {
            Ok(Duration::from_millis(u64::deserialize(deserializer)?))
        }
    }
}

#[cfg(test)]
mod tests;
