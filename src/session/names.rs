//! The sessions whose transcripts claude has, by the names of the files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use uuid::Uuid;

/// The sessions for whose id `wanted` says so. A folder that cannot be read has none.
#[must_use]
pub fn with_transcript(config: &Path, wanted: impl Fn(&str) -> bool) -> BTreeSet<Uuid> {
    let mut found = BTreeSet::new();
    let folders = fs::read_dir(config.join("projects")).into_iter().flatten();
    for folder in folders.flatten() {
        for entry in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
            if let Some(id) = id.filter(|id| wanted(id))
                && let Ok(id) = Uuid::try_parse(id)
            {
                found.insert(id);
            }
        }
    }
    found
}
