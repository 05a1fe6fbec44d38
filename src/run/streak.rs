//! Failures in a row: a session that is resumed again and again and fails each time for one cause.

use serde::Deserialize;

use super::brief::Brief;
use super::spec::LaunchSpec;
use crate::exit::{Cause, Class};
use crate::store::{self, StateDir};

/// How many runs of any session are looked through.
const LOOKED_AT: usize = 1000;

/// From how many on it is said.
const WORTH_SAYING: usize = 2;

/// What is said of a run that failed, when those of its session before it failed for the same
/// cause.
#[must_use]
pub fn note(
    state: &StateDir,
    spec: &LaunchSpec,
    class: Class,
    cause: Option<Cause>,
) -> Option<String> {
    if !class.is_failure() || spec.resumes != Some(spec.session_id) {
        return None;
    }
    let count = before(state, spec, cause) + 1;
    let cause = cause.map_or("--timeout", Cause::name);
    (count >= WORTH_SAYING).then(|| {
        format!(
            "{count} runs of this session in a row have failed with the cause {cause}: mend that before it is resumed again"
        )
    })
}

/// How many runs of the session, from this one backwards, failed for this cause.
fn before(state: &StateDir, spec: &LaunchSpec, cause: Option<Cause>) -> usize {
    let ids = state.run_ids().unwrap_or_default();
    let earlier = ids.into_iter().rev().filter(|id| *id < spec.run_id);
    earlier
        .take(LOOKED_AT)
        .filter(|id| Brief::of(state, *id).is_some_and(|brief| brief.session_id == spec.session_id))
        .take_while(|id| {
            let end: Option<End> = store::read_json(&state.run(*id).result()).ok();
            end.is_some_and(|end| end.failed_by(cause))
        })
        .count()
}

/// How a run ended, whoever wrote that down.
#[derive(Debug, Deserialize)]
struct End {
    #[serde(default)]
    class: Option<String>,
    #[serde(default)]
    cause: Option<String>,
}

impl End {
    fn failed_by(&self, cause: Option<Cause>) -> bool {
        let is = |class: &Class| self.class.as_deref() == Some(class.name());
        Class::ALL
            .iter()
            .any(|class| class.is_failure() && is(class))
            && self.cause.as_deref() == cause.map(Cause::name)
    }
}
