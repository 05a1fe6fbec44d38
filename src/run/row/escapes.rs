//! Halves of characters: what JavaScript writes of a string that was cut between two of its units.
//!
//! `JSON.stringify` escapes a surrogate that has lost its partner (`\\ud83d`), which is valid JSON
//! and no Unicode: a strict reader would lose the whole text. Each becomes U+FFFD, as a decoder
//! does with a bad byte. A line without one is not copied.

use std::borrow::Cow;

/// What stands for a lost character, escaped: as long as what it replaces.
const REPLACEMENT: &[u8; 6] = br"\ufffd";

/// The line with every lone surrogate replaced.
pub(super) fn repaired(line: &[u8]) -> Cow<'_, [u8]> {
    let mut line = Cow::Borrowed(line);
    let mut at = 0;
    while let Some(found) = line[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        match surrogate(&line, at) {
            Some(Half::First) if surrogate(&line, at + 6) == Some(Half::Second) => at += 12,
            Some(_) => {
                line.to_mut()[at..at + 6].copy_from_slice(REPLACEMENT);
                at += 6;
            }
            // Whatever is escaped, a backslash too, is no beginning of an escape.
            None => at = line.len().min(at + 2),
        }
    }
    line
}

#[derive(PartialEq, Eq)]
enum Half {
    First,
    Second,
}

/// The half of a character whose escape begins at `at`.
fn surrogate(line: &[u8], at: usize) -> Option<Half> {
    let escape = line.get(at..at + 6)?;
    if !escape.starts_with(br"\u") || !escape[2..].iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    match (
        escape[2].to_ascii_lowercase(),
        escape[3].to_ascii_lowercase(),
    ) {
        (b'd', b'8' | b'9' | b'a' | b'b') => Some(Half::First),
        (b'd', b'c'..=b'f') => Some(Half::Second),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_halves_are_replaced() {
        let table = [
            (r"", r""),
            (r"plain", r"plain"),
            (r"\", r"\"),
            (r"a\nb\u0041", r"a\nb\u0041"),
            (r"\ud83d\ude00", r"\ud83d\ude00"),
            (r"\uD83D\uDE00\uD83D", r"\uD83D\uDE00\ufffd"),
            (r"a\ud83d b", r"a\ufffd b"),
            (r"\ud83d\ud83d\ude00", r"\ufffd\ud83d\ude00"),
            (r"\ude00\ud83d", r"\ufffd\ufffd"),
            // An escaped backslash, and then letters.
            (r"\\ud83d", r"\\ud83d"),
            (r"\\\ud83d", r"\\\ufffd"),
            // What ends too early, or is no escape, is not ours to judge.
            (r"\ud8", r"\ud8"),
            (r"\ud83x", r"\ud83x"),
        ];
        for (line, expected) in table {
            let repaired = repaired(line.as_bytes());
            assert_eq!(&*repaired, expected.as_bytes(), "{line}");
            assert_eq!(
                matches!(repaired, Cow::Borrowed(_)),
                line == expected,
                "{line}"
            );
        }
    }
}
