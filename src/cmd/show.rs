//! `oo show`: one run.

use super::Context;
use super::asking::{self, Format};
use crate::error::{Error, Kind, Result};
use crate::platform::clock;
use crate::run::{inspect, listing, reading, select};
use crate::session;
use crate::store::{self, RunFiles, StateDir};
use crate::ui;

/// Show what became of a run.
///
/// Of a run that goes on it shows what is known so far. A run whose supervisor died is judged from
/// what claude left in the run's folder. The exit code tells whether the run was found, not how it
/// ended.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run: its id, four or more characters from either end of it, or a session's id or name
    /// for its newest run
    #[arg(value_name = "RUN")]
    pub run: String,

    /// How to print: with --json, the result document.
    #[command(flatten)]
    pub format: Format,
}

/// Runs it; the exit code.
#[must_use]
pub fn run(args: &Args, context: &Context) -> u8 {
    asking::end(args.format, show(args, context))
}

fn show(args: &Args, context: &Context) -> Result<u8> {
    let state = StateDir::locate(&context.environment)?;
    let config = session::config_dir(&context.environment);
    let unreadable = |error| reading::unreadable(asking::not_readable(error));
    let id = select::run(&state, &args.run).map_err(unreadable)?;
    let document = inspect::inspect(&state, id, config.as_deref()).map_err(unreadable)?;
    let files = state.run(id);
    let console = asking::console();
    if args.format.json {
        // A newer oo may have written more than this one knows: the document is shown as it is.
        match result_file(&files).map_err(unreadable)? {
            Some(bytes) => console.bytes(&bytes)?,
            None => console.document(&document)?,
        }
    } else {
        let name = listing::session_name(&files);
        console.answer(&ui::summary(&document, name.as_deref(), clock::now()))?;
    }
    Ok(0)
}

fn result_file(files: &RunFiles) -> Result<Option<Vec<u8>>> {
    let path = files.result();
    match store::read_file(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", &path, e).with_kind(Kind::NotFound)),
    }
}
