//! A session's surroundings by hand: its registry row, and a doorman that keeps to the contract.
//!
//! Everything here writes the files that the contract names, and shares no code with oo but the
//! hash of a line: a test that uses it holds oo to the contract and not to itself.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::env::TestEnv;
use super::process::Running;

/// A session: its files, and a process that stands for its claude.
pub(crate) struct Session {
    pub(crate) id: Uuid,
    inbox: PathBuf,
    sessions: PathBuf,
    claude: Running,
    row: PathBuf,
}

/// One line of an inbox.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) bytes: Vec<u8>,
    pub(crate) offset: u64,
    pub(crate) inode: u64,
}

/// Field 22 of `/proc/<pid>/stat`.
pub(crate) fn proc_start(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    fields.split_whitespace().nth(19).unwrap().to_owned()
}

/// The row that claude would write for a process.
pub(crate) fn row(pid: u32, session: Uuid, name: Option<&str>) -> Value {
    let namespace = fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    json!({
        "pid": pid, "sessionId": session, "procStart": proc_start(pid), "name": name, "cwd": "/w",
        "pidDomain": format!("linux:{}:{}", machine.trim(), namespace.display()),
    })
}

impl Session {
    /// A live session, without a doorman.
    pub(crate) fn live(env: &TestEnv, name: Option<&str>) -> Self {
        Self::with_id(env, Uuid::new_v4(), name)
    }

    pub(crate) fn with_id(env: &TestEnv, id: Uuid, name: Option<&str>) -> Self {
        let claude = env.program("/bin/cat").held_stdin().spawn();
        let sessions = env.home().join(".claude/sessions");
        let inbox = env.state().join("inbox");
        for folder in [&sessions, &inbox] {
            fs::create_dir_all(folder).unwrap();
        }
        for folder in [env.state(), inbox.clone()] {
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            fs::set_permissions(folder, private).unwrap();
        }
        let path = sessions.join(format!("{}.json", claude.pid()));
        fs::write(&path, row(claude.pid(), id, name).to_string()).unwrap();
        Self {
            id,
            inbox,
            sessions,
            claude,
            row: path,
        }
    }

    /// Its process's pid.
    pub(crate) fn pid(&self) -> u32 {
        self.claude.pid()
    }

    /// Its claude leaves, and takes its row with it.
    pub(crate) fn leave(&mut self) {
        fs::remove_file(&self.row).unwrap();
        self.claude.close_stdin();
        super::process::until(Duration::from_secs(20), "claude to leave", || {
            self.claude.has_ended()
        });
    }

    /// A second row for the same process: claude has another session now.
    pub(crate) fn switch(&self, to: Uuid) {
        let path = self.sessions.join(format!("{}.json", self.pid()));
        fs::write(path, row(self.pid(), to, None).to_string()).unwrap();
    }

    /// `<sid>.<what>` in the folder of inboxes.
    pub(crate) fn file(&self, what: &str) -> PathBuf {
        self.inbox.join(format!("{}.{what}", self.id))
    }

    /// The whole lines of its inbox.
    pub(crate) fn lines(&self) -> Vec<Line> {
        lines(&self.file("inbox"))
    }

    /// A heartbeat of a doorman with this pid, `age` seconds old.
    pub(crate) fn beat(&self, pid: u32, state: &str, age: i64) {
        beat(
            &self.file("inbox.heartbeat"),
            self.id,
            (pid, self.pid()),
            state,
            age,
        );
    }

    /// An ack of a line, with this class and state.
    pub(crate) fn ack(&self, line: &Line, class: &str, state: &str) {
        ack(&self.file("inbox.acks"), line, class, state, None);
    }

    /// A doorman that follows the inbox and acks each line with these classes and states, one
    /// after the other.
    pub(crate) fn doorman(&self, acks: &'static [(&'static str, &'static str)]) -> Doorman {
        let lock = File::create(self.file("doorman.lock")).unwrap();
        lock.try_lock().expect("nobody else keeps the inbox");
        self.beat(std::process::id(), "following", 0);
        let stop = Arc::new(AtomicBool::new(false));
        let (path, acks_path) = (self.file("inbox"), self.file("inbox.acks"));
        let heartbeat = (self.file("inbox.heartbeat"), self.id, self.pid());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut done = Vec::new();
            for round in 0_u32.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                for line in lines(&path) {
                    if !done.contains(&(line.inode, line.offset)) {
                        done.push((line.inode, line.offset));
                        for (class, state) in acks {
                            let reason = (*class == "refused").then_some("it is too odd");
                            ack(&acks_path, &line, class, state, reason);
                        }
                    }
                }
                if round % 400 == 399 {
                    let pids = (std::process::id(), heartbeat.2);
                    beat(&heartbeat.0, heartbeat.1, pids, "following", 0);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Doorman {
            stop,
            thread: Some(thread),
            _lock: lock,
        }
    }
}

/// A hand-made doorman; it leaves without a word when it is dropped.
pub(crate) struct Doorman {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _lock: File,
}

impl Drop for Doorman {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The whole lines of a file.
pub(crate) fn lines(path: &PathBuf) -> Vec<Line> {
    let Ok(bytes) = fs::read(path) else {
        return Vec::new();
    };
    let inode = fs::metadata(path).map_or(0, |meta| meta.ino());
    let mut offset = 0;
    let mut found = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if let Some(text) = line.strip_suffix(b"\n") {
            found.push(Line {
                bytes: text.to_vec(),
                offset,
                inode,
            });
        }
        offset += line.len() as u64;
    }
    found
}

impl Line {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap()
    }

    pub(crate) fn sha256(&self) -> String {
        oo::inbox::sha256(&self.bytes)
    }
}

fn ack(path: &PathBuf, line: &Line, class: &str, state: &str, reason: Option<&str>) {
    let now = "2026-12-01T00:00:00.123Z";
    let reached = |states: &[&str]| states.contains(&state).then_some(now);
    let ack = json!({
        "class": class, "state": state, "msg_id": null, "sha256": line.sha256(),
        "line_offset": line.offset, "inode": line.inode,
        "offered_at": reached(&["offered", "accepted", "seen"]),
        "accepted_at": reached(&["accepted", "seen"]), "seen_at": reached(&["seen"]),
        "attempts": 1, "reason": reason, "some_new_field": true,
    });
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(format!("{ack}\n").as_bytes()).unwrap();
}

fn beat(path: &PathBuf, session: Uuid, (pid, peer): (u32, u32), state: &str, age: i64) {
    let at = oo::platform::clock::now() - jiff::SignedDuration::from_secs(age);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let heartbeat = json!({
        "session_id": session, "pid": pid, "proc_start": proc_start(pid), "peer_pid": peer,
        "state": state, "at": at, "boot_id": boot.trim(), "delivered": 0, "pending": 0,
        "oo_version": "0.1.0",
    });
    let beside = path.with_extension("beside");
    fs::write(&beside, heartbeat.to_string()).unwrap();
    fs::rename(beside, path).unwrap();
}
