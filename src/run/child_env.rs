//! The environment of a child claude.
//!
//! A session's own variables must not reach another session: they bring refusals, missing
//! transcripts, another session's door. So every `CLAUDE*` name is dropped but those in [`KEPT`],
//! which choose a provider or carry a credential; `AI_AGENT` goes too, and so does what a service
//! manager gave to us alone. Everything else passes, as the bytes that it is.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

use crate::error::{Error, Result};
use crate::platform::descriptors::Inherited;
use crate::platform::environment::Environment;

/// The `CLAUDE*` variables that pass.
pub const KEPT: [&str; 18] = [
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    "CLAUDE_CODE_SKIP_VERTEX_AUTH",
    "CLAUDE_CODE_SKIP_FOUNDRY_AUTH",
    "CLAUDE_CODE_SKIP_ANTHROPIC_AWS_AUTH",
    "CLAUDE_CODE_SKIP_MANTLE_AUTH",
    "CLAUDE_CODE_SKIP_ANTHROPIC_GOOGLE_CLOUD_AUTH",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_REFRESH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR",
    "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
];

/// The variables whose value is the number of a descriptor that holds a credential.
pub const DESCRIPTORS: [&str; 2] = [
    "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR",
    "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
];

/// What a service manager gives to its service alone.
const MANAGER: [&str; 4] = [
    "NOTIFY_SOCKET",
    "CREDENTIALS_DIRECTORY",
    "WATCHDOG_",
    "LISTEN_",
];

/// A child's environment.
#[derive(Debug)]
pub struct ChildEnvironment {
    /// Every variable.
    pub variables: Environment,
    /// The names that were kept or added on purpose, sorted: what `env_kept` shows.
    pub kept: Vec<String>,
    /// The descriptors that go with it.
    pub descriptors: Vec<RawFd>,
}

/// Whether an inherited variable passes of itself.
#[must_use]
pub fn passes(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    if bytes.starts_with(b"CLAUDE") {
        return KEPT.iter().any(|kept| kept.as_bytes() == bytes);
    }
    let managers = MANAGER
        .iter()
        .any(|manager| match manager.strip_suffix('_') {
            Some(_) => bytes.starts_with(manager.as_bytes()),
            None => bytes == manager.as_bytes(),
        });
    bytes != b"AI_AGENT" && !managers
}

/// Builds it from ours: `add` sets a variable or, without a value, passes ours on; `drop` takes
/// one away.
///
/// # Errors
/// Refused when a variable that is to be passed on is not set, or a descriptor variable names
/// nothing that was handed to us.
pub fn child_environment(
    ours: &Environment,
    add: &BTreeMap<String, Option<String>>,
    drop: &[String],
    inherited: &Inherited,
) -> Result<ChildEnvironment> {
    let mut variables = ours.clone();
    variables.retain(passes);
    for name in drop {
        variables.remove(name);
    }
    for (name, value) in add {
        match value {
            Some(value) => variables.set(name, value),
            None => variables.set(name, ours.get(name).ok_or_else(|| unset(name))?),
        }
    }
    let mut kept: Vec<String> = KEPT
        .iter()
        .filter(|name| variables.get(name).is_some())
        .map(|name| (*name).to_owned())
        .chain(add.keys().cloned())
        .collect();
    kept.sort_unstable();
    kept.dedup();
    let mut descriptors = Vec::new();
    for name in DESCRIPTORS {
        let Some(value) = variables.get(name) else {
            continue;
        };
        let fd = value
            .to_str()
            .and_then(|text| text.trim().parse::<RawFd>().ok());
        match fd {
            Some(fd @ 0..=2) => drop_standard(name, fd)?,
            Some(fd) if inherited.has(fd) => descriptors.push(fd),
            Some(_) | None => {
                return Err(Error::refused(format!("{name} names no open descriptor")).hint(
                    format!("hand the descriptor over (as in `{name}=9 oo start … 9<FILE`), or use --drop-env {name}"),
                ));
            }
        }
    }
    descriptors.dedup();
    Ok(ChildEnvironment {
        variables,
        kept,
        descriptors,
    })
}

fn drop_standard(name: &str, fd: RawFd) -> Result<()> {
    Err(Error::refused(format!(
        "{name} names descriptor {fd}, which claude needs for itself"
    ))
    .hint("use a number of 3 or more"))
}

fn unset(name: &str) -> Error {
    Error::refused(format!(
        "--env {name}: there is no such variable to pass on"
    ))
    .hint(format!("set it, or give a value: --env {name}=VALUE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(pairs: &[(&str, &str)]) -> Environment {
        pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    }

    fn names(environment: &Environment) -> Vec<&str> {
        environment
            .iter()
            .filter_map(|(name, _)| name.to_str())
            .collect()
    }

    #[test]
    fn only_the_kept_claude_names_pass() {
        let mut pairs: Vec<(&str, &str)> = KEPT
            .iter()
            .filter(|name| !DESCRIPTORS.contains(name))
            .map(|name| (*name, "1"))
            .collect();
        let expected: Vec<&str> = {
            let mut names: Vec<&str> = pairs.iter().map(|(name, _)| *name).collect();
            names.extend(["ANTHROPIC_API_KEY", "CLOUD", "LISTENER", "PATH"]);
            names.sort_unstable();
            names
        };
        pairs.extend([
            ("CLAUDE", "x"),
            ("CLAUDECODE", "1"),
            ("CLAUDE_CODE_SESSION_ID", "x"),
            ("CLAUDE_CODE_MESSAGING_TOKEN", "x"),
            ("CLAUDE_CODE_USE_BEDROCK_2", "x"),
            ("CLAUDE_EFFORT", "x"),
            ("AI_AGENT", "x"),
            ("NOTIFY_SOCKET", "x"),
            ("WATCHDOG_USEC", "x"),
            ("WATCHDOG_PID", "x"),
            ("LISTEN_FDS", "x"),
            ("CREDENTIALS_DIRECTORY", "x"),
            ("PATH", "/bin"),
            ("LISTENER", "x"),
            ("CLOUD", "x"),
            ("ANTHROPIC_API_KEY", "k"),
        ]);
        let child =
            child_environment(&ours(&pairs), &BTreeMap::new(), &[], &Inherited::default()).unwrap();
        assert_eq!(names(&child.variables), expected);
    }

    #[test]
    fn added_names_come_back_and_dropped_ones_go() {
        let ours = ours(&[
            ("CLAUDE_CODE_MAX_RETRIES", "2"),
            ("ANTHROPIC_API_KEY", "k"),
            ("A", "1"),
        ]);
        let add = BTreeMap::from([
            ("CLAUDE_CODE_MAX_RETRIES".to_owned(), None),
            ("A".to_owned(), Some("2".to_owned())),
        ]);
        let drop = ["ANTHROPIC_API_KEY".to_owned()];
        let child = child_environment(&ours, &add, &drop, &Inherited::default()).unwrap();
        assert_eq!(names(&child.variables), ["A", "CLAUDE_CODE_MAX_RETRIES"]);
        assert_eq!(child.variables.get_text("A"), Some("2"));
        assert_eq!(child.kept, ["A", "CLAUDE_CODE_MAX_RETRIES"]);
    }

    #[test]
    fn a_descriptor_that_was_not_handed_over_is_refused() {
        let name = "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR";
        for value in ["9", "1", "nine", ""] {
            let ours = ours(&[(name, value)]);
            let error =
                child_environment(&ours, &BTreeMap::new(), &[], &Inherited::default()).unwrap_err();
            assert!(error.to_string().contains(name), "{value}: {error}");
        }
    }
}
