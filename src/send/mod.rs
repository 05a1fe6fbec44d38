//! Sending a line to a session: from a request to what became of it.
//!
//! ```text
//! Request ─► compose ─► the throttle and the append, under one lock ─► wait ─► Report
//! ```
//!
//! - What the doorman would refuse is refused here, before anything is written: [`compose`] makes
//!   the line and puts tag and frame around it as the doorman will.
//! - A class says no more than an ack does. Once the line is written, no fault of ours makes it
//!   unwritten: the report says where it is.
//! - [`sight`] tells whether anybody will carry the line; the wait is woken by its acks.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::inbox::{Follower, Inbox, LineState, PATIENCE, Priority, Written};
use crate::platform::signals::StopSignals;
use crate::platform::{clock, runtime};
use crate::store::StateDir;

pub mod compose;
mod outcome;
mod report;
pub mod sight;
mod wait;

pub use report::{DoormanSight, Report, SCHEMA};

/// How long [`send`] waits unless it is told otherwise.
pub const USUAL_WAIT: Duration = Duration::from_secs(30);

/// The interval of the throttle unless it is told otherwise.
pub const USUAL_INTERVAL: Duration = Duration::from_secs(30);

/// How far a line has to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Until {
    /// Written to the session's door
    Offered,
    /// In the queue that the session's transcript shows
    Accepted,
    /// In the model's context
    Seen,
}

impl Until {
    /// The state that is enough.
    #[must_use]
    pub const fn state(self) -> LineState {
        match self {
            Self::Offered => LineState::Offered,
            Self::Accepted => LineState::Accepted,
            Self::Seen => LineState::Seen,
        }
    }
}

/// What is to be sent, and what is waited for.
#[derive(Clone, Debug)]
pub struct Request {
    /// To whom.
    pub session: Uuid,
    /// The text.
    pub text: String,
    /// The sender as it calls itself; without one it is the calling session, else `user@host`.
    pub from: Option<String>,
    /// When it is to be read.
    pub priority: Priority,
    /// Whether the model is shown the sender and the id.
    pub tagged: bool,
    /// How far it has to come. Without a word: seen; or accepted, when a session writes to itself,
    /// since it reads nothing before the command that writes has ended.
    pub until: Option<Until>,
    /// How long that is waited for.
    pub wait: Duration,
    /// The interval of the throttle.
    pub min_interval: Duration,
}

/// Where it happens, and who asks.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The state folder.
    pub state: StateDir,
    /// claude's configuration folder.
    pub config: Option<PathBuf>,
    /// The session in which this was called.
    pub caller: Option<Uuid>,
}

/// A line that is in the inbox, and how its acks are followed.
struct Sent {
    written: Written,
    follower: Follower,
    notes: Vec<String>,
}

/// What came of the attempt to write a line.
enum Admission {
    Written(Box<Sent>),
    /// The sender has to wait until then.
    TooSoon(Timestamp),
}

/// Sends a line and waits as long as it was asked to.
#[must_use]
pub fn send(request: &Request, around: &Surroundings) -> Report {
    let mut report = Report::about(request.session, around);
    let sent = compose::compose(request, around).and_then(|letter| {
        report.from = letter.message.from.clone();
        let runtime = runtime::on_this_thread()
            .map_err(|e| Error::io("make a runtime for", Path::new("oo send"), e))?;
        runtime.block_on(deliver(request, around, &letter, &mut report))
    });
    if let Err(error) = sent {
        report.refuse(&error);
    }
    report
}

/// Fails only as long as nothing is written.
async fn deliver(
    request: &Request,
    around: &Surroundings,
    letter: &compose::Letter,
    report: &mut Report,
) -> Result<()> {
    around.state.prepare()?;
    // From here on a signal is answered with where the line is.
    let signals = StopSignals::listen()
        .map_err(|e| Error::io("listen for signals in", Path::new("oo send"), e))?;
    let inbox = Inbox::of(&around.state, request.session);
    let sender = letter.message.from.as_deref().unwrap_or_default();
    let sent = match write(&inbox, sender, &letter.line, request.min_interval)? {
        Admission::Written(sent) => *sent,
        Admission::TooSoon(retry_at) => {
            report.drop_until(retry_at, sender);
            return Ok(());
        }
    };
    let began = Instant::now();
    report.written(letter.message.msg_id, &inbox, &sent.written);
    report.note = (!sent.notes.is_empty()).then(|| sent.notes.join("; "));
    let mut waiting = wait::Waiting {
        state: &around.state,
        config: around.config.as_deref(),
        inbox: &inbox,
        written: sent.written,
        follower: sent.follower,
        until: until(request, around).state(),
        ack: None,
        sight: None,
    };
    let end = waiting.wait(request.wait, signals).await;
    report.waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    outcome::settle(report, request, around, &waiting, end);
    Ok(())
}

fn until(request: &Request, around: &Surroundings) -> Until {
    let usual = match around.caller {
        Some(caller) if caller == request.session => Until::Accepted,
        _ => Until::Seen,
    };
    request.until.unwrap_or(usual)
}

fn write(inbox: &Inbox, sender: &str, line: &[u8], interval: Duration) -> Result<Admission> {
    inbox.create()?;
    // Before the line is there: its first ack may come at once.
    let follower = Follower::new(inbox)?;
    let mut locked = inbox.lock(PATIENCE)?;
    let mut senders = locked.senders();
    let now = clock::now();
    if let Some(retry_at) = senders.not_before(sender, interval, now) {
        return Ok(Admission::TooSoon(retry_at));
    }
    let mut notes = Vec::new();
    if let Some(damage) = senders.damage() {
        notes.push(format!("{damage}: the throttle let the line pass"));
    }
    let written = locked.append(line)?;
    if let Err(error) = senders.record(sender, now) {
        notes.push(format!("{error}: the throttle will not know of this line"));
    }
    Ok(Admission::Written(Box::new(Sent {
        written,
        follower,
        notes,
    })))
}
