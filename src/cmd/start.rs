//! `oo start`: a new session, one run.

use std::ffi::OsString;
use std::path::PathBuf;

use super::launch_args::{self, LaunchArgs};
use super::{Context, launching};
use crate::error::Result;
use crate::exit::Verb;
use crate::run::launch::Prepared;

/// Start a session, and give its answer.
///
/// The prompt goes to claude on stdin. stdout is the model's answer and nothing else; a run that
/// did not succeed prints none. The exit code is that of the run's class: 0 completed, 1 refused,
/// 4 failed, 5 timeout, 6 cancelled. Everything is kept: see `oo show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What is to be done; `-` reads it from stdin
    #[arg(
        required_unless_present = "prompt_file",
        conflicts_with = "prompt_file"
    )]
    pub prompt: Option<OsString>,

    /// Read the prompt from this file; `-` for stdin
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,

    /// What claude is told, and how long it may take.
    #[command(flatten)]
    pub launch: LaunchArgs,

    /// What is shown.
    #[command(flatten)]
    pub output: launching::Output,
}

/// Runs it; the exit code is that of the result's class.
#[must_use]
pub fn run(args: &Args, context: &Context) -> u8 {
    launching::run(Verb::Start, args.output, context, || {
        Ok(prepare(args, context)?)
    })
}

fn prepare(args: &Args, context: &Context) -> Result<Prepared> {
    let source = launch_args::prompt_source(args.prompt.as_deref(), args.prompt_file.as_deref())?;
    // The cheap refusals come first: a prompt on stdin may take its writer a while.
    let cwd = launch_args::folder(args.launch.cwd.as_deref())?;
    let spec = args.launch.spec(Verb::Start, cwd, context)?;
    let prompt = crate::run::prompt::read(&source)?;
    launching::prepare(spec, &prompt, context, None)
}
