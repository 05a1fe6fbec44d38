//! The verdict: from what is known of a run to its class, cause and text. One pure function.
//!
//! It reads structured fields, never the model's prose. The only texts it knows are claude's own
//! fixed messages in `SAID_ON_STDERR`, for what is told nowhere else. claude's exit code decides
//! little: 0 can be an interruption or an API error, 1 can be a good answer.

use serde::{Deserialize, Serialize};

use super::observed::Observed;
use super::row::{ApiError, ResultRow};
use super::stop::{StopReason, StopRecord};
use super::watchdog::Clock;
use crate::exit::{Cause, Class};

/// Everything that the verdict looks at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What the rows told.
    pub observed: &'a Observed,
    /// How claude ended.
    pub ending: &'a Ending,
    /// Whether and why oo ended it.
    pub stop: Option<&'a StopRecord>,
    /// The end of claude's stderr.
    pub stderr: &'a str,
    /// Whether the transcript's end marks an interruption.
    pub interrupted: bool,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited or was killed by a signal.
    Exited(Exit),
    /// It is gone, and whoever could have learnt how was gone before.
    Unknown,
    /// It never was: what the system said.
    NotSpawned(String),
}

/// An exit code or a signal, as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code, when it exited.
    pub code: Option<i32>,
    /// The signal, when one killed it.
    pub signal: Option<i32>,
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// The cause, unless the run completed or ran out of wall time.
    pub cause: Option<Cause>,
    /// The answer, when the run completed.
    pub text: Option<String>,
    /// The model's last words, when it did not.
    pub partial: Option<String>,
    /// Which result row decided.
    pub deciding: Option<usize>,
    /// What a reader should know besides, each a sentence.
    pub notes: Vec<String>,
}

/// What claude says on stderr, and nowhere else, when it refuses to begin (measured: 2.1.308 and
/// 2.1.332). Exact beginnings of a line, or a beginning and an end.
const SAID_ON_STDERR: [(&str, &str, Cause); 9] = [
    (
        "Error: Session ID ",
        " is already in use.",
        Cause::SessionInUse,
    ),
    (
        "No conversation found with session ID: ",
        "",
        Cause::SessionLost,
    ),
    (
        "--dangerously-skip-permissions cannot be used with root/sudo privileges",
        "",
        Cause::Permission,
    ),
    ("error: unknown option ", "", Cause::Configuration),
    ("error: option ", "", Cause::Configuration),
    (
        "Error: Invalid MCP configuration:",
        "",
        Cause::Configuration,
    ),
    ("Error: Settings file not found: ", "", Cause::Configuration),
    (
        "Error: System prompt file not found: ",
        "",
        Cause::Configuration,
    ),
    (
        "Error: Append system prompt file not found: ",
        "",
        Cause::Configuration,
    ),
];

/// The verdict on a run.
#[must_use]
pub fn verdict(facts: &Facts<'_>) -> Verdict {
    let deciding = facts.observed.deciding();
    let row = deciding.and_then(|index| facts.observed.results.get(index));
    let mut notes = Vec::new();
    let (class, cause) = judge(facts, row, &mut notes);
    let spoken = facts.observed.last_text.clone();
    let (text, partial) = if class == Class::Completed {
        match row
            .and_then(|row| row.text.clone())
            .filter(|text| !text.is_empty())
        {
            Some(text) => (Some(text), None),
            None => {
                if spoken.is_some() {
                    notes.push(
                        "claude's result was empty; the text is the model's last message"
                            .to_owned(),
                    );
                }
                (Some(spoken.unwrap_or_default()), None)
            }
        }
    } else {
        (None, spoken)
    };
    Verdict {
        class,
        cause,
        text,
        partial,
        deciding,
        notes,
    }
}

fn judge(
    facts: &Facts<'_>,
    row: Option<&ResultRow>,
    notes: &mut Vec<String>,
) -> (Class, Option<Cause>) {
    if let Ending::NotSpawned(_) = facts.ending {
        return failed(Cause::Spawn);
    }
    // What oo ended decides, unless the answer was whole before that.
    if let Some(stop) = facts.stop {
        // A turn that began after it, and was cut off, had an answer of its own to give.
        if !stop.after_answer || facts.observed.in_turn {
            return stopped(&stop.reason);
        }
        notes.push(match stop.reason {
            StopReason::Clock(Clock::Drain) => {
                "late exit: claude gave its result and did not leave; oo ended it".to_owned()
            }
            StopReason::Clock(_)
            | StopReason::Signal(_)
            | StopReason::Auth
            | StopReason::Doorman => "oo was asked to stop after the answer was whole".to_owned(),
        });
    }
    match row {
        // A further turn had begun and gave no result: the row is an earlier turn's.
        Some(_) if facts.observed.in_turn => without_result(facts),
        Some(row) => by_result(facts, row, notes),
        None => without_result(facts),
    }
}

fn stopped(reason: &StopReason) -> (Class, Option<Cause>) {
    match reason {
        StopReason::Clock(clock) => (
            Class::Timeout,
            match clock {
                Clock::FirstOutput => Some(Cause::SilentStart),
                Clock::Idle | Clock::Tool | Clock::Drain => Some(Cause::Stalled),
                Clock::Background => Some(Cause::UnfinishedBackground),
                Clock::Wall => None,
            },
        ),
        StopReason::Signal(_) => (Class::Cancelled, Some(Cause::Interrupted)),
        StopReason::Auth => failed(Cause::Auth),
        StopReason::Doorman => failed(Cause::Doorman),
    }
}

