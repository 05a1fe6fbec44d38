//! The door: a socket that takes lines for the model and never answers.
//!
//! Invariants: nothing is ever written back; in bypassPermissions only descendants of this
//! process get through; a line for another session is dropped without a trace; a connection
//! whose line grows beyond 1 MiB, or takes more than 30 s, is closed.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::Value;

use crate::guard::{Guard, Judgement};
use crate::hub::{Command, Priority, Source, lock};
use crate::ids;
use crate::opening::queue_row;
use crate::registry::{parent, start_time};
use crate::row::{Row, row};
use crate::session::Session;
use crate::stream;

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
    guard: Mutex<Guard>,
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
    let door = Arc::new(Door {
        s: Arc::clone(s),
        guard: Mutex::default(),
        to_lose: Mutex::new(s.quirks.door_lose),
    });
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let door = Arc::clone(&door);
            std::thread::spawn(move || door.serve(stream));
        }
    });
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
        let mut deadline = Instant::now() + PATIENCE;
        loop {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return;
            };
            let _ = stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
            let read = match stream.read(&mut chunk) {
                Ok(0) => return,
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            pending.extend_from_slice(&chunk[..read]);
            while let Some(end) = pending.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                if line.len() > LONGEST_LINE {
                    return;
                }
                self.line(&line, &caller);
                deadline = Instant::now() + PATIENCE;
            }
            if pending.len() > LONGEST_LINE {
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
        let Some(text) = content(&frame["message"]["content"]) else {
            return;
        };
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
        let from = frame["from"].as_str().unwrap_or_default().to_owned();
        let waiting = s.hub.look(crate::hub::State::peers_waiting);
        let judgement = lock(&self.guard).judge(&from, &text, waiting, Instant::now());
        if judgement != Judgement::Pass {
            return;
        }
        let command = Command {
            uuid: ids::uuid(),
            text,
            priority: match frame["priority"].as_str() {
                Some("now") => Priority::Now,
                Some("later") => Priority::Later,
                _ => Priority::Next,
            },
            source: Source::Peer {
                origin: origin(s, &frame, &from, caller),
            },
            at_ms: ids::now_ms(),
        };
        s.hub.tell(|state| {
            // A line that comes when the process has decided to end is lost.
            if !state.closing {
                s.note(&queue_row(s, "enqueue", Some(&command.text)));
                state.queue.push(command);
            }
        });
    }
}

fn origin(s: &Session, frame: &Value, from: &str, caller: &Caller) -> Row {
    row! {
        "kind": "peer",
        "from": from,
        "verifiedPeerPid": caller.pid,
    }
    .put_some("verifiedPeerProcStart", caller.start.as_ref())
    .put_if(s.bypass() && caller.descendant, "selfSent", &true)
    .put_some("msg_id", frame.get("msg_id"))
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
