//! The one error type: what failed, on which path, and what a person can do next.
//!
//! Messages are lowercase fragments that name the act and the path; the hint is a full next step.
//! The layers below add the path, the layers above add nothing but context: nobody re-words.

use std::fmt;
use std::io;
use std::path::Path;

/// How an error ends the program; see [`crate::exit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command line makes no sense: exit 2.
    Usage,
    /// The request cannot be honoured, and nothing was changed: exit 1.
    Refused,
    /// Something was begun and failed: exit 4.
    Failed,
    /// What was asked for is not there: exit 1.
    NotFound,
}

impl Kind {
    /// The exit code of an error of this kind.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Usage => crate::exit::USAGE,
            Self::Refused | Self::NotFound => crate::exit::Class::Refused.exit_code(),
            Self::Failed => crate::exit::Class::Failed.exit_code(),
        }
    }
}

/// An error with its kind and, where there is one, a hint.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    hint: Option<String>,
    source: Option<io::Error>,
}

/// The result of everything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            source: None,
        }
    }

    /// Nothing was changed, and the request cannot be honoured.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, message)
    }

    /// Something was begun and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    /// What was asked for is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// The command line makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// A failed act on a path: `cannot <act> <path>: <what the system said>`.
    pub fn io(act: &str, path: &Path, source: io::Error) -> Self {
        Self {
            kind: Kind::Failed,
            message: format!("cannot {act} {}", path.display()),
            hint: None,
            source: Some(source),
        }
    }

    /// The same error with a next step for a person.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same error as another kind; what was a failure below may be a refusal above.
    #[must_use]
    pub const fn with_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The hint, if there is one.
    #[must_use]
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// What the operating system said, if it was the cause.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.source.as_ref().map(io::Error::kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {}", plain(source)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// What the system said, without Rust's `(os error 28)` behind it.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
