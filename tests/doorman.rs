//! `oo doorman --mcp` as a process: what claude sees of it, and what it leaves on disk.
//!
//! A shell plays claude here: the doorman's variable `OO_CLAUDE` names the shell's file, and a
//! registry row is written for it. fake-claude plays it better, in the tests of `oo start`.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test starts processes and writes files, and ends at what it did not expect"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const OO: &str = env!("CARGO_BIN_EXE_oo");
const SESSION: &str = "77c69075-1c8e-4953-abac-a26fead0cc6d";
const OTHER: &str = "46e9f1c6-44d2-44d5-aef6-afd63e114744";
const DEADLINE: Duration = Duration::from_secs(20);

const DISCOVER: &str =
    r#"{"jsonrpc":"2.0","id":"server-discover-probe-1","method":"server/discover","params":{}}"#;
const INITIALIZE: &str = r#"{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-code"}},"jsonrpc":"2.0","id":0}"#;
const STATUS: &str =
    r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"status","arguments":{}}}"#;

/// A HOME with a state folder, and the processes that run in it.
struct Scratch {
    home: tempfile::TempDir,
}

/// A doorman, or the shell above it, that speaks over pipes.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Scratch {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.home.path().join(below)
    }

    fn heartbeat(&self, session: &str) -> Option<serde_json::Value> {
        let path = self.path(&format!("state/inbox/{session}.inbox.heartbeat"));
        Some(serde_json::from_slice(&fs::read(path).ok()?).unwrap())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", "/usr/bin:/bin")
            .env("OO_STATE_DIR", self.path("state"))
            .env("OO_CLAUDE", shell());
        command
    }

    /// A shell that waits for a line on stdin, runs `script` with `$OO` in it, and ends. Its
    /// arguments are claude's.
    fn claude(&self, script: &str, arguments: &[&str]) -> Running {
        let mut command = self.command(&shell());
        command
            .env("OO", OO)
            .arg("-c")
            // The last command is not the doorman, so that the shell stays as its parent.
            .arg(format!("read go; {script}; exit $?"))
            .arg("claude")
            .args(arguments);
        Running::start(command)
    }

    /// Writes the registry row that claude would have written before it starts a server.
    fn row(&self, pid: u32, session: &str) {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let start = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .nth(19)
            .unwrap();
        let namespace = fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let row = serde_json::json!({
            "pid": pid,
            "sessionId": session,
            "procStart": start,
            "pidDomain": format!("linux:{}:{}", machine.trim(), namespace.display()),
        });
        let folder = self.path(".claude/sessions");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{pid}.json")), row.to_string()).unwrap();
    }
}

