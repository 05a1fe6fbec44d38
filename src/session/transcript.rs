//! Transcripts: where a session's rows lie, whether they grow, and what the last of them say.
//!
//! - The folder's name is a lossy encoding of the working folder: it serves as a first guess, and
//!   the file's name decides.
//! - A transcript may have gigabytes and lines of many MiB: what is read is bounded by the caller.
//! - A kill tears lines, and a later process may write on behind the torn end: what parses is
//!   taken, what does not is counted.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;
use uuid::Uuid;

use crate::error::{Error, Kind, Result};
use crate::store;

/// The first window in which is looked, and the last: the whole of most transcripts.
const WINDOWS: (u64, u64) = (256 * 1024, 64 * 1024 * 1024);

/// How deep the folder of a session is looked through for growth.
const DEPTH: u8 = 4;

/// Beginnings of rows, by which reading goes on behind a torn one.
const ROW_STARTS: [&str; 2] = ["{\"type\":", "{\"parentUuid\":"];

/// What claude writes into the conversation when a turn is interrupted.
const INTERRUPTED: &str = "[Request interrupted by user";

/// The folder in which claude keeps the transcripts of a working folder, by its name.
///
/// Every UTF-16 unit outside `[A-Za-z0-9]` becomes `-`. claude shortens very long names: then the
/// guess is wrong, and only that.
#[must_use]
pub fn folder_name(cwd: &Path) -> String {
    cwd.to_string_lossy()
        .encode_utf16()
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte),
            _ => '-',
        })
        .collect()
}

/// The transcript of a session: `<config>/projects/*/<sid>.jsonl`. `cwd` is where to look first.
/// Of several, the one written last.
#[must_use]
pub fn find(config: &Path, session: Uuid, cwd: Option<&Path>) -> Option<PathBuf> {
    let projects = config.join("projects");
    let name = format!("{session}.jsonl");
    let guess = cwd.map(|cwd| projects.join(folder_name(cwd)).join(&name));
    if let Some(guess) = guess.filter(|path| path.is_file()) {
        return Some(guess);
    }
    fs::read_dir(&projects)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path().join(&name);
            let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
            Some((meta.modified().ok(), path))
        })
        .max()
        .map(|(_, path)| path)
}

/// How much a session has written so far, its riders included. Two of them differ when anything
/// was written between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The bytes of all its files.
    pub bytes: u64,
    /// When the file that was written last was written.
    pub modified: Option<SystemTime>,
}

/// The extent of a transcript and of everything in `<sid>/subagents/` beside it. What is not
/// there counts nothing.
#[must_use]
pub fn extent(transcript: &Path) -> Extent {
    let mut extent = Extent::default();
    if let Ok(meta) = fs::metadata(transcript) {
        extent.add(&meta);
    }
    extent.add_folder(&transcript.with_extension("").join("subagents"), DEPTH);
    extent
}

impl Extent {
    fn add(&mut self, meta: &fs::Metadata) {
        self.bytes = self.bytes.saturating_add(meta.len());
        self.modified = self.modified.max(meta.modified().ok());
    }

    fn add_folder(&mut self, folder: &Path, depth: u8) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_file() => self.add(&meta),
                Ok(meta) if meta.is_dir() && depth > 0 => self.add_folder(&entry.path(), depth - 1),
                _ => {}
            }
        }
    }
}

/// The end of a file.
#[derive(Debug)]
pub struct Tail {
    /// The bytes; they begin at the beginning of a line.
    pub bytes: Vec<u8>,
    /// Whether this is the whole file.
    pub whole: bool,
}

/// Reads at most the last `limit` bytes of a file, and drops the line that the limit cuts.
///
/// # Errors
/// Not found when it is not there; failed when it cannot be read.
pub fn tail(path: &Path, limit: u64) -> Result<Tail> {
    read_tail(path, limit).map_err(|e| {
        let kind = match e.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            _ => Kind::Failed,
        };
        Error::io("read the transcript", path, e).with_kind(kind)
    })
}

fn read_tail(path: &Path, limit: u64) -> io::Result<Tail> {
    let mut file = store::regular(path)?;
    let length = file.metadata()?.len();
    let skip = length.saturating_sub(limit);
    // One byte more tells whether the limit cuts a line or falls between two.
    file.seek(SeekFrom::Start(skip.saturating_sub(1)))?;
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if skip > 0 {
        let cut = bytes.iter().position(|byte| *byte == b'\n');
        bytes.drain(..cut.map_or(bytes.len(), |at| at + 1));
    }
    Ok(Tail {
        bytes,
        whole: skip == 0,
    })
}

