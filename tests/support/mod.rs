//! What every test stands on: a private world, a scripted claude, deadlines, lanes.
//!
//! - [`env`]: a scratch home with a cleared environment, and the programs started in it;
//! - [`process`]: a started program: files for its output, deadlines, what it left behind;
//! - [`sweep`]: ends what a test started, and only that;
//! - [`scenario`]: what the model says, the same for the stand-in and for the real claude;
//! - [`claude`]: which claude, and how it gets its scenario;
//! - [`mock`] and [`sse`]: the Messages API on loopback;
//! - [`lanes`] and [`netns`]: which tests can run here, and the walls around a real claude;
//! - [`rows`]: reading what claude printed and wrote, and comparing its shape;
//! - [`steered`]: a session under way that waits, to send lines to;
//! - [`held`]: a session that is held open, and lines for its door;
//! - [`post`]: a live session and its doorman, by hand;
//! - [`mcp`]: a small MCP server that writes down how it was treated.
#![allow(
    dead_code,
    reason = "not every test binary that includes this uses all of it"
)]

pub(crate) mod claude;
pub(crate) mod env;
pub(crate) mod held;
pub(crate) mod lanes;
pub(crate) mod mcp;
pub(crate) mod mock;
pub(crate) mod netns;
pub(crate) mod post;
pub(crate) mod process;
pub(crate) mod rows;
pub(crate) mod scenario;
pub(crate) mod sleeping;
pub(crate) mod sse;
pub(crate) mod steered;
pub(crate) mod sweep;
