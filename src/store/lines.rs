//! Lines of a stream, in bounded memory.
//!
//! Lines are split on the byte `\n` and on nothing else, so that one bad byte spoils one line
//! only. Of a line that is longer than the caller keeps, only place and length are told: its
//! bytes are passed by as they come.

use std::io::{self, BufRead};
use std::ops::ControlFlow;

/// What is kept for the next line after a long one.
const KEPT_BUFFER: usize = 64 * 1024;

/// One line of a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Where it begins, counted from where the reader stood at first.
    pub start: u64,
    /// Its length in bytes, with its line feed.
    pub length: u64,
    /// Its bytes without the line feed; nothing when it is longer than what is kept.
    pub bytes: Option<&'a [u8]>,
    /// Whether it ends in a line feed: only the last one may not.
    pub whole: bool,
}

/// Hands each line of `reader` to `each`, until the end or until it breaks. A line of more than
/// `keep` bytes, its line feed not counted, comes without its bytes.
///
/// # Errors
/// When the reader fails.
pub fn each_line(
    reader: &mut impl BufRead,
    keep: usize,
    mut each: impl FnMut(Line<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut kept: Vec<u8> = Vec::new();
    let (mut start, mut length) = (0, 0);
    loop {
        let chunk = match reader.fill_buf() {
            Ok(chunk) => chunk,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if chunk.is_empty() {
            break;
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let piece = &chunk[..end.unwrap_or(chunk.len())];
        length += piece.len() as u64;
        let fits = length <= keep as u64;
        if fits {
            kept.extend_from_slice(piece);
        }
        let consumed = piece.len() + usize::from(end.is_some());
        reader.consume(consumed);
        if end.is_none() {
            continue;
        }
        length += 1;
        let line = Line {
            start,
            length,
            bytes: fits.then_some(kept.as_slice()),
            whole: true,
        };
        if each(line).is_break() {
            return Ok(());
        }
        start += length;
        length = 0;
        kept.clear();
        kept.shrink_to(KEPT_BUFFER);
    }
    if length > 0 {
        let _the_end_in_any_case = each(Line {
            start,
            length,
            bytes: (length <= keep as u64).then_some(kept.as_slice()),
            whole: false,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn lines(text: &[u8], buffer: usize) -> Vec<(u64, u64, Option<Vec<u8>>, bool)> {
        let mut found = Vec::new();
        each_line(&mut BufReader::with_capacity(buffer, text), 4, |line| {
            found.push((
                line.start,
                line.length,
                line.bytes.map(<[u8]>::to_vec),
                line.whole,
            ));
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    }

    #[test]
    fn lines_come_whole_whatever_the_buffer() {
        for buffer in [1, 2, 3, 64] {
            assert_eq!(
                lines(b"ab\n\nlonger\nfour\n\xff\nend", buffer),
                [
                    (0, 3, Some(b"ab".to_vec()), true),
                    (3, 1, Some(vec![]), true),
                    (4, 7, None, true),
                    (11, 5, Some(b"four".to_vec()), true),
                    (16, 2, Some(vec![0xff]), true),
                    (18, 3, Some(b"end".to_vec()), false),
                ],
                "buffer of {buffer}"
            );
        }
        assert!(lines(b"", 8).is_empty());
    }

    #[test]
    fn a_break_ends_it() {
        let mut count = 0;
        each_line(&mut &b"a\nb\nc\n"[..], 9, |_| {
            count += 1;
            if count == 2 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .unwrap();
        assert_eq!(count, 2);
    }
}
