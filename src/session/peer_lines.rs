//! What a transcript tells of lines that came through the door.
//!
//! Three rows matter, in every version measured (2.1.308, 2.1.332):
//!
//! - `queue-operation` with `operation` `enqueue`: the line is in the session's queue. The row has
//!   the text and no id, so the text has to tell.
//! - `attachment` of the type `queued_command` whose `origin` has a `msg_id`: the line came into a
//!   turn that was under way.
//! - `user` with an `origin` that has a `msg_id`: the line began a turn. Lines of one sender that
//!   wait together are merged into one such row: it has the id of the first, the number of the
//!   others in `mergedSendUuids`, and all their texts.
//!
//! A transcript holds texts of everybody: only these fields, where they belong, count.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::transcript;
use crate::error::Result;
use crate::store::Tail;

/// The longest row that is looked at. The row of a line of 1 MiB, each of whose characters has to
/// be escaped, has about as much, twice: once as it came and once as the model is shown it.
const LONGEST_ROW: usize = 16 * 1024 * 1024;

/// A row about a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting<'a> {
    /// A line with this text is in the session's queue.
    Accepted {
        /// The text.
        text: Cow<'a, str>,
    },
    /// A line is in the model's context.
    Seen {
        /// Its id.
        msg_id: Uuid,
        /// How it came there.
        how: Arrival,
        /// How many lines more of the same sender came with it.
        merged: usize,
        /// The text of all of them, with what claude says around it; empty where the line is
        /// alone.
        text: String,
    },
}

/// How a line came into the model's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Into a turn that was under way.
    MidTurn,
    /// It began a turn.
    NewTurn,
}

/// A reader of such rows that goes along with a growing transcript.
#[derive(Debug)]
pub struct Reader {
    tail: Tail,
    path: PathBuf,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    operation: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    attachment: Option<&'a RawValue>,
    #[serde(borrow, default)]
    origin: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(default, rename = "mergedSendUuids")]
    merged: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct Attachment<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    origin: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Origin {
    #[serde(default)]
    msg_id: Option<Uuid>,
}

impl Reader {
    /// Begins at `position`: nothing before it matters.
    ///
    /// # Errors
    /// When the transcript cannot be opened.
    pub fn open(path: &Path, position: u64) -> Result<Self> {
        Ok(Self {
            tail: Tail::open_at(path, position, LONGEST_ROW)?,
            path: path.to_owned(),
        })
    }

    /// The transcript.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How much there is right now that was not read, in bytes.
    ///
    /// # Errors
    /// When the transcript cannot be asked.
    pub fn pending(&self) -> io::Result<u64> {
        self.tail.pending()
    }

    /// Reads up to `most` bytes of what is new; fewer than `most` means that the end was reached.
    ///
    /// # Errors
    /// When the transcript cannot be read.
    pub fn read_new(&mut self, most: u64, mut each: impl FnMut(Sighting<'_>)) -> io::Result<u64> {
        self.tail.read_new(most, |line| {
            if let Some(sighting) = sighting(line) {
                each(sighting);
            }
        })
    }
}

/// What a row tells, if it is one that does.
fn sighting(line: &[u8]) -> Option<Sighting<'_>> {
    // Most rows are long and about other things: they are told by a search, not by parsing.
    let queued = memmem::find(line, b"\"queue-operation\"").is_some();
    if !queued && memmem::find(line, b"\"msg_id\"").is_none() {
        return None;
    }
    // A torn row of a process that was killed may stand before this one on the same line.
    let text = std::str::from_utf8(line).ok()?;
    let row: Row<'_> = serde_json::from_str(text).ok().or_else(|| {
        let start = memmem::rfind(&line[1..], b"{\"type\":\"queue-operation\"")
            .or_else(|| memmem::rfind(&line[1..], b"{\"parentUuid\":"))?;
        serde_json::from_str(text.get(start + 1..)?).ok()
    })?;
    match row.kind.as_deref()? {
        "queue-operation" if row.operation.as_deref() == Some("enqueue") => {
            let text = serde_json::from_str(row.content?.get()).ok()?;
            Some(Sighting::Accepted {
                text: Cow::Owned(text),
            })
        }
        "attachment" => {
            let attachment: Attachment<'_> = serde_json::from_str(row.attachment?.get()).ok()?;
            (attachment.kind.as_deref() == Some("queued_command")).then_some(())?;
            Some(Sighting::Seen {
                msg_id: msg_id(attachment.origin)?,
                how: Arrival::MidTurn,
                merged: 0,
                text: String::new(),
            })
        }
        "user" => {
            let msg_id = msg_id(row.origin)?;
            let merged = row.merged.map_or(0, |others| others.len());
            Some(Sighting::Seen {
                msg_id,
                how: Arrival::NewTurn,
                merged,
                text: if merged > 0 {
                    said(row.message)
                } else {
                    String::new()
                },
            })
        }
        _ => None,
    }
}

fn said(message: Option<&RawValue>) -> String {
    let texts = message.map(|message| transcript::texts(message.get()));
    texts.unwrap_or_default().join("\n")
}

