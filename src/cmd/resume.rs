//! `oo resume`: a further turn of a session that sleeps.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::asking::Format;
use super::launch_args::{self, LaunchArgs};
use super::launching::{self, NotBegun};
use super::{Context, send as sending};
use crate::error::{Error, Kind, Result};
use crate::exit::{Cause, Class, Verb};
use crate::inbox::Priority;
use crate::platform::clock;
use crate::run::brief::Brief;
use crate::run::holders::{Holder, Look};
use crate::run::launch::Prepared;
use crate::run::prompt;
use crate::run::record::ProcessRecord;
use crate::run::select;
use crate::run::spec::{LaunchSpec, Parent};
use crate::run::turn::{self, Turn};
use crate::send::{self, Request, USUAL_INTERVAL, USUAL_WAIT};
use crate::session::ancestry::{self, Programs};
use crate::session::{self, past, transcript};
use crate::store::{self, StateDir};

/// Wake a session for one turn, and give its answer.
///
/// The line goes to claude on stdin, and the session answers in its own folder, wherever this is
/// called. Two turns never run in one session: while somebody has it, it is not touched, and the
/// class is held-by-session. stdout is the model's answer and nothing else. The exit code is that
/// of the class: 0 delivered-resume, 1 refused, 3 held-by-session, 4 error, 5 timeout, 6 cancelled.
///
/// Tools, servers, permissions and limits are those of this call: a session keeps its conversation
/// and its system prompt, and nothing else. A system prompt that is given here replaces the one that
/// the session has.
#[derive(Debug, clap::Args)]
#[command(mut_arg("cwd", |arg| arg.help("Work in this folder [default: the session's own]")))]
#[command(mut_arg("parent", |arg| arg.help("Put on record that this session started the resumed one")))]
pub struct Args {
    /// The session: its id, that of one of its runs, four or more characters from either end of
    /// one, or its name or four or more characters of that
    #[arg(value_name = "SESSION")]
    pub session: String,

    /// What the session is told; `-` reads it from stdin
    #[arg(
        value_name = "LINE",
        required_unless_present = "prompt_file",
        conflicts_with = "prompt_file"
    )]
    pub line: Option<OsString>,

    /// Read the line from this file; `-` for stdin
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,

    /// Go on in a new session that begins with all that was said in this one, which stays as it is
    #[arg(long, conflicts_with = "parent")]
    pub fork: bool,

    /// While somebody has the session, wait this long for it to be left
    #[arg(long, value_name = "DUR", value_parser = humantime::parse_duration,
          conflicts_with = "fork")]
    pub wait: Option<Duration>,

    /// While somebody has the session, send it the line, as `oo send` does and with its classes
    #[arg(long, conflicts_with_all = ["fork", "wait"])]
    pub send_if_held: bool,

    /// What claude is told, and how long it may take.
    #[command(flatten)]
    pub launch: LaunchArgs,

    /// What is shown.
    #[command(flatten)]
    pub output: launching::Output,
}

/// Runs it; the exit code is that of the class.
#[must_use]
pub fn run(args: &Args, context: &Context) -> u8 {
    let asked = ask(args, context);
    if let Ok(Asked::Held(held)) = &asked
        && args.send_if_held
    {
        return match send_instead(held, args, context) {
            Ok(code) => code,
            Err(error) => launching::run(Verb::Resume, args.output, context, || Err(error.into())),
        };
    }
    let prepared = asked.and_then(|asked| match asked {
        Asked::Ready(prepared) => Ok(*prepared),
        Asked::Held(held) => Err(held.refusal(args)),
    });
    launching::run(Verb::Resume, args.output, context, || prepared)
}

/// What came of asking for a turn.
enum Asked {
    Ready(Box<Prepared>),
    Held(Box<Held>),
}

/// A session that somebody has.
struct Held {
    session: Uuid,
    /// Whether this was called in that very session.
    own: bool,
    holder: Holder,
    config: Option<PathBuf>,
    line: Vec<u8>,
}