/// What rows say of the session as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// `totalCostUSD` of the last `cost-state` row, in US dollars since the session began. claude
    /// writes one at its end, and none when it is killed.
    pub total_cost_usd: Option<f64>,
    /// `permissionMode` of the last `user` row that has one.
    pub permission_mode: Option<String>,
    /// Whether the last thing said, by the user or the model, is the mark of an interruption.
    pub interrupted: bool,
    /// Rows that were understood.
    pub rows: usize,
    /// Lines with something that was not: a torn row, or no JSON at all.
    pub bad: usize,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, rename = "isSidechain")]
    sidechain: Option<bool>,
    #[serde(default, rename = "totalCostUSD")]
    total_cost: Option<f64>,
    #[serde(borrow, default, rename = "permissionMode")]
    permission_mode: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<&'a serde_json::value::RawValue>,
}

/// Reads rows. Two on one line are two; behind a torn one it goes on where the next begins.
#[must_use]
pub fn parse(bytes: &[u8]) -> Rows {
    let mut rows = Rows::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        match std::str::from_utf8(line.trim_ascii()) {
            Ok(line) => rows.take_line(line),
            Err(_) => rows.bad += 1,
        }
    }
    rows
}

impl Rows {
    fn take_line(&mut self, mut line: &str) {
        let mut torn = false;
        while !line.is_empty() {
            let mut values = serde_json::Deserializer::from_str(line).into_iter::<Fields<'_>>();
            let mut taken = 0;
            while let Some(Ok(fields)) = values.next() {
                taken = values.byte_offset();
                self.take(&fields);
            }
            line = line[taken..].trim_ascii_start();
            if line.is_empty() {
                break;
            }
            torn = true;
            let next = ROW_STARTS
                .iter()
                .filter_map(|start| line.get(1..)?.find(start))
                .min();
            line = next.map_or("", |at| &line[at + 1..]);
        }
        self.bad += usize::from(torn);
    }

    fn take(&mut self, fields: &Fields<'_>) {
        self.rows += 1;
        match fields.kind.as_deref() {
            Some("cost-state") => self.total_cost_usd = fields.total_cost.or(self.total_cost_usd),
            Some("assistant") if fields.sidechain != Some(true) => self.interrupted = false,
            Some("user") if fields.sidechain != Some(true) => {
                let mode = fields.permission_mode.as_deref().map(str::to_owned);
                self.permission_mode = mode.or(self.permission_mode.take());
                self.interrupted = fields
                    .message
                    .is_some_and(|message| is_interruption(message.get()));
            }
            _ => {}
        }
    }
}

/// Whether a message is the mark that claude itself puts into an interrupted conversation.
fn is_interruption(message: &str) -> bool {
    // Most user rows are long tool results: the text is looked for before anything is built.
    message.contains(INTERRUPTED)
        && texts(message)
            .iter()
            .any(|text| text.starts_with(INTERRUPTED))
}

/// The texts of a `message`: its content, or that of each text block of it.
pub(super) fn texts(message: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Message {
        content: Content,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Blocks(Vec<Block>),
    }
    #[derive(Deserialize)]
    struct Block {
        #[serde(default)]
        text: Option<String>,
    }
    match serde_json::from_str::<Message>(message).map(|message| message.content) {
        Ok(Content::Text(text)) => vec![text],
        Ok(Content::Blocks(blocks)) => blocks.into_iter().filter_map(|block| block.text).collect(),
        Err(_) => Vec::new(),
    }
}

/// What the session has cost before its next process, in US dollars: the last `cost-state` row,
/// looked for in ever larger ends of the file, up to 64 MiB. None when there is none there.
///
/// # Errors
/// As [`tail`].
pub fn total_cost(transcript: &Path) -> Result<Option<f64>> {
    last(transcript, |rows| rows.total_cost_usd)
}

/// The permission mode in which the session last took something from its user, as claude calls it;
/// none when none of its last 64 MiB tells.
///
/// # Errors
/// As [`tail`].
pub fn permission_mode(transcript: &Path) -> Result<Option<String>> {
    last(transcript, |rows| rows.permission_mode)
}

/// The last that rows say of something, looked for in ever larger ends of the file.
fn last<T>(transcript: &Path, mut what: impl FnMut(Rows) -> Option<T>) -> Result<Option<T>> {
    let mut window = WINDOWS.0;
    loop {
        let end = tail(transcript, window)?;
        let found = what(parse(&end.bytes));
        if found.is_some() || end.whole || window >= WINDOWS.1 {
            return Ok(found);
        }
        window *= 4;
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write the files that claude writes"
)]
mod tests;
