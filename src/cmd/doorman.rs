//! `oo doorman`: the server that claude starts inside a session.

use clap::Args as Arguments;

use crate::doorman;
use crate::error::{Error, Result};
use crate::platform::environment::Environment;

/// Keep a session's door, as an MCP server that claude starts.
///
/// oo gives one to every session that it starts; there is no need to run it by hand. Run from a
/// session's own tool it serves nobody. This version shows that the session lives and counts the
/// lines that wait for it; it does not carry them yet. OO_DOORMAN=0 turns it off.
#[derive(Arguments, Debug)]
pub struct Args {
    /// Speak MCP on stdin and stdout until stdin closes
    #[arg(long)]
    pub mcp: bool,
}

/// Runs the verb; the exit code is 0.
///
/// # Errors
/// A usage error without `--mcp`.
pub fn run(args: &Args, environment: &Environment) -> Result<u8> {
    if !args.mcp {
        return Err(Error::usage("a doorman needs --mcp")
            .hint("claude starts it; by hand, try `oo doorman --help`"));
    }
    doorman::serve(environment)
}
