//! Starting a process that does nothing until it is on record.
//!
//! The child waits on a pipe between fork and exec. The parent learns the pid, writes it down and
//! then lets go; a parent that dies first closes the pipe, and the child leaves without ever
//! having been claude.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;

use super::environment::Environment;

/// What is to be started.
#[derive(Debug)]
pub struct SpawnPlan {
    /// An absolute path.
    pub program: PathBuf,
    /// `argv[0]`.
    pub name: PathBuf,
    /// The arguments, without the program's name.
    pub arguments: Vec<OsString>,
    /// The whole environment of the child.
    pub environment: Environment,
    /// The folder it starts in.
    pub cwd: PathBuf,
    /// Its stdin.
    pub stdin: File,
    /// Its stdout.
    pub stdout: File,
    /// Its stderr.
    pub stderr: File,
    /// The descriptors (above 2) that it gets; every other one is closed.
    pub pass: Vec<RawFd>,
}

/// A child that stands before its exec, in a session and process group of its own.
#[derive(Debug)]
pub struct Gated {
    pid: i32,
    go: File,
    spawned: JoinHandle<io::Result<Child>>,
}

/// A child that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

/// Forks; the child waits.
///
/// # Errors
/// When no process or pipe can be had.
pub fn gated(plan: SpawnPlan) -> io::Result<Gated> {
    let (mut pid_reader, pid_writer) = pipe()?;
    let (go_reader, go_writer) = pipe()?;
    let go_writer_number = go_writer.as_raw_fd();
    // `Command::spawn` returns only after the exec, so it waits on a thread of its own.
    let spawned = std::thread::Builder::new()
        .name("spawn".to_owned())
        .spawn(move || {
            let pass = plan.pass.clone();
            let mut command = command(plan);
            before_exec(
                &mut command,
                Gate {
                    pid_writer,
                    go_reader,
                    go_writer_number,
                },
                pass,
            );
            command.spawn()
        })?;
    let mut pid = [0; 4];
    match pid_reader.read_exact(&mut pid) {
        Ok(()) => Ok(Gated {
            pid: i32::from_ne_bytes(pid),
            go: go_writer,
            spawned,
        }),
        // The child died, or was never born: the thread knows why.
        Err(e) => match join(spawned) {
            Ok(_child) => Err(e),
            Err(e) => Err(e),
        },
    }
}

impl Gated {
    /// The child's pid: it has it before and after the exec.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child exec, and waits until it has.
    ///
    /// # Errors
    /// When the program cannot be executed; then the child is gone.
    pub fn release(mut self) -> io::Result<Running> {
        self.go.write_all(&[1])?;
        Ok(Running {
            child: join(self.spawned)?,
        })
    }
}

impl Running {
    /// The exit status, if the child has ended. Reaps it.
    ///
    /// # Errors
    /// When somebody else reaped it.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

/// How a process ended: an exit code or a signal.
#[must_use]
pub fn code_and_signal(status: ExitStatus) -> (Option<i32>, Option<i32>) {
    (status.code(), status.signal())
}

fn join(thread: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the spawning thread panicked")))
}

#[allow(clippy::disallowed_methods, reason = "the one home of this call")]
fn command(plan: SpawnPlan) -> Command {
    let mut command = Command::new(&plan.program);
    command
        .arg0(&plan.name)
        .args(&plan.arguments)
        .env_clear()
        .envs(plan.environment.iter())
        .current_dir(&plan.cwd)
        .stdin(plan.stdin)
        .stdout(plan.stdout)
        .stderr(plan.stderr);
    command
}

struct Gate {
    pid_writer: File,
    go_reader: File,
    go_writer_number: RawFd,
}

#[allow(unsafe_code, reason = "code between fork and exec")]
fn before_exec(command: &mut Command, gate: Gate, pass: Vec<RawFd>) {
    let held = move || -> io::Result<()> {
        // The child's copy of the writing end has to go, or the parent's death would not be seen.
        // SAFETY: the number is open in this process, a copy of the parent's table, and nothing
        // in the child owns it.
        unsafe { nix::libc::close(gate.go_writer_number) };
        nix::unistd::setsid()?;
        let pid = nix::unistd::getpid().as_raw().to_ne_bytes();
        nix::unistd::write(&gate.pid_writer, &pid)?;
        let mut go = [0];
        loop {
            match nix::unistd::read(&gate.go_reader, &mut go) {
                Ok(1) => break,
                // Nobody is left to be told: an error would go to the parent, and when it is
                // dead the standard library says so on claude's stderr and dumps core.
                // SAFETY: _exit is async-signal-safe.
                Ok(_) => unsafe { nix::libc::_exit(0) },
                Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        for fd in &pass {
            // SAFETY: F_SETFD touches no memory.
            if unsafe { nix::libc::fcntl(*fd, nix::libc::F_SETFD, 0) } == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls, on numbers and buffers that it owns; it
    // neither allocates nor takes a lock, so it may run in a forked child of a threaded program.
    unsafe { command.pre_exec(held) };
}

fn pipe() -> io::Result<(File, File)> {
    let (reader, writer): (OwnedFd, OwnedFd) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    Ok((File::from(reader), File::from(writer)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::platform::process::{Identity, Stat};

    fn touches(marker: &Path, folder: &Path) -> SpawnPlan {
        let null = || {
            File::options()
                .read(true)
                .write(true)
                .open("/dev/null")
                .unwrap()
        };
        SpawnPlan {
            program: "/bin/sh".into(),
            name: "sh".into(),
            arguments: vec![
                "-c".into(),
                format!(": > {}; exit 7", marker.display()).into(),
            ],
            environment: Environment::default(),
            cwd: folder.to_owned(),
            stdin: null(),
            stdout: null(),
            stderr: null(),
            pass: Vec::new(),
        }
    }

    #[track_caller]
    fn soon(what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_child_that_is_never_let_go_never_becomes_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join("ran");
        let gated = gated(touches(&marker, folder.path())).unwrap();
        let child = Identity::of(gated.pid()).unwrap();
        assert!(child.lives());
        // What the death of the supervisor does: its end of the pipe is closed.
        drop(gated);
        soon("the child leaves", || !child.lives());
        assert!(!marker.exists());
    }

    #[test]
    fn a_child_that_is_let_go_is_the_program_under_the_same_pid_in_a_session_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join("ran");
        let gated = gated(touches(&marker, folder.path())).unwrap();
        let pid = gated.pid();
        let stat = Stat::read(pid).unwrap();
        assert_eq!((stat.session, stat.group), (pid, pid));
        let mut running = gated.release().unwrap();
        let mut status = None;
        let deadline = Instant::now() + Duration::from_secs(20);
        while status.is_none() {
            assert!(Instant::now() < deadline, "the program ends");
            status = running.try_wait().unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(status.map(code_and_signal), Some((Some(7), None)));
        assert!(marker.exists());
    }

    #[test]
    fn a_program_that_cannot_be_executed_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let plan = SpawnPlan {
            program: folder.path().join("missing"),
            ..touches(Path::new("x"), folder.path())
        };
        let error = gated(plan).unwrap().release().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
