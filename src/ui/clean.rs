//! Text that somebody else wrote, made safe for a terminal.

use std::borrow::Cow;

/// The text without control characters, but for line feeds and tabs. An escape sequence loses its
/// escape and so its power; its letters stay, since hiding them would be a trick of its own.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| {
        // Controls of C0 and C1, and the marks that reorder what is shown.
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(harmful) {
        Cow::Owned(text.chars().filter(|c| !harmful(*c)).collect())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_lose_their_power_and_text_stays() {
        assert_eq!(
            clean("a\x1b[31mb\x07\u{9b}c\r\n\td\u{202e}e"),
            "a[31mbc\n\tde"
        );
        assert!(matches!(clean("plain ünïcode\n"), Cow::Borrowed(_)));
    }
}
