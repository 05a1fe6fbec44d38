//! `oo doorman`: the server that claude starts inside a session, and one by hand.

use clap::Args as Arguments;

use super::Context;
use super::asking;
use crate::doorman::{self, foreground};
use crate::error::{Error, Result};
use crate::exit;

/// Carry a session's lines from its inbox to the model.
///
/// oo gives a doorman to every session that it starts; there is no need to run one by hand. For a
/// session that was started otherwise, claude can start one: `claude mcp add oo -- oo doorman
/// --mcp`. OO_DOORMAN=0 turns that off.
///
/// With --allow-foreground it runs in the open, from outside the session. NEVER run it from a
/// session's own tool: the tool would wait for a line that the session only reads when the tool has
/// ended; it delivers nothing there. A session in bypassPermissions lets nobody in but its own
/// children: there its lines wait.
#[derive(Arguments, Debug)]
pub struct Args {
    /// Speak MCP on stdin and stdout until stdin closes
    #[arg(long, conflicts_with_all = ["allow_foreground", "session", "once"])]
    pub mcp: bool,

    /// Run in the foreground, for a session that has no doorman of its own
    #[arg(long)]
    pub allow_foreground: bool,

    /// The session; it has to have a live claude
    #[arg(long, value_name = "SESSION", requires = "allow_foreground")]
    pub session: Option<uuid::Uuid>,

    /// Leave as soon as nothing waits any more, after half a minute at the latest
    #[arg(long, requires = "allow_foreground")]
    pub once: bool,
}

/// Runs the verb; the exit code: 0, or [`exit::NOT_DELIVERABLE`], or [`exit::DELIVERY_FAILED`].
///
/// # Errors
/// A usage error with neither --mcp nor --allow-foreground.
pub fn run(args: &Args, context: &Context) -> Result<u8> {
    let environment = &context.environment;
    if args.mcp {
        return doorman::serve(environment);
    }
    if !args.allow_foreground {
        return Err(Error::usage("a doorman needs --mcp or --allow-foreground")
            .hint("claude starts it; by hand, see `oo doorman --help` first"));
    }
    let console = asking::console();
    match foreground::carry(environment, args.session, args.once)? {
        foreground::Outcome::Delivered { delivered } => {
            console.note(&format!(
                "nothing waits; {delivered} lines have arrived so far"
            ));
            Ok(0)
        }
        foreground::Outcome::NotHere(why) => {
            console.failure(
                &format!("nothing can be delivered from here: {why}"),
                Some("the lines stay in the inbox"),
            );
            Ok(exit::NOT_DELIVERABLE)
        }
        foreground::Outcome::Left { pending, trouble } => {
            console.failure(
                &format!("{pending} lines were not delivered; they stay in the inbox"),
                trouble.as_deref(),
            );
            Ok(exit::DELIVERY_FAILED)
        }
    }
}
