//! The doorman: how soon it answers, what it takes, and that it sleeps.
//!
//! This program plays the session's claude: it has a row in the registry of live sessions, and so
//! the doorman takes its seat, with lock and heartbeat, before it answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use uuid::Uuid;

use super::claude_under_test::Chosen;
use super::pair::Pair;
use super::status;
use super::table::{Gauge, Table};

/// Three heartbeats.
const IDLE: Duration = Duration::from_secs(12);

/// Until what comes with the start is over.
const SETTLED: Duration = Duration::from_secs(1);

/// What claude asks, in this order; the second answer ends the handshake as far as it waits.
const DISCOVER: &str =
    r#"{"jsonrpc":"2.0","id":"server-discover-probe-1","method":"server/discover","params":{}}"#;
const INITIALIZE: &str = r#"{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-code","version":"2"}},"jsonrpc":"2.0","id":0}"#;

/// Against an interpreter that does nothing: what a doorman in a script would cost at least.
pub(crate) fn handshake(_: &Chosen, table: &mut Table) {
    let session = Session::new();
    let name = "doorman, from spawn to `initialize` answered";
    let Some(python) = python() else {
        return table.skip(name, "no python3 is here");
    };
    table.compare(Pair {
        name,
        against: "`python3 -I -c pass`",
        ours: &mut || {
            let began = Instant::now();
            let doorman = Doorman::greeted(&session);
            let took = began.elapsed();
            doorman.leave(&session);
            took
        },
        theirs: &mut || {
            let began = Instant::now();
            let status = quiet(&python).args(["-I", "-c", "pass"]).status();
            assert!(status.expect("python3 can be run").success());
            began.elapsed()
        },
        limit: 0.5,
    });
}

/// Its memory, and how often it wakes. The runtime's timer wheel takes three turns for four
/// seconds, and the file system one to rename.
pub(crate) fn idle(_: &Chosen, table: &mut Table) {
    let session = Session::new();
    let doorman = Doorman::greeted(&session);
    std::thread::sleep(SETTLED);
    let pid = doorman.child.id();
    let before = status::context_switches(pid);
    std::thread::sleep(IDLE);
    let switches = status::context_switches(pid) - before;
    let memory = status::memory(pid).expect("the doorman lives");
    doorman.leave(&session);
    table.gauge(&Gauge {
        name: "doorman's memory, its peak",
        value: memory.peak,
        limit: 6.0,
        unit: "MiB",
    });
    table.gauge(&Gauge {
        name: "doorman's context switches in 12 idle seconds (3 heartbeats)",
        value: switches,
        limit: 24.0,
        unit: "",
    });
}

/// A session whose claude is this process.
pub(super) struct Session {
    home: tempfile::TempDir,
    id: Uuid,
    door: UnixListener,
}

impl Session {
    pub(super) fn new() -> Self {
        let home = tempfile::tempdir().expect("a scratch folder");
        let socket = home.path().join("door.sock");
        let session = Self {
            door: UnixListener::bind(&socket).expect("the scratch folder takes a socket"),
            home,
            id: Uuid::new_v4(),
        };
        let inbox = session.inbox();
        let mut folders = std::fs::DirBuilder::new();
        folders.recursive(true).mode(0o700);
        let registry = session.home.path().join(".claude/sessions");
        let transcripts = session.home.path().join(".claude/projects/-work");
        for folder in [&registry, &inbox, &transcripts] {
            folders
                .create(folder)
                .expect("the scratch folder takes folders");
        }
        let pid = std::process::id();
        let row = json!({
            "pid": pid,
            "sessionId": session.id,
            "procStart": status::start_time(pid),
            "pidDomain": format!("linux::{}", status::pid_namespace()),
            "kind": "interactive",
            "status": "busy",
            "messagingSocketPath": socket,
        });
        for (path, text) in [
            (registry.join(format!("{pid}.json")), row.to_string()),
            (
                inbox.join(format!("{}.inbox.offset", session.id)),
                "0".to_owned(),
            ),
            (inbox.join(format!("{}.inbox", session.id)), String::new()),
        ] {
            std::fs::write(path, text).expect("the scratch folder takes files");
        }
        session
    }

    fn inbox(&self) -> PathBuf {
        self.home.path().join("state/inbox")
    }

    /// A file of the session's inbox.
    pub(super) fn inbox_file(&self, ending: &str) -> PathBuf {
        self.inbox().join(format!("{}.{ending}", self.id))
    }

    /// Where claude would write what happens.
    pub(super) fn transcript(&self) -> PathBuf {
        let folder = self.home.path().join(".claude/projects/-work");
        folder.join(format!("{}.jsonl", self.id))
    }

    /// The socket at which lines arrive.
    pub(super) const fn door(&self) -> &UnixListener {
        &self.door
    }

    /// What the doorman says of itself on disk.
    fn heartbeat(&self) -> Value {
        let path = self.inbox().join(format!("{}.inbox.heartbeat", self.id));
        let text = std::fs::read(path).expect("the doorman has written its heartbeat");
        serde_json::from_slice(&text).expect("a heartbeat is JSON")
    }
}

/// A doorman at its post.
pub(super) struct Doorman {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Doorman {
    /// Starts one and shakes hands.
    pub(super) fn greeted(session: &Session) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oo"));
        command
            .args(["doorman", "--mcp"])
            .env_clear()
            .env("HOME", session.home.path())
            .env("PATH", "/usr/bin:/bin")
            .env("OO_STATE_DIR", session.home.path().join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("oo can be run");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut doorman = Self {
            child,
            input,
            output,
        };
        assert_eq!(doorman.ask(DISCOVER)["error"]["code"], -32601);
        let answer = doorman.ask(INITIALIZE);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        doorman
    }

    fn ask(&mut self, line: &str) -> Value {
        writeln!(self.input, "{line}").expect("the doorman reads");
        let mut answer = String::new();
        self.output
            .read_line(&mut answer)
            .expect("the doorman answers");
        serde_json::from_str(&answer).expect("an answer is JSON")
    }

    /// Ends it as claude does, after a look whether it was at its post.
    pub(super) fn leave(mut self, session: &Session) {
        let heartbeat = session.heartbeat();
        assert_eq!(heartbeat["state"], "following", "{heartbeat}");
        assert_eq!(heartbeat["pid"], self.child.id(), "{heartbeat}");
        let pid = i32::try_from(self.child.id()).expect("a pid fits");
        kill(Pid::from_raw(pid), Signal::SIGINT).expect("the child is ours and not reaped");
        self.child.wait().expect("the child is ours");
    }
}

fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// The interpreter itself: version managers put scripts of that name into the path, which cost
/// more than what they start.
fn python() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = [PathBuf::from("/usr/bin"), PathBuf::from("/usr/local/bin")];
    usual
        .into_iter()
        .chain(std::env::split_paths(&path))
        .filter_map(|folder| folder.join("python3").canonicalize().ok())
        .find(|file| is_binary(file))
}

fn is_binary(path: &Path) -> bool {
    let mut start = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"\x7fELF"
}
