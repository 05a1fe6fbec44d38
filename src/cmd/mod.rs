//! One verb, one file: `Args`, whose documentation is the help text, and `run`.

pub mod asking;
pub mod completions;
pub mod doctor;
pub mod doorman;
pub mod extra_args;
pub mod hold_arg;
pub mod launch_args;
pub mod launching;
pub mod man;
pub mod resume;
pub mod runs;
pub mod send;
pub mod show;
pub mod start;
pub mod version;

use crate::error::Result;
use crate::platform::descriptors::Inherited;
use crate::platform::environment::Environment;
use crate::ui::Console;

/// The verbs.
#[derive(Debug, clap::Subcommand)]
#[allow(
    missing_docs,
    reason = "the documentation of each verb's Args is its help text"
)]
pub enum Verb {
    Start(Box<start::Args>),
    Resume(Box<resume::Args>),
    Send(send::Args),
    Runs(runs::Args),
    Show(show::Args),
    Doctor(doctor::Args),
    Version(version::Args),
    Completions(completions::Args),
    Man(man::Args),
    Doorman(doorman::Args),
}

/// What a verb gets from the process around it.
#[derive(Debug)]
pub struct Context {
    /// The environment.
    pub environment: Environment,
    /// The descriptors that were handed to us.
    pub inherited: Inherited,
    /// The command line's definition: help, manual page and completions are made from it.
    pub definition: fn() -> clap::Command,
}

/// Runs a verb; its exit code.
#[must_use]
pub fn dispatch(verb: Verb, context: &Context) -> u8 {
    match verb {
        Verb::Start(args) => start::run(&args, context),
        Verb::Resume(args) => resume::run(&args, context),
        Verb::Send(args) => send::run(&args, context),
        Verb::Runs(args) => runs::run(args, context),
        Verb::Show(args) => show::run(&args, context),
        Verb::Doctor(args) => doctor::run(&args, context),
        Verb::Version(args) => version::run(&args, context),
        Verb::Completions(args) => completions::run(args, context),
        Verb::Man(args) => man::run(args, context),
        Verb::Doorman(args) => or_say(doorman::run(&args, context)),
    }
}

/// The exit code of a verb that can fail; the error is said.
fn or_say(result: Result<u8>) -> u8 {
    result.unwrap_or_else(|error| {
        Console { quiet: false }.error(&error);
        error.kind().exit_code()
    })
}
