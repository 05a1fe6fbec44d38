//! Whether a session is there right now: a live registry row, or a live run of oo's.
//!
//! A row is claude's own word. A run counts too: its claude has no row in its first moments, or
//! has it in another configuration folder than ours.

use std::path::Path;

use jiff::Timestamp;
use uuid::Uuid;

use super::brief::Brief;
use super::inspect::{self, Standing};
use super::record::ProcessRecord;
use crate::error::{Kind, Result};
use crate::platform::process::Identity;
use crate::session::registry::{self, Row};
use crate::store::{self, StateDir};

/// Who has a session right now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// A live row of the registry.
    pub row: Option<Row>,
    /// The newest run that has it.
    pub run: Option<LiveRun>,
}

/// A run that goes on, whether or not its supervisor lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRun {
    /// The run.
    pub run_id: Uuid,
    /// Whether a doorman of oo's comes with it.
    pub has_own_doorman: bool,
    /// Its claude; nothing while that is about to be started.
    pub claude: Option<Identity>,
    /// When claude was forked.
    pub started_at: Option<Timestamp>,
}

impl Presence {
    /// Looks for the session in the registry of `config` and among the runs.
    ///
    /// # Errors
    /// When the registry or the folder of runs is there and cannot be read.
    pub fn of(state: &StateDir, config: Option<&Path>, session: Uuid) -> Result<Self> {
        let rows = match config {
            Some(config) => registry::list(config)?.rows,
            None => Vec::new(),
        };
        let row = rows
            .into_iter()
            .find(|row| row.session_id == session && row.live());
        let run = live_run(state, session)?;
        Ok(Self { row, run })
    }

    /// Whether anybody has it.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.row.is_some() || self.run.is_some()
    }
}

fn live_run(state: &StateDir, session: Uuid) -> Result<Option<LiveRun>> {
    for id in state.run_ids()?.into_iter().rev() {
        // One look at a name for each run that is over, of which there may be thousands.
        if state.run(id).result().exists() {
            continue;
        }
        let Some(brief) = Brief::of(state, id).filter(|brief| brief.session_id == session) else {
            continue;
        };
        if let Some(run) = alive(state, &brief)? {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

fn alive(state: &StateDir, brief: &Brief) -> Result<Option<LiveRun>> {
    let files = state.run(brief.run_id);
    let run = |record: Option<ProcessRecord>| LiveRun {
        run_id: brief.run_id,
        has_own_doorman: brief.has_own_doorman(),
        started_at: record.as_ref().map(|record| record.started_at),
        claude: record.map(|record| record.claude),
    };
    let record: ProcessRecord = match store::read_json(&files.process()) {
        Ok(record) => record,
        Err(error) if error.kind() == Kind::NotFound => {
            // Its supervisor is about to start claude, or was cut off before it could.
            let about_to = matches!(inspect::standing(&files)?, Standing::Supervised(_));
            return Ok(about_to.then(|| run(None)));
        }
        // Whoever asks for this run is told; it does not keep others from being found.
        Err(_) => return Ok(None),
    };
    let here = record.claude_lives() && !has_left(&record, brief.session_id);
    Ok(here.then(|| run(Some(record))))
}

/// Whether a run's claude says itself that it has another session now.
fn has_left(record: &ProcessRecord, session: Uuid) -> bool {
    let row = record
        .config_dir
        .as_deref()
        .and_then(|config| registry::live_row(Path::new(config), record.claude.pid));
    row.is_some_and(|row| row.session_id != session)
}
