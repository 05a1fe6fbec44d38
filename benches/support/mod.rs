//! The parts of the comparisons.
//!
//! - [`pair`]: two sides in turn, and the ratio of each pair;
//! - [`table`]: the figures, whether they hold, and their place in the documentation;
//! - [`claude_under_test`]: the real claude inside its walls, or the stand-in;
//! - [`status`]: what `/proc` says of a live process;
//! - the rest: one file for each thing that is measured.

pub(crate) mod claude_under_test;
pub(crate) mod delivery;
pub(crate) mod doorman;
pub(crate) mod long_line;
pub(crate) mod memory;
pub(crate) mod noop_server;
pub(crate) mod pair;
pub(crate) mod resume;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod wall_time;
