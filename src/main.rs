//! A stand-in until the command line is there: dispatches `doorman` and nothing else.

use std::process::ExitCode;

use clap::Parser;
use oo::platform::environment::Environment;

#[derive(Parser)]
#[command(name = "oo")]
enum Cli {
    Doorman(oo::cmd::doorman::Args),
}

fn main() -> ExitCode {
    let Cli::Doorman(args) = Cli::parse();
    match oo::cmd::doorman::run(&args, &Environment::inherited()) {
        Ok(code) => ExitCode::from(code),
        Err(e) => ExitCode::from(e.kind().exit_code()),
    }
}
