//! Counting an inbox: lines that wait, lines that arrived.
//!
//! The offset is the earliest byte not yet handled. Lines behind it may be handled all the same;
//! their acks name them by offset and inode. So what waits is every line from the offset on that
//! no ack of this inode names.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Inbox;
use crate::error::{Error, Result};
use crate::store::each_line;

/// An ack has a few hundred bytes; what is much longer is none.
const LONGEST_ACK: usize = 64 * 1024;

/// What an inbox holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that are not handled yet. An empty line is no message; a line without its line feed
    /// is not written yet.
    pub pending: u64,
    /// The bytes of those lines, line feeds included.
    pub pending_bytes: u64,
    /// Lines that reached the model's context: acks with state `seen`.
    pub delivered: u64,
    /// Acks that do not parse.
    pub bad_acks: u64,
}

/// The two fields of an ack that counting needs, and the one that tells its inbox.
#[derive(Deserialize)]
struct Ack {
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    line_offset: Option<u64>,
    #[serde(default)]
    inode: Option<u64>,
    #[serde(default)]
    class: Option<String>,
}

impl Ack {
    /// Whether the line is done with: it arrived, or it never will.
    fn handled(&self) -> bool {
        self.state.as_deref() == Some("seen") || self.class.as_deref() == Some("refused")
    }
}

/// Counts again only when something changed: a doorman asks every few seconds for hours.
#[derive(Debug)]
pub struct Counter {
    inbox: Inbox,
    seen: Option<[Stamp; 3]>,
    counts: Counts,
}

/// Tells whether a file may have changed.
type Stamp = Option<(u64, u64, i64, i64)>;

impl Counter {
    /// Nothing is counted yet.
    #[must_use]
    pub fn new(inbox: Inbox) -> Self {
        Self {
            inbox,
            seen: None,
            counts: Counts::default(),
        }
    }

    /// The counts as of now; the last ones when a file cannot be read.
    pub fn counts(&mut self) -> Counts {
        let now = [self.inbox.lines(), self.inbox.offset(), self.inbox.acks()].map(stamp);
        if self.seen != Some(now)
            && let Ok(counts) = count(&self.inbox)
        {
            self.seen = Some(now);
            self.counts = counts;
        }
        self.counts
    }
}

fn stamp(path: PathBuf) -> Stamp {
    let of = |meta: Metadata| (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    fs::metadata(path).ok().map(of)
}

pub(super) fn count(inbox: &Inbox) -> Result<Counts> {
    let mut counts = Counts::default();
    let lines = open(&inbox.lines())?;
    let (inode, length) = match &lines {
        Some(file) => {
            let meta = file
                .metadata()
                .map_err(|e| Error::io("read", &inbox.lines(), e))?;
            (meta.ino(), meta.len())
        }
        None => (0, 0),
    };
    // An offset that is garbage, or lies behind the end of a file that was cut, says nothing: the
    // acks do.
    let offset = read_offset(&inbox.offset())?
        .filter(|offset| *offset <= length)
        .unwrap_or(0);
    let mut handled: HashSet<u64> = HashSet::new();
    if let Some(file) = open(&inbox.acks())? {
        let read = each_line(&mut BufReader::new(file), LONGEST_ACK, |line| {
            let ack = line
                .bytes
                .and_then(|bytes| serde_json::from_slice::<Ack>(bytes).ok());
            match ack {
                Some(ack) => {
                    counts.delivered += u64::from(ack.state.as_deref() == Some("seen"));
                    if let Some(at) = ack.line_offset.filter(|at| *at >= offset)
                        && ack.inode == Some(inode)
                        && ack.handled()
                    {
                        handled.insert(at);
                    }
                }
                None => counts.bad_acks += u64::from(line.whole),
            }
            ControlFlow::Continue(())
        });
        read.map_err(|e| Error::io("read", &inbox.acks(), e))?;
    }
    if let Some(mut file) = lines {
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| {
            pending(
                &mut BufReader::with_capacity(64 * 1024, file),
                offset,
                &handled,
                &mut counts,
            )
        });
        read.map_err(|e| Error::io("read", &inbox.lines(), e))?;
    }
    Ok(counts)
}

