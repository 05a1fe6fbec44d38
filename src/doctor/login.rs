//! Which credentials will a run use, and are they the ones that are meant?

use std::path::Path;

use serde_json::Value;

use super::config::config_file;
use super::{Finding, Outcome, Surroundings};
use crate::store;

pub(super) fn check(surroundings: &Surroundings<'_>) -> Outcome {
    let set = |name: &str| {
        surroundings
            .environment
            .get(name)
            .is_some_and(|value| !value.is_empty())
    };
    let login = login(surroundings);
    match (set("ANTHROPIC_API_KEY"), login) {
        (true, Some(by)) => Outcome::Found(vec![Finding::new(
            format!("ANTHROPIC_API_KEY outranks the login in {by}: runs are billed to the key"),
            "unset ANTHROPIC_API_KEY, or start with --drop-env ANTHROPIC_API_KEY, if the login is \
             meant",
        )]),
        (true, None) => Outcome::Well("ANTHROPIC_API_KEY is set, and there is no login".to_owned()),
        (false, Some(by)) => Outcome::Well(format!("there is a login in {by}, and no API key")),
        (false, None) => Outcome::Well(
            "neither ANTHROPIC_API_KEY nor a login was seen; claude may have other credentials"
                .to_owned(),
        ),
    }
}

/// Where a login is kept. The file of credentials is not opened.
fn login(surroundings: &Surroundings<'_>) -> Option<String> {
    let credentials = surroundings.config.as_deref()?.join(".credentials.json");
    if std::fs::metadata(&credentials).is_ok_and(|meta| meta.len() > 0) {
        return Some(credentials.display().to_string());
    }
    let path = config_file(surroundings)?;
    has_account(&path).then(|| path.display().to_string())
}

fn has_account(path: &Path) -> bool {
    let parsed = store::read_file(path)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    parsed.is_some_and(|value| value.get("oauthAccount").is_some_and(Value::is_object))
}
