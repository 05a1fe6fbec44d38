//! One verb, one file: `Args`, whose documentation is the help text, and `run`.

pub mod doorman;
pub mod launch_args;
pub mod launching;
pub mod start;

use crate::cli::{Cli, Verb};
use crate::error::Result;
use crate::platform::descriptors::Inherited;
use crate::platform::environment::Environment;
use crate::ui::Console;

/// What a verb gets from the process around it.
#[derive(Debug)]
pub struct Context {
    /// The environment.
    pub environment: Environment,
    /// The descriptors that were handed to us.
    pub inherited: Inherited,
}

/// Runs a verb; its exit code.
#[must_use]
pub fn dispatch(cli: Cli, context: &Context) -> u8 {
    match cli.verb {
        Verb::Start(args) => start::run(&args, context),
        Verb::Doorman(args) => or_say(doorman::run(&args, &context.environment)),
    }
}

/// The exit code of a verb that can fail; the error is said.
fn or_say(result: Result<u8>) -> u8 {
    result.unwrap_or_else(|error| {
        Console { quiet: false }.error(&error);
        error.kind().exit_code()
    })
}
