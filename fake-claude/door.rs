//! The door: a socket that takes lines for the model and never answers.
//!
//! Invariants: nothing is ever written back; in bypassPermissions only descendants of this
//! process get through; a line for another session is dropped without a trace; a connection is
//! closed when a line with its line feed has more than 2^20 characters, or when the first one
//! takes more than 30 s; what stands before the end without a line feed is a line. A line that comes after the last result is queued and taken out again, unseen.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::Value;

use crate::guard::{Guard, Judgement};
use crate::hub::{Command, Intake, Priority, Source, lock};
use crate::ids;
use crate::opening::queue_row;
use crate::registry::{parent, start_time};
use crate::row::{Row, row};
use crate::session::Session;
use crate::stream;

/// In characters as JavaScript counts them.
const LONGEST_LINE: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// Who is at the other end of a connection.
#[derive(Clone)]
struct Caller {
    pid: u32,
    start: Option<String>,
    descendant: bool,
}

struct Door {
    s: Arc<Session>,
    /// `None`: everything passes.
    guard: Option<Mutex<Guard>>,
    to_lose: Mutex<u32>,
}

/// Opens the door.
pub(crate) fn open(s: &Arc<Session>) {
    if s.quirks.no_door {
        return;
    }
    let path = std::path::PathBuf::from(&s.socket);
    if let Some(folder) = path.parent() {
        let _ = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder);
    }
    let _ = std::fs::remove_file(&path);
    let listener = match UnixListener::bind(&path) {
        Ok(listener) => listener,
        Err(e) => crate::strict(&format!("cannot listen on {}: {e}", path.display())),
    };
    let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600));
    if s.quirks.door_refuse {
        // The file stays, nobody listens.
        return;
    }
    let guard = Guard::new(s.quirks.guard_scale.unwrap_or(1.0));
    let door = Arc::new(Door {
        s: Arc::clone(s),
        guard: (!s.quirks.guard_off).then(|| Mutex::new(guard)),
        to_lose: Mutex::new(s.quirks.door_lose),
    });
    std::thread::spawn(move || {
        let mut to_close = door.s.quirks.door_close;
        let mut to_hang = door.s.quirks.door_hang;
        let mut unread = Vec::new();
        for stream in listener.incoming().flatten() {
            if to_close > 0 {
                to_close -= 1;
            } else if to_hang > 0 {
                to_hang -= 1;
                unread.push(stream);
            } else {
                let door = Arc::clone(&door);
                std::thread::spawn(move || door.serve(stream));
            }
        }
    });
}

fn is_too_long(line: &[u8]) -> bool {
    line.len() > LONGEST_LINE && String::from_utf8_lossy(line).encode_utf16().count() > LONGEST_LINE
}

/// Whether a process comes from this one.
fn is_descendant(mut pid: u32) -> bool {
    let me = std::process::id();
    for _ in 0..64 {
        match parent(pid) {
            Some(up) if up == me => return true,
            Some(up) if up > 1 => pid = up,
            _ => return false,
        }
    }
    false
}

impl Door {
    fn serve(&self, mut stream: UnixStream) {
        let Ok(credentials) = getsockopt(&stream, PeerCredentials) else {
            return;
        };
        if credentials.uid() != nix::unistd::getuid().as_raw() {
            return;
        }
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        let caller = Caller {
            pid,
            start: start_time(pid),
            descendant: is_descendant(pid),
        };
        let mut pending = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        // Only the first line is waited for; after it a connection may be silent.
        let mut deadline = Some(Instant::now() + PATIENCE);
        loop {
            let left = match deadline.map(|d| d.checked_duration_since(Instant::now())) {
                None => None,
                Some(Some(left)) => Some(left.max(Duration::from_millis(1))),
                Some(None) => return,
            };
            let _ = stream.set_read_timeout(left);
            let read = match stream.read(&mut chunk) {
                Ok(0) => return self.line(&pending, &caller),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            pending.extend_from_slice(&chunk[..read]);
            while let Some(end) = pending.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                if is_too_long(&line) {
                    return;
                }
                self.line(&line, &caller);
                deadline = None;
            }
            if is_too_long(&pending) {
                return;
            }
        }
    }

    fn line(&self, line: &[u8], caller: &Caller) {
        let s = &self.s;
        let Ok(frame) = serde_json::from_slice::<Value>(line) else {
            return;
        };
        if frame["type"] != "user" {
            return;
        }
        // Blocks are not taken here, nor is an empty text.
        let text = frame["message"]["content"].as_str().unwrap_or_default();
        if text.is_empty() {
            return;
        }
        let text = text.to_owned();
        if frame
            .get("session_id")
            .is_some_and(|id| id.as_str() != Some(s.id().as_str()))
        {
            return;
        }
        {
            let mut to_lose = lock(&self.to_lose);
            if *to_lose > 0 {
                *to_lose -= 1;
                return;
            }
        }
        if s.bypass() && !caller.descendant {
            let held = (ids::uuid(), ids::uuid(), caller.pid);
            stream::hold(s, &held.0, &held.1, held.2, false);
            s.hub.tell(|state| state.held.push(held));
            return;
        }
        let from = frame.get("from").cloned();
        if let Some(guard) = &self.guard {
            // Who gives no name is known by its process.
            let sender = from.as_ref().map_or_else(
                || format!("process {}", caller.pid),
                |from| format!("name {from}"),
            );
            let waiting = s.hub.look(crate::hub::State::peers_waiting);
            let judgement = lock(guard).judge(&sender, &text, waiting, Instant::now());
            if judgement != Judgement::Pass {
                return;
            }
        }
        let from = from.unwrap_or_else(|| Value::from("unknown"));
        let command = Command {
            merged: Vec::new(),
            uuid: ids::uuid(),
            text,
            priority: match frame["priority"].as_str() {
                Some("now") => Priority::Now,
                Some("later") => Priority::Later,
                _ => Priority::Next,
            },
            source: Source::Peer {
                origin: origin(s, &frame, &from, caller),
                sender: format!("{from} {}", caller.pid),
            },
            at_ms: ids::now_ms(),
        };
        s.hub.tell(|state| {
            if state.intake == Intake::Shut {
                return;
            }
            s.note(&queue_row(s, "enqueue", Some(&command.text)));
            if state.intake == Intake::Open {
                state.queue.push(command);
            } else {
                // The process has decided to end: the line is taken out, and lost.
                s.note(&queue_row(s, "dequeue", None));
            }
        });
    }
}

fn origin(s: &Session, frame: &Value, from: &Value, caller: &Caller) -> Row {
    // An id in any other form than a UUID's usual one is not kept.
    let msg_id = frame["msg_id"]
        .as_str()
        .filter(|id| id.len() == 36 && uuid::Uuid::try_parse(id).is_ok());
    row! {
        "kind": "peer",
        "from": from,
        "verifiedPeerPid": caller.pid,
    }
    .put_some("verifiedPeerProcStart", caller.start.as_ref())
    .put_if(s.bypass() && caller.descendant, "selfSent", &true)
    .put_some("msg_id", msg_id.as_ref())
}

/// A text, or the texts of its blocks.
pub(crate) fn content(content: &Value) -> Option<String> {
    if let Some(text) = content.as_str() {
        return Some(text.to_owned());
    }
    let texts: Vec<_> = content
        .as_array()?
        .iter()
        .filter_map(|b| b["text"].as_str())
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}
