//! The operating system: processes, descriptors, signals, the environment, the clock.
//!
//! Every side effect of this kind has its one home here; clippy's disallowed methods hold the
//! rest of the crate to it.

pub mod clock;
pub mod descriptors;
pub mod environment;
pub mod host;
pub mod pidfd;
pub mod pipe;
pub mod probe;
pub mod process;
pub mod readiness;
pub mod runtime;
pub mod signals;
pub mod spawn;
pub mod terminal;
pub mod watch;
