//! A run as it is found on disk: its result, or what is known of it so far.
//!
//! Whoever holds the run's lock writes its result, nobody else. So a run with a free lock and no
//! result has lost its supervisor: if claude is gone too, the verdict is computed here, from the
//! folder, and written.

use std::path::Path;

use jiff::Timestamp;
use uuid::Uuid;

use super::finish::{self, Known};
use super::observed::Observed;
use super::record::ProcessRecord;
use super::result::{ResultDocument, State};
use super::spec::LaunchSpec;
use super::tail::Tail;
use super::verdict::Ending;
use crate::error::{Error, Kind, Result};
use crate::inbox::{Heartbeat, Inbox};
use crate::store::{self, Lock, LockError, RunFiles, StateDir};

/// The document of a run. `config` is claude's configuration folder.
///
/// # Errors
/// Not found when there is no such run; failed when a file of it cannot be read or parsed.
pub fn inspect(state: &StateDir, id: Uuid, config: Option<&Path>) -> Result<ResultDocument> {
    let files = state.run(id);
    if let Some(document) = finished(&files)? {
        return Ok(document);
    }
    let spec: LaunchSpec = store::read_json(&files.spec()).map_err(|error| match error.kind() {
        Kind::NotFound => {
            Error::not_found(format!("there is no run {id}")).hint("`oo runs` lists what there is")
        }
        _ => error,
    })?;
    match Lock::try_take(&files.lock()) {
        Err(LockError::Broken(error)) => Err(error),
        Err(LockError::Held) => Ok(so_far(state, &files, &spec, config)?.document(State::Running)),
        Ok(_lock) => {
            // It may have been finished between the look and the lock.
            if let Some(document) = finished(&files)? {
                return Ok(document);
            }
            let found = so_far(state, &files, &spec, config)?;
            if found
                .record
                .as_ref()
                .is_some_and(ProcessRecord::claude_lives)
            {
                return Ok(found.document(State::Unsupervised));
            }
            let document = found.document(State::Ended);
            store::replace_json(&files.result(), &document)?;
            Ok(document)
        }
    }
}

fn finished(files: &RunFiles) -> Result<Option<ResultDocument>> {
    match store::read_json::<ResultDocument>(&files.result()) {
        Ok(document) => Ok(Some(document)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

struct Found<'a> {
    state: &'a StateDir,
    files: &'a RunFiles,
    spec: &'a LaunchSpec,
    config: Option<&'a Path>,
    record: Option<ProcessRecord>,
    observed: Observed,
    last_heard: Option<Timestamp>,
}

fn so_far<'a>(
    state: &'a StateDir,
    files: &'a RunFiles,
    spec: &'a LaunchSpec,
    config: Option<&'a Path>,
) -> Result<Found<'a>> {
    let record = match store::read_json::<ProcessRecord>(&files.process()) {
        Ok(record) => Some(record),
        Err(error) if error.kind() == Kind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut observed = Observed::default();
    let mut tail = Tail::open(&files.events())?;
    tail.read_new(|line| drop(observed.line(line)))
        .map_err(|e| Error::io("read", &files.events(), e))?;
    tail.finish(|line| drop(observed.line(line)));
    let last_heard = std::fs::metadata(files.events())
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|time| Timestamp::try_from(time).ok());
    Ok(Found {
        state,
        files,
        spec,
        config,
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
            record: self.record.as_ref(),
            observed: &self.observed,
            ending: ended.then_some(&Ending::Unknown),
            heartbeat: heartbeat.as_ref(),
            config: self.config,
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
        ResultDocument { state, ..document }
    }
}
