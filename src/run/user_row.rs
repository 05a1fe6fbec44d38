//! The row that brings a prompt to a claude that reads rows, made while it is written.
//!
//! A prompt may have ten MiB, and the pipe to claude takes 64 KiB at a time. So the row is read
//! like a file, of which one chunk at a time is in memory. The prompt is UTF-8 and holds no NUL:
//! [`super::prompt`] saw to that.

use std::io::{self, BufRead, Read};

use uuid::Uuid;

/// How much of the prompt is looked at in one go, in bytes.
const CHUNK: usize = 16 * 1024;

/// The row, as a stream of bytes with a line feed at its end.
#[derive(Debug)]
pub struct UserRow<R> {
    prompt: R,
    uuid: Uuid,
    stage: Stage,
    /// What was made and not yet taken.
    made: Vec<u8>,
    taken: usize,
    /// The last bytes of the prompt, when what follows them decides what they are.
    undecided: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Content,
    Over,
}

/// The line separator and the paragraph separator begin with these. Both are allowed in a JSON
/// text, and end a line for some of those who split a stream into lines.
const SEPARATORS: [u8; 2] = [0xe2, 0x80];

impl<R: Read> UserRow<R> {
    /// A row with this prompt, under this name.
    pub fn new(prompt: R, uuid: Uuid) -> Self {
        Self {
            prompt,
            uuid,
            stage: Stage::Head,
            made: Vec::new(),
            taken: 0,
            undecided: Vec::new(),
        }
    }

    fn make(&mut self) -> io::Result<()> {
        self.made.clear();
        self.taken = 0;
        match self.stage {
            Stage::Head => {
                self.made
                    .extend(br#"{"type":"user","message":{"role":"user","content":""#);
                self.stage = Stage::Content;
            }
            Stage::Content => {
                let mut bytes = std::mem::take(&mut self.undecided);
                let before = bytes.len();
                let limit = u64::try_from(CHUNK).unwrap_or(u64::MAX);
                let read = (&mut self.prompt).take(limit).read_to_end(&mut bytes)?;
                debug_assert_eq!(bytes.len(), before + read);
                let over = read < CHUNK;
                let kept = if over { 0 } else { undecided(&bytes) };
                self.undecided = bytes.split_off(bytes.len() - kept);
                escape(&bytes, &mut self.made);
                if over {
                    let end = format!("\"}},\"uuid\":\"{}\"}}\n", self.uuid);
                    self.made.extend(end.as_bytes());
                    self.stage = Stage::Over;
                }
            }
            Stage::Over => self.made = Vec::new(),
        }
        Ok(())
    }
}

impl<R: Read> Read for UserRow<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: Read> BufRead for UserRow<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.made.len() {
            self.make()?;
        }
        Ok(&self.made[self.taken..])
    }

    fn consume(&mut self, count: usize) {
        self.taken = (self.taken + count).min(self.made.len());
    }
}

/// How many bytes at the end may be the beginning of a separator.
fn undecided(bytes: &[u8]) -> usize {
    if bytes.ends_with(&SEPARATORS) {
        2
    } else {
        usize::from(bytes.ends_with(&SEPARATORS[..1]))
    }
}

/// Adds text as it stands between the quotes of a JSON string.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => out.extend(br#"\""#),
            b'\\' => out.extend(br"\\"),
            b'\n' => out.extend(br"\n"),
            b'\r' => out.extend(br"\r"),
            b'\t' => out.extend(br"\t"),
            ..0x20 => out.extend(format!("\\u{byte:04x}").as_bytes()),
            0xe2 if matches!(rest, [0x80, 0xa8 | 0xa9, ..]) => {
                let name = if rest[1] == 0xa8 { "2028" } else { "2029" };
                out.extend(format!("\\u{name}").as_bytes());
                rest = &rest[2..];
            }
            _ => out.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, prop_assert_eq, proptest};
    use serde_json::Value;

    use super::*;

    fn row(prompt: &str) -> String {
        let mut text = String::new();
        UserRow::new(prompt.as_bytes(), Uuid::nil())
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    #[test]
    fn the_row_is_what_claude_reads() {
        assert_eq!(
            row("say \"hi\"\n"),
            "{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"say \\\"hi\\\"\\n\"},\
             \"uuid\":\"00000000-0000-0000-0000-000000000000\"}\n"
        );
    }

    #[test]
    fn a_separator_is_found_wherever_the_chunks_end() {
        for before in CHUNK - 4..CHUNK + 2 {
            for text in [
                "\u{2028}",
                "\u{2029}",
                "\u{2027}",
                "\u{201c}",
                "ü",
                "\u{1f980}",
            ] {
                let prompt = format!("{}{text}{text}end", "x".repeat(before));
                let row = row(&prompt);
                assert!(!row.contains(['\u{2028}', '\u{2029}']), "{before} {text:?}");
                let read: Value = serde_json::from_str(&row).unwrap();
                assert_eq!(read["message"]["content"], prompt, "{before} {text:?}");
            }
        }
        // Nothing is lost at the very end.
        for prompt in [
            "\u{2028}".to_owned(),
            "y".repeat(CHUNK),
            "z".repeat(2 * CHUNK),
        ] {
            let read: Value = serde_json::from_str(&row(&prompt)).unwrap();
            assert_eq!(read["message"]["content"], prompt);
        }
    }

    proptest! {
        #[test]
        fn every_prompt_arrives_as_it_is(prompt in ".{0,200}", controls in "[\\x01-\\x1f\\x7f]{0,40}") {
            let prompt = format!("{prompt}{controls}{prompt}");
            let row = row(&prompt);
            prop_assert_eq!(row.matches('\n').count(), 1);
            prop_assert!(row.ends_with('\n'));
            let read: Value = serde_json::from_str(&row).unwrap();
            prop_assert_eq!(read["message"]["content"].as_str(), Some(prompt.as_str()));
        }
    }
}
