//! The only writer to stdout and stderr.
//!
//! stdout is the answer, or one JSON document, or JSON lines; everything meant for a person goes
//! to stderr. What the model or a tool wrote never reaches a terminal with its control characters.

mod clean;
mod follow;
mod live;
mod run_view;
mod say;
mod summary;
mod table;
pub mod when;

pub use clean::clean;
pub use follow::Follow;
pub use live::{Live, Progress};
pub use run_view::RunView;
pub use say::Console;
pub use summary::summary;
pub use table::{Column, Kind, Table, one_line};
