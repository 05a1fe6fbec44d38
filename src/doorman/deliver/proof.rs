//! The proof of arrival: the session's transcript, read only while something is on its way.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::Reach;
use crate::error::{Error, Result};
use crate::session::peer_lines::{Reader, Sighting};
use crate::session::registry::Row;

/// How long until a transcript that is not there is looked for again. claude makes it with its
/// first turn.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Where the reading stands.
#[derive(Debug, Default)]
pub(super) struct Proof {
    /// From where it has to be read.
    from: Option<u64>,
    reader: Option<Reader>,
}

impl Proof {
    /// A line is about to be written: what tells of it comes behind the end of the transcript as
    /// it is now, which is returned.
    pub(super) fn aim(&mut self, reach: &Reach, session: Uuid, row: Option<&Row>) -> u64 {
        let path = match &self.reader {
            Some(reader) => Some(reader.path().to_owned()),
            None => reach.transcript(session, row),
        };
        let end = path
            .and_then(|path| fs::metadata(path).ok())
            .map_or(0, |meta| meta.len());
        self.from.get_or_insert(end);
        end
    }

    /// It has to be read from here.
    pub(super) fn reach_back(&mut self, to: u64) {
        let from = self.from.get_or_insert(to);
        if to < *from || self.reader.is_some() {
            *from = to.min(*from);
            self.reader = None;
        }
    }

    /// Nothing is on its way.
    pub(super) fn rest(&mut self) {
        *self = Self::default();
    }

    /// The transcript, once it is read.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.reader.as_ref().map(|reader| reader.path().to_owned())
    }

    /// When it wants to look for a transcript that is not there yet.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        (self.from.is_some() && self.reader.is_none()).then(|| now + LOOK_AGAIN)
    }

    /// Reads up to `most` bytes. Whether there is more.
    pub(super) fn read(
        &mut self,
        reach: &Reach,
        session: Uuid,
        most: u64,
        each: impl FnMut(Sighting<'_>),
    ) -> Result<bool> {
        if self.reader.is_none() {
            let from = self.from.unwrap_or(0);
            let Some(path) = reach.transcript(session, reach.row().as_ref()) else {
                return Ok(false);
            };
            let length = fs::metadata(&path).map_or(0, |meta| meta.len());
            // One that is shorter than it was is another one.
            let from = if from > length { 0 } else { from };
            self.reader = Some(Reader::open(&path, from)?);
        }
        let Some(reader) = &mut self.reader else {
            return Ok(false);
        };
        let read = reader
            .read_new(most, each)
            .map_err(|e| Error::io("read the transcript", reader.path(), e))?;
        Ok(read >= most)
    }
}
