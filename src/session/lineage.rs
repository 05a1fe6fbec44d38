//! The ledger of lineage, version 0: which session started which.
//!
//! The contract is `docs/contracts/lineage-v0.md`. A link is written before its child runs, so
//! that a crash leaves a link to nothing rather than a child without a parent. A child's newest
//! link is the one that counts.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::store::{self, Ledger, LedgerLines};

/// Who wrote a link down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum By {
    /// The child, about itself.
    Child,
    /// The parent, about its child.
    Parent,
    /// Whoever started the child: `oo start` and its kin.
    Dispatcher,
    /// Somebody whom this version does not know.
    #[serde(other)]
    Other,
}

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The session that was started.
    pub child: Uuid,
    /// The session that started it.
    pub parent: Uuid,
    /// Who says so.
    pub by: By,
    /// When it was written down.
    pub at: Timestamp,
    /// The run in which the child was started, if oo started it.
    #[serde(default)]
    pub run_id: Option<Uuid>,
    /// The folder the child works in.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The link is new.
    Written,
    /// It is already the child's newest link.
    Known,
}

/// The ledger of lineage.
#[derive(Debug)]
pub struct Lineage {
    ledger: Ledger,
}

impl Lineage {
    /// The ledger at `path` ([`crate::store::StateDir::lineage`]); nothing is created.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self {
            ledger: Ledger::at(path),
        }
    }

    /// Appends a link, unless the child's newest link already names this parent.
    ///
    /// # Errors
    /// Refused when the child would be its own ancestor; failed when the ledger cannot be read or
    /// written.
    pub fn append(&self, link: &Link) -> Result<Appended> {
        let Link { child, parent, .. } = link;
        if child == parent {
            return Err(Error::refused(format!(
                "session {child} cannot be its own parent"
            )));
        }
        // A session that the ledger never mentions has no link yet, and is nobody's ancestor.
        // That is every fresh one, so the ledger is parsed only for the others.
        if mentions(self.ledger.path(), *child)? {
            let parents = newest(&self.read()?.lines);
            if parents.get(child) == Some(parent) {
                return Ok(Appended::Known);
            }
            if ancestors(&parents, *parent).contains(child) {
                return Err(Error::refused(format!(
                    "session {child} cannot be a child of {parent}, which descends from it"
                )));
            }
        }
        self.ledger.append(link)?;
        Ok(Appended::Written)
    }

    /// Every link, in the order written; lines that are none are named by their number.
    ///
    /// # Errors
    /// When the ledger is there and cannot be read.
    pub fn read(&self) -> Result<LedgerLines<Link>> {
        self.ledger.read()
    }

    /// The parent of a session, by its newest link.
    ///
    /// # Errors
    /// As [`Lineage::read`].
    pub fn parent_of(&self, child: Uuid) -> Result<Option<Uuid>> {
        let found = self.read()?.lines;
        Ok(found
            .iter()
            .rev()
            .find(|link| link.child == child)
            .map(|link| link.parent))
    }
}

/// The parent of each child, by its newest link.
#[must_use]
pub fn newest(links: &[Link]) -> HashMap<Uuid, Uuid> {
    links.iter().map(|link| (link.child, link.parent)).collect()
}

/// The ancestors of a session. Ends even if somebody wrote a circle into the ledger.
#[must_use]
pub fn ancestors(parents: &HashMap<Uuid, Uuid>, session: Uuid) -> HashSet<Uuid> {
    let mut found = HashSet::new();
    let mut next = session;
    while let Some(parent) = parents.get(&next) {
        if !found.insert(*parent) {
            break;
        }
        next = *parent;
    }
    found
}

