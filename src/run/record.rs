//! `process.json`: which processes a run has, and whether and why oo decided to end it.
//!
//! It is on disk before claude runs, and rewritten when a stop begins, so that whoever finds the
//! folder later knows what the supervisor knew.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::stop::StopRecord;
use crate::error::Result;
use crate::platform::host;
use crate::platform::process::Identity;
use crate::store::{self, RunFiles};

/// The schema of `process.json`.
pub const SCHEMA: &str = "oo/process/v1";

/// The processes of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// claude. Before its exec it is a fork of the supervisor under the same pid.
    pub claude: Identity,
    /// The supervisor.
    pub supervisor: Option<Identity>,
    /// The boot in which these pids mean something.
    pub boot_id: Option<String>,
    /// When claude was forked.
    pub started_at: Timestamp,
    /// The variables that were kept or added, by name.
    pub env_kept: Vec<String>,
    /// claude's configuration folder by the child's environment, where its transcript is; nothing
    /// when it is not known or no UTF-8.
    #[serde(default)]
    pub config_dir: Option<String>,
    /// Whether and why oo decided to end the run.
    pub stop: Option<StopRecord>,
}

impl ProcessRecord {
    /// Writes it, durably.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, files: &RunFiles) -> Result<()> {
        store::replace_json(&files.process(), self)
    }

    /// Whether claude still runs: the same process, in the same boot.
    #[must_use]
    pub fn claude_lives(&self) -> bool {
        self.same_boot() && self.claude.lives()
    }

    /// Whether the supervisor still runs.
    #[must_use]
    pub fn supervisor_lives(&self) -> bool {
        self.same_boot() && self.supervisor.as_ref().is_some_and(Identity::lives)
    }

    fn same_boot(&self) -> bool {
        self.boot_id.is_none() || self.boot_id == host::boot_id()
    }
}
