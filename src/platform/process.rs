//! Processes as `/proc` shows them.
//!
//! A pid alone names nothing, since it is reused: an [`Identity`] is a pid with its start time.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::clock;

/// A process that cannot be mistaken for a later one with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The process id, in our pid namespace.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`, clock ticks since boot, as text: what claude records too.
    pub proc_start: String,
}

/// What `/proc/<pid>/stat` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process id.
    pub pid: i32,
    /// The parent's.
    pub parent: i32,
    /// The process group.
    pub group: i32,
    /// The session.
    pub session: i32,
    /// One letter: `R`, `S`, `Z`, …
    pub state: char,
    /// Clock ticks between boot and the start of the process.
    pub start: String,
}

impl Identity {
    /// The identity of a live process.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        Some(Self {
            pid,
            proc_start: stat.start,
        })
    }

    /// Our own.
    #[must_use]
    pub fn own() -> Option<Self> {
        Self::of(nix::unistd::getpid().as_raw())
    }

    /// Whether this very process still runs. A zombie does not.
    #[must_use]
    pub fn lives(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.lives() && stat.start == self.proc_start)
    }
}

impl Stat {
    /// Reads it; nothing when there is no such process.
    #[must_use]
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether the process can still do anything: not a zombie, not dead.
    #[must_use]
    pub const fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// The format is proc(5)'s; the name in parentheses may hold anything, parentheses too.
    fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(')')?;
        let pid = head.split_once(' ')?.0.parse().ok()?;
        let mut fields = tail.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        // Fields 7 to 21 lie between.
        let start = fields.nth(15)?.to_owned();
        Some(Self {
            pid,
            parent,
            group,
            session,
            state,
            start,
        })
    }
}

/// Every process that `/proc` shows.
pub fn all() -> impl Iterator<Item = Stat> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Stat::read)
}

/// The live processes below `root` and those of its process group, `root` itself not included.
#[must_use]
pub fn descendants(root: i32) -> Vec<Identity> {
    let all: Vec<Stat> = all().filter(Stat::lives).collect();
    let mut found: Vec<i32> = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        for stat in &all {
            let below = stat.parent == parent || (parent == root && stat.group == root);
            if below && !found.contains(&stat.pid) {
                found.push(stat.pid);
            }
        }
    }
    all.into_iter()
        .filter(|stat| stat.pid != root && found.contains(&stat.pid))
        .map(|stat| Identity {
            pid: stat.pid,
            proc_start: stat.start,
        })
        .collect()
}

/// The ancestors of a process, nearest first, without the process itself.
pub fn ancestors(pid: i32) -> impl Iterator<Item = Stat> {
    let mut next = Stat::read(pid).map(|stat| stat.parent);
    std::iter::from_fn(move || {
        let stat = Stat::read(next?)?;
        next = (stat.parent > 0).then_some(stat.parent);
        Some(stat)
    })
}

/// The file that a process executes; a deleted one still has its old path, with ` (deleted)`.
#[must_use]
pub fn executable(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The arguments of a process, as far as they are UTF-8.
#[must_use]
pub fn arguments(pid: i32) -> Option<Vec<String>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    Some(
        text.split(|byte| *byte == 0)
            .map(|a| String::from_utf8_lossy(a).into_owned())
            .collect(),
    )
}

/// When a process began, to the hundredth of a second that the kernel counts in.
#[must_use]
pub fn started_at(process: &Identity) -> Option<Timestamp> {
    let ticks: f64 = process.proc_start.parse().ok()?;
    let rate = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let age = uptime - ticks / i32::try_from(rate).map(f64::from).ok()?;
    let age = SignedDuration::try_from_secs_f64(age.max(0.0)).ok()?;
    let began = clock::now().checked_sub(age).ok()?;
    Timestamp::from_millisecond(began.as_millisecond()).ok()
}

/// The inode of a process's pid namespace, as in `pid:[4026531836]`.
#[must_use]
pub fn pid_namespace(pid: i32) -> Option<u64> {
    fs::metadata(format!("/proc/{pid}/ns/pid"))
        .ok()
        .map(|meta| meta.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = "42 (a) b) (c) S 7 42 40 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(
            (stat.pid, stat.parent, stat.group, stat.session),
            (42, 7, 42, 40)
        );
        assert_eq!((stat.state, stat.start.as_str()), ('S', "987654"));
    }

    #[test]
    fn we_began_a_while_ago() {
        let began = started_at(&Identity::own().unwrap()).unwrap();
        assert!(began <= clock::now());
        assert!(clock::age(began) < std::time::Duration::from_secs(3600));
    }

    #[test]
    fn we_live_and_a_reused_pid_does_not() {
        let own = Identity::own().unwrap();
        assert!(own.lives());
        assert!(
            !Identity {
                proc_start: "1".to_owned(),
                ..own
            }
            .lives()
        );
    }
}
