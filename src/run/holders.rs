//! Who has a session right now, so that nobody else may go on with it.
//!
//! Claude Code takes no lock: two processes resume one session, mix both turns into its transcript,
//! and each calls it a success. So before a session is resumed somebody has to look, with the
//! session's lock in hand:
//!
//! - a run of oo's: by the lock, and by `process.json`, since a claude may outlive its supervisor;
//! - a live row of the registry, which is claude's own word;
//! - a doorman at its post;
//! - a claude whose arguments name the session and that has no row of its own: it is only just
//!   starting, or keeps its rows elsewhere.
//!
//! What is stale holds nothing, and is left as it lies: a row or a record of a pid that is dead or
//! another's now, a heartbeat from another boot, a lock file that nobody has locked.

use std::fmt;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::presence::Presence;
use crate::error::{Kind, Result};
use crate::inbox::{Heartbeat, Inbox};
use crate::platform::process::{self, Identity};
use crate::session::ancestry::{Programs, session_argument};
use crate::session::registry;
use crate::store::{Lock, StateDir};

/// The name under which claude runs the search tool that is part of its own binary.
const EMBEDDED: &str = "rg";

/// What a holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HolderKind {
    /// A run of oo's; the pid is its claude's, or the supervisor's before there is one.
    Run,
    /// A claude that has the session by its registry row.
    Session,
    /// A doorman that serves the session.
    Doorman,
    /// A claude that was told to take the session.
    Process,
}

/// Who has a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// What it is.
    pub kind: HolderKind,
    /// Its process.
    pub pid: Option<i32>,
    /// Since when that process runs.
    pub since: Option<Timestamp>,
    /// Its run, if it is one of oo's.
    pub run_id: Option<Uuid>,
    /// The process whose end may be the end of it.
    #[serde(skip)]
    pub ends_with: Option<i32>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.run_id) {
            (HolderKind::Run, Some(run)) => write!(f, "run {run}")?,
            (HolderKind::Run, None) => write!(f, "another run of oo")?,
            (HolderKind::Session, _) => write!(f, "a live claude")?,
            (HolderKind::Doorman, _) => write!(f, "a live doorman")?,
            (HolderKind::Process, _) => write!(f, "a claude that was told to take it")?,
        }
        match self.pid {
            Some(pid) => write!(f, " (pid {pid}")?,
            None => write!(f, " (pid not known")?,
        }
        match self.since {
            Some(since) => write!(f, ", since {since})"),
            None => write!(f, ")"),
        }
    }
}

/// Where holders are looked for.
#[derive(Debug)]
pub struct Look<'a> {
    /// The state folder.
    pub state: &'a StateDir,
    /// claude's configuration folder.
    pub config: Option<&'a Path>,
    /// Which programs are claude.
    pub programs: &'a Programs,
}

impl Look<'_> {
    /// Whoever has the session, if anybody has.
    ///
    /// # Errors
    /// Refused when the registry or the folder of runs is there and cannot be read: then nobody
    /// can tell.
    pub fn holder(&self, session: Uuid) -> Result<Option<Holder>> {
        let presence = Presence::of(self.state, self.config, session)
            .map_err(|error| error.with_kind(Kind::Refused))?;
        if let Some(run) = presence.run {
            let pid = run.claude.as_ref().map(|claude| claude.pid);
            // Its supervisor leaves after its claude, and has the lock until then.
            let supervisor = self.lock_holder(session);
            return Ok(Some(Holder {
                kind: HolderKind::Run,
                pid: pid.or(supervisor),
                since: run.started_at.or_else(|| started(supervisor?)),
                run_id: Some(run.run_id),
                ends_with: supervisor.or(pid),
            }));
        }
        let process = |kind, pid| Holder {
            kind,
            pid: Some(pid),
            since: started(pid),
            run_id: None,
            ends_with: Some(pid),
        };
        if let Some(row) = presence.row {
            return Ok(Some(process(HolderKind::Session, row.process.pid)));
        }
        // What cannot be read shows nobody; its own claude would be found by its row.
        let beat = Heartbeat::read(&Inbox::of(self.state, session).heartbeat());
        if let Some(beat) = beat.ok().flatten().filter(Heartbeat::is_fresh) {
            return Ok(Some(process(HolderKind::Doorman, beat.pid)));
        }
        Ok(self
            .claude_told(session)
            .map(|pid| process(HolderKind::Process, pid)))
    }

    /// Whoever has the session's lock.
    ///
    /// # Errors
    /// As [`Look::holder`].
    pub fn of_lock(&self, session: Uuid) -> Result<Holder> {
        let supervisor = self.lock_holder(session);
        let known = self.holder(session)?;
        Ok(known.unwrap_or_else(|| Holder {
            kind: HolderKind::Run,
            pid: supervisor,
            since: supervisor.and_then(started),
            run_id: None,
            ends_with: supervisor,
        }))
    }

    /// Who else has the session's lock: whoever looks may have it himself.
    fn lock_holder(&self, session: Uuid) -> Option<i32> {
        let holder = Lock::holder(&self.state.session_lock(&session.to_string()));
        holder.filter(|pid| *pid != nix::unistd::getpid().as_raw())
    }

    /// A claude whose arguments name the session and which no registry row explains.
    fn claude_told(&self, session: Uuid) -> Option<i32> {
        process::all().find_map(|stat| {
            let told = stat.lives() && self.is_told(stat.pid, stat.parent, session);
            told.then_some(stat.pid)
        })
    }

    fn is_told(&self, pid: i32, parent: i32, session: Uuid) -> bool {
        let Some(executable) = process::executable(pid) else {
            return false;
        };
        let arguments = process::arguments(pid).unwrap_or_default();
        session_argument(&arguments) == Some(session)
            && self.programs.runs_claude(&executable, &arguments)
            && !is_embedded(&arguments)
            && !self.has_row(pid)
            // A child of claude's looks like it until it has become what it is to be.
            && !(self.has_row(parent) && process::arguments(parent) == Some(arguments))
    }

    /// Whether a process says itself which session it has.
    fn has_row(&self, pid: i32) -> bool {
        self.config
            .is_some_and(|config| registry::live_row(config, pid).is_some())
    }
}

fn is_embedded(arguments: &[String]) -> bool {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name == EMBEDDED)
}

fn started(pid: i32) -> Option<Timestamp> {
    process::started_at(&Identity::of(pid)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_in_words() {
        let since: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let holder = |kind, pid, run: Option<u128>| Holder {
            kind,
            pid,
            since: pid.map(|_| since),
            run_id: run.map(Uuid::from_u128),
            ends_with: None,
        };
        let table = [
            (
                holder(HolderKind::Run, Some(7), Some(1)),
                "run 00000000-0000-0000-0000-000000000001 (pid 7, since 2026-11-30T12:00:00Z)",
            ),
            (
                holder(HolderKind::Run, None, None),
                "another run of oo (pid not known)",
            ),
            (
                holder(HolderKind::Session, Some(7), None),
                "a live claude (pid 7, since 2026-11-30T12:00:00Z)",
            ),
        ];
        for (holder, words) in table {
            assert_eq!(holder.to_string(), words);
        }
    }

    #[test]
    fn claudes_own_search_tool_is_not_a_session() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(is_embedded(&words("rg --files")));
        assert!(is_embedded(&words("/usr/bin/rg x")));
        assert!(!is_embedded(&words("/opt/claude/claude -p")));
        assert!(!is_embedded(&[]));
    }
}
