//! A line of an inbox: what a sender writes and a doorman carries.
//!
//! A line is plain text, or a structured message: a JSON object with `"oo":1`. What `oo send`
//! writes is always structured, since a message has to have an id to be found again by.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::LONGEST_LINE;

/// The version that a structured message names.
const VERSION: u64 = 1;

/// The longest name of a sender, in characters.
pub const LONGEST_SENDER: usize = 80;

/// When a line is to be read; the words are claude's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Cut the turn short after the running tool, and start a new one
    Now,
    /// At the next tool boundary
    #[default]
    Next,
    /// After the turn
    Later,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// By which it is found again.
    pub msg_id: Uuid,
    /// The sender, as it calls itself; a plain line has none.
    pub from: Option<String>,
    /// What oo knows of the sender.
    pub via: Option<String>,
    /// The text, as it was given.
    pub text: String,
    /// When it is to be read.
    pub priority: Priority,
    /// When it was sent.
    pub at: Option<Timestamp>,
    /// Whether the model is shown the sender and the id in front of the text.
    pub tagged: bool,
}

/// Why a line is none that can be carried. The sentence names no content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

/// Where a line lies; a plain line gets its id from this and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The inode of the inbox.
    pub inode: u64,
    /// The offset of the line's first byte.
    pub offset: u64,
}

/// The structured form. Fields that this version does not know are passed by.
#[derive(Serialize, Deserialize)]
struct Structured {
    oo: u64,
    msg_id: Uuid,
    #[serde(default)]
    from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    via: Option<String>,
    text: String,
    #[serde(default)]
    priority: Priority,
    #[serde(default)]
    at: Option<Timestamp>,
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    tag: bool,
}

/// What tells a structured message from plain text that happens to begin with a brace.
#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    oo: Option<serde_json::Value>,
}

