//! A started program: its output in files, a deadline on every wait, and what it left behind.
//!
//! Invariants: output goes to files, so an orphan that holds a descriptor cannot hold up a test;
//! the program leads a session of its own; every wait has a deadline, after which the whole
//! session is killed and the test fails; nothing sleeps for luck.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use serde_json::Value;

use super::rows::{self, Row};

/// Waits until `what` holds, looking every few milliseconds; fails at the deadline.
#[track_caller]
pub(crate) fn until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    until_some(limit, what, || holds().then_some(()));
}

/// Waits until `found` finds something, and returns it; fails at the deadline.
#[track_caller]
pub(crate) fn until_some<T>(
    limit: Duration,
    what: &str,
    mut found: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "waited {limit:?} in vain for: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the process behind a pidfd ends within the time.
pub(crate) fn ended_within(pidfd: impl AsFd, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) if Instant::now() < deadline => {}
            Ok(ready) => return ready > 0,
            Err(problem) => panic!("cannot poll a pidfd: {problem}"),
        }
    }
}

/// Where the standard streams of a program go.
pub(crate) struct Streams {
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
}

/// A program that may still run.
pub(crate) struct Running {
    child: Child,
    streams: Streams,
    started: Instant,
    shown: String,
    status: Option<ExitStatus>,
}

/// What a program left when it had ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    pub(crate) pid: u32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// From start to end, as seen by the test.
    pub(crate) took: Duration,
    /// The command line, for people.
    pub(crate) shown: String,
}

impl Running {
    /// Starts `command` as the leader of a new session, its output in files.
    #[allow(unsafe_code, reason = "setsid has to be called between fork and exec")]
    pub(crate) fn start(mut command: Command, stdin: Stdio, streams: Streams) -> Self {
        let file = |path: &Path| File::create(path).expect("the scratch folder takes files");
        command
            .stdin(stdin)
            .stdout(file(&streams.stdout))
            .stderr(file(&streams.stderr));
        // SAFETY: setsid is async-signal-safe, and nothing else happens in the forked child.
        unsafe {
            command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into));
        }
        let shown = shown(&command);
        let started = Instant::now();
        let child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {shown}: {e}"));
        Self {
            child,
            streams,
            started,
            shown,
            status: None,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn raw_pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid fits")
    }

    /// Sends a signal to the program alone, not to its group.
    pub(crate) fn signal(&self, signal: Signal) {
        assert!(self.status.is_none(), "{} has ended already", self.shown);
        kill(Pid::from_raw(self.raw_pid()), signal).expect("the child is ours and not reaped");
    }

    /// Writes one line to a standard input that was held open.
    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self
            .child
            .stdin
            .as_mut()
            .expect("standard input was held open");
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .expect("the program reads its input");
    }

    /// Ends a standard input that was held open.
    pub(crate) fn close_stdin(&mut self) {
        self.child
            .stdin
            .take()
            .expect("standard input was held open");
    }

    /// What it has printed so far.
    pub(crate) fn stdout(&self) -> String {
        read(&self.streams.stdout)
    }

    /// What it has said on standard error so far.
    pub(crate) fn stderr(&self) -> String {
        read(&self.streams.stderr)
    }

    /// The complete rows it has printed so far.
    pub(crate) fn rows(&self) -> Vec<Row> {
        rows::complete(&self.stdout())
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("the child is ours");
        }
        self.status.is_some()
    }

    /// Waits until `holds`; fails at the deadline, and at once when the program has ended without.
    #[track_caller]
    pub(crate) fn until(&mut self, limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
        self.until_some(limit, what, || holds().then_some(()));
    }

    /// Waits until `found` finds something; fails at the deadline, and at once when the program
    /// has ended without.
    #[track_caller]
    pub(crate) fn until_some<T>(
        &mut self,
        limit: Duration,
        what: &str,
        mut found: impl FnMut() -> Option<T>,
    ) -> T {
        until_some(limit, what, || {
            // Asked first: what it did before its end counts.
            let ended = self.has_ended();
            let value = found();
            assert!(
                value.is_some() || !ended,
                "{} ended before: {what}",
                self.shown
            );
            value
        })
    }

    /// Waits for `count` rows of a kind (`system/api_retry`, `result`); fails when the program
    /// ends first.
    #[track_caller]
    pub(crate) fn until_rows(&mut self, kind: &str, count: usize, limit: Duration) -> Vec<Row> {
        let stdout = self.streams.stdout.clone();
        self.until_some(limit, &format!("{count} × {kind}"), || {
            let rows = rows::complete(&read(&stdout));
            let rows: Vec<Row> = rows.into_iter().filter(|row| row.is(kind)).collect();
            (rows.len() >= count).then_some(rows)
        })
    }

    /// Waits for the end. At the deadline the program's whole session is killed and the test
    /// fails.
    #[track_caller]
    pub(crate) fn wait(mut self, limit: Duration) -> Finished {
        let pid = self.raw_pid();
        if self.status.is_none() {
            let raw = rustix::process::Pid::from_raw(pid).expect("a pid is positive");
            let handle = pidfd_open(raw, PidfdFlags::empty()).expect("the child is not reaped");
            if !ended_within(&handle, limit) {
                kill_group(pid);
                let _ = self.child.wait();
                panic!("{} did not end within {limit:?} and was killed", self.shown);
            }
            self.status = Some(self.child.wait().expect("the child is ours"));
        }
        let status = self.status.expect("it has ended");
        Finished {
            code: status.code(),
            signal: status.signal(),
            pid: self.child.id(),
            stdout: self.stdout(),
            stderr: self.stderr(),
            took: self.started.elapsed(),
            shown: self.shown.clone(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            kill_group(self.raw_pid());
            let _ = self.child.wait();
        }
    }
}

impl Finished {
    /// Fails unless the program exited with this code.
    #[track_caller]
    pub(crate) fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(
            (self.code, self.signal),
            (Some(code), None),
            "{}\n-- stdout\n{}\n-- stderr\n{}",
            self.shown,
            excerpt(&self.stdout, 4_000),
            excerpt(&self.stderr, 4_000)
        );
        self
    }

    /// Standard output as one JSON document and nothing else.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|problem| {
            panic!(
                "{}: stdout is not one JSON document: {problem}\n{}",
                self.shown, self.stdout
            )
        })
    }

    /// Standard output as JSON lines; every line has to be whole.
    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<Row> {
        assert!(
            self.stdout.is_empty() || self.stdout.ends_with('\n'),
            "{}: the last row is torn",
            self.shown
        );
        rows::complete(&self.stdout)
    }
}

/// Kills a group of our own: the program leads it, since it leads its session.
fn kill_group(leader: i32) {
    let _ = nix::sys::signal::killpg(Pid::from_raw(leader), Signal::SIGKILL);
}

/// The environment that a live process of ours was started with.
#[track_caller]
pub(crate) fn environment_of(pid: u32) -> BTreeMap<String, String> {
    let text = fs::read(format!("/proc/{pid}/environ")).expect("the process lives and is ours");
    let text = String::from_utf8_lossy(&text).into_owned();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The start and the end of a long text.
pub(crate) fn excerpt(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(limit / 2);
    let tail = text.ceil_char_boundary(text.len() - limit / 2);
    format!(
        "{}\n[… {} bytes …]\n{}",
        &text[..head],
        tail - head,
        &text[tail..]
    )
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
