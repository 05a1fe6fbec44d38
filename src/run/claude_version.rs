//! The version that a claude says it has: it has to be run to tell.

use std::collections::BTreeMap;
use std::time::Duration;

use super::child_env;
use super::claude_program::version_numbers;
use super::spec::ClaudeProgram;
use crate::error::{Error, Result};
use crate::platform::descriptors::Inherited;
use crate::platform::environment::Environment;
use crate::platform::probe::{self, Program};

/// How long it may take; a healthy one takes 30 ms (measured: 2.1.308, 2.1.332).
const LIMIT: Duration = Duration::from_secs(10);

/// The environment in which a claude is asked something: that of a run, without descriptors.
///
/// # Errors
/// As [`child_env::child_environment`].
pub fn environment(ours: &Environment) -> Result<Environment> {
    let drop = child_env::DESCRIPTORS.map(str::to_owned);
    child_env::child_environment(ours, &BTreeMap::new(), &drop, &Inherited::default())
        .map(|child| child.variables)
}

/// Runs `claude --version`.
///
/// # Errors
/// Failed when it cannot be run, does not end in time, fails, or names no version.
pub fn said(claude: &ClaudeProgram, ours: &Environment) -> Result<String> {
    let path = &claude.path;
    let program = Program {
        path: path.clone(),
        arguments: vec!["--version".into()],
        environment: environment(ours)?,
    };
    let said = probe::ask(&program, LIMIT).map_err(|e| Error::io("get an answer from", path, e))?;
    let text = String::from_utf8_lossy(&said.stdout);
    let version = text.split_whitespace().next().unwrap_or_default();
    if said.status.success() && version_numbers(version).is_some() {
        return Ok(version.to_owned());
    }
    let complaint = said.stderr.lines().next().or_else(|| text.lines().next());
    Err(Error::failed(format!(
        "{} --version names no version ({}){}",
        path.display(),
        said.status,
        complaint
            .map(|line| format!(": {line}"))
            .unwrap_or_default()
    )))
}
