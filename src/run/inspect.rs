//! A run as it is found on disk: its result, or what is known of it so far.
//!
//! Whoever holds the run's lock writes its result, nobody else. So a run with a free lock and no
//! result has lost its supervisor: if claude is gone too, the verdict is computed here, from the
//! folder, and written. What a newer oo began is judged as far as this one understands it, but
//! the judgement is not written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::finish::{self, Known};
use super::held::{self, HoldEntry};
use super::kinship;
use super::observed::Observed;
use super::reading;
use super::record::{self, ProcessRecord};
use super::result::{ResultDocument, State};
use super::spec::{self, LaunchSpec};
use super::verdict::Ending;
use crate::error::{Error, Kind, Result};
use crate::inbox::{Heartbeat, Inbox};
use crate::store::{self, Lock, LockError, RunFiles, StateDir, Tail};

/// How often a lock that only a passer-by can hold is asked for again, and the pause between.
const PASSER_BY: (u32, Duration) = (200, Duration::from_millis(5));

/// Who is with a run that has no result yet. No event is read to tell.
#[derive(Debug)]
pub enum Standing {
    /// Its supervisor is.
    Supervised(Option<Box<ProcessRecord>>),
    /// claude runs alone.
    Alone(Box<ProcessRecord>),
    /// Nobody: it is for us to judge, as long as we hold the lock.
    Over(Option<Box<ProcessRecord>>, Lock),
}

/// The document of a run. `config` is claude's configuration folder where the run's own record
/// does not name it.
///
/// # Errors
/// Not found when there is no such run; failed when a file of it cannot be read or parsed.
pub fn inspect(state: &StateDir, id: Uuid, config: Option<&Path>) -> Result<ResultDocument> {
    let files = state.run(id);
    if let Some(document) = finished(&files)? {
        return Ok(document);
    }
    let spec = reading::spec(&files.spec()).map_err(|error| match error.kind() {
        // `oo runs` names it too.
        Kind::NotFound if files.root().is_dir() => Error::not_found(format!(
            "there is no {}: the start is still under way, or was cut off before anything was spawned",
            files.spec().display()
        )),
        Kind::NotFound => {
            Error::not_found(format!("there is no run {id}")).hint("`oo runs` lists what there is")
        }
        _ => error,
    })?;
    let going = |record: Option<Box<ProcessRecord>>, life| -> Result<ResultDocument> {
        Ok(so_far(state, &files, &spec, config, record)?.document(life))
    };
    match standing(&files)? {
        Standing::Supervised(record) => going(record, State::Running),
        Standing::Alone(record) => going(Some(record), State::Unsupervised),
        Standing::Over(record, lock) => judge(state, &files, &spec, config, record, lock),
    }
}

/// Judges a run that is [`Standing::Over`], by the lock that came with it, and writes the result.
/// A judgement that cannot be written is one all the same, and says so.
///
/// # Errors
/// Failed when a file of the run cannot be read.
pub fn judge(
    state: &StateDir,
    files: &RunFiles,
    spec: &LaunchSpec,
    config: Option<&Path>,
    record: Option<Box<ProcessRecord>>,
    _lock: Lock,
) -> Result<ResultDocument> {
    // It may have been finished between the look and the lock.
    if let Some(document) = finished(files)? {
        return Ok(document);
    }
    let known = spec.schema == spec::SCHEMA
        && record
            .as_ref()
            .is_none_or(|record| record.schema == record::SCHEMA);
    let found = so_far(state, files, spec, config, record)?;
    let mut document = found.document(State::Ended);
    if known {
        kinship::record_stray(state, spec, &mut document);
    }
    let write = || {
        if spec.hold.is_some() {
            held::settle(files, &found.observed.results)?;
        }
        store::replace_json(&files.result(), &document)
    };
    if known && let Err(error) = write() {
        let before = document.note.take().map(|note| note + "; ");
        document.note = Some(format!("{}{error}", before.unwrap_or_default()));
    }
    Ok(document)
}

