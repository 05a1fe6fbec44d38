//! oo: a supervisor and launcher for headless Claude Code runs that tells the truth about them.
//!
//! The layers, each of which knows only those below it:
//!
//! - [`cli`] and [`cmd`]: the command line, one verb a file;
//! - [`doctor`]: what keeps runs from going well;
//! - [`send`]: sending a session a line;
//! - [`run`], [`session`], [`inbox`], [`doorman`]: what oo is about;
//! - [`store`]: every path, atomic files, JSON lines, locks;
//! - [`platform`]: processes, descriptors, signals, the environment, the clock.
//!
//! [`ui`] is the only writer to stdout and stderr. Results travel up as values: domain, verb,
//! output, exit code. `docs/architecture.md` draws the whole.

pub mod cli;
pub mod cmd;
pub mod doctor;
pub mod doorman;
pub mod error;
pub mod exit;
pub mod inbox;
pub mod platform;
pub mod run;
pub mod send;
pub mod session;
pub mod store;
pub mod ui;
