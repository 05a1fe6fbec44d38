//! Classes, causes and exit codes: the words in which oo answers.
//!
//! Scripts read these names and numbers, so they are fixed. Each is an enum, and every number
//! comes out of one exhaustive match ([`Class::exit_code`]); `docs/exit-codes.md` is generated
//! from the tables here and a test holds it to them.

mod send;
pub mod table;

pub use send::SendClass;

use serde::{Deserialize, Serialize};

/// The exit code of a usage error, for every verb.
pub const USAGE: u8 = 2;

/// The exit code of a doorman that can deliver nothing from where it is.
pub const NOT_DELIVERABLE: u8 = 3;

/// The exit code of a doorman that leaves with lines left.
pub const DELIVERY_FAILED: u8 = 4;

/// What became of a run. What became of a line is a [`SendClass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Class {
    /// The model finished its turn and the answer is whole.
    Completed,
    /// The same, of a session that was resumed.
    DeliveredResume,
    /// The run goes on in a unit of its own.
    Started,
    /// Nothing was spawned: the request could not be honoured as it was put.
    Refused,
    /// Nothing was spawned: somebody else has the session.
    HeldBySession,
    /// Something was spawned and it did not give an answer.
    Failed,
    /// The same, of a session that was resumed; or there is no such session.
    Error,
    /// One of oo's clocks ran out and oo ended the run; the cause says which.
    Timeout,
    /// Somebody asked oo to stop.
    Cancelled,
}

impl Class {
    /// Every class, in the order of the documents.
    pub const ALL: [Self; 9] = [
        Self::Completed,
        Self::DeliveredResume,
        Self::Started,
        Self::Refused,
        Self::HeldBySession,
        Self::Failed,
        Self::Error,
        Self::Timeout,
        Self::Cancelled,
    ];

    /// The exit code that this class has, the same for every verb that has the class.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Completed | Self::DeliveredResume | Self::Started => 0,
            Self::Refused => 1,
            Self::HeldBySession => 3,
            Self::Failed | Self::Error => 4,
            Self::Timeout => 5,
            Self::Cancelled => 6,
        }
    }

    /// The class by the name that it has for this verb: what `start` calls completed and failed,
    /// `resume` calls delivered-resume and error.
    #[must_use]
    pub const fn of(self, verb: Verb) -> Self {
        match (verb, self) {
            (Verb::Resume, Self::Completed) => Self::DeliveredResume,
            (Verb::Resume, Self::Failed) => Self::Error,
            (Verb::Start | Verb::Resume | Verb::Send, class) => class,
        }
    }

    /// Whether there is an answer, and it is whole.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::Completed | Self::DeliveredResume)
    }

    /// Whether something went wrong that may go wrong again.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Error | Self::Timeout)
    }

    /// The class as it is written in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::DeliveredResume => "delivered-resume",
            Self::Started => "started",
            Self::Refused => "refused",
            Self::HeldBySession => "held-by-session",
            Self::Failed => "failed",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        }
    }

    /// What the class means, in one sentence for the documents.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Completed => "The model finished, and the answer is whole.",
            Self::DeliveredResume => {
                "The resumed session took the line, the model finished, and the answer is whole."
            }
            Self::Started => "The run goes on in a unit of its own.",
            Self::Refused => "Nothing was spawned; the message says what to change.",
            Self::HeldBySession => {
                "Nothing was spawned and the session is untouched: somebody else has it; `holder` says who."
            }
            Self::Failed => "claude was spawned and gave no answer; the cause says why.",
            Self::Error => {
                "The resumed session gave no answer, or there is no such session; the cause says why."
            }
            Self::Timeout => "A clock of oo's ran out and oo ended the run; the cause says which.",
            Self::Cancelled => "Somebody stopped the run.",
        }
    }
}

