//! Transcript files: one for the session, one for each sub-agent.
//!
//! Invariants: rows that belong to the conversation are chained by parentUuid; every row is one
//! write; a new transcript does not exist before the first user row, what comes earlier waits.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::row::{Row, row};

/// A transcript that is being written.
pub(crate) struct Log {
    path: PathBuf,
    file: Option<File>,
    held: Vec<String>,
    leaf: Option<String>,
    agent: Option<String>,
    enabled: bool,
}

impl Log {
    /// A new transcript, or the one of a resumed session.
    pub(crate) fn new(path: PathBuf, enabled: bool) -> Self {
        Self {
            path,
            file: None,
            held: Vec::new(),
            leaf: None,
            agent: None,
            enabled,
        }
    }

    /// A sub-agent's transcript.
    pub(crate) fn of_agent(path: PathBuf, agent: &str, enabled: bool) -> Self {
        Self {
            agent: Some(agent.to_owned()),
            ..Self::new(path, enabled)
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn leaf(&self) -> Option<&str> {
        self.leaf.as_deref()
    }

    /// The conversation goes on from this row.
    pub(crate) fn set_leaf(&mut self, uuid: Option<String>) {
        self.leaf = uuid;
    }

    /// From now on rows go to the file.
    pub(crate) fn open(&mut self) {
        if self.file.is_some() || !self.enabled {
            return;
        }
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        if let Err(e) = std::fs::create_dir_all(folder) {
            crate::strict(&format!("cannot create {}: {e}", folder.display()));
        }
        match OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)
        {
            Ok(file) => self.file = Some(file),
            Err(e) => crate::strict(&format!("cannot open {}: {e}", self.path.display())),
        }
        for line in std::mem::take(&mut self.held) {
            self.raw(line.as_bytes());
        }
    }

    /// Bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        if let Some(file) = &mut self.file {
            let _ = file.write_all(bytes);
        }
    }

    /// A row outside the conversation.
    pub(crate) fn plain(&mut self, row: &Row) {
        if !self.enabled {
            return;
        }
        let line = row.line() + "\n";
        if self.file.is_some() {
            self.raw(line.as_bytes());
        } else {
            self.held.push(line);
        }
    }

    /// A row of the conversation; `body` holds its own uuid.
    pub(crate) fn chained(&mut self, uuid: &str, body: &Row, tail: &Row) {
        let row = row! { "parentUuid": self.leaf, "isSidechain": self.agent.is_some() };
        let row = match (&self.agent, body.line().starts_with("{\"promptId\"")) {
            // A sub-agent's user rows carry promptId before agentId.
            (Some(agent), false) => row.put("agentId", agent).join(body),
            (Some(agent), true) => {
                let line = body.line();
                let body: Value = serde_json::from_str(&line).unwrap_or_default();
                row.put("promptId", &body["promptId"])
                    .put("agentId", agent)
                    .join(&without_prompt_id(&line))
            }
            (None, _) => row.join(body),
        };
        self.plain(&row.join(tail));
        self.leaf = Some(uuid.to_owned());
    }
}

/// The row's text after its first field, as a row of its own.
fn without_prompt_id(line: &str) -> Row {
    let rest = line
        .find(',')
        .map_or("", |at| &line[at + 1..line.len() - 1]);
    Row::from_fields(rest)
}

/// What a resume needs to know of a session's past.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) leaf: Option<String>,
    pub(crate) cost: Option<Value>,
    /// Turns so far.
    pub(crate) turns: u32,
}

/// Reads a transcript; lines that are not JSON are passed by.
pub(crate) fn read(path: &Path) -> Past {
    let mut past = Past::default();
    let Ok(bytes) = std::fs::read(path) else {
        return past;
    };
    for line in bytes.split(|b| *b == b'\n') {
        let Ok(row) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        if row.get("type").and_then(Value::as_str) == Some("cost-state") {
            past.cost = Some(row);
            continue;
        }
        if let Some(turn) = row
            .pointer("/turnPosition/turnIndex")
            .and_then(Value::as_u64)
        {
            past.turns = past.turns.max(u32::try_from(turn).unwrap_or(0));
        }
        if row.get("parentUuid").is_some() {
            past.leaf = row.get("uuid").and_then(Value::as_str).map(str::to_owned);
        }
    }
    past
}

/// The transcript of a session, wherever it lies.
pub(crate) fn find(config: &Path, session: &str) -> Option<PathBuf> {
    let name = format!("{session}.jsonl");
    let folders = std::fs::read_dir(config.join("projects")).ok()?;
    folders
        .flatten()
        .map(|f| f.path().join(&name))
        .find(|path| path.is_file())
}

/// The sessions that somebody gave this name, newest first, each with the time of its last change.
pub(crate) fn find_by_title(config: &Path, title: &str) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    let folders = std::fs::read_dir(config.join("projects"));
    let files = folders
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|f| std::fs::read_dir(f.path()).ok());
    for file in files.flatten().flatten() {
        let Ok(bytes) = std::fs::read(file.path()) else {
            continue;
        };
        let named = bytes.split(|b| *b == b'\n').any(|line| {
            serde_json::from_slice::<Value>(line)
                .is_ok_and(|row| row.get("customTitle").and_then(Value::as_str) == Some(title))
        });
        if let Some(id) = file.path().file_stem().filter(|_| named) {
            let changed = file.metadata().and_then(|m| m.modified()).ok();
            let since = changed.and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
            let ms = since.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(0));
            found.push((id.to_string_lossy().into_owned(), ms));
        }
    }
    found.sort_by_key(|(_, changed)| std::cmp::Reverse(*changed));
    found
}

/// The newest session of a folder, for `--continue`.
pub(crate) fn newest(config: &Path, project: &str) -> Option<String> {
    let files = std::fs::read_dir(config.join("projects").join(project)).ok()?;
    files
        .flatten()
        .filter(|f| f.path().extension().is_some_and(|e| e == "jsonl"))
        .max_by_key(|f| f.metadata().and_then(|m| m.modified()).ok())
        .and_then(|f| {
            f.path()
                .file_stem()
                .map(|s| s.to_string_lossy().into_owned())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_wait_for_the_file_and_are_chained() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p/s.jsonl");
        let mut log = Log::new(path.clone(), true);
        log.plain(&row! { "type": "queue-operation" });
        assert!(!path.exists());
        log.open();
        log.chained(
            "u1",
            &row! { "type": "user", "uuid": "u1" },
            &row! { "sessionId": "s" },
        );
        log.chained(
            "u2",
            &row! { "type": "assistant", "uuid": "u2" },
            &row! { "sessionId": "s" },
        );
        log.raw(b"torn {");
        log.plain(&row! { "type": "cost-state", "totalCostUSD": 1 });
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], r#"{"type":"queue-operation"}"#);
        assert!(lines[2].starts_with(r#"{"parentUuid":"u1","isSidechain":false,"type""#));
        let past = read(&path);
        assert_eq!(past.leaf.as_deref(), Some("u2"));
        assert!(
            past.cost.is_none(),
            "the torn line took the cost row with it"
        );
    }

    #[test]
    fn a_sub_agents_user_rows_put_the_prompt_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent-a.jsonl");
        let mut log = Log::of_agent(path.clone(), "a", true);
        log.open();
        log.chained(
            "u",
            &row! { "promptId": "p", "type": "user" },
            &row! { "z": 1 },
        );
        assert_eq!(
            std::fs::read_to_string(&path).unwrap().trim(),
            r#"{"parentUuid":null,"isSidechain":true,"promptId":"p","agentId":"a","type":"user","z":1}"#
        );
    }
}
