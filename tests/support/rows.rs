//! Reading what claude printed and wrote, and seeing its shape.
//!
//! Invariants: a line that is not JSON fails the test; a row that oo does not know is passed by
//! as oo does it; a shape holds kinds and field names and types, never ids, times or prose.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Index;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One row of claude's stdout or of a transcript.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row(pub(crate) Value);

impl Row {
    /// `result`, `system/init`, …: of a result row the type alone.
    pub(crate) fn kind(&self) -> String {
        let kind = self.text("type");
        match self.0["subtype"].as_str() {
            Some(subtype) if kind == "system" => format!("{kind}/{subtype}"),
            _ => kind.to_owned(),
        }
    }

    pub(crate) fn is(&self, kind: &str) -> bool {
        self.kind() == kind
    }

    /// The kind with what a message holds, and `rider` before a sub-agent's:
    /// `assistant[text]`, `rider user[tool_result]`, `result/success`.
    pub(crate) fn described(&self) -> String {
        let mut text = self.kind();
        if let Some(blocks) = self.0["message"]["content"].as_array() {
            let kinds: Vec<&str> = blocks
                .iter()
                .map(|block| block["type"].as_str().unwrap_or("?"))
                .collect();
            text = format!("{text}[{}]", kinds.join(","));
        }
        if self.is("result") {
            text = format!("{text}/{}", self.text("subtype"));
        }
        if self.0["parent_tool_use_id"].is_string() {
            text = format!("rider {text}");
        }
        text
    }

    /// A field that has to be a text.
    #[track_caller]
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0[name]
            .as_str()
            .unwrap_or_else(|| panic!("{name} is no text in {}", self.0))
    }

    /// The names of a row's fields with the types of their values.
    pub(crate) fn types(&self) -> BTreeMap<String, &'static str> {
        let fields = self.0.as_object().expect("a row is an object");
        fields
            .iter()
            .map(|(name, value)| (name.clone(), type_of(value)))
            .collect()
    }
}

impl Index<&str> for Row {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        &self.0[name]
    }
}

/// The complete lines of a text, each one JSON value.
#[track_caller]
pub(crate) fn complete(text: &str) -> Vec<Row> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.split('\n').filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let value = serde_json::from_str(line);
            Row(value.unwrap_or_else(|problem| panic!("not a row: {problem}: {line}")))
        })
        .collect()
}

/// The only row of a kind.
#[track_caller]
pub(crate) fn only<'r>(rows: &'r [Row], kind: &str) -> &'r Row {
    let found: Vec<&Row> = rows.iter().filter(|row| row.is(kind)).collect();
    assert_eq!(found.len(), 1, "one {kind} among {:?}", described(rows));
    found[0]
}

/// The rows of a kind.
pub(crate) fn all<'r>(rows: &'r [Row], kind: &str) -> Vec<&'r Row> {
    rows.iter().filter(|row| row.is(kind)).collect()
}

/// The shape of a run: its rows in order.
pub(crate) fn described(rows: &[Row]) -> Vec<String> {
    rows.iter().map(Row::described).collect()
}

/// The transcript of a session, wherever below a claude folder it lies.
#[track_caller]
pub(crate) fn transcript(home: &Path, session: &str) -> Vec<Row> {
    let path = transcript_path(home, session)
        .unwrap_or_else(|| panic!("there is no transcript of {session}"));
    complete(&fs::read_to_string(path).expect("a transcript is readable"))
}

/// Where the transcript of a session lies, if there is one.
pub(crate) fn transcript_path(home: &Path, session: &str) -> Option<PathBuf> {
    let projects = home.join(".claude/projects");
    let folders = fs::read_dir(projects).ok()?.filter_map(Result::ok);
    folders
        .map(|folder| folder.path().join(format!("{session}.jsonl")))
        .find(|path| path.exists())
}

/// The registry row of a process, while there is a whole one.
pub(crate) fn registered(home: &Path, pid: u32) -> Option<Row> {
    let text = fs::read(home.join(format!(".claude/sessions/{pid}.json"))).ok()?;
    serde_json::from_slice(&text).ok().map(Row)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