fn by_result(
    facts: &Facts<'_>,
    row: &ResultRow,
    notes: &mut Vec<String>,
) -> (Class, Option<Cause>) {
    let reason = row.terminal_reason.as_deref();
    let success = row.subtype.as_deref() == Some("success") || row.subtype.is_none();
    let plain = matches!(reason, None | Some("completed"));
    if !(success && plain && row.is_error != Some(true)) {
        return failed(cause_of(facts, row));
    }
    // An empty answer is one; none at all is not.
    if row.text.is_none() && facts.observed.last_text.is_none() {
        return failed(Cause::NoResult);
    }
    if facts
        .observed
        .tasks
        .values()
        .any(super::observed::Task::is_unfinished)
    {
        return failed(Cause::UnfinishedBackground);
    }
    if let Ending::Exited(exit) = facts.ending
        && facts.stop.is_none()
        && *exit
            != (Exit {
                code: Some(0),
                signal: None,
            })
    {
        notes.push(format!(
            "claude gave its answer and then {}",
            exit.sentence()
        ));
    }
    (Class::Completed, None)
}

/// The cause that a result row gives for its failure.
fn cause_of(facts: &Facts<'_>, row: &ResultRow) -> Cause {
    match row.subtype.as_deref() {
        Some("error_max_turns") => return Cause::MaxTurns,
        Some("error_max_budget_usd") => return Cause::Budget,
        _ => {}
    }
    if let Some(cause) = row.errors.iter().find_map(|text| said(text)) {
        return cause;
    }
    match row.terminal_reason.as_deref() {
        Some("max_turns") => return Cause::MaxTurns,
        Some("budget_exhausted") => return Cause::Budget,
        Some("prompt_too_long" | "blocking_limit") => return Cause::ContextFull,
        Some("aborted_streaming" | "aborted_tools") => return Cause::Interrupted,
        Some("hook_stopped" | "stop_hook_prevented") => return Cause::Hook,
        Some("tool_deferred") => return Cause::Permission,
        Some("background_requested") => return Cause::UnfinishedBackground,
        Some("image_error") => return Cause::InvalidRequest,
        _ => {}
    }
    let error = ApiError {
        kind: facts
            .observed
            .last_error
            .as_ref()
            .and_then(|error| error.kind.clone()),
        status: row.api_error_status,
        api_kind: row.api_error_type.clone(),
    };
    api_cause(&error)
}

/// The cause of a failed API request. The API's own word and claude's word for the account come
/// first, then the HTTP status, then claude's word for the rest: that one calls a 529
/// `server_error` and a 400 `unknown` (measured: 2.1.332).
fn api_cause(error: &ApiError) -> Cause {
    let words = [error.api_kind.as_deref(), error.kind.as_deref()];
    if words.contains(&Some("billing_error")) {
        return Cause::Billing;
    }
    match error.status {
        Some(401 | 403) => return Cause::Auth,
        Some(402) => return Cause::Billing,
        Some(404) => return Cause::Model,
        Some(429) => return Cause::RateLimit,
        Some(529) => return Cause::Overloaded,
        Some(400 | 413 | 422) => return Cause::InvalidRequest,
        Some(500..) => return Cause::Api,
        Some(_) | None => {}
    }
    match error.kind.as_deref() {
        Some("authentication_failed") => Cause::Auth,
        Some("rate_limit") => Cause::RateLimit,
        Some("overloaded") => Cause::Overloaded,
        Some("invalid_request") => Cause::InvalidRequest,
        Some("model_not_found") => Cause::Model,
        _ => Cause::Api,
    }
}

fn without_result(facts: &Facts<'_>) -> (Class, Option<Cause>) {
    let observed = facts.observed;
    if let Some(cause) = facts.stderr.lines().find_map(said) {
        return failed(cause);
    }
    if let Some(error) = &observed.last_error {
        return failed(api_cause(error));
    }
    let killed = match facts.ending {
        // 128 + n is what claude exits with after it caught signal n.
        Ending::Exited(exit) => {
            exit.signal.is_some() || matches!(exit.code, Some(129 | 130 | 131 | 137 | 143))
        }
        Ending::Unknown | Ending::NotSpawned(_) => false,
    };
    if killed {
        return failed(Cause::Signal);
    }
    if observed.interrupted || facts.interrupted {
        return failed(Cause::Interrupted);
    }
    if *facts.ending == Ending::Unknown {
        return failed(Cause::LostSupervisor);
    }
    failed(if observed.rows == 0 {
        Cause::NoOutput
    } else {
        Cause::NoResult
    })
}

fn said(line: &str) -> Option<Cause> {
    SAID_ON_STDERR.iter().find_map(|(begins, ends, cause)| {
        (line.starts_with(begins) && line.trim_end().ends_with(ends)).then_some(*cause)
    })
}

const fn failed(cause: Cause) -> (Class, Option<Cause>) {
    (Class::Failed, Some(cause))
}

impl Exit {
    /// `exited with code 1`, `was killed by signal 9`.
    #[must_use]
    pub fn sentence(self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exited with code {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
