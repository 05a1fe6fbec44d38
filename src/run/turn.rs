//! The turn of whoever wants to go on with a session: one at any time.
//!
//! The session's lock is taken first, and then it is looked for holders that know nothing of it. So
//! of any number of callers one gets its turn, and whoever is refused leaves no trace in the
//! session.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::holders::{Holder, Look};
use super::launch::{self, Taken};
use crate::error::{Error, Kind, Result};
use crate::platform::pidfd::PidFd;
use crate::platform::runtime;
use crate::platform::signals::{StopSignal, StopSignals};
use crate::store::Lock;

/// How often it is looked while a holder stays: one may give the session up and live on.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The pause before the next look at a holder whose process is not known, or is gone already.
const LOOK_OFTEN: Duration = Duration::from_millis(50);

/// What came of asking for a turn.
#[derive(Debug)]
pub enum Turn {
    /// It is ours as long as this lives.
    Ours(Lock),
    /// Somebody else has the session.
    Held(Holder),
    /// A signal ended the wait.
    Stopped(StopSignal),
}

/// Asks for a turn in a session, and waits for it as long as `wait` says.
///
/// # Errors
/// Refused when the lock cannot be used, or nobody can tell who has the session.
pub fn take(look: &Look<'_>, session: Uuid, wait: Option<Duration>) -> Result<Turn> {
    look.state.prepare()?;
    let first = ask(look, session)?;
    match (first, wait) {
        (Turn::Held(holder), Some(wait)) if !wait.is_zero() => {
            let runtime = runtime::on_this_thread()
                .map_err(|e| Error::refused(format!("cannot wait for session {session}: {e}")))?;
            runtime.block_on(wait_for(look, session, holder, wait))
        }
        (turn, _) => Ok(turn),
    }
}

fn ask(look: &Look<'_>, session: Uuid) -> Result<Turn> {
    let path = look.state.session_lock(&session.to_string());
    Ok(match launch::take(&path)? {
        Taken::Ours(lock) => match look.holder(session)? {
            Some(holder) => Turn::Held(holder),
            None => Turn::Ours(lock),
        },
        Taken::Held => Turn::Held(look.of_lock(session)?),
    })
}

async fn wait_for(
    look: &Look<'_>,
    session: Uuid,
    mut holder: Holder,
    wait: Duration,
) -> Result<Turn> {
    let mut signals = StopSignals::listen()
        .map_err(|e| Error::failed(format!("cannot take signals: {e}")).with_kind(Kind::Refused))?;
    // A wait beyond the clock's end has none.
    let deadline = Instant::now().checked_add(wait);
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(Turn::Held(holder));
        }
        let process = holder.ends_with.and_then(|pid| PidFd::open(pid).ok());
        let pause = if process.is_some() {
            LOOK_EVERY
        } else {
            LOOK_OFTEN
        };
        let next = deadline.map_or(now + pause, |deadline| deadline.min(now + pause));
        let ended = async {
            match &process {
                Some(process) => process.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            signal = signals.next() => return Ok(Turn::Stopped(signal)),
            _ = ended => {}
            () = sleep_until(next) => {}
        }
        match ask(look, session)? {
            Turn::Held(other) => {
                // Of a process that has ended and holds on, as a zombie may for a moment.
                if other.ends_with == holder.ends_with && Instant::now() < next {
                    tokio::time::sleep(LOOK_OFTEN).await;
                }
                holder = other;
            }
            turn => return Ok(turn),
        }
    }
}
