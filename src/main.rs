//! The program: parse, run, return a code.

use std::path::Path;
use std::process::ExitCode;

use oo::cmd::Context;
use oo::error::Error;
use oo::platform::descriptors::Inherited;
use oo::platform::environment::Environment;
use oo::ui::Console;
use oo::{cli, cmd, exit};

fn main() -> ExitCode {
    // Before anything is opened.
    let inherited = Inherited::take_stock();
    match cli::parse(std::env::args_os()) {
        Ok(cli) => {
            let context = Context {
                environment: Environment::inherited(),
                inherited,
                definition: cli::command,
            };
            ExitCode::from(cmd::dispatch(cli.verb, &context))
        }
        Err(error) => {
            // Help and version are answers, and a full stdout is no usage error.
            let printed = error.print();
            match (error.use_stderr(), printed) {
                (true, _) => ExitCode::from(exit::USAGE),
                (false, Ok(())) => ExitCode::SUCCESS,
                (false, Err(e)) => {
                    let error = Error::io("write to", Path::new("stdout"), e);
                    Console { quiet: false }.error(&error);
                    ExitCode::from(error.kind().exit_code())
                }
            }
        }
    }
}