fn pending(
    reader: &mut impl BufRead,
    offset: u64,
    handled: &HashSet<u64>,
    counts: &mut Counts,
) -> io::Result<()> {
    each_line(reader, 0, |line| {
        let waits = line.whole && line.length > 1 && !handled.contains(&(offset + line.start));
        if waits {
            counts.pending += 1;
            counts.pending_bytes += line.length;
        }
        ControlFlow::Continue(())
    })
}

fn open(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", path, e)),
    }
}

/// The offset; none when there is none or it is garbage.
fn read_offset(path: &Path) -> Result<Option<u64>> {
    match fs::read(path) {
        Ok(bytes) => Ok(std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.trim().parse().ok())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", path, e)),
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use super::super::tests::scratch;
    use super::*;

    fn ack(inbox: &Inbox, state: &str, class: &str, at: u64) -> String {
        let inode = fs::metadata(inbox.lines()).map_or(0, |meta| meta.ino());
        format!(
            "{{\"class\":\"{class}\",\"state\":\"{state}\",\"line_offset\":{at},\"inode\":{inode}}}\n"
        )
    }

    #[test]
    fn what_waits_is_counted_from_the_offset() {
        // lines, offset file, pending, bytes
        let table = [
            ("", Some("0"), 0, 0),
            ("one\ntwo\n", Some("0"), 2, 8),
            ("one\ntwo\n", None, 2, 8),
            ("one\ntwo\n", Some("4\n"), 1, 4),
            ("one\ntwo\n", Some("8"), 0, 0),
            ("one\ntwo\n", Some("garbage"), 2, 8),
            ("one\ntwo\n", Some("99"), 2, 8),
            ("one\n\ntwo", Some("0"), 1, 4),
        ];
        for (lines, offset, expected, bytes) in table {
            let (_folder, inbox) = scratch();
            fs::write(inbox.lines(), lines).unwrap();
            if let Some(offset) = offset {
                fs::write(inbox.offset(), offset).unwrap();
            }
            let counts = inbox.counts().unwrap();
            assert_eq!(
                (counts.pending, counts.pending_bytes),
                (expected, bytes),
                "{lines:?} from {offset:?}"
            );
        }
    }

    #[test]
    fn acks_tell_what_arrived_and_what_was_handled_out_of_order() {
        let (_folder, inbox) = scratch();
        assert_eq!(inbox.counts().unwrap(), Counts::default());
        fs::write(inbox.lines(), "one\ntwo\ntri\nfor\n").unwrap();
        fs::write(inbox.offset(), "4").unwrap();
        let acks = [
            ack(&inbox, "seen", "delivered-steer", 0),
            ack(&inbox, "accepted", "delivered-steer", 4),
            ack(&inbox, "seen", "delivered-start", 8),
            ack(&inbox, "queued", "refused", 12),
            "{\"torn\n".to_owned(),
            "{\"inode\":1,\"line_offset\":4,\"state\":\"seen\"}\n".to_owned(),
        ]
        .concat();
        fs::write(inbox.acks(), acks).unwrap();
        let expected = Counts {
            pending: 1,
            pending_bytes: 4,
            delivered: 3,
            bad_acks: 1,
        };
        assert_eq!(inbox.counts().unwrap(), expected);
    }

    #[test]
    fn a_counter_sees_every_change() {
        let (_folder, inbox) = scratch();
        let mut counter = Counter::new(inbox.clone());
        assert_eq!(counter.counts().pending, 0);
        fs::write(inbox.lines(), "one\n").unwrap();
        assert_eq!(counter.counts().pending, 1);
        assert_eq!(counter.counts().pending, 1);
        fs::write(inbox.offset(), "4").unwrap();
        assert_eq!(counter.counts().pending, 0);
    }
}