impl Held {
    fn refusal(&self, args: &Args) -> NotBegun {
        let Self {
            session, holder, ..
        } = self;
        let waited = match args.wait {
            Some(wait) if !wait.is_zero() && !self.own => {
                format!(", and was so for {}", humantime::format_duration(wait))
            }
            _ => String::new(),
        };
        let hint = if self.own {
            "this was called in that very session: it can be gone on with when its turn is over, or with --fork in a new session"
        } else {
            "wait for it with --wait, send it the line with --send-if-held, or go on in a new session with --fork"
        };
        let said = format!("session {session} is held by {holder}{waited}");
        let error = Error::refused(said).hint(hint);
        NotBegun {
            class: Class::HeldBySession,
            session: Some(*session),
            holder: Some(Box::new(holder.clone())),
            ..error.into()
        }
    }
}

/// What there is to go on with.
struct Ready {
    transcript: PathBuf,
    cwd: PathBuf,
}

fn ask(args: &Args, context: &Context) -> std::result::Result<Asked, NotBegun> {
    let source = launch_args::prompt_source(args.line.as_deref(), args.prompt_file.as_deref())?;
    let cwd = args.launch.cwd.as_deref();
    let cwd = cwd.map(|cwd| launch_args::folder(Some(cwd))).transpose()?;
    // Where it works and which session it is comes later; all that can be refused is refused now.
    let nowhere = PathBuf::from("/");
    let mut spec = args.launch.spec(Verb::Resume, nowhere, context)?;
    let state = StateDir::locate(&context.environment)?;
    let config = config(&spec, cwd.as_deref(), context)?;
    let mut programs = Programs::known(&context.environment);
    programs.add(&spec.claude.path);
    let look = Look {
        state: &state,
        config: config.as_deref(),
        programs: &programs,
    };

    let session = session(&look, &args.session)?;
    let about = |refusal: NotBegun| NotBegun {
        session: Some(session),
        ..refusal
    };
    let preflight = || preflight(&look, session, cwd.as_deref()).map_err(about);
    let early = match preflight() {
        Ok(ready) => Some(ready),
        // Somebody who is just starting it has no transcript yet, and a line can be sent wherever.
        Err(refusal) => {
            if args.fork || look.holder(session)?.is_none() {
                return Err(refusal);
            }
            None
        }
    };
    let own = ancestry::calling_session(&context.environment)
        .is_some_and(|caller| caller.session_id == session);
    let line = prompt::read(&source).map_err(|error| about(error.into()))?;
    // A fork only reads: it disturbs nobody, and takes the lock of the session that it makes.
    let turn = if args.fork {
        None
    } else {
        // A session that waits for itself would wait for ever.
        let wait = args.wait.filter(|_| !own);
        let turn = turn::take(&look, session, wait);
        Some(turn.map_err(|error| about(error.into()))?)
    };
    let lock = match turn {
        None => None,
        Some(Turn::Ours(lock)) => Some(lock),
        Some(Turn::Held(holder)) => {
            return Ok(Asked::Held(Box::new(Held {
                session,
                own,
                holder,
                config,
                line,
            })));
        }
        Some(Turn::Stopped(signal)) => {
            let said = format!("{} ended the wait for session {session}", signal.name());
            return Err(about(NotBegun {
                class: Class::Cancelled,
                cause: Some(Cause::Interrupted),
                ..Error::refused(said).into()
            }));
        }
    };
    let ready = match early {
        Some(ready) if args.wait.is_none() => ready,
        // Much may have happened while it was waited.
        Some(_) | None => preflight()?,
    };
    // Asked now: whoever had the session before may have spent something.
    let cost = transcript::total_cost(&ready.transcript)
        .map_err(|error| about(error.with_kind(Kind::Refused).into()))?;
    // Runs sort by their ids: this one begins now, whenever it was asked for.
    spec.run_id = Uuid::now_v7();
    spec.created_at = clock::now();
    spec.resumes = Some(session);
    spec.cwd = ready.cwd;
    spec.cost_before_usd = cost.unwrap_or_default();
    if args.fork {
        spec.parent = Some(Parent {
            session_id: session,
            named: false,
        });
    } else {
        spec.session_id = session;
        // It has been started already; who wakes it is not its parent.
        spec.parent = spec.parent.filter(|parent| parent.named);
    }
    let prepared = launching::prepare(spec, &line, context, lock);
    let prepared = prepared.map_err(|error| about(error.into()))?;
    Ok(Asked::Ready(Box::new(prepared)))
}