/// Whether the text of an id occurs in a file; reads it in pieces.
fn mentions(path: &Path, id: Uuid) -> Result<bool> {
    let fail = |e| Error::io("read", path, e);
    let mut file = match store::regular(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(fail(e)),
    };
    let id = id.to_string();
    let mut buffer = vec![0; 64 * 1024];
    let mut kept = 0;
    loop {
        let read = file.read(&mut buffer[kept..]).map_err(fail)?;
        if read == 0 {
            return Ok(false);
        }
        let filled = kept + read;
        if String::from_utf8_lossy(&buffer[..filled]).contains(&id) {
            return Ok(true);
        }
        // The id may lie across two pieces.
        kept = filled.min(id.len() - 1);
        buffer.copy_within(filled - kept..filled, 0);
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn link(child: u128, parent: u128) -> Link {
        Link {
            child: Uuid::from_u128(child),
            parent: Uuid::from_u128(parent),
            by: By::Dispatcher,
            at: Timestamp::from_millisecond(1_796_072_281_039).unwrap(),
            run_id: None,
            cwd: Some(PathBuf::from("/w")),
        }
    }

    fn ledger() -> (tempfile::TempDir, Lineage) {
        let folder = tempfile::tempdir().unwrap();
        let lineage = Lineage::at(folder.path().join("lineage.jsonl"));
        (folder, lineage)
    }

    #[test]
    fn a_line_as_it_lies_on_disk() {
        let (_folder, lineage) = ledger();
        lineage.append(&link(2, 1)).unwrap();
        assert_eq!(
            std::fs::read_to_string(lineage.ledger.path()).unwrap(),
            "{\"child\":\"00000000-0000-0000-0000-000000000002\",\
             \"parent\":\"00000000-0000-0000-0000-000000000001\",\"by\":\"dispatcher\",\
             \"at\":\"2026-11-30T20:58:01.039Z\",\"run_id\":null,\"cwd\":\"/w\"}\n"
        );
    }

    #[test]
    fn known_is_what_the_newest_link_says() {
        let (_folder, lineage) = ledger();
        let table = [
            ((2, 1), Appended::Written),
            ((2, 1), Appended::Known),
            ((2, 3), Appended::Written),
            // Not the newest any more: it is news again.
            ((2, 1), Appended::Written),
            ((4, 1), Appended::Written),
        ];
        for ((child, parent), expected) in table {
            assert_eq!(
                lineage.append(&link(child, parent)).unwrap(),
                expected,
                "{child} {parent}"
            );
        }
        assert_eq!(lineage.read().unwrap().lines.len(), 4);
        assert_eq!(
            lineage.parent_of(Uuid::from_u128(2)).unwrap(),
            Some(Uuid::from_u128(1))
        );
        assert_eq!(lineage.parent_of(Uuid::from_u128(1)).unwrap(), None);
    }

    #[test]
    fn nobody_is_their_own_ancestor() {
        let (_folder, lineage) = ledger();
        lineage.append(&link(2, 1)).unwrap();
        lineage.append(&link(3, 2)).unwrap();
        for (child, parent) in [(5, 5), (1, 2), (1, 3)] {
            let refused = lineage.append(&link(child, parent)).unwrap_err();
            assert_eq!(refused.kind(), Kind::Refused, "{child} {parent}");
        }
        assert_eq!(lineage.read().unwrap().lines.len(), 2);
    }

    #[test]
    fn a_circle_in_the_file_ends_and_unknown_words_are_read() {
        let (_folder, lineage) = ledger();
        let text = [link(1, 2), link(2, 1)].map(|link| serde_json::to_string(&link).unwrap());
        let text = format!(
            "{}\n{}\n",
            text[0]
                .replace("dispatcher", "oracle")
                .replace("\"cwd\"", "\"new\":1,\"cwd\""),
            text[1]
        );
        std::fs::write(lineage.ledger.path(), text).unwrap();
        let found = lineage.read().unwrap();
        assert_eq!((found.lines.len(), found.lines[0].by), (2, By::Other));
        assert_eq!(
            ancestors(&newest(&found.lines), Uuid::from_u128(1)).len(),
            2
        );
    }

    #[test]
    fn an_id_is_found_across_two_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let id = Uuid::from_u128(7);
        for before in [0, 65_500, 65_536, 131_000] {
            std::fs::write(&path, format!("{}{id}\n", "x".repeat(before))).unwrap();
            assert!(mentions(&path, id).unwrap(), "{before}");
            assert!(!mentions(&path, Uuid::from_u128(8)).unwrap());
        }
        assert!(!mentions(&folder.path().join("none"), id).unwrap());
    }
}
