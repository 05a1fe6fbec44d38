//! What claude itself leaves behind for others to read: registry rows, transcripts, processes.
//!
//! Everything here only reads claude's files. Parsing is pure and stands apart from reading, the
//! fewest fields are taken and unknown ones are passed by. Key files are never opened.
//!
//! [`lineage`] is the one thing of oo's own: which session started which.

use std::path::{Path, PathBuf};

use crate::platform::environment::Environment;

pub mod ancestry;
pub mod lineage;
pub mod names;
pub mod past;
pub mod peer_lines;
pub mod registry;
pub mod transcript;

/// The folder of claude's configuration: `$CLAUDE_CONFIG_DIR`, else `$HOME/.claude`.
#[must_use]
pub fn config_dir(environment: &Environment) -> Option<PathBuf> {
    let named = |name| environment.get(name).filter(|value| !value.is_empty());
    match named("CLAUDE_CONFIG_DIR") {
        Some(value) => Some(PathBuf::from(value)),
        None => Some(Path::new(&named("HOME")?).join(".claude")),
    }
}
