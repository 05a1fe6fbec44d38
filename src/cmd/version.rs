//! `oo version`: of oo, and of the claude that it would run.

use std::path::PathBuf;

use serde::Serialize;

use super::Context;
use super::asking::{self, Format};
use crate::error::Result;
use crate::run::result::ClaudeEntry;
use crate::run::{claude_program, claude_version};

/// The schema of the document.
pub const SCHEMA: &str = "oo/version/v1";

/// Tell the versions of oo and of the claude that it runs.
///
/// claude is found as `oo start` finds it, and asked. The exit code is 0 even when there is none.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The claude to ask [default: $OO_CLAUDE, PATH, the usual places]
    #[arg(long, value_name = "PATH")]
    pub claude: Option<PathBuf>,

    /// How to print.
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    oo_version: &'static str,
    /// The claude that was found; its version is null when it does not tell.
    claude: Option<ClaudeEntry>,
    /// Why there is no claude, or no version.
    message: Option<String>,
    hint: Option<String>,
}

/// Runs it; the exit code.
#[must_use]
pub fn run(args: &Args, context: &Context) -> u8 {
    asking::end(args.format, tell(args, context))
}

fn tell(args: &Args, context: &Context) -> Result<u8> {
    let document = document(args, context);
    let console = asking::console();
    if args.format.json {
        console.document(&document)?;
        return Ok(0);
    }
    let claude = match &document.claude {
        Some(ClaudeEntry { path, version, .. }) => {
            let version = version.as_deref().unwrap_or("of unknown version");
            format!("claude {version}, {path}")
        }
        None => "claude: none found".to_owned(),
    };
    console.answer(&format!("oo {}\n{claude}", document.oo_version))?;
    if let Some(message) = &document.message {
        console.failure(message, document.hint.as_deref());
    }
    Ok(0)
}

fn document(args: &Args, context: &Context) -> Document {
    let mut document = Document {
        schema: SCHEMA,
        oo_version: env!("CARGO_PKG_VERSION"),
        claude: None,
        message: None,
        hint: None,
    };
    let environment = &context.environment;
    let said = claude_program::find(args.claude.as_deref(), environment).and_then(|claude| {
        let entry = document.claude.insert(ClaudeEntry {
            path: claude.path.display().to_string(),
            version: None,
            pid: None,
        });
        entry.version = Some(claude_version::said(&claude, environment)?);
        Ok(())
    });
    if let Err(error) = said {
        document.message = Some(error.to_string());
        document.hint = error.hint_text().map(str::to_owned);
    }
    document
}
