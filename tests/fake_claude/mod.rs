//! The stand-in for claude, tested by itself: scripts, quirks, door, MCP children, signals.
//!
//! That it agrees with the real program is shown elsewhere, by tests that run on both. What is
//! here holds it to its own reference, fake-claude/README.md. No test sleeps for luck: each
//! waits for a condition, with a deadline, and prints everything when it fails.

mod door;
mod ends;
mod guard;
mod mcp;
mod quirks;
mod runs;

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A private world for the stand-in.
struct World {
    home: TempDir,
}

/// A run that has been started.
struct Run {
    child: Child,
    folder: PathBuf,
}

/// A run that is over.
struct Done {
    pid: u32,
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: String,
    /// All transcripts of the world.
    transcript: String,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("work")).unwrap();
        fs::create_dir(home.path().join("record")).unwrap();
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The stand-in with this script and the usual flags.
    fn command(&self, script: &str, flags: &[&str]) -> Command {
        let file = self.path("script.json");
        fs::write(&file, script).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fake-claude"));
        command
            .args(["-p", "--output-format=stream-json", "--verbose"])
            .args(["--model=claude-haiku-4-5"])
            .args(flags)
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", "/usr/bin:/bin")
            .env("IS_SANDBOX", "1")
            .env("ANTHROPIC_API_KEY", "a key")
            .env("FAKE_CLAUDE_SCRIPT", file)
            .env("FAKE_CLAUDE_RECORD", self.path("record"))
            .current_dir(self.path("work"));
        command
    }

    /// Starts a command; its stdin is this text, or stays open.
    fn start(&self, mut command: Command, stdin: Option<&[u8]>) -> Run {
        let output = |name: &str| fs::File::create(self.path(name)).unwrap();
        command
            .stdout(output("stdout"))
            .stderr(output("stderr"))
            .stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        if let Some(text) = stdin {
            let _ = child.stdin.take().unwrap().write_all(text);
        }
        Run {
            child,
            folder: self.home.path().to_owned(),
        }
    }

    /// Runs a script to its end.
    fn run(&self, script: &str, flags: &[&str]) -> Done {
        self.start(self.command(script, flags), Some(b"hi")).wait()
    }
}

/// Runs a script in a world of its own.
fn play(script: &str, flags: &[&str]) -> Done {
    World::new().run(script, flags)
}

impl Run {
    fn stdout(&self) -> Vec<u8> {
        fs::read(self.folder.join("stdout")).unwrap()
    }

    fn everything(&self) -> String {
        let read =
            |name| String::from_utf8_lossy(&fs::read(self.folder.join(name)).unwrap()).into_owned();
        format!("stdout:\n{}\nstderr:\n{}", read("stdout"), read("stderr"))
    }

    /// Waits until a condition holds.
    #[track_caller]
    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(
                Instant::now() < deadline,
                "waited for {what}\n{}",
                self.everything()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until stdout holds a text so often.
    #[track_caller]
    fn until_said(&mut self, text: &str, times: usize) {
        self.until(text, |run| {
            String::from_utf8_lossy(&run.stdout()).matches(text).count() >= times
        });
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    fn write(&mut self, line: &Value) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    #[track_caller]
    fn wait(mut self) -> Done {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                panic!("it did not end\n{}", self.everything());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut transcript = String::new();
        let projects = self.folder.join(".claude/projects");
        for project in fs::read_dir(projects).into_iter().flatten().flatten() {
            for file in fs::read_dir(project.path()).into_iter().flatten().flatten() {
                if file.path().is_file() {
                    transcript +=
                        &String::from_utf8_lossy(&fs::read(file.path()).unwrap_or_default());
                }
            }
        }
        Done {
            pid: self.child.id(),
            status,
            stdout: self.stdout(),
            stderr: fs::read_to_string(self.folder.join("stderr")).unwrap(),
            transcript,
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Done {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The rows of stdout that are JSON.
    fn rows(&self) -> Vec<Value> {
        self.stdout
            .split(|b| *b == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// The rows of the transcript that are JSON.
    fn log(&self) -> Vec<Value> {
        self.transcript
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// `type` or `type/subtype` of each row.
    fn kinds(&self) -> Vec<String> {
        self.rows().iter().map(kind).collect()
    }

    fn results(&self) -> Vec<Value> {
        self.rows()
            .into_iter()
            .filter(|row| row["type"] == "result")
            .collect()
    }

    #[track_caller]
    fn expect(&self, code: i32) -> &Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "signal {:?}\nstdout:\n{}\nstderr:\n{}",
            self.status.signal(),
            self.text(),
            self.stderr
        );
        self
    }
}

fn kind(row: &Value) -> String {
    let part = |key: &str| row[key].as_str().map(str::to_owned);
    let mut kind = part("type").unwrap_or_default();
    for key in ["subtype", "operation", "state"] {
        if let Some(more) = part(key).filter(|_| key != "state" || kind == "command_lifecycle") {
            kind = format!("{kind}/{more}");
        }
    }
    if let Some(attachment) = row["attachment"]["type"].as_str() {
        kind = format!("{kind}/{attachment}");
    }
    kind
}
