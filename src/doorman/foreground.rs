//! A doorman by hand: one that somebody runs for a session whose claude has none of its own.
//!
//! - The session needs its owner's registry row. Variables name no session and no door here: they
//!   are inherited by whoever is started inside one.
//! - Run by a tool of that very session it delivers nothing: the tool would wait for a line that
//!   is only read when the tool has ended.
//! - A claude in bypassPermissions lets in its own descendants alone: from anybody else lines are
//!   held, and the writer is not told (measured: 2.1.308, 2.1.332). There it delivers nothing.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::attend::attend;
use super::reach::Reach;
use super::seat::Seat;
use super::{Doorman, Post};
use crate::error::{Error, Result};
use crate::inbox::{Inbox, State};
use crate::platform::environment::Environment;
use crate::platform::pidfd::PidFd;
use crate::platform::process;
use crate::platform::runtime;
use crate::platform::signals::StopSignals;
use crate::session::ancestry::{self, Programs};
use crate::session::config_dir;
use crate::session::registry::{self, Row};
use crate::session::transcript;
use crate::store::StateDir;

/// How long `--once` waits for what it has offered.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The mode in which lines from outside are held.
const HOLDS_STRANGERS: &str = "bypassPermissions";

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything that waited has been seen, or it was asked to stop with nothing left.
    Delivered {
        /// Lines that reached the model's context.
        delivered: u64,
    },
    /// Nothing can be delivered from here, for this reason.
    NotHere(String),
    /// Lines are left; they wait.
    Left {
        /// How many.
        pending: u64,
        /// What went wrong, if it is known.
        trouble: Option<String>,
    },
}

/// Carries the lines of `session` until its claude ends or a signal comes; with `once` until
/// what waits has been seen, at most for [`PATIENCE`].
///
/// # Errors
/// When the state folder cannot be used, or the process cannot get what it needs.
pub fn carry(environment: &Environment, session: Option<Uuid>, once: bool) -> Result<Outcome> {
    if super::is_off(environment) {
        return Ok(Outcome::NotHere("OO_DOORMAN is 0".to_owned()));
    }
    let row = match owner(environment, session)? {
        Ok(row) => row,
        Err(why) => return Ok(Outcome::NotHere(why)),
    };
    let reach = Reach::outside(environment, row.process.clone());
    if let Err(why) = reach.door(Some(&row)) {
        return Ok(Outcome::NotHere(why));
    }
    let mode = reach
        .transcript(row.session_id, Some(&row))
        .and_then(|transcript| transcript::permission_mode(&transcript).ok().flatten());
    if mode.as_deref() == Some(HOLDS_STRANGERS) {
        return Ok(Outcome::NotHere(format!(
            "the session is in {HOLDS_STRANGERS}, where only its own children get through"
        )));
    }
    let state = StateDir::locate(environment)?;
    state.prepare()?;
    let inbox = Inbox::of(&state, row.session_id);
    inbox.create()?;
    let seat = Seat::take(inbox, reach);
    if once && seat.state() == State::Standby {
        let why = seat.trouble().unwrap_or("the inbox has a doorman already");
        return Ok(Outcome::NotHere(why.to_owned()));
    }
    let fail = |e: std::io::Error| Error::failed(format!("cannot start the doorman: {e}"));
    runtime::on_this_thread().map_err(fail)?.block_on(async {
        let mut stop = StopSignals::listen().map_err(fail)?;
        let handle = PidFd::open(row.process.pid).map_err(fail)?;
        let peer = row.process.clone();
        let ended = async {
            // Another may have had its pid before the handle was there.
            if peer.lives() && handle.ended().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let mut doorman = Doorman {
            post: Post::Seated(Box::new(seat)),
            environment: environment.clone(),
            greeted: true,
            held: None,
            busy: true,
            left: None,
            until: once.then(|| Instant::now() + PATIENCE),
        };
        attend(&mut doorman, None, ended, &mut stop).await;
        Ok(outcome(&mut doorman))
    })
}

fn outcome(doorman: &mut Doorman) -> Outcome {
    let status = doorman.status();
    if status.pending == 0 {
        return Outcome::Delivered {
            delivered: status.delivered,
        };
    }
    Outcome::Left {
        pending: status.pending,
        trouble: status.reason,
    }
}

/// The row of the one claude that has the session, or why there is none to deliver to.
fn owner(
    environment: &Environment,
    session: Option<Uuid>,
) -> Result<std::result::Result<Row, String>> {
    let config = config_dir(environment);
    let own = nix::unistd::getpid().as_raw();
    let around = ancestry::owner_of(own, config.as_deref(), &Programs::known(environment))
        .and_then(|owner| owner.session);
    let Some(session) = session.or(around) else {
        return Ok(Err("no session is named, and none is around".to_owned()));
    };
    let Some(config) = config else {
        return Ok(Err("neither HOME nor CLAUDE_CONFIG_DIR is set".to_owned()));
    };
    let inside = around == Some(session)
        || process::ancestors(own).any(|ancestor| {
            registry::live_row(&config, ancestor.pid).is_some_and(|row| row.session_id == session)
        });
    if inside {
        return Ok(Err(format!(
            "this runs inside the session {session}, which reads no line before its tool has ended"
        )));
    }
    let mut rows: Vec<Row> = registry::list(&config)?
        .rows
        .into_iter()
        .filter(|row| row.session_id == session && row.live())
        .collect();
    Ok(match (rows.pop(), rows.len()) {
        (None, _) => Err(format!(
            "no live claude has the session {session}: there is no such row in {}",
            config.join("sessions").display()
        )),
        (Some(row), 0) => Ok(row),
        (Some(_), others) => Err(format!(
            "{} processes have the session {session} at once",
            others + 1
        )),
    })
}
