//! The operating system: processes, descriptors, signals, the environment, the clock.
//!
//! Every side effect of this kind has its one home here; clippy's disallowed methods hold the
//! rest of the crate to it.

pub mod environment;
