//! The command line.

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use crate::cmd::Verb;

/// Supervises headless Claude Code runs, and tells the truth about them.
///
/// Every verb takes --json, but for the doorman. Without it stdout is the answer itself; everything
/// meant for a person goes to stderr.
#[derive(Debug, Parser)]
#[command(
    name = "oo",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The command line's definition, from which help, man page, completions and reference are made.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses a command line.
///
/// # Errors
/// What clap has to say: a usage error, or the text of --help or --version.
pub fn parse<I: IntoIterator<Item = OsString>>(arguments: I) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(arguments)
}
