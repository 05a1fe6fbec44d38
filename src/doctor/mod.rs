//! The doctor: what keeps runs from going well, and what to do about it.
//!
//! One file a check. The next one goes beside the others: a `pub(super) fn check` that looks at
//! [`Surroundings`] and gives an [`Outcome`], and a line in `CHECKS`, which is the order in which
//! they are made and shown.
//!
//! - A check only looks: it changes nothing and starts no session. What is safe to mend is mended
//!   by [`fix`], and only when asked.
//! - A finding says what, where, and what to do; a check that cannot be made says why.
//! - Values of variables and contents of credential files are never told, and not read where
//!   their being there is enough.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::platform::environment::Environment;
use crate::session;
use crate::store::{self, StateDir};

mod claude;
mod config;
mod doorman;
mod inboxes;
mod ledgers;
mod login;
mod registry;
mod state;

/// The schema of the report.
pub const SCHEMA: &str = "oo/doctor/v1";

/// The most findings that one check tells one by one.
const MOST: usize = 20;

/// A check: its name, and what makes it.
type Check = (&'static str, fn(&Surroundings<'_>) -> Outcome);

/// Every check, in order.
const CHECKS: [Check; 8] = [
    ("claude", claude::check),
    ("doorman", doorman::check),
    ("state", state::check),
    ("inboxes", inboxes::check),
    ("ledgers", ledgers::check),
    ("login", login::check),
    ("config", config::check),
    ("registry", registry::check),
];

/// What a check can look at.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// Our environment.
    pub environment: &'a Environment,
    /// The claude that was named on the command line.
    pub claude: Option<PathBuf>,
    /// The state folder, or why it cannot be told where it is.
    pub state: Result<StateDir>,
    /// claude's configuration folder.
    pub config: Option<PathBuf>,
}

/// What came of a check.
#[derive(Debug)]
pub enum Outcome {
    /// All is well: what was seen.
    Well(String),
    /// It could not be made: why.
    Skipped(String),
    /// Something is wrong.
    Found(Vec<Finding>),
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What, and where.
    pub message: String,
    /// What to do.
    pub hint: String,
    /// The file or folder that it is about.
    pub path: Option<PathBuf>,
}

/// How a check stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Status {
    /// All is well.
    Ok,
    /// Something is wrong.
    Finding,
    /// It could not be made.
    Skipped,
}

/// One line of a report. A check with several findings has several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The check.
    pub name: &'static str,
    /// How it stands.
    pub status: Status,
    /// What was seen.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// The file or folder that it is about.
    pub path: Option<String>,
}

/// What the doctor has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// In the order of the checks.
    pub checks: Vec<Line>,
    /// How many of them are findings.
    pub findings: usize,
    /// What was mended before, a sentence each; nothing unless it was asked for.
    pub fixed: Vec<String>,
}

/// Makes every check.
#[must_use]
pub fn examine(surroundings: &Surroundings<'_>) -> Report {
    let lines = CHECKS
        .iter()
        .flat_map(|(name, check)| lines(name, check(surroundings)));
    let checks: Vec<Line> = lines.collect();
    Report {
        schema: SCHEMA,
        findings: checks
            .iter()
            .filter(|line| line.status == Status::Finding)
            .count(),
        checks,
        fixed: Vec::new(),
    }
}

/// Mends what is safe to mend: inboxes whose place is not known are taken over. What was done.
#[must_use]
pub fn fix(surroundings: &Surroundings<'_>) -> Vec<String> {
    match &surroundings.state {
        Ok(state) => inboxes::fix(state),
        Err(_) => Vec::new(),
    }
}

impl<'a> Surroundings<'a> {
    /// Those of this environment.
    #[must_use]
    pub fn new(environment: &'a Environment, claude: Option<PathBuf>) -> Self {
        Self {
            environment,
            claude,
            state: StateDir::locate(environment),
            config: session::config_dir(environment),
        }
    }
}

impl Outcome {
    /// The findings, or that all is well when there are none.
    fn of(findings: Vec<Finding>, well: impl FnOnce() -> String) -> Self {
        if findings.is_empty() {
            Self::Well(well())
        } else {
            Self::Found(findings)
        }
    }
}

impl Finding {
    /// A finding.
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
            path: None,
        }
    }

    /// The same, about this file or folder.
    fn at(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// An error as a finding; `hint` is for one that has none.
    fn error(error: &Error, hint: &str) -> Self {
        Self::new(error.to_string(), error.hint_text().unwrap_or(hint))
    }
}

fn lines(name: &'static str, outcome: Outcome) -> Vec<Line> {
    let line = |status, message: String| Line {
        name,
        status,
        message,
        hint: None,
        path: None,
    };
    match outcome {
        Outcome::Well(message) => vec![line(Status::Ok, message)],
        Outcome::Skipped(message) => vec![line(Status::Skipped, message)],
        Outcome::Found(mut findings) => {
            let more = findings.len().saturating_sub(MOST);
            if more > 0 {
                findings.truncate(MOST);
                findings.push(Finding::new(
                    format!("and {more} more of the kind"),
                    "mend those above, then look again",
                ));
            }
            let found = findings.into_iter().map(|finding| Line {
                hint: Some(finding.hint),
                path: finding.path.map(|path| path.display().to_string()),
                ..line(Status::Finding, finding.message)
            });
            found.collect()
        }
    }
}

/// A text that was read, or the finding that it could not be; nothing when it is not there.
fn read_text(path: &Path) -> std::result::Result<Option<String>, Finding> {
    match store::read_file(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => {
            let error = Error::io("read", path, e);
            Err(Finding::error(&error, "make it a file that you can read").at(path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_findings_are_cut_and_counted() {
        let finding = Finding::new("something", "do this");
        let found = lines("state", Outcome::Found(vec![finding; MOST + 5]));
        assert_eq!(found.len(), MOST + 1);
        assert_eq!(found[MOST].message, "and 5 more of the kind");
    }

    #[test]
    fn names_are_told_apart() {
        for (at, (name, _)) in CHECKS.iter().enumerate() {
            assert!(CHECKS[..at].iter().all(|(other, _)| other != name));
        }
    }
}
