//! The walls around a real claude: a network namespace with nothing in it but loopback.
//!
//! A test that runs a real claude is run again, alone, by this same binary inside
//! `unshare --net`. So the mock and claude share the namespace, parallel tests do not share one,
//! and nothing that either does can reach any other machine.
//!
//! Invariants: [`enter`] refuses to go on unless the namespace is another than the one outside
//! and loopback is the only interface in it; the outer test ends everything that the inner one
//! left behind.

use std::fs;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use nix::libc;
use uuid::Uuid;

use super::process::{Finished, Running, Streams, excerpt};
use super::sweep;

/// Says that we are inside; its value is the marker of the outer test.
pub(crate) const INSIDE: &str = "OO_TEST_INSIDE";
/// The network namespace outside, to be sure that ours is another.
const OUTSIDE_NET: &str = "OO_TEST_OUTSIDE_NET";

/// The marker of the outer test, when this process runs inside the walls.
pub(crate) fn inside() -> Option<String> {
    std::env::var(INSIDE).ok()
}

/// Why no namespace can be made here, if none can.
pub(crate) fn unavailable() -> Option<&'static str> {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    REASON
        .get_or_init(|| {
            let tried = unshare().arg("true").stdin(Stdio::null()).output();
            match tried {
                Ok(output) if output.status.success() => None,
                Ok(output) => Some(format!(
                    "no network namespace can be made here: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                )),
                Err(problem) => Some(format!("unshare cannot be run: {problem}")),
            }
        })
        .as_deref()
}

/// Runs one test of this binary by its name inside the walls, and fails as it fails.
#[track_caller]
pub(crate) fn run_inside(test: &str, limit: Duration) {
    let marker = Uuid::new_v4().to_string();
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let mut command = unshare();
    command
        .arg(std::env::current_exe().expect("a process knows its own path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, &marker)
        .env(OUTSIDE_NET, namespace());
    let streams = Streams {
        stdout: scratch.path().join("out"),
        stderr: scratch.path().join("err"),
    };
    let running = Running::start(command, Stdio::null(), streams);
    let guard = SweepOnDrop(marker);
    // On a panic of `wait` the guard still sweeps.
    let Finished {
        code,
        stdout,
        stderr,
        took,
        ..
    } = running.wait(limit);
    drop(guard);
    assert!(
        code == Some(0) && stdout.contains("1 passed"),
        "inside the walls, after {took:?}: {test} ended with {code:?}\n{}\n{}",
        excerpt(&stdout, 20_000),
        excerpt(&stderr, 60_000)
    );
}

/// Brings up loopback and makes sure that there is nothing else. To be called inside.
pub(crate) fn enter() {
    let outside = std::env::var(OUTSIDE_NET).expect("the outer test named its namespace");
    assert_ne!(
        namespace().to_string_lossy(),
        outside,
        "this is not a namespace of our own"
    );
    assert_eq!(
        interfaces(),
        ["lo"],
        "something beside loopback is in the namespace"
    );
    loopback_up();
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback takes a listener");
    let address = listener.local_addr().expect("it has an address");
    std::net::TcpStream::connect(address).expect("loopback is up");
    let routes = fs::read_to_string("/proc/self/net/route").expect("the routes are readable");
    assert_eq!(routes.lines().count(), 1, "there is a way out:\n{routes}");
}

struct SweepOnDrop(String);

impl Drop for SweepOnDrop {
    fn drop(&mut self) {
        sweep::sweep(&self.0);
    }
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--"]);
    command
}

fn namespace() -> PathBuf {
    fs::read_link("/proc/self/ns/net").expect("a process knows its namespaces")
}

fn interfaces() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/net/dev").expect("the interfaces are readable");
    table
        .lines()
        .skip(2)
        .filter_map(|line| Some(line.split(':').next()?.trim().to_owned()))
        .collect()
}

#[allow(unsafe_code, reason = "no safe wrapper of SIOCSIFFLAGS is at hand")]
fn loopback_up() {
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
    // SAFETY: ifreq is plain data, for which all zeroes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::try_from(*from).expect("ASCII");
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).expect("two small flags");
    // SAFETY: the descriptor is open, and the kernel reads one ifreq, which outlives the call.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS,
            std::ptr::from_ref(&request),
        )
    };
    assert_eq!(
        result,
        0,
        "loopback does not come up: {}",
        std::io::Error::last_os_error()
    );
}

/// Whether a file is there and may be run.
pub(crate) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
