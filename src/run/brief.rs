//! Runs in brief: the few fields of a launch spec by which a run, or its session, is found.
//!
//! Of a spec that another oo wrote, or that is damaged elsewhere, they are read all the same; a
//! run without them is none that could be meant.

use serde::Deserialize;
use uuid::Uuid;

use super::spec::DoormanMode;
use crate::error::Result;
use crate::store::{self, StateDir};

/// A run in brief.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Brief {
    /// The run.
    pub run_id: Uuid,
    /// Its session.
    pub session_id: Uuid,
    #[serde(default)]
    options: Options,
    #[serde(default)]
    doorman: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Options {
    #[serde(default)]
    name: Option<String>,
}

impl Brief {
    /// The run `id` in brief.
    #[must_use]
    pub fn of(state: &StateDir, id: Uuid) -> Option<Self> {
        store::read_json(&state.run(id).spec()).ok()
    }

    /// Every run, the newest first.
    ///
    /// # Errors
    /// When the folder of runs is there and cannot be read.
    pub fn all(state: &StateDir) -> Result<impl Iterator<Item = Self>> {
        let ids = state.run_ids()?;
        Ok(ids
            .into_iter()
            .rev()
            .filter_map(move |id| Self::of(state, id)))
    }

    /// The name that the run gave its session.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.options.name.as_deref()
    }

    /// Whether a doorman of oo's comes with it.
    #[must_use]
    pub fn has_own_doorman(&self) -> bool {
        let injected = serde_json::to_value(DoormanMode::Injected);
        injected.is_ok_and(|injected| self.doorman == Some(injected))
    }
}