/// claude's configuration folder, by the environment that the child will have.
fn config(spec: &LaunchSpec, cwd: Option<&Path>, context: &Context) -> Result<Option<PathBuf>> {
    let environment = launching::child_environment(spec, context)?;
    match (session::config_dir(&environment.variables), cwd) {
        (Some(config), Some(cwd)) => Ok(Some(cwd.join(config))),
        (Some(config), None) if config.is_relative() => Err(Error::refused(format!(
            "CLAUDE_CONFIG_DIR is {}, relative to a folder that is known only when the session is found",
            config.display()
        ))
        .hint("make it an absolute path, or name the folder with --cwd")),
        (config, _) => Ok(config),
    }
}

/// The session that is meant. A whole id is one even if nothing is known of it.
fn session(look: &Look<'_>, name: &str) -> std::result::Result<Uuid, NotBegun> {
    let found = select::session(look.state, look.config, name);
    match (found, Uuid::try_parse(name.trim())) {
        (Err(error), Ok(id)) if error.kind() == Kind::NotFound => Ok(id),
        (found, _) => Ok(found?),
    }
}

/// Whether the session can be gone on with, and where.
fn preflight(
    look: &Look<'_>,
    session: Uuid,
    cwd: Option<&Path>,
) -> std::result::Result<Ready, NotBegun> {
    let Some(config) = look.config else {
        let error = Error::refused("cannot tell where claude keeps its transcripts");
        return Err(error.hint("set HOME or CLAUDE_CONFIG_DIR").into());
    };
    let past = past::find(config, session).map_err(|error| match error.kind() {
        Kind::NotFound => NotBegun {
            class: Class::Error,
            cause: Some(Cause::SessionLost),
            ..lost(look, session, error).into()
        },
        _ => error.into(),
    })?;
    let cwd = match (cwd, past.cwd) {
        (Some(cwd), _) => cwd.to_owned(),
        (None, Some(own)) => launch_args::folder(Some(&own)).map_err(|_| {
            Error::refused(format!(
                "the folder of session {session} is gone: {} is not there, or cannot be entered",
                own.display()
            ))
            .hint("name another one with --cwd")
        })?,
        (None, None) => {
            return Err(Error::refused(format!(
                "the transcript {} does not tell in which folder the session works",
                past.transcript.display()
            ))
            .hint("name it with --cwd")
            .into());
        }
    };
    Ok(Ready {
        transcript: past.transcript,
        cwd,
    })
}

/// Says where the session was when oo last ran it, if that is somewhere else.
fn lost(look: &Look<'_>, session: Uuid, error: Error) -> Error {
    let before = Brief::all(look.state)
        .ok()
        .and_then(|mut runs| runs.find(|run| run.session_id == session))
        .and_then(|run| {
            let record: ProcessRecord =
                store::read_json(&look.state.run(run.run_id).process()).ok()?;
            record.config_dir
        })
        .filter(|before| Some(Path::new(before)) != look.config);
    let hint = match before {
        Some(before) => format!(
            "its last run had another configuration folder: try --env CLAUDE_CONFIG_DIR={before}"
        ),
        None => "check the id and CLAUDE_CONFIG_DIR; claude removes transcripts after 30 days unless told otherwise; `oo start` begins a new session".to_owned(),
    };
    error.hint(hint)
}

/// Sends the line to whoever has the session.
fn send_instead(held: &Held, args: &Args, context: &Context) -> Result<u8> {
    let around = send::Surroundings {
        config: held.config.clone(),
        ..sending::surroundings(context)?
    };
    let line = held.line.strip_suffix(b"\n").unwrap_or(&held.line);
    let request = Request {
        session: held.session,
        // A prompt is UTF-8, or it would have been refused.
        text: String::from_utf8_lossy(line).into_owned(),
        from: None,
        priority: Priority::default(),
        tagged: true,
        until: None,
        wait: USUAL_WAIT,
        min_interval: USUAL_INTERVAL,
    };
    let mut report = send::send(&request, &around);
    report.add_note(&format!("the session is held by {}", held.holder));
    let format = Format {
        json: args.output.json,
    };
    Ok(sending::show(&report, format, &around.state))
}