fn msg_id(origin: Option<&RawValue>) -> Option<Uuid> {
    serde_json::from_str::<Origin>(origin?.get()).ok()?.msg_id
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const ID: &str = "f469943d-1e2d-4233-8671-336ac8fe31f2";

    /// As claude 2.1.332 wrote them; long texts cut.
    const ENQUEUE: &str = r#"{"type":"queue-operation","operation":"enqueue","timestamp":"2026-11-30T21:08:20.358Z","sessionId":"c4b98a7d-5c70-4f5e-8699-a92db829f73d","content":"steer\nme \"now\""}"#;
    const DEQUEUE: &str = r#"{"type":"queue-operation","operation":"dequeue","timestamp":"2026-11-30T21:08:19.115Z","sessionId":"c4b98a7d-5c70-4f5e-8699-a92db829f73d"}"#;
    const REMOVE: &str = r#"{"type":"queue-operation","operation":"remove","timestamp":"2026-11-30T21:08:21.775Z","sessionId":"c4b98a7d-5c70-4f5e-8699-a92db829f73d","content":"steer me","reason":"absorbed_mid_turn","commandUuid":"bd267cfb-8ede-40e0-afbc-3c7a11180280","deliveryId":"48441f08-b405-4b42-a34c-ac06a0f2ff68"}"#;
    const ATTACHMENT: &str = r#"{"parentUuid":"a764791a-26e7-4f3a-a7aa-c82a0abc31aa","isSidechain":false,"attachment":{"type":"queued_command","prompt":"steer me","source_uuid":"bd267cfb-8ede-40e0-afbc-3c7a11180280","delivery_id":"48441f08-b405-4b42-a34c-ac06a0f2ff68","commandMode":"prompt","origin":{"kind":"peer","from":"oo-test","verifiedPeerPid":21243,"verifiedPeerProcStart":"97934","selfSent":true,"msg_id":"f469943d-1e2d-4233-8671-336ac8fe31f2"},"timestamp":"2026-11-30T21:08:20.358Z","isMeta":true},"type":"attachment","uuid":"1227aa28-7b15-4083-a804-08ce7248ddc1","timestamp":"2026-11-30T21:08:20.358Z"}"#;
    const USER: &str = r#"{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":"Another Claude session sent a message:\nx"},"isMeta":true,"origin":{"kind":"peer","from":"oo-test","verifiedPeerPid":21243,"verifiedPeerProcStart":"97934","msg_id":"f469943d-1e2d-4233-8671-336ac8fe31f2"},"turnOrigin":"peer","uuid":"1227aa28-7b15-4083-a804-08ce7248ddc1"}"#;

    fn seen(how: Arrival) -> Option<Sighting<'static>> {
        Some(Sighting::Seen {
            msg_id: Uuid::try_parse(ID).unwrap(),
            how,
            merged: 0,
            text: String::new(),
        })
    }

    #[test]
    fn captured_rows() {
        let accepted = Sighting::Accepted {
            text: "steer\nme \"now\"".into(),
        };
        let torn = format!("{{\"type\":\"assistant\",\"mess{ENQUEUE}");
        let torn_before = format!("{{\"parentUuid\":\"a7{ATTACHMENT}");
        let table = [
            (ENQUEUE, Some(accepted.clone())),
            (DEQUEUE, None),
            (REMOVE, None),
            (ATTACHMENT, seen(Arrival::MidTurn)),
            (USER, seen(Arrival::NewTurn)),
            (torn.as_str(), Some(accepted)),
            (torn_before.as_str(), seen(Arrival::MidTurn)),
            ("", None),
        ];
        for (line, expected) in table {
            assert_eq!(sighting(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn merged_lines_are_counted_and_their_texts_told() {
        let row = USER.replace("\"isMeta\"", "\"mergedSendUuids\":[\"a\",\"b\"],\"isMeta\"");
        let Some(Sighting::Seen { merged, text, .. }) = sighting(row.as_bytes()) else {
            panic!("not seen");
        };
        assert_eq!(merged, 2);
        assert_eq!(text, "Another Claude session sent a message:\nx");
        let blocks = row.replace(
            "\"Another Claude session sent a message:\\nx\"",
            r#"[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]"#,
        );
        let Some(Sighting::Seen { text, .. }) = sighting(blocks.as_bytes()) else {
            panic!("not seen");
        };
        assert_eq!(text, "a\nb");
    }

    #[test]
    fn rows_that_only_mention_a_line_prove_nothing() {
        let mentions = [
            format!(
                r#"{{"type":"assistant","message":{{"content":[{{"text":"x"}}]}},"origin":{{"msg_id":"{ID}"}}}}"#
            ),
            format!(r#"{{"type":"user","toolUseResult":{{"origin":{{"msg_id":"{ID}"}}}}}}"#),
            format!(
                r#"{{"type":"user","message":{{"content":{}}}}}"#,
                serde_json::json!(USER)
            ),
            format!(
                r#"{{"type":"attachment","attachment":{{"type":"file","origin":{{"msg_id":"{ID}"}}}}}}"#
            ),
            r#"{"type":"user","origin":{"msg_id":"no id"}}"#.to_owned(),
            r#"{"type":"queue-operation","operation":"enqueue"}"#.to_owned(),
            format!("{{\"torn {USER} end"),
        ];
        for line in mentions {
            assert_eq!(sighting(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_reader_begins_where_it_is_told_and_goes_along() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{USER}").unwrap();
        let position = file.as_file().metadata().unwrap().len();
        let mut reader = Reader::open(file.path(), position).unwrap();
        let read = |reader: &mut Reader| {
            let mut count = 0;
            reader.read_new(u64::MAX, |_| count += 1).unwrap();
            count
        };
        assert_eq!(read(&mut reader), 0);
        write!(file, "{ATTACHMENT}").unwrap();
        assert_eq!(read(&mut reader), 0);
        writeln!(file).unwrap();
        assert_eq!((read(&mut reader), reader.pending().unwrap()), (1, 0));
    }
}
