//! Asking a program a short question: it has a deadline, and its answer is bounded.
//!
//! The program leads a process group of its own, which is killed as a whole when the deadline is
//! over or the question was dropped. The end of its output is not waited for: a descendant that
//! holds the pipe open holds up nothing.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::environment::Environment;

/// The most that is kept of what a program writes, in bytes.
const MOST: usize = 256 * 1024;

/// A program to ask.
#[derive(Debug)]
pub struct Program {
    /// An absolute path.
    pub path: PathBuf,
    /// The arguments, without the program's name.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: Environment,
}

/// What a program said by itself.
#[derive(Debug)]
pub struct Said {
    /// How it ended.
    pub status: ExitStatus,
    /// Its stdout, at most 256 KiB.
    pub stdout: Vec<u8>,
    /// The beginning of its stderr.
    pub stderr: String,
}

/// A program that is asked line by line.
#[derive(Debug)]
pub struct Dialogue {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: File,
    ended: OwnedFd,
    deadline: Instant,
    heard: Vec<u8>,
    status: Option<ExitStatus>,
}

/// Runs a program to its end, without input.
///
/// # Errors
/// Timed out when it does not end within `limit`; then it is killed. As the system says when it
/// cannot be started.
pub fn ask(program: &Program, limit: Duration) -> io::Result<Said> {
    let mut dialogue = Dialogue::start(program, limit)?;
    dialogue.stdin = None;
    dialogue.end()
}

impl Dialogue {
    /// Starts a program that has to be done within `limit`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Program, limit: Duration) -> io::Result<Self> {
        let stderr = tempfile::tempfile()?;
        let mut child = command(program, stderr.try_clone()?).spawn()?;
        let pid = rustix::process::Pid::from_child(&child);
        let parts = (child.stdin.take(), child.stdout.take());
        let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        let ((Some(stdin), Some(stdout)), Ok(ended)) = (parts, ended) else {
            kill(&mut child);
            return Err(io::Error::other("its pipes or its pidfd cannot be had"));
        };
        Ok(Self {
            child,
            stdin: Some(stdin),
            stdout,
            stderr,
            ended,
            deadline: Instant::now() + limit,
            heard: Vec::new(),
            status: None,
        })
    }

    /// Says a line, which has to be short: a program that reads nothing must not hold us up.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(format!("{line}\n").as_bytes())
    }

    /// The next line, without its line feed; nothing when the program has ended.
    ///
    /// # Errors
    /// Timed out at the deadline.
    pub fn hear(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let rest = self.heard.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.heard, rest);
                line.pop();
                return Ok(Some(line));
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// Closes its input, and waits for its end.
    ///
    /// # Errors
    /// Timed out at the deadline; then it is killed.
    pub fn end(mut self) -> io::Result<Said> {
        self.stdin = None;
        while self.more()? {}
        wait_for(self.ended.as_fd(), self.deadline)?;
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(Said {
            status,
            stdout: std::mem::take(&mut self.heard),
            stderr: self.complaint(),
        })
    }

    /// The beginning of what it wrote to stderr so far.
    pub fn complaint(&mut self) -> String {
        const SHOWN: u64 = 2048;
        let mut bytes = Vec::new();
        let read = self
            .stderr
            .seek(SeekFrom::Start(0))
            .and_then(|_| (&self.stderr).take(SHOWN).read_to_end(&mut bytes));
        match read {
            Ok(_) => String::from_utf8_lossy(&bytes).trim().to_owned(),
            // It only illustrates what is told anyway.
            Err(_) => String::new(),
        }
    }

    /// Waits for more output; whether there was some. Not, when the program has ended and all
    /// that it wrote was read.
    fn more(&mut self) -> io::Result<bool> {
        let (output, ended) = {
            let mut fds = [
                PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.ended.as_fd(), PollFlags::POLLIN),
            ];
            poll_until(&mut fds, self.deadline)?;
            let ready = |at: usize| fds[at].revents().is_some_and(|events| !events.is_empty());
            (ready(0), ready(1))
        };
        if !output {
            // Ended, and nothing is left in the pipe, whoever else may hold it.
            return if ended { Ok(false) } else { Ok(true) };
        }
        let mut chunk = [0; 16 * 1024];
        let count = self.stdout.read(&mut chunk)?;
        if self.heard.len() + count > MOST {
            return Err(io::Error::other("it writes without end"));
        }
        self.heard.extend_from_slice(&chunk[..count]);
        Ok(count > 0)
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        if self.status.is_none() {
            kill(&mut self.child);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a home of this call")]
fn command(program: &Program, stderr: File) -> Command {
    let mut command = Command::new(&program.path);
    command
        .args(&program.arguments)
        .env_clear()
        .envs(program.environment.iter())
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr);
    command
}

/// Kills a child's group. The child is not reaped yet, so the number is still its own.
fn kill(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // It may have ended by itself.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _ = child.wait();
}

fn wait_for(fd: BorrowedFd<'_>, deadline: Instant) -> io::Result<()> {
    poll_until(&mut [PollFd::new(fd, PollFlags::POLLIN)], deadline)
}

fn poll_until(fds: &mut [PollFd<'_>], deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that the last millisecond is not spent in circles.
        let timeout =
            PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
        match poll(fds, timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {
                if Instant::now() >= deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: [("PATH".into(), "/usr/bin:/bin".into())]
                .into_iter()
                .collect(),
        }
    }

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_program_is_asked() {
        let said = ask(&shell("echo yes; echo no >&2; env | wc -l; exit 3"), SOON).unwrap();
        assert_eq!(said.status.code(), Some(3));
        assert!(said.stdout.starts_with(b"yes\n"));
        assert_eq!(said.stderr, "no");
    }

    #[test]
    fn an_orphan_that_holds_the_pipe_holds_up_nothing() {
        let began = Instant::now();
        let said = ask(&shell("(exec tail -f /dev/null) & echo $!"), SOON).unwrap();
        assert!(began.elapsed() < SOON / 2);
        let pid: i32 = String::from_utf8(said.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }

    #[test]
    fn the_deadline_ends_it_with_all_that_it_began() {
        let mut dialogue = Dialogue::start(
            &shell("tail -f /dev/null & echo $!; wait"),
            Duration::from_millis(500),
        )
        .unwrap();
        let line = dialogue.hear().unwrap().unwrap();
        let pid: i32 = String::from_utf8(line).unwrap().parse().unwrap();
        assert_eq!(dialogue.hear().unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(dialogue);
        let deadline = Instant::now() + SOON;
        while super::super::process::Identity::of(pid).is_some_and(|it| it.lives()) {
            assert!(Instant::now() < deadline, "{pid} lives on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_dialogue_goes_line_by_line() {
        let mut dialogue = Dialogue::start(&shell("cat"), SOON).unwrap();
        for line in ["one", "two"] {
            dialogue.say(line).unwrap();
            assert_eq!(dialogue.hear().unwrap().unwrap(), line.as_bytes());
        }
        let said = dialogue.end().unwrap();
        assert!(said.status.success() && said.stdout.is_empty());
    }

    #[test]
    fn what_writes_without_end_is_cut_off() {
        let error = ask(&shell("yes"), SOON).unwrap_err();
        assert_eq!(error.to_string(), "it writes without end");
    }

    #[test]
    fn what_is_not_there_is_said() {
        let program = Program {
            path: "/nonexistent/program".into(),
            ..shell("")
        };
        assert_eq!(
            ask(&program, SOON).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
