//! Many runs, and little of each: what `oo runs` shows.
//!
//! Of a run that has a result only that is read, and only the fields of [`RunRow`]; of one that
//! is going on, its launch spec and its processes. Events are read only of a run that lost its
//! supervisor, once: then it has a result; and of a held session their end. Words of open sets (class, cause, …) stay words, so
//! that a row of a newer oo is shown as it is. A run that cannot be read does not hide the others.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::held::{self, HoldEntry};
use super::inspect::{self, Standing};
use super::record::ProcessRecord;
use super::result::State;
use super::spec::LaunchSpec;
use super::{reading, result};
use crate::error::{Error, Kind, Result};
use crate::store::{self, RunFiles, StateDir};

/// The schema of the document.
pub const SCHEMA: &str = "oo/runs/v1";

/// How much of a prompt is looked at for its first words, in bytes.
const PROMPT_HEAD: u64 = 512;

/// The newest runs.
#[derive(Debug, Serialize)]
pub struct Listing {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The newest first.
    pub runs: Vec<RunRow>,
    /// What should be a run and cannot be read, among those looked at.
    pub broken: Vec<BrokenRun>,
    /// How many runs there are, shown or not.
    pub total: usize,
}

/// One run. The names are those of `oo/result/v1`, but for `name`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// The run.
    pub run_id: Uuid,
    /// The session that claude says it worked in.
    #[serde(default)]
    pub session_id: Option<String>,
    /// The name that the session was given.
    #[serde(default)]
    pub name: Option<String>,
    /// Who asked.
    #[serde(default)]
    pub verb: Option<String>,
    /// Where the run is in its life.
    pub state: String,
    /// What became of it; null while it runs.
    #[serde(default)]
    pub class: Option<String>,
    /// Why it did not simply complete.
    #[serde(default)]
    pub cause: Option<String>,
    /// What happened, in one sentence.
    #[serde(default)]
    pub message: Option<String>,
    /// The exit code of the verb that ran it; null while it runs.
    #[serde(default)]
    pub exit_code: Option<u8>,
    /// The folder it works in.
    #[serde(default)]
    pub cwd: Option<String>,
    /// What it cost, in dollars; null while it runs.
    #[serde(default)]
    pub cost_usd: Option<f64>,
    /// How the session is held open.
    #[serde(default)]
    pub hold: Option<HoldEntry>,
    /// When it began.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// How long it took.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// The beginning of the prompt, for people.
    #[serde(skip)]
    pub prompt: Option<String>,
}

/// What should be a run and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokenRun {
    /// Its id.
    pub run_id: Uuid,
    /// The folder.
    pub path: PathBuf,
    /// What is wrong, with the file.
    pub reason: String,
}

/// Lists the `limit` newest runs. `config` is claude's configuration folder, for the runs that
/// have to be judged and do not name theirs.
///
/// # Errors
/// When the folder of runs is there and cannot be read.
pub fn newest(state: &StateDir, limit: Option<usize>, config: Option<&Path>) -> Result<Listing> {
    let ids = state.run_ids()?;
    let mut listing = Listing {
        schema: SCHEMA,
        runs: Vec::new(),
        broken: Vec::new(),
        total: ids.len(),
    };
    for id in ids.into_iter().rev().take(limit.unwrap_or(usize::MAX)) {
        match row(state, id, config) {
            Ok(Some(row)) => listing.runs.push(row),
            Ok(None) => listing.total -= 1,
            Err(error) => listing.broken.push(BrokenRun {
                run_id: id,
                path: state.run(id).root().to_owned(),
                reason: error.to_string(),
            }),
        }
    }
    Ok(listing)
}

/// The row of one run; nothing while it is being made ready.
fn row(state: &StateDir, id: Uuid, config: Option<&Path>) -> Result<Option<RunRow>> {
    let files = state.run(id);
    if let Some(row) = finished(&files)? {
        return Ok(Some(described(&files, row)));
    }
    let spec = match reading::spec(&files.spec()) {
        Ok(spec) => spec,
        // The spec is written last. Whoever makes the run ready holds its lock.
        Err(error) if error.kind() == Kind::NotFound => {
            return match inspect::standing(&files)? {
                Standing::Supervised(_) | Standing::Alone(_) => Ok(None),
                Standing::Over(..) => Err(Error::failed(format!(
                    "there is no {}: the start was cut off before anything was spawned",
                    files.spec().display()
                ))),
            };
        }
        Err(error) => return Err(error),
    };
    let row = match inspect::standing(&files)? {
        Standing::Supervised(record) => RunRow {
            hold: spec
                .hold
                .map(|hold| HoldEntry::of(hold, held::rests(&files))),
            ..going(&spec, State::Running, record.as_deref())
        },
        Standing::Alone(record) => RunRow {
            hold: spec.hold.map(|hold| HoldEntry::of(hold, false)),
            ..going(&spec, State::Unsupervised, Some(&record))
        },
        Standing::Over(record, lock) => {
            let document = inspect::judge(state, &files, &spec, config, record, lock)?;
            serde_json::to_value(document)
                .and_then(serde_json::from_value)
                .map_err(|e| Error::failed(format!("cannot read the judgement of {id}: {e}")))?
        }
    };
    Ok(Some(described(&files, row)))
}

fn finished(files: &RunFiles) -> Result<Option<RunRow>> {
    let path = files.result();
    let found: BTreeMap<String, serde_json::Value> = match store::read_json(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == Kind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bad = |what: &str| Error::failed(format!("cannot parse {}: {what}", path.display()));
    let family = result::SCHEMA.trim_end_matches('1');
    if !found
        .get("schema")
        .and_then(|schema| schema.as_str())
        .is_some_and(|schema| schema.starts_with(family))
    {
        return Err(bad("it is no result"));
    }
    let found = serde_json::Value::Object(found.into_iter().collect());
    serde_json::from_value(found)
        .map(Some)
        .map_err(|e| bad(&e.to_string()))
}

fn going(spec: &LaunchSpec, state: State, record: Option<&ProcessRecord>) -> RunRow {
    RunRow {
        run_id: spec.run_id,
        session_id: Some(spec.session_id.to_string()),
        name: None,
        verb: Some(spec.verb.name().to_owned()),
        state: state.name().to_owned(),
        class: None,
        cause: None,
        message: None,
        exit_code: None,
        cwd: Some(spec.cwd.display().to_string()),
        cost_usd: None,
        hold: None,
        started_at: Some(record.map_or(spec.created_at, |record| record.started_at)),
        ended_at: None,
        duration_ms: None,
        prompt: None,
    }
}

/// Adds what a result does not hold: the session's name, and how the prompt begins.
fn described(files: &RunFiles, mut row: RunRow) -> RunRow {
    row.name = session_name(files);
    row.prompt = head(&files.prompt());
    row
}

/// The name that a run gave its session. A damaged spec costs no more than this.
#[must_use]
pub fn session_name(files: &RunFiles) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        options: Options,
    }
    #[derive(Deserialize)]
    struct Options {
        name: Option<String>,
    }
    let spec: Named = store::read_json(&files.spec()).ok()?;
    spec.options.name
}

fn head(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(PROMPT_HEAD).read_to_end(&mut bytes))
        .ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // A character that the limit cut in two is no part of the text.
    let words = text.trim_end_matches('\u{fffd}').split_whitespace();
    Some(words.collect::<Vec<_>>().join(" "))
}
