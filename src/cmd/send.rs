//! `oo send`: a line for a session.

use std::ffi::OsString;
use std::time::Duration;

use super::Context;
use super::asking::{self, Format};
use crate::error::{Error, Kind, Result};
use crate::exit::Class;
use crate::inbox::{LONGEST_INTERVAL, Priority};
use crate::run::select;
use crate::send::{
    self, Report, Request, Surroundings, USUAL_INTERVAL, USUAL_WAIT, Until, compose,
};
use crate::session::{self, ancestry};
use crate::store::StateDir;

/// Send a session a line, and wait until the model has it.
///
/// The line is appended to the session's inbox, from which its doorman carries it into the running
/// turn, or starts one. stdout is the class and the message's id. The exit code is that of the
/// class: 0 delivered-steer or delivered-start, 1 refused, 3 queued-no-doorman or queued-offline,
/// 5 timeout, 6 dropped by the throttle. After 3 and 5 the line is in the inbox and stays: do not
/// send it again. --wait 0s does not wait: the class is timeout where a doorman is at its post.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The session: its id, that of one of its runs, four or more characters from either end of
    /// one, or its name or four or more characters of that
    #[arg(value_name = "SESSION")]
    pub session: String,

    /// The line; `-` reads it from stdin, and it may have line breaks
    #[arg(value_name = "LINE")]
    pub line: OsString,

    /// Who sends it: 1 to 80 characters, no brackets; by default the session that this command
    /// runs in, else `user@host`
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,

    /// How far it has to come [default: seen; accepted, from a session to itself]
    #[arg(long, value_name = "STATE", value_enum)]
    pub until: Option<Until>,

    /// How long to wait for that [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = humantime::parse_duration)]
    pub wait: Option<Duration>,

    /// When the model is to read it
    #[arg(long, value_enum, default_value_t)]
    pub priority: Priority,

    /// Write nothing when the sender's last line to this session is younger; 0s for no throttle
    /// [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = interval)]
    pub min_interval: Option<Duration>,

    /// Show the model the bare text, without sender and id in front
    #[arg(long)]
    pub no_tag: bool,

    /// How to print.
    #[command(flatten)]
    pub format: Format,
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if interval > LONGEST_INTERVAL {
        return Err("at most 24h are remembered".to_owned());
    }
    Ok(interval)
}

/// Runs it; the exit code.
#[must_use]
pub fn run(args: &Args, context: &Context) -> u8 {
    let around = match surroundings(context) {
        Ok(around) => around,
        Err(error) => return asking::end(args.format, Err(error)),
    };
    let report = match request(args, &around) {
        Ok((session, Ok(text))) => send::send(&with(args, session, text), &around),
        Ok((session, Err(error))) => {
            let mut report = Report::about(session, &around);
            report.refuse(&error);
            report
        }
        Err(error) => Report::unknown(&error, &around),
    };
    show(&report, args.format, &around.state)
}

/// Where a line is sent from.
///
/// # Errors
/// Refused when nothing says where the state folder is.
pub(super) fn surroundings(context: &Context) -> Result<Surroundings> {
    let environment = &context.environment;
    Ok(Surroundings {
        state: StateDir::locate(environment)?,
        config: session::config_dir(environment),
        caller: ancestry::calling_session(environment).map(|row| row.session_id),
    })
}

/// The session first: a line on stdin may take its writer a while.
fn request(args: &Args, around: &Surroundings) -> Result<(uuid::Uuid, Result<String>)> {
    let found = select::session(&around.state, around.config.as_deref(), &args.session);
    let session = found.map_err(|error| match error.kind() {
        Kind::NotFound => {
            let hint = error.hint_text().unwrap_or_default().to_owned();
            Error::refused(format!("{error}; a line would wait for ever")).hint(hint)
        }
        _ => error,
    })?;
    // A refusal is on record too, and has to have a place for that.
    let text = around
        .state
        .prepare()
        .and_then(|()| compose::read(&args.line));
    Ok((session, text))
}

fn with(args: &Args, session: uuid::Uuid, text: String) -> Request {
    Request {
        session,
        text,
        from: args.from.clone(),
        priority: args.priority,
        tagged: !args.no_tag,
        until: args.until,
        wait: args.wait.unwrap_or(USUAL_WAIT),
        min_interval: args.min_interval.unwrap_or(USUAL_INTERVAL),
    }
}

/// Shows what became of a line, and puts it on record; the exit code.
pub(super) fn show(report: &Report, format: Format, state: &StateDir) -> u8 {
    let console = asking::console();
    let recorded = report.record(state);
    let printed = match report.msg_id {
        _ if format.json => console.document(report),
        Some(id) => console.answer(&format!("{} {id}", report.class.name())),
        // Nothing was written, so there is nothing to name.
        None => Ok(()),
    };
    if report.exit_code != 0 {
        console.failure(&report.message, report.hint.as_deref());
    }
    if let Some(note) = &report.note {
        console.note(note);
    }
    if let Err(error) = recorded {
        console.error(&error);
    }
    match printed {
        Ok(()) => report.exit_code,
        Err(error) => {
            console.error(&error);
            report.exit_code.max(Class::Failed.exit_code())
        }
    }
}
