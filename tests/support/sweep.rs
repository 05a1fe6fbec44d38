//! Ends what a test started, and only that.
//!
//! Ownership is a variable in the environment: every process that a [`super::env::TestEnv`]
//! starts carries `OO_TEST_ENV=<its uuid>`, and so does all that descends from it, whatever
//! session or group it moved to. Nothing is ever ended by its name.
//!
//! Invariants: a process is signalled through a descriptor of it that was opened before its
//! marker was read, so a reused pid is never hit; [`sweep`] returns when nothing is left or
//! says what would not go.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable that marks a test's own processes.
pub(crate) const MARKER: &str = "OO_TEST_ENV";

/// The pids of the live processes of our own user whose marker begins with `value`.
pub(crate) fn owned(value: &str) -> Vec<i32> {
    processes()
        .into_iter()
        .filter(|pid| carries(*pid, value))
        .collect()
}

/// Kills every process whose marker begins with `value`; the pids it had to kill.
pub(crate) fn sweep(value: &str) -> Vec<i32> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut ended = Vec::new();
    loop {
        let mut left = Vec::new();
        for pid in processes() {
            let Some(handle) = open(pid) else { continue };
            if carries(pid, value) {
                // A process that ended meanwhile is what was wanted.
                let _ = pidfd_send_signal(&handle, Signal::KILL);
                left.push((pid, handle));
            }
        }
        if left.is_empty() {
            return ended;
        }
        for (pid, handle) in left {
            super::process::ended_within(&handle, Duration::from_secs(1));
            if !ended.contains(&pid) {
                ended.push(pid);
            }
        }
        assert!(
            Instant::now() < deadline,
            "these processes would not end: {ended:?}"
        );
    }
}

fn open(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

fn processes() -> Vec<i32> {
    let own = std::process::id();
    fs::read_dir("/proc")
        .expect("/proc is readable")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| u32::try_from(*pid) != Ok(own))
        .collect()
}

/// Whether the environment that the process was started with holds the marker. A zombie has no
/// environment and is nobody's: its parent has to reap it.
fn carries(pid: i32, value: &str) -> bool {
    let wanted = format!("{MARKER}={value}");
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
        environ
            .split(|byte| *byte == 0)
            .any(|pair| pair.starts_with(wanted.as_bytes()))
    })
}
