//! What oo keeps on disk: where it lies and how it is written.
//!
//! - Folders are 0700 and files 0600; a state folder that others can enter is refused.
//! - A file that is replaced is written beside itself, synced, renamed, and its folder synced.
//! - A ledger line is one `write(2)` on an `O_APPEND` descriptor.
//! - Lock files are never unlinked.
//! - What cannot be parsed is an error with its path, never an empty value.

mod append;
mod file;
mod ledger;
mod lines;
mod lock;
mod receipt;
mod state;
mod tail;

pub use append::Appender;
pub use file::{
    create_appending, create_private, open_to_append, open_to_read, read_file, read_json, regular,
    replace, replace_json, replace_unsynced, sync,
};
pub use ledger::{Ledger, LedgerLines};
pub use lines::{Line, each_line};
pub use lock::{Lock, LockError};
pub use receipt::Receipt;
pub use state::{RunFiles, StateDir};
pub use tail::{Tail, end_of};