const fn yes() -> bool {
    true
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
const fn is_yes(value: &bool) -> bool {
    *value
}

impl Message {
    /// The line for the inbox, its line feed included.
    ///
    /// # Errors
    /// When it would be longer than [`LONGEST_LINE`].
    pub fn encode(&self) -> Result<Vec<u8>, Refusal> {
        let structured = Structured {
            oo: VERSION,
            msg_id: self.msg_id,
            from: self.from.clone(),
            via: self.via.clone(),
            text: self.text.clone(),
            priority: self.priority,
            at: self.at,
            tag: self.tagged,
        };
        let mut line = serde_json::to_vec(&structured).map_err(|e| Refusal(e.to_string()))?;
        line.push(b'\n');
        if line.len() > LONGEST_LINE {
            return Err(too_long(line.len() as u64));
        }
        Ok(line)
    }

    /// Reads a line, without its line feed; nothing for an empty one.
    ///
    /// # Errors
    /// When it is no message: too long, not UTF-8, a structured one that is broken or of another
    /// version, or one without a text.
    pub fn decode(line: &[u8], place: Place) -> Result<Option<Self>, Refusal> {
        if line.is_empty() {
            return Ok(None);
        }
        if line.len() >= LONGEST_LINE {
            return Err(too_long(line.len() as u64 + 1));
        }
        let text = std::str::from_utf8(line)
            .map_err(|e| Refusal(format!("not UTF-8 at byte {} of the line", e.valid_up_to())))?;
        let message = match structured(text)? {
            Some(message) => message,
            None => Self {
                msg_id: plain_id(line, place),
                from: None,
                via: None,
                text: text.to_owned(),
                priority: Priority::default(),
                at: None,
                tagged: true,
            },
        };
        if message.text.trim().is_empty() {
            return Err(Refusal("the text is empty".to_owned()));
        }
        if let Some(from) = &message.from {
            check_sender(from)?;
        }
        Ok(Some(message))
    }
}

fn structured(text: &str) -> Result<Option<Message>, Refusal> {
    if !text.trim_start().starts_with('{') {
        return Ok(None);
    }
    let version = match serde_json::from_str::<Version>(text) {
        Ok(Version { oo: None }) => return Ok(None),
        Ok(Version { oo: Some(version) }) => version,
        // The torn end of a writer that died looks like this; it is no text for a model.
        Err(_) if text.trim_start().starts_with("{\"oo\":") => {
            return Err(Refusal("a structured message that is no JSON".to_owned()));
        }
        Err(_) => return Ok(None),
    };
    if version.as_u64() != Some(VERSION) {
        return Err(Refusal(format!(
            "a structured message of version {version}; known is {VERSION}"
        )));
    }
    let found: Structured = serde_json::from_str(text)
        .map_err(|e| Refusal(format!("a structured message that cannot be read: {e}")))?;
    Ok(Some(Message {
        msg_id: found.msg_id,
        from: found.from,
        via: found.via,
        text: found.text,
        priority: found.priority,
        at: found.at,
        tagged: found.tag,
    }))
}

/// The name of a sender: 1 to 80 characters, no brackets, no control characters, so that it can
/// neither break a terminal nor forge the tag that shows it.
///
/// # Errors
/// When it is none.
pub fn check_sender(name: &str) -> Result<(), Refusal> {
    let length = name.chars().count();
    let why = if name.trim().is_empty() {
        "is empty"
    } else if length > LONGEST_SENDER {
        "is longer than 80 characters"
    } else if name.contains(|c: char| c.is_control() || is_invisible(c)) {
        "holds control or invisible characters"
    } else if name.contains(['[', ']', '(', ')', '{', '}', '<', '>']) {
        "holds brackets"
    } else if name.contains(", msg ") {
        "looks like a tag"
    } else {
        return Ok(());
    };
    Err(Refusal(format!("the sender's name {why}")))
}

/// Characters that no reader sees, or that turn others around: the line breaks of Unicode, what has
/// no width, and the marks of direction.
pub(super) const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

/// sha256 of a line's exact bytes, its line feed not included, in hexadecimal.
#[must_use]
pub fn sha256(line: &[u8]) -> String {
    hex(&Sha256::digest(line))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// The id of a plain line: made of its place and its bytes, so that a doorman that is started
/// again finds the line under the same id.
fn plain_id(line: &[u8], place: Place) -> Uuid {
    let digest = Sha256::new()
        .chain_update(place.inode.to_le_bytes())
        .chain_update(place.offset.to_le_bytes())
        .chain_update(line)
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::new_v8(bytes)
}

/// Of a line with so many bytes, its line feed included.
pub(super) fn too_long(length: u64) -> Refusal {
    Refusal(format!(
        "the line has {length} bytes with its line feed; at most {LONGEST_LINE} are carried"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place {
        inode: 1,
        offset: 2,
    };

    fn message() -> Message {
        Message {
            msg_id: Uuid::from_u128(5),
            from: Some("alice".to_owned()),
            via: Some("u@h pid 1".to_owned()),
            text: "one\ntwo \u{1b}[31m".to_owned(),
            priority: Priority::Later,
            at: Some("2026-12-01T00:00:00Z".parse().unwrap()),
            tagged: false,
        }
    }

    fn decode(line: &str) -> Result<Option<Message>, Refusal> {
        Message::decode(line.as_bytes(), PLACE)
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        for tagged in [true, false] {
            let message = Message {
                tagged,
                ..message()
            };
            let line = message.encode().unwrap();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let found = Message::decode(&line[..line.len() - 1], PLACE);
            assert_eq!(found, Ok(Some(message)));
        }
    }

    #[test]
    fn the_least_that_a_structured_message_needs() {
        let line = r#"{"oo":1,"msg_id":"00000000-0000-0000-0000-000000000005","text":"x","new":1}"#;
        let found = decode(line).unwrap().unwrap();
        assert_eq!((found.from, found.via, found.at), (None, None, None));
        assert!(found.tagged && found.priority == Priority::Next);
    }

    #[test]
    fn plain_text_has_an_id_of_its_place_and_bytes() {
        let one = decode("look { here").unwrap().unwrap();
        assert_eq!(one.text, "look { here");
        assert_eq!(decode("look { here").unwrap().unwrap().msg_id, one.msg_id);
        let others = [
            Message::decode(b"look { here", Place { offset: 3, ..PLACE }),
            Message::decode(b"look { here", Place { inode: 2, ..PLACE }),
            decode("look { there"),
        ];
        for other in others {
            assert_ne!(other.unwrap().unwrap().msg_id, one.msg_id);
        }
        for plain in ["{not json", "{\"a\":1}", "[1]", "{\"oo\":1 and so on"] {
            let found = decode(plain);
            match plain.starts_with("{\"oo\":") {
                false => assert_eq!(found.unwrap().unwrap().text, plain),
                true => assert!(found.is_err(), "{plain}"),
            }
        }
        assert_eq!(decode(""), Ok(None));
    }

    #[test]
    fn what_is_no_message_is_refused_with_a_reason_that_names_no_content() {
        let id = r#""msg_id":"00000000-0000-0000-0000-000000000005""#;
        let table = [
            (" \t".to_owned(), "empty"),
            (format!(r#"{{"oo":2,{id},"text":"s3cret"}}"#), "version 2"),
            (format!(r#"{{"oo":1,{id}}}"#), "cannot be read"),
            (format!(r#"{{"oo":1,{id},"text":""}}"#), "empty"),
            (
                format!(r#"{{"oo":1,{id},"text":"x","from":"[boss]"}}"#),
                "brackets",
            ),
            (
                r#"{"oo":1,"msg_id":"5","text":"x"}"#.to_owned(),
                "cannot be read",
            ),
            ("x".repeat(LONGEST_LINE), "bytes"),
        ];
        for (line, reason) in table {
            let Err(Refusal(found)) = decode(&line) else {
                panic!("{reason} was let in");
            };
            assert!(
                found.contains(reason) && !found.contains("s3cret"),
                "{found}"
            );
        }
        let Err(Refusal(found)) = Message::decode(b"ab\xff", PLACE) else {
            panic!("not UTF-8 was let in");
        };
        assert!(found.contains("byte 2"), "{found}");
        assert!(decode(&"x".repeat(LONGEST_LINE - 1)).is_ok());
        let long = Message {
            text: "x".repeat(LONGEST_LINE),
            ..message()
        };
        assert!(long.encode().is_err());
    }

    #[test]
    fn names_of_senders() {
        let long = "é".repeat(LONGEST_SENDER);
        for good in ["a", "root@host", "the build bot, no. 7", long.as_str()] {
            assert_eq!(check_sender(good), Ok(()), "{good}");
        }
        let longer = "x".repeat(LONGEST_SENDER + 1);
        for bad in [
            "",
            " ",
            "a]b",
            "<b>",
            "a\nb",
            "a\u{1b}[m",
            "a\u{2028}b",
            "a\u{202e}b",
            "a\u{200b}",
            "a, msg 1",
            longer.as_str(),
        ] {
            assert!(check_sender(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_hash_is_sha256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
    }
}