/// The file of the shell, as the kernel names it.
fn shell() -> PathBuf {
    fs::canonicalize("/bin/sh").unwrap()
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn answer(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }

    fn ask(&mut self, line: &str) -> serde_json::Value {
        self.send(line);
        self.answer()
    }

    fn status(&mut self) -> serde_json::Value {
        self.ask(STATUS)["result"]["structuredContent"].clone()
    }

    fn ended(&mut self) -> ExitStatus {
        wait_for("the process to end", || self.child.try_wait().unwrap())
    }

    fn signal(&self, pid: u64, name: &str) {
        let sent = Command::new("/bin/sh")
            .args(["-c", &format!("kill -{name} {pid}")])
            .status()
            .unwrap();
        assert!(sent.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.input = None;
        // It may be gone: then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_gone(pid: u64) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.starts_with(" Z")),
        Err(_) => true,
    }
}

#[test]
fn it_shakes_hands_beats_and_says_goodbye() {
    let scratch = Scratch::new();
    let mut claude = scratch.claude("\"$OO\" doorman --mcp", &["-p"]);
    scratch.row(claude.child.id(), SESSION);
    claude.send("go");
    assert_eq!(claude.ask(DISCOVER)["error"]["code"], -32601);
    assert_eq!(
        claude.ask(INITIALIZE)["result"]["protocolVersion"],
        "2025-11-25"
    );
    let heartbeat = scratch
        .heartbeat(SESSION)
        .expect("written before the answer");
    assert_eq!(heartbeat["state"], "following");
    assert_eq!(heartbeat["peer_pid"], claude.child.id());
    assert_eq!(heartbeat["session_id"], SESSION);
    claude.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let tools = claude.ask(r#"{"method":"tools/list","jsonrpc":"2.0","id":1}"#);
    assert_eq!(tools["result"]["tools"][0]["name"], "status");
    assert_eq!(claude.status()["state"], "following");
    claude.input = None;
    assert!(claude.ended().success());
    assert_eq!(scratch.heartbeat(SESSION).unwrap()["state"], "stopped");
}

#[test]
fn a_signal_ends_it_at_once_with_its_last_word() {
    for name in ["INT", "TERM"] {
        let scratch = Scratch::new();
        let mut claude = scratch.claude("\"$OO\" doorman --mcp", &["-p"]);
        scratch.row(claude.child.id(), SESSION);
        claude.send("go");
        claude.ask(INITIALIZE);
        let doorman = scratch.heartbeat(SESSION).unwrap()["pid"].as_u64().unwrap();
        claude.signal(doorman, name);
        wait_for("the doorman to leave", || is_gone(doorman).then_some(()));
        assert_eq!(
            scratch.heartbeat(SESSION).unwrap()["state"],
            "stopped",
            "SIG{name}"
        );
        assert!(claude.ended().success(), "SIG{name}");
    }
}

#[test]
fn it_leaves_when_its_parent_is_killed_though_its_input_stays_open() {
    let scratch = Scratch::new();
    let mut claude = scratch.claude("\"$OO\" doorman --mcp", &["-p"]);
    scratch.row(claude.child.id(), SESSION);
    claude.send("go");
    claude.ask(INITIALIZE);
    let doorman = scratch.heartbeat(SESSION).unwrap()["pid"].as_u64().unwrap();
    claude.child.kill().unwrap();
    wait_for("the doorman to leave", || is_gone(doorman).then_some(()));
    assert_eq!(scratch.heartbeat(SESSION).unwrap()["state"], "stopped");
}

#[test]
fn without_a_row_the_arguments_name_the_session() {
    for arguments in [
        vec!["-p", "--session-id", SESSION],
        vec!["-p", "--resume=77c69075-1c8e-4953-abac-a26fead0cc6d"],
    ] {
        let scratch = Scratch::new();
        let mut claude = scratch.claude("\"$OO\" doorman --mcp", &arguments);
        claude.send("go");
        claude.ask(INITIALIZE);
        assert_eq!(
            scratch.heartbeat(SESSION).unwrap()["state"],
            "following",
            "{arguments:?}"
        );
    }
}

#[test]
fn a_row_that_comes_late_outranks_the_arguments() {
    let scratch = Scratch::new();
    let mut claude = scratch.claude("\"$OO\" doorman --mcp", &["--session-id", OTHER]);
    claude.send("go");
    claude.send(INITIALIZE);
    std::thread::sleep(Duration::from_millis(20));
    scratch.row(claude.child.id(), SESSION);
    assert_eq!(claude.answer()["id"], 0);
    assert_eq!(claude.status()["session_id"], SESSION);
    assert!(scratch.heartbeat(OTHER).is_none());
}

/// Starts a doorman that must serve nobody, and returns why.
fn idle(scratch: &Scratch, mut running: Running) -> String {
    assert_eq!(running.ask(DISCOVER)["error"]["code"], -32601);
    assert_eq!(
        running.ask(INITIALIZE)["result"]["protocolVersion"],
        "2025-11-25"
    );
    let status = running.status();
    assert_eq!(status["state"], "idle", "{status}");
    assert!(scratch.heartbeat(SESSION).is_none());
    running.input = None;
    assert!(running.ended().success());
    status["reason"].as_str().unwrap().to_owned()
}

#[test]
fn below_no_claude_it_speaks_and_serves_nobody() {
    let scratch = Scratch::new();
    let mut command = scratch.command(Path::new(OO));
    command.env_remove("OO_CLAUDE").args(["doorman", "--mcp"]);
    // What a session's own tools inherit names nobody.
    command.env("CLAUDE_CODE_SESSION_ID", SESSION);
    idle(&scratch, Running::start(command));
}

#[test]
fn behind_a_shell_of_the_session_it_serves_nobody() {
    let scratch = Scratch::new();
    // timeout is between the two, and no claude.
    let mut claude = scratch.claude("timeout 60 \"$OO\" doorman --mcp", &[]);
    scratch.row(claude.child.id(), SESSION);
    claude.send("go");
    let pid = claude.child.id();
    let reason = idle(&scratch, claude);
    assert!(reason.contains(&pid.to_string()), "{reason}");
}

#[test]
fn in_a_health_check_called_inside_a_session_it_serves_nobody() {
    let scratch = Scratch::new();
    // The inner shell is a claude without a row, as `claude mcp list` is.
    let script = "sh -c '\"$OO\" doorman --mcp; exit $?' claude mcp list";
    let mut claude = scratch.claude(script, &["-p"]);
    scratch.row(claude.child.id(), SESSION);
    claude.send("go");
    idle(&scratch, claude);
}

#[test]
fn switched_off_it_only_speaks() {
    let scratch = Scratch::new();
    let mut claude = scratch.claude("OO_DOORMAN=0 \"$OO\" doorman --mcp", &["-p"]);
    scratch.row(claude.child.id(), SESSION);
    claude.send("go");
    claude.ask(INITIALIZE);
    assert_eq!(claude.status()["state"], "off");
    assert!(scratch.heartbeat(SESSION).is_none());
}

#[test]
fn a_second_one_stands_by() {
    let scratch = Scratch::new();
    let mut first = scratch.claude("\"$OO\" doorman --mcp", &["-p"]);
    scratch.row(first.child.id(), SESSION);
    first.send("go");
    first.ask(INITIALIZE);
    let mut second = scratch.claude("\"$OO\" doorman --mcp", &["-p"]);
    scratch.row(second.child.id(), SESSION);
    second.send("go");
    second.ask(INITIALIZE);
    assert_eq!(second.status()["state"], "standby");
    let holder = scratch.heartbeat(SESSION).unwrap();
    assert_eq!(holder["peer_pid"], first.child.id());
    drop(first);
    wait_for("the second to take over", || {
        (second.status()["state"] == "following").then_some(())
    });
    assert_eq!(
        scratch.heartbeat(SESSION).unwrap()["peer_pid"],
        second.child.id()
    );
}

#[test]
fn nothing_that_is_sent_ends_it_or_swells_it() {
    let scratch = Scratch::new();
    let mut claude = scratch.claude("\"$OO\" doorman --mcp", &["-p"]);
    scratch.row(claude.child.id(), SESSION);
    claude.send("go");
    claude.ask(INITIALIZE);
    let doorman = scratch.heartbeat(SESSION).unwrap()["pid"].as_u64().unwrap();
    assert_eq!(claude.ask("garbage")["error"]["code"], -32700);
    assert_eq!(claude.ask("[]")["error"]["code"], -32600);
    let long = format!("{{\"id\":9,\"method\":\"{}\"}}", "x".repeat(3 << 20));
    assert_eq!(claude.ask(&long)["error"]["code"], -32600);
    // Just under the limit, and a tree of it would take many times its size.
    let wide = format!(
        "{{\"id\":9,\"method\":\"y\",\"params\":[{}1]}}",
        "1,".repeat(500_000)
    );
    assert_eq!(claude.ask(&wide)["error"]["code"], -32601);
    assert_eq!(claude.ask(r#"{"id":7,"method":"ping"}"#)["id"], 7);
    let status = fs::read_to_string(format!("/proc/{doorman}/status")).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    // A debug build is larger than a release one; a tree would take 20 MiB more.
    assert!(kib < 24 * 1024, "{kib} KiB");
}

#[test]
fn a_state_folder_that_cannot_be_used_is_told_and_breaks_nothing() {
    let scratch = Scratch::new();
    fs::write(scratch.path("state"), "a file").unwrap();
    let mut claude = scratch.claude("\"$OO\" doorman --mcp", &["-p"]);
    scratch.row(claude.child.id(), SESSION);
    claude.send("go");
    let reason = idle(&scratch, claude);
    assert!(reason.contains("not a folder"), "{reason}");
}

#[test]
fn all_its_answers_are_written_when_the_input_ends() {
    let scratch = Scratch::new();
    let mut command = scratch.command(Path::new(OO));
    command.env_remove("OO_CLAUDE").args(["doorman", "--mcp"]);
    let mut doorman = Running::start(command);
    for _ in 0..20 {
        doorman.send(DISCOVER);
    }
    doorman.input = None;
    let mut all = String::new();
    doorman.output.read_to_string(&mut all).unwrap();
    assert_eq!(all.lines().count(), 20);
    assert!(doorman.ended().success());
}

#[test]
fn without_being_told_how_it_is_a_usage_error() {
    let scratch = Scratch::new();
    for arguments in [
        vec!["doorman"],
        vec!["doorman", "--once"],
        vec!["doorman", "--mcp", "--allow-foreground"],
    ] {
        let ended = scratch
            .command(Path::new(OO))
            .args(&arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(ended.code(), Some(2), "{arguments:?}");
    }
}
