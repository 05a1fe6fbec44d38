//! `oo completions`: for a shell.

use clap_complete::Shell;

use super::Context;
use super::asking::{self, Format};

/// Print the completions for a shell.
///
/// For bash: `oo completions bash > ~/.local/share/bash-completion/completions/oo`. The text is
/// the answer; --json wraps it in a document.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,

    /// How to print.
    #[command(flatten)]
    pub format: Format,
}

/// Runs it; the exit code.
#[must_use]
pub fn run(args: Args, context: &Context) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut (context.definition)(), "oo", &mut script);
    let script = String::from_utf8_lossy(&script);
    asking::end(args.format, asking::text(args.format, &script))
}
