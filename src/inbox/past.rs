//! What the acks of an inbox tell, all of them together.

use std::collections::HashMap;
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::path::Path;

use uuid::Uuid;

use super::{Ack, AckClass, LineState};
use crate::error::{Error, Result};
use crate::store::{self, each_line};

/// An ack has a few hundred bytes; what is much longer is none.
const LONGEST_ACK: usize = 64 * 1024;

/// What the acks tell, of all lines that ever were in this inbox.
#[derive(Debug, Default)]
pub struct Past {
    /// Acks with the state `seen`: lines that reached the model's context.
    pub delivered: u64,
    /// Lines of the file that do not parse.
    pub bad: u64,
    /// The messages that were seen, and how.
    pub seen: HashMap<Uuid, Option<AckClass>>,
}

/// What the last of all acks is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// There is none.
    None,
    /// Another inode.
    OfAnother,
    /// The line at this offset.
    Of(u64),
}

/// The last ack of each line of this inode, what all acks tell, and what the last of all is about.
pub(super) fn read(path: &Path, inode: u64) -> Result<(HashMap<u64, Ack>, Past, Last)> {
    let mut acks: HashMap<u64, Ack> = HashMap::new();
    let mut past = Past::default();
    let mut last = Last::None;
    let file = match store::regular(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((acks, past, last)),
        Err(e) => return Err(Error::io("read", path, e)),
    };
    let read = each_line(&mut BufReader::new(file), LONGEST_ACK, |line| {
        let ack = line
            .bytes
            .and_then(|bytes| serde_json::from_slice::<Ack>(bytes).ok());
        match ack {
            Some(ack) => {
                if ack.state == LineState::Seen {
                    past.delivered += 1;
                    if let Some(msg_id) = ack.msg_id {
                        past.seen.insert(msg_id, ack.class);
                    }
                }
                last = if ack.inode == inode {
                    Last::Of(ack.line_offset)
                } else {
                    Last::OfAnother
                };
                if ack.inode == inode {
                    acks.insert(ack.line_offset, ack);
                }
            }
            None => past.bad += u64::from(line.whole),
        }
        ControlFlow::Continue(())
    });
    read.map_err(|e| Error::io("read", path, e))?;
    Ok((acks, past, last))
}
