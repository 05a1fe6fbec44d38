//! Reading documents of a run that another version of oo may have written.
//!
//! Fields are only ever added and some of their values are open sets, so what another version
//! wrote is read as far as it can be, and the rest is named. What this version wrote is read
//! strictly: there, a field that does not parse is damage, and an error with its path.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::result::{ResultDocument, State};
use super::spec::LaunchSpec;
use crate::error::{Error, Kind, Result};
use crate::exit::Verb;
use crate::store;

/// The version that reads.
const OURS: &str = env!("CARGO_PKG_VERSION");

/// The result at `path`.
///
/// # Errors
/// Not found when it is not there; failed, with its path, when it cannot be read or parsed.
pub fn result(path: &Path) -> Result<ResultDocument> {
    match store::read_json(path) {
        Ok(document) => Ok(document),
        Err(error) if error.kind() == Kind::NotFound => Err(error),
        Err(error) => match of_another_version(path, "oo/result/") {
            Some(found) => lenient(found).ok_or(error),
            None => Err(error),
        },
    }
}

/// The launch spec at `path`. One of another version is read when it has what this one needs.
///
/// # Errors
/// Not found when it is not there; failed, with its path, when it cannot be read or parsed.
pub fn spec(path: &Path) -> Result<LaunchSpec> {
    strict_but_named(path, "oo/spec/")
}

/// Any other document of a run.
///
/// # Errors
/// As [`spec`].
pub fn strict_but_named<T: DeserializeOwned>(path: &Path, schema: &str) -> Result<T> {
    store::read_json(path).map_err(|error| {
        if error.kind() == Kind::NotFound {
            return error;
        }
        match of_another_version(path, schema) {
            Some(found) => {
                let by = text(&found, "oo_version").unwrap_or("another version");
                let schema = text(&found, "schema").unwrap_or_default();
                error.hint(format!(
                    "it was written by oo {by} ({schema}): use that version to read it"
                ))
            }
            None => error,
        }
    })
}

/// The object at `path`, if it says that another version wrote it.
fn of_another_version(path: &Path, family: &str) -> Option<Map<String, Value>> {
    let Ok(Value::Object(found)) = store::read_json(path) else {
        return None;
    };
    let schema = text(&found, "schema")?;
    let another =
        schema != format!("{family}v1") || text(&found, "oo_version").is_some_and(|by| by != OURS);
    (schema.starts_with(family) && another).then_some(found)
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

/// Takes over each field that this version understands, and names the others.
fn lenient(found: Map<String, Value>) -> Option<ResultDocument> {
    let by = text(&found, "oo_version")
        .unwrap_or("another version")
        .to_owned();
    let blank = ResultDocument::blank(Verb::Start, State::Ended);
    let mut best = blank.clone();
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&blank) else {
        return None;
    };
    let mut unread = Vec::new();
    for (name, value) in found {
        let Some(before) = fields.get(&name).cloned() else {
            continue;
        };
        fields.insert(name.clone(), value);
        match serde_json::from_value(Value::Object(fields.clone())) {
            Ok(document) => best = document,
            Err(_) => {
                fields.insert(name.clone(), before);
                unread.push(name);
            }
        }
    }
    let said = format!(
        "oo {by} wrote this result, and oo {OURS} cannot read its {}",
        unread.join(", ")
    );
    best.note = Some(match best.note.take() {
        Some(note) => format!("{note}; {said}"),
        None => said,
    });
    Some(best)
}

/// Adds a hint to what cannot be read, unless it has one.
#[must_use]
pub fn unreadable(error: Error) -> Error {
    if error.hint_text().is_some() {
        return error;
    }
    error.hint("the other files of its folder are as they were; `oo runs` lists the other runs")
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write what oo finds")]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(value: &Value) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.json");
        std::fs::write(&path, value.to_string()).unwrap();
        (folder, path)
    }

    fn sample() -> Value {
        let mut document = ResultDocument::blank(Verb::Start, State::Ended);
        document.message = Some("what it said".to_owned());
        serde_json::to_value(document).unwrap()
    }

    #[test]
    fn what_this_version_wrote_is_read_strictly() {
        let mut value = sample();
        value["class"] = json!("marvellous");
        let (_folder, path) = written(&value);
        let error = result(&path).unwrap_err();
        assert!(error.to_string().contains("result.json"), "{error}");
    }

    #[test]
    fn what_another_wrote_is_read_as_far_as_it_goes() {
        for (schema, by) in [("oo/result/v1", "9.0.0"), ("oo/result/v2", OURS)] {
            let mut value = sample();
            value["schema"] = json!(schema);
            value["oo_version"] = json!(by);
            value["class"] = json!("marvellous");
            value["retries"] = json!({"not": "a list"});
            value["exit_code"] = json!(4);
            value["something_new"] = json!(true);
            let (_folder, path) = written(&value);
            let read = result(&path).unwrap();
            assert_eq!((read.class, read.exit_code), (None, Some(4)));
            assert_eq!(read.message.as_deref(), Some("what it said"));
            let note = read.note.unwrap();
            assert!(note.ends_with("cannot read its class, retries"), "{note}");
        }
    }

    #[test]
    fn damage_is_not_another_version() {
        for text in ["", "{", "[]", "{}", r#"{"schema":"theirs/v7"}"#] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("result.json");
            std::fs::write(&path, text).unwrap();
            assert_eq!(result(&path).unwrap_err().kind(), Kind::Failed, "{text}");
        }
    }
}
