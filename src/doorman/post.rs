//! Where a doorman stands: the law applied to this process.
//!
//! It serves only when its parent process is its owner ([`crate::session::ancestry`]). Anything
//! between them (a shell, a tool of the session, `claude mcp list` called inside one) and it
//! speaks MCP, and nothing else.
//!
//! claude writes its registry row before it starts its servers, in every version measured. Should
//! the row be late, it is waited for, for a short while; only then do the parent's arguments
//! count, and only when no other ancestor has a row.

use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use crate::platform::environment::Environment;
use crate::platform::process::Identity;
use crate::session::ancestry::{self, KnownBy, Owner, Programs};
use crate::session::config_dir;

/// How long a row is waited for. claude waits as long for its answer, where there is none.
pub const PATIENCE: Duration = Duration::from_millis(250);

/// How long until the next look.
pub const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What can be seen from here.
#[derive(Clone, Debug)]
pub struct Lookout {
    parent: i32,
    config: Option<PathBuf>,
    programs: Programs,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Whose doorman this is, or why nobody's.
    pub finding: Finding,
    /// Whether a later look could find otherwise.
    pub settled: bool,
}

/// Whose doorman this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The parent's, in this session.
    Serves {
        /// The session.
        session: Uuid,
        /// The claude.
        peer: Identity,
    },
    /// Nobody's.
    Nobody(Reason),
}

/// Why a doorman serves nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No ancestor is a claude.
    NoClaude,
    /// The owner is this process, and not the parent.
    NotTheParent(i32),
    /// The parent is a claude without a registry row, whose arguments name no session.
    NoSession,
}

impl Reason {
    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::NoClaude => "no claude started this process".to_owned(),
            Self::NotTheParent(owner) => format!(
                "the session's claude is process {owner}, which is not the parent of this one"
            ),
            Self::NoSession => "the session of the parent process cannot be told".to_owned(),
        }
    }
}

impl Lookout {
    /// From this process, with `parent` above it.
    #[must_use]
    pub fn new(environment: &Environment, parent: i32) -> Self {
        Self {
            parent,
            config: config_dir(environment),
            programs: Programs::known(environment),
        }
    }

    /// Looks.
    #[must_use]
    pub fn look(&self) -> Sight {
        let own = nix::unistd::getpid().as_raw();
        let owner = ancestry::owner_of(own, self.config.as_deref(), &self.programs);
        judge(self.parent, owner, || {
            ancestry::runs_claude(self.parent, &self.programs)
        })
    }
}

fn judge(parent: i32, owner: Option<Owner>, parent_is_claude: impl FnOnce() -> bool) -> Sight {
    let Some(owner) = owner else {
        return Sight {
            finding: Finding::Nobody(Reason::NoClaude),
            settled: true,
        };
    };
    let by_row = matches!(owner.known_by, KnownBy::Row(_));
    if owner.process.pid != parent {
        return Sight {
            finding: Finding::Nobody(Reason::NotTheParent(owner.process.pid)),
            // A claude below the owner may be about to write its row.
            settled: !parent_is_claude(),
        };
    }
    let finding = match owner.session {
        Some(session) => Finding::Serves {
            session,
            peer: owner.process,
        },
        None => Finding::Nobody(Reason::NoSession),
    };
    Sight {
        finding,
        settled: by_row,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::registry::Row;

    fn owner(pid: i32, session: Option<u128>, by_row: bool) -> Owner {
        let process = Identity {
            pid,
            proc_start: "1".to_owned(),
        };
        let session = session.map(Uuid::from_u128);
        Owner {
            process: process.clone(),
            session,
            known_by: if by_row {
                KnownBy::Row(Box::new(Row {
                    session_id: session.unwrap_or_default(),
                    process,
                    pid_domain: None,
                    cwd: None,
                    name: None,
                    status: None,
                    socket: None,
                }))
            } else {
                KnownBy::Executable
            },
        }
    }

    #[test]
    fn who_is_served() {
        const PARENT: i32 = 10;
        let nobody = Finding::Nobody;
        let serves = |session| Finding::Serves {
            session: Uuid::from_u128(session),
            peer: owner(PARENT, None, false).process,
        };
        // What, owner, whether the parent is a claude, finding, settled.
        let table = [
            (
                "no claude above",
                None,
                false,
                nobody(Reason::NoClaude),
                true,
            ),
            (
                "as it should be",
                Some(owner(PARENT, Some(1), true)),
                true,
                serves(1),
                true,
            ),
            (
                "a shell or a tool between",
                Some(owner(9, Some(1), true)),
                false,
                nobody(Reason::NotTheParent(9)),
                true,
            ),
            (
                "`claude mcp list` in a session, or a claude whose row is late",
                Some(owner(9, Some(1), true)),
                true,
                nobody(Reason::NotTheParent(9)),
                false,
            ),
            (
                "a row is late, or never comes: the arguments name the session",
                Some(owner(PARENT, Some(1), false)),
                true,
                serves(1),
                false,
            ),
            (
                "`claude mcp list` from a plain shell",
                Some(owner(PARENT, None, false)),
                true,
                nobody(Reason::NoSession),
                false,
            ),
            (
                "a shell below a claude without a row",
                Some(owner(9, Some(1), false)),
                false,
                nobody(Reason::NotTheParent(9)),
                true,
            ),
        ];
        for (what, owner, parent_is_claude, finding, settled) in table {
            let sight = judge(PARENT, owner, || parent_is_claude);
            assert_eq!(sight, Sight { finding, settled }, "{what}");
        }
    }
}
