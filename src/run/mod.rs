//! The domain of a run: from a launch spec to a truthful result.
//!
//! ```text
//! LaunchSpec ─► launch ─► supervise ─► claude ─► events file ─► Observed ─► verdict ─► result
//! ```
//!
//! [`launch`] makes everything that must exist before claude does, [`supervise`] spawns and watches
//! it, [`finish`] turns what is known into the document, by the pure [`verdict`]. [`inspect`] does
//! the last step for a run that it finds on disk, whoever supervised it; [`listing`] reads many
//! and little of each, [`select`] finds the run or the session that a person means, [`presence`]
//! tells who has a session.

pub mod argv;
pub mod brief;
pub mod child_env;
pub mod claude_program;
pub mod claude_version;
pub mod finish;
pub mod held;
pub mod holders;
pub mod inspect;
pub mod kinship;
pub mod launch;
mod lines;
pub mod listing;
pub mod mcp_config;
pub mod observed;
pub mod presence;
pub mod prompt;
pub mod reading;
pub mod record;
pub mod result;
pub mod row;
pub mod select;
pub mod spec;
pub mod stop;
pub mod streak;
pub mod supervise;
pub mod turn;
pub mod user_row;
pub mod verdict;
pub mod watchdog;
mod wording;

#[cfg(test)]
mod properties;
