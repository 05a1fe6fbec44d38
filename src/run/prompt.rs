//! Reading and checking a prompt. What claude would refuse, or silently change, is refused here,
//! before anything exists.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};

/// The most that claude takes on stdin, in bytes: one more is "piped stdin input exceeds 10MB"
/// (measured on 2.1.332).
pub const MAX_BYTES: usize = 10 * 1024 * 1024;

/// Where a prompt comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptSource {
    /// The command line.
    Given(String),
    /// Our stdin, to its end.
    Stdin,
    /// A file.
    File(PathBuf),
}

/// Reads the prompt and checks it.
///
/// # Errors
/// Refused when it cannot be read, is empty or only white space, longer than [`MAX_BYTES`], not
/// UTF-8, or holds a NUL.
pub fn read(source: &PromptSource) -> Result<Vec<u8>> {
    let (bytes, named) = match source {
        PromptSource::Given(text) => (text.clone().into_bytes(), "the prompt".to_owned()),
        PromptSource::Stdin => {
            let bytes = read_bounded(io::stdin().lock(), Path::new("stdin"))?;
            (bytes, "the prompt on stdin".to_owned())
        }
        PromptSource::File(path) => {
            let file = File::open(path).map_err(|e| unreadable(path, e))?;
            (
                read_bounded(file, path)?,
                format!("the prompt file {}", path.display()),
            )
        }
    };
    check(&bytes, &named)?;
    Ok(bytes)
}

fn check(bytes: &[u8], named: &str) -> Result<()> {
    let size = bytes.len();
    if size > MAX_BYTES {
        return Err(Error::refused(format!(
            "{named} is longer than 10 MiB, the most that claude takes"
        ))
        .hint("put the material in a file and name the file in the prompt"));
    }
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(
            Error::refused(format!("{named} holds a NUL byte, at byte {at}"))
                .hint("a prompt is text: take the byte out"),
        );
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        Error::refused(format!(
            "{named} is not UTF-8, from byte {}",
            e.valid_up_to()
        ))
        .hint("convert it, for instance with iconv")
    })?;
    if text.trim().is_empty() {
        return Err(Error::refused(format!("{named} is empty"))
            .hint("say what is to be done: oo start \"…\""));
    }
    Ok(())
}

/// Reads to the end, but no more than shows that it is too long.
fn read_bounded(reader: impl Read, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    reader
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(|e| unreadable(path, e))?;
    Ok(bytes)
}

fn unreadable(path: &Path, source: io::Error) -> Error {
    Error::io("read the prompt from", path, source)
        .with_kind(Kind::Refused)
        .hint("check --prompt-file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_prompt_is_refused_by_name() {
        let long = vec![b'x'; MAX_BYTES + 1];
        for (bytes, word) in [
            (&b""[..], "empty"),
            (b" \n\t\xe2\x80\x83 ", "empty"),
            (b"a\0b", "NUL byte, at byte 1"),
            (b"ab\xff", "not UTF-8, from byte 2"),
            (&long, "longer than 10 MiB"),
        ] {
            let error = check(bytes, "the prompt").unwrap_err();
            assert_eq!(error.kind(), Kind::Refused);
            assert!(error.to_string().contains(word), "{error}");
        }
        check(&long[1..], "the prompt").unwrap();
        check("- --flag $HOME %h\r\n\"ü\"".as_bytes(), "the prompt").unwrap();
    }
}