/// Who is with the run.
///
/// # Errors
/// When its lock or its `process.json` cannot be used.
pub fn standing(files: &RunFiles) -> Result<Standing> {
    let (mut tries, pause) = PASSER_BY;
    loop {
        let lock = match Lock::try_take(&files.lock()) {
            Ok(lock) => Some(lock),
            Err(LockError::Held) => None,
            Err(LockError::Broken(error)) => return Err(error),
        };
        let record = process(files)?;
        let Some(lock) = lock else {
            // The supervisor holds its lock for life. Whoever holds that of a dead one is
            // looking at the run, as we do, and will let go.
            let dead = record
                .as_ref()
                .is_some_and(|record| !record.supervisor_lives());
            if dead && tries > 0 {
                tries -= 1;
                std::thread::sleep(pause);
                continue;
            }
            return match record {
                Some(record) if dead && record.claude_lives() => Ok(Standing::Alone(record)),
                Some(_) if dead => Err(Error::failed(format!(
                    "somebody else has been looking at {} for a while",
                    files.root().display()
                ))
                .hint("try again")),
                record => Ok(Standing::Supervised(record)),
            };
        };
        return Ok(match record {
            Some(record) if record.claude_lives() => Standing::Alone(record),
            record => Standing::Over(record, lock),
        });
    }
}

fn process(files: &RunFiles) -> Result<Option<Box<ProcessRecord>>> {
    match reading::strict_but_named(&files.process(), "oo/process/") {
        Ok(record) => Ok(Some(Box::new(record))),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn finished(files: &RunFiles) -> Result<Option<ResultDocument>> {
    match reading::result(&files.result()) {
        Ok(document) => Ok(Some(document)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

struct Found<'a> {
    state: &'a StateDir,
    files: &'a RunFiles,
    spec: &'a LaunchSpec,
    config: Option<PathBuf>,
    record: Option<Box<ProcessRecord>>,
    observed: Observed,
    last_heard: Option<Timestamp>,
}

fn so_far<'a>(
    state: &'a StateDir,
    files: &'a RunFiles,
    spec: &'a LaunchSpec,
    config: Option<&Path>,
    record: Option<Box<ProcessRecord>>,
) -> Result<Found<'a>> {
    let mut observed = Observed::default();
    let mut tail = Tail::open(&files.events())?;
    // What is there now: a claude that still runs may write faster than this reads.
    tail.pending()
        .and_then(|most| tail.read_new(most, |line| drop(observed.line(line))))
        .map_err(|e| Error::io("read", &files.events(), e))?;
    tail.finish(|line| drop(observed.line(line)));
    let last_heard = std::fs::metadata(files.events())
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|time| Timestamp::try_from(time).ok());
    let recorded = record
        .as_ref()
        .and_then(|record| record.config_dir.as_deref());
    Ok(Found {
        state,
        files,
        spec,
        config: recorded.map(Path::new).or(config).map(Path::to_owned),
        record,
        observed,
        last_heard,
    })
}

impl Found<'_> {
    fn document(&self, state: State) -> ResultDocument {
        let ended = state == State::Ended;
        let heartbeat = Heartbeat::read(&Inbox::of(self.state, self.spec.session_id).heartbeat())
            .ok()
            .flatten();
        let started = self.record.as_ref().map(|record| record.started_at);
        let note = "the supervisor of this run died; the result was computed from its folder";
        let document = finish::document(&Known {
            state: self.state,
            files: self.files,
            spec: self.spec,
            record: self.record.as_deref(),
            observed: &self.observed,
            ending: ended.then_some(&Ending::Unknown),
            heartbeat: heartbeat.as_ref(),
            config: self.config.as_deref(),
            first_output: None,
            ended_at: if ended {
                self.last_heard.max(started)
            } else {
                None
            },
            notes: if ended {
                vec![note.to_owned()]
            } else {
                Vec::new()
            },
        });
        // Only a supervisor keeps a session open.
        let hold = document.hold.map(|hold| HoldEntry {
            waiting: hold.waiting && state == State::Running,
            ..hold
        });
        ResultDocument {
            state,
            hold,
            ..document
        }
    }
}
