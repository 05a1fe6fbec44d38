//! The registry row and its key file.
//!
//! Invariants: the row appears without a status, then idle, then busy; it is written in place,
//! not atomically; both files go away on a clean end and on INT, TERM and HUP, and stay after a
//! KILL.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sha2::{Digest, Sha256};

use crate::hub::lock;
use crate::ids;
use crate::row::{Row, row};

/// What the row says of the process; none of it changes but session and status.
pub(crate) struct Facts {
    pub(crate) cwd: String,
    pub(crate) version: String,
    pub(crate) newer: bool,
    pub(crate) socket: String,
    pub(crate) token: String,
    pub(crate) name: Option<String>,
}

struct Now {
    session: String,
    status: Option<(&'static str, u64)>,
    written: bool,
}

pub(crate) struct Registry {
    facts: Facts,
    row: PathBuf,
    key: PathBuf,
    name: String,
    started_ms: u64,
    now: Mutex<Now>,
}

/// Field 22 of a process's stat.
pub(crate) fn start_time(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)
        .map(str::to_owned)
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// The machine and the pid namespace.
fn pid_domain() -> String {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("linux:{}:{}", machine.trim(), namespace.display())
}

impl Registry {
    /// Where the row will be; nothing is written yet.
    pub(crate) fn new(config: &Path, session: &str, facts: Facts) -> Self {
        let pid = std::process::id();
        let sessions = config.join("sessions");
        let hash: String = Sha256::digest(facts.socket.as_bytes())
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let folder = Path::new(&facts.cwd)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let name = facts
            .name
            .clone()
            .unwrap_or_else(|| format!("{folder}-{}", ids::hex(2)));
        Self {
            row: sessions.join(format!("{pid}.json")),
            key: sessions.join(format!("{pid}.{hash}.key")),
            name,
            started_ms: ids::now_ms(),
            now: Mutex::new(Now {
                session: session.to_owned(),
                status: None,
                written: false,
            }),
            facts,
        }
    }

    /// The files to remove when the process ends in a hurry.
    pub(crate) fn files(&self) -> [PathBuf; 2] {
        [self.row.clone(), self.key.clone()]
    }

    /// Creates the key file and the first row.
    pub(crate) fn create(&self) {
        if let Some(folder) = self.row.parent() {
            let _ = std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder);
        }
        let key = row! {
            "peerToken": self.facts.token,
            "procStart": start_time(std::process::id()),
            "pidDomain": pid_domain(),
        };
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.key);
        if let Ok(mut file) = file {
            let _ = file.write_all(key.line().as_bytes());
        }
        lock(&self.now).written = true;
        self.write();
    }

    /// Says what the process is doing.
    pub(crate) fn status(&self, status: &'static str) {
        lock(&self.now).status = Some((status, ids::now_ms()));
        self.write();
    }

    /// The process has turned to another session.
    pub(crate) fn switch(&self, session: &str) {
        session.clone_into(&mut lock(&self.now).session);
        self.write();
    }

    /// Removes row and key.
    pub(crate) fn remove(&self) {
        lock(&self.now).written = false;
        for file in self.files() {
            let _ = std::fs::remove_file(file);
        }
    }

    fn write(&self) {
        let now = lock(&self.now);
        if now.written {
            let row = self.render(&now);
            if let Err(e) = std::fs::write(&self.row, row.line()) {
                crate::strict(&format!("cannot write {}: {e}", self.row.display()));
            }
        }
    }

    fn render(&self, now: &Now) -> Row {
        let facts = &self.facts;
        let row = row! {
            "pid": std::process::id(),
            "sessionId": now.session,
            "cwd": facts.cwd,
            "startedAt": self.started_ms,
            "procStart": start_time(std::process::id()),
            "version": facts.version,
            "peerProtocol": 1,
            "peerFeatures": ["notify_idle", "reply_across_default_dirs", "artifact_yield"],
            "kind": "interactive",
            "entrypoint": "sdk-cli",
            "pidDomain": pid_domain(),
        }
        .put_if(facts.newer, "asksForConvertedSkills", &())
        .put("messagingSocketPath", &facts.socket)
        .put("name", &self.name)
        .put(
            "nameSource",
            if facts.name.is_some() {
                "user"
            } else {
                "derived"
            },
        )
        .put("nameSince", &self.started_ms);
        match now.status {
            Some((status, at)) => row
                .put("status", status)
                .put("updatedAt", &at)
                .put("statusUpdatedAt", &at),
            None => row,
        }
    }
}