/// Why a run did not simply complete. An open set: readers must expect new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// The credentials were refused.
    Auth,
    /// The account cannot pay.
    Billing,
    /// Too many requests, and claude's retries are used up.
    RateLimit,
    /// The service is overloaded, and claude's retries are used up.
    Overloaded,
    /// The model does not exist or may not be used.
    Model,
    /// The service refused the request as malformed.
    InvalidRequest,
    /// Any other fault of the service.
    Api,
    /// The limit of turns was reached.
    MaxTurns,
    /// The budget was spent.
    Budget,
    /// The context window is full.
    ContextFull,
    /// The turn was interrupted.
    Interrupted,
    /// claude ended without a byte on stdout.
    NoOutput,
    /// claude ended without a result row.
    NoResult,
    /// Nothing moved for longer than the clock allows.
    Stalled,
    /// claude never said a word.
    SilentStart,
    /// claude could not be started.
    Spawn,
    /// claude was ended by a signal that was not oo's.
    Signal,
    /// The kernel ended claude for its memory.
    Oom,
    /// The doorman did not come up.
    Doorman,
    /// A permission that the run needed was denied.
    Permission,
    /// claude ended while background work was not done.
    UnfinishedBackground,
    /// The session does not exist.
    SessionLost,
    /// The session is in use.
    SessionInUse,
    /// The supervisor died, and nothing better is known.
    LostSupervisor,
    /// There was nothing to act on.
    NotRunning,
    /// A hook of the user's stopped the run.
    Hook,
    /// claude refused its own command line or configuration.
    Configuration,
}

impl Cause {
    /// Every cause, in the order of the documents.
    pub const ALL: [Self; 27] = [
        Self::Auth,
        Self::Billing,
        Self::RateLimit,
        Self::Overloaded,
        Self::Model,
        Self::InvalidRequest,
        Self::Api,
        Self::MaxTurns,
        Self::Budget,
        Self::ContextFull,
        Self::Interrupted,
        Self::NoOutput,
        Self::NoResult,
        Self::Stalled,
        Self::SilentStart,
        Self::Spawn,
        Self::Signal,
        Self::Oom,
        Self::Doorman,
        Self::Permission,
        Self::UnfinishedBackground,
        Self::SessionLost,
        Self::SessionInUse,
        Self::LostSupervisor,
        Self::NotRunning,
        Self::Hook,
        Self::Configuration,
    ];

