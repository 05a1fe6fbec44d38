//! What the verbs share that only ask: an answer on stdout, or an error.
//!
//! With `--json` stdout is one document, whatever comes of it: the answer, or the error.

use serde::Serialize;

use crate::error::{Error, Kind, Result};
use crate::ui::Console;

/// The schema of an error as a document.
pub const ERROR_SCHEMA: &str = "oo/error/v1";

/// The schema of a text as a document.
pub const TEXT_SCHEMA: &str = "oo/text/v1";

/// Prints the answer as a JSON document.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Format {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// An error as a document.
#[derive(Debug, Serialize)]
struct Refusal<'a> {
    schema: &'static str,
    message: String,
    hint: Option<&'a str>,
    exit_code: u8,
}

/// A text as a document.
#[derive(Debug, Serialize)]
struct Text<'a> {
    schema: &'static str,
    text: &'a str,
}

/// Where the verbs that only ask speak.
#[must_use]
pub const fn console() -> Console {
    Console { quiet: false }
}

/// The exit code of what was answered; an error is said, and with `--json` printed.
#[must_use]
pub fn end(format: Format, answered: Result<u8>) -> u8 {
    let error = match answered {
        Ok(code) => return code,
        Err(error) => error,
    };
    let exit_code = error.kind().exit_code();
    console().error(&error);
    // When the error is stdout's own, this fails as well, and all was said.
    if format.json && error.kind() != Kind::Usage {
        let _ = console().document(&Refusal {
            schema: ERROR_SCHEMA,
            message: error.to_string(),
            hint: error.hint_text(),
            exit_code,
        });
    }
    exit_code
}

/// Prints a text that is the answer.
///
/// # Errors
/// When stdout is closed or full.
pub fn text(format: Format, text: &str) -> Result<u8> {
    if format.json {
        console().document(&Text {
            schema: TEXT_SCHEMA,
            text,
        })?;
    } else {
        console().answer(text)?;
    }
    Ok(0)
}

/// What cannot be read is not there for who asks: exit 1.
#[must_use]
pub fn not_readable(error: Error) -> Error {
    match error.kind() {
        Kind::Failed => error.with_kind(Kind::NotFound),
        Kind::Usage | Kind::Refused | Kind::NotFound => error,
    }
}
