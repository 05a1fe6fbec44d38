//! What a session that sleeps has left: its transcript, and the folder that it works in.
//!
//! - A transcript is found by the name of its file. The name of its folder is no way back to the
//!   working folder: it is lossy, two working folders may share one, and long ones are shortened.
//!   So the working folder is read from the rows.
//! - Nothing is read but the ends of the file, and no more of them than is needed.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use uuid::Uuid;

use super::transcript;
use crate::error::{Error, Kind, Result};
use crate::store::Tail;

/// How much is read at a time from the beginning, and how much at most: a first prompt may have
/// 10 MB, and comes twice before the first row that tells the folder.
const HEAD: (u64, u64) = (256 * 1024, 64 * 1024 * 1024);

/// The longest row that is looked at.
const LONGEST: usize = 32 * 1024 * 1024;

/// How much of the end is read.
const END: u64 = 256 * 1024;

/// A session that sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Its transcript.
    pub transcript: PathBuf,
    /// The folder it works in, by its own rows; nothing when none of those looked at tells.
    pub cwd: Option<PathBuf>,
}

/// Looks for the transcript of a session below `config`, and reads where it works.
///
/// # Errors
/// Not found when there is no transcript, or nothing in it that could be gone on with; the message
/// says where it was looked for. Refused when it cannot be read.
pub fn find(config: &Path, session: Uuid) -> Result<Past> {
    let Some(path) = transcript::find(config, session, None) else {
        let place = config.join("projects/*").join(format!("{session}.jsonl"));
        return Err(Error::not_found(format!(
            "session {session} has no transcript: there is no {}",
            place.display()
        )));
    };
    let unreadable = |e| Error::io("read the transcript", &path, e).with_kind(Kind::Refused);
    let length = std::fs::metadata(&path).map_err(unreadable)?.len();
    let shown = path.display();
    if length == 0 {
        return Err(Error::not_found(format!(
            "session {session} is lost: its transcript {shown} is empty"
        )));
    }
    let mut seen = Seen::default();
    let mut head = Tail::open_at(&path, 0, LONGEST).map_err(|e| e.with_kind(Kind::Refused))?;
    while seen.folders.is_empty() && head.position() < HEAD.1 {
        let new = head.read_new(HEAD.0, |line| seen.line(line));
        if new.map_err(unreadable)? < HEAD.0 {
            head.finish(|line| seen.line(line));
            break;
        }
    }
    let own = path.parent().and_then(Path::file_name);
    let is_own = |cwd: &PathBuf| own.is_some_and(|own| *own == *transcript::folder_name(cwd));
    // A fork begins with its parent's rows, and lies in the folder of its own.
    if !seen.folders.iter().any(is_own) && head.position() < length {
        let end = transcript::tail(&path, END).map_err(|e| e.with_kind(Kind::Refused))?;
        end.bytes
            .split(|byte| *byte == b'\n')
            .for_each(|line| seen.line(line));
    }
    if seen.rows == 0 {
        return Err(Error::not_found(format!(
            "session {session} is lost: nothing in its transcript {shown} is a row of claude's"
        )));
    }
    let own = seen.folders.iter().find(|cwd| is_own(cwd));
    let cwd = own.or_else(|| seen.folders.first()).cloned();
    Ok(Past {
        transcript: path,
        cwd,
    })
}

/// What the rows that were looked at tell.
#[derive(Debug, Default)]
struct Seen {
    rows: u64,
    /// Each folder once, in the order of the rows.
    folders: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(rename = "type")]
    _kind: serde::de::IgnoredAny,
    #[serde(default)]
    cwd: Option<PathBuf>,
}

impl Seen {
    /// Two rows may share a line; a torn one is passed by.
    fn line(&mut self, line: &[u8]) {
        // A list would do for the fields of a row.
        if !line.trim_ascii_start().starts_with(b"{") {
            return;
        }
        let rows = serde_json::Deserializer::from_slice(line).into_iter::<Fields>();
        for row in rows.map_while(std::result::Result::ok) {
            self.rows += 1;
            if let Some(cwd) = row.cwd.filter(|cwd| cwd.is_absolute())
                && !self.folders.contains(&cwd)
            {
                self.folders.push(cwd);
            }
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write the files that claude writes"
)]
mod tests {
    use std::fs;

    use super::*;

    const SESSION: Uuid = Uuid::from_u128(7);

    fn row(cwd: &str) -> String {
        format!("{{\"type\":\"user\",\"cwd\":\"{cwd}\"}}\n")
    }

    /// The past of a session whose transcript lies in this folder and has these rows.
    fn past(folder: &str, rows: &str) -> Result<Past> {
        let config = tempfile::tempdir().unwrap();
        let folder = config.path().join("projects").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{SESSION}.jsonl")), rows).unwrap();
        find(config.path(), SESSION)
    }

    #[test]
    fn the_folder_comes_from_the_rows() {
        let queue = "{\"type\":\"queue-operation\"}\n";
        let torn = "{\"type\":\"user\",\"cwd\":\"/to";
        let long = format!("{{\"type\":\"x\",\"y\":\"{}\"}}\n", "z".repeat(400_000));
        // folder, rows, expected
        let table = [
            ("-a-b", [queue, &row("/a/b")].concat(), Some("/a/b")),
            // Two working folders with one encoding.
            ("-a-b", row("/a.b"), Some("/a.b")),
            // claude has shortened it.
            ("-a-b-x7k2", row("/a/b/c"), Some("/a/b/c")),
            // It went down, or another folder was named for a turn.
            ("-a-b", [row("/a/b"), row("/a/b/c")].concat(), Some("/a/b")),
            // A fork in a folder of its own.
            ("-f", [row("/a/b"), row("/f")].concat(), Some("/f")),
            (
                "-f",
                [row("/a"), long.clone(), row("/f")].concat(),
                Some("/f"),
            ),
            ("-a-b", [&long, row("/a/b").as_str()].concat(), Some("/a/b")),
            ("-a-b", [&row("/a/b"), torn].concat(), Some("/a/b")),
            ("-a-b", [torn, "\n", &row("/a/b")].concat(), Some("/a/b")),
            ("-a-b", row("/a/b").trim_end().to_owned(), Some("/a/b")),
            (
                "-a-b",
                [queue.trim_end(), &row("/a/b")].concat(),
                Some("/a/b"),
            ),
            ("-a-b", queue.to_owned(), None),
            ("-a-b", row("a/b"), None),
        ];
        for (folder, rows, expected) in table {
            let found = past(folder, &rows).unwrap();
            assert_eq!(found.cwd.as_deref(), expected.map(Path::new), "{rows:.200}");
        }
    }

    #[test]
    fn what_is_lost_says_where_it_was() {
        for rows in [
            "",
            "\n",
            "no row",
            "{\"type\":\"us",
            "\0\0\0",
            "[1]\n12\n{}\n",
        ] {
            let lost = past("-a", rows).unwrap_err();
            assert_eq!(lost.kind(), Kind::NotFound, "{rows:?}");
            assert!(lost.to_string().contains("projects/-a/"), "{lost}");
        }
        let config = tempfile::tempdir().unwrap();
        let lost = find(config.path(), SESSION).unwrap_err();
        assert_eq!(lost.kind(), Kind::NotFound);
        assert!(lost.to_string().contains("projects/*/"), "{lost}");
    }
}
