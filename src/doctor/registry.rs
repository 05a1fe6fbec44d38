//! Are the rows of claude's registry rows?

use super::{Finding, Outcome, Surroundings};
use crate::session::registry;

pub(super) fn check(surroundings: &Surroundings<'_>) -> Outcome {
    let Some(config) = surroundings.config.as_deref() else {
        return Outcome::Skipped("neither CLAUDE_CONFIG_DIR nor HOME is set".to_owned());
    };
    let listing = match registry::list(config) {
        Ok(listing) => listing,
        Err(error) => {
            let finding = Finding::error(&error, "check the owner and mode of that folder");
            return Outcome::Found(vec![finding.at(config)]);
        }
    };
    let live = listing.rows.iter().filter(|row| row.live()).count();
    let stale = listing.rows.len() - live;
    let bad = listing.bad.iter().map(|bad| {
        Finding::new(
            format!("{} is no registry row: {}", bad.path.display(), bad.reason),
            "once no claude of that pid runs, delete it: the session in it cannot be found",
        )
        .at(&bad.path)
    });
    Outcome::of(bad.collect(), || {
        format!("{live} sessions live; {stale} rows were left behind by killed ones")
    })
}
