//! `oo start`: a new session, one run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::launch_args::{self, LaunchArgs};
use super::{Context, launching};
use crate::error::Result;
use crate::exit::Verb;
use crate::run::launch::Prepared;
use crate::run::spec::LaunchSpec;
use crate::run::watchdog::Hold;

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

    /// Keep the session open after its turn: each line that reaches it starts another. With a time,
    /// as in `--hold=10m`, close it when it was idle for so long; 0s: as soon as it is idle
    #[arg(long, value_name = "IDLE", num_args = 0..=1, require_equals = true,
          value_parser = humantime::parse_duration, help_heading = "Clocks")]
    #[allow(
        clippy::option_option,
        reason = "not given, given alone, given with a value"
    )]
    pub hold: Option<Option<Duration>>,

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
    launching::run(Verb::Start, args.output, context, || prepare(args, context))
}

fn prepare(args: &Args, context: &Context) -> Result<Prepared> {
    let source = launch_args::prompt_source(args.prompt.as_deref(), args.prompt_file.as_deref())?;
    // The cheap refusals come first: a prompt on stdin may take its writer a while.
    let spec = LaunchSpec {
        hold: args.hold.map(|idle| Hold { idle }),
        ..args.launch.spec(Verb::Start, context)?
    };
    let prompt = crate::run::prompt::read(&source)?;
    launching::prepare(spec, &prompt, context)
}