    /// The cause as it is written in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Billing => "billing",
            Self::RateLimit => "rate-limit",
            Self::Overloaded => "overloaded",
            Self::Model => "model",
            Self::InvalidRequest => "invalid-request",
            Self::Api => "api",
            Self::MaxTurns => "max-turns",
            Self::Budget => "budget",
            Self::ContextFull => "context-full",
            Self::Interrupted => "interrupted",
            Self::NoOutput => "no-output",
            Self::NoResult => "no-result",
            Self::Stalled => "stalled",
            Self::SilentStart => "silent-start",
            Self::Spawn => "spawn",
            Self::Signal => "signal",
            Self::Oom => "oom",
            Self::Doorman => "doorman",
            Self::Permission => "permission",
            Self::UnfinishedBackground => "unfinished-background",
            Self::SessionLost => "session-lost",
            Self::SessionInUse => "session-in-use",
            Self::LostSupervisor => "lost-supervisor",
            Self::NotRunning => "not-running",
            Self::Hook => "hook",
            Self::Configuration => "configuration",
        }
    }

    /// What happened, in one sentence for a person.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Auth => "the API refused the credentials",
            Self::Billing => "the account cannot pay for the request",
            Self::RateLimit => "the API's rate limit held until claude's retries were used up",
            Self::Overloaded => "the API stayed overloaded until claude's retries were used up",
            Self::Model => "the model does not exist, or this account may not use it",
            Self::InvalidRequest => "the API refused the request as invalid",
            Self::Api => "the API failed",
            Self::MaxTurns => "the limit of turns was reached before the model was done",
            Self::Budget => "the budget was spent before the model was done",
            Self::ContextFull => "the conversation no longer fits the model's context",
            Self::Interrupted => "the turn was interrupted",
            Self::NoOutput => "claude ended without writing a byte to stdout",
            Self::NoResult => "claude ended without a result",
            Self::Stalled => "nothing moved for longer than the clock allows",
            Self::SilentStart => "claude never wrote its first row",
            Self::Spawn => "claude could not be started",
            Self::Signal => "claude was ended by a signal that oo did not send",
            Self::Oom => "the kernel ended claude for its memory",
            Self::Doorman => "the doorman did not connect to the session",
            Self::Permission => "a permission that the run needs was denied",
            Self::UnfinishedBackground => "background work was not done when the run ended",
            Self::SessionLost => "there is no such session",
            Self::SessionInUse => "the session is in use",
            Self::LostSupervisor => "the supervisor of this run died, and the result is not known",
            Self::NotRunning => "nothing is running",
            Self::Hook => "a hook stopped the run",
            Self::Configuration => "claude refused its command line or configuration",
        }
    }

    /// Whether it cuts a turn short that can be gone on with: a limit, or a crash.
    #[must_use]
    pub const fn cuts_short(self) -> bool {
        matches!(
            self,
            Self::RateLimit
                | Self::Overloaded
                | Self::Api
                | Self::MaxTurns
                | Self::Budget
                | Self::Interrupted
                | Self::NoResult
                | Self::Stalled
                | Self::Signal
                | Self::Oom
                | Self::UnfinishedBackground
                | Self::LostSupervisor
        )
    }

    /// What a person can do next.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Auth => {
                "check ANTHROPIC_API_KEY (it outranks a login) or log in with `claude`; \
                 `oo doctor` shows which is in use"
            }
            Self::Billing => "add credit or change the plan; a retry does not help",
            Self::RateLimit => "wait for the limit to reset, then start again",
            Self::Overloaded => "start again in a few minutes",
            Self::Model => "check --model",
            Self::InvalidRequest => "see `results` in the result for what the API said",
            Self::Api => "see `results` and `retries` in the result; a later start may succeed",
            Self::MaxTurns => "raise --max-turns; the session keeps what was done",
            Self::Budget => "raise --budget; the session keeps what was done",
            Self::ContextFull => "start a new session with a shorter prompt",
            Self::Interrupted => "the session keeps what was done up to the interruption",
            Self::NoOutput => "run `claude -p` by hand in that HOME: is it logged in?",
            Self::NoResult => "see stderr_tail and the events file",
            Self::Stalled => "raise --idle-timeout if the work is known to be quiet",
            Self::SilentStart => "run `claude -p` by hand in that HOME, or raise --first-output",
            Self::Spawn => "check the claude binary with `oo doctor`",
            Self::Signal => "find out who sent it; the session keeps what was done",
            Self::Oom => "give the run more memory",
            Self::Doorman => "run `oo doctor`, or start with --no-doorman",
            Self::Permission => "allow it with --allowed-tools or --permission-mode",
            Self::UnfinishedBackground => "see `background` in the result for what was cut off",
            Self::SessionLost => "check the session id",
            Self::SessionInUse => "wait for its holder to leave",
            Self::LostSupervisor => "see the events file and the transcript for what was done",
            Self::NotRunning => "`oo runs` lists what there is",
            Self::Hook => "see the hook's output in the events file",
            Self::Configuration => "see stderr_tail for what claude said",
        }
    }
}

/// What somebody asked oo to do; recorded in results and receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verb {
    /// A new session.
    Start,
    /// A further turn of a session that sleeps.
    Resume,
    /// A line for a session.
    Send,
}

impl Verb {
    /// The verb as it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Resume => "resume",
            Self::Send => "send",
        }
    }

    /// The classes of a run that this verb launches; none when it launches none.
    #[must_use]
    pub fn classes(self) -> Vec<Class> {
        let all = |without: [Class; 3]| {
            let mut classes = Class::ALL.to_vec();
            classes.retain(|class| !without.contains(class));
            classes
        };
        match self {
            Self::Start => all([Class::DeliveredResume, Class::HeldBySession, Class::Error]),
            // `started` is for runs in a unit of their own.
            Self::Resume => all([Class::Completed, Class::Failed, Class::Started]),
            Self::Send => Vec::new(),
        }
    }

    /// The exit codes of the classes that this verb can end with, with their names, in the order
    /// of the codes.
    #[must_use]
    pub fn codes(self) -> Vec<(u8, &'static str)> {
        let mut codes: Vec<(u8, &'static str)> = match self {
            Self::Start | Self::Resume => self
                .classes()
                .into_iter()
                .map(|class| (class.exit_code(), class.name()))
                .collect(),
            Self::Send => SendClass::ALL
                .iter()
                .map(|class| (class.exit_code(), class.name()))
                .collect(),
        };
        codes.sort_by_key(|(code, _)| *code);
        codes
    }
}
