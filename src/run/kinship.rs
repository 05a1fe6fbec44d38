//! What a run adds to the ledger of lineage.

use uuid::Uuid;

use super::result::{LineageEntry, ResultDocument};
use super::spec::LaunchSpec;
use crate::error::Result;
use crate::platform::clock;
use crate::session::lineage::{By, Lineage, Link};
use crate::store::StateDir;

/// Puts the session's parent on record, before its claude runs.
///
/// # Errors
/// As [`Lineage::append`].
pub fn record(state: &StateDir, spec: &LaunchSpec) -> Result<()> {
    let Some(parent) = &spec.parent else {
        return Ok(());
    };
    let link = Link {
        at: spec.created_at,
        ..link(spec, spec.session_id, parent.session_id)
    };
    Lineage::at(state.lineage()).append(&link).map(drop)
}

/// Puts on record that claude went over to another session than it was told, and says so in the
/// document.
pub fn record_stray(state: &StateDir, spec: &LaunchSpec, document: &mut ResultDocument) {
    let reported = document.session_id.as_deref();
    let Some(child) = reported
        .and_then(|id| Uuid::try_parse(id).ok())
        .filter(|id| *id != spec.session_id)
    else {
        return;
    };
    let parent = spec.session_id;
    match Lineage::at(state.lineage()).append(&link(spec, child, parent)) {
        Ok(_) => {
            document.lineage = Some(LineageEntry {
                child,
                parent,
                by: By::Dispatcher,
            });
        }
        Err(error) => {
            let before = document.note.take().map(|note| note + "; ");
            document.note = Some(format!("{}{error}", before.unwrap_or_default()));
        }
    }
}

fn link(spec: &LaunchSpec, child: Uuid, parent: Uuid) -> Link {
    Link {
        child,
        parent,
        by: By::Dispatcher,
        at: clock::now(),
        run_id: Some(spec.run_id),
        cwd: Some(spec.cwd.clone()),
    }
}
