//! Does claude's `.claude.json` parse? Concurrent starts have been seen to break it.

use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

use super::{Finding, Outcome, Surroundings, read_text};

pub(super) fn check(surroundings: &Surroundings<'_>) -> Outcome {
    let Some(path) = config_file(surroundings) else {
        return Outcome::Skipped("neither CLAUDE_CONFIG_DIR nor HOME is set".to_owned());
    };
    let shown = path.display();
    let text = match read_text(&path) {
        Ok(Some(text)) => text,
        Ok(None) => return Outcome::Well(format!("there is no {shown} yet; claude makes it")),
        Err(finding) => return Outcome::Found(vec![finding]),
    };
    match serde_json::from_str::<std::collections::BTreeMap<String, IgnoredAny>>(&text) {
        Ok(_) => Outcome::Well(format!("{shown} parses")),
        // Its text may hold secrets: only the place is told.
        Err(e) => Outcome::Found(vec![
            Finding::new(
                format!(
                    "{shown} is no JSON object, at line {}, column {}",
                    e.line(),
                    e.column()
                ),
                "mend it, or put it aside and let claude make a new one; claude keeps copies in \
                 backups/ of its configuration folder",
            )
            .at(&path),
        ]),
    }
}

/// `$CLAUDE_CONFIG_DIR/.claude.json`, else `~/.claude.json`.
pub(super) fn config_file(surroundings: &Surroundings<'_>) -> Option<PathBuf> {
    let named = |name: &str| {
        let value = surroundings.environment.get(name)?;
        (!value.is_empty()).then_some(value)
    };
    let folder = named("CLAUDE_CONFIG_DIR").or_else(|| named("HOME"))?;
    Some(Path::new(&folder).join(".claude.json"))
}
