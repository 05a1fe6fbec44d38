//! Whether anybody will carry a line: what can be seen of a session's doorman.

use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use crate::error::Result;
use crate::inbox::{Heartbeat, Inbox, State};
use crate::platform::{clock, host};
use crate::run::presence::{LiveRun, Presence};
use crate::store::StateDir;

/// How long after its start a run's doorman is still expected. claude itself gives a server half
/// a minute.
const COMES_WITHIN: Duration = Duration::from_secs(60);

/// What can be seen of a doorman's post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// The doorman is there.
    Kept,
    /// It lives and has not shown itself for longer than it should.
    Overdue,
    /// It is coming up, or is about to.
    Coming,
    /// There is none.
    Left,
}

/// One look at a session.
#[derive(Clone, Debug)]
pub struct Sight {
    /// The last sign of life.
    pub heartbeat: Option<Heartbeat>,
    /// What it means.
    pub post: Post,
    /// Whether the session runs.
    pub live: bool,
    /// What could not be read.
    pub note: Option<String>,
}

/// Looks at a session: who keeps its inbox, and does it run?
///
/// # Errors
/// When the registry or the folder of runs is there and cannot be read.
pub fn look(state: &StateDir, config: Option<&Path>, session: Uuid) -> Result<Sight> {
    let (heartbeat, note) = match Heartbeat::read(&Inbox::of(state, session).heartbeat()) {
        Ok(heartbeat) => (heartbeat, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let by_itself = heartbeat.as_ref().map_or(Post::Left, post);
    // Who serves a session shows that it runs, and saves the look at everything else.
    let (post, live) = if by_itself == Post::Left {
        let presence = Presence::of(state, config, session)?;
        let coming = presence
            .run
            .as_ref()
            .is_some_and(|run| comes(run, heartbeat.as_ref()));
        let post = if coming { Post::Coming } else { Post::Left };
        (post, presence.is_live())
    } else {
        (by_itself, true)
    };
    Ok(Sight {
        heartbeat,
        post,
        live,
        note,
    })
}

fn post(heartbeat: &Heartbeat) -> Post {
    if heartbeat.is_fresh() {
        return Post::Kept;
    }
    let lives = heartbeat.boot_id == host::boot_id() && heartbeat.doorman().lives();
    match heartbeat.state {
        State::Starting if lives => Post::Coming,
        State::Following if lives => Post::Overdue,
        _ => Post::Left,
    }
}

/// Whether a run's doorman is still to come: the run is new, and what is there is not its word.
fn comes(run: &LiveRun, heartbeat: Option<&Heartbeat>) -> bool {
    if !run.has_own_doorman {
        return false;
    }
    let (Some(claude), Some(started_at)) = (&run.claude, run.started_at) else {
        return true;
    };
    let spoke =
        heartbeat.is_some_and(|last| last.peer_pid == Some(claude.pid) && last.at >= started_at);
    !spoke && clock::age(started_at) < COMES_WITHIN
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::platform::process::Identity;

    fn heartbeat(state: State, age: i64) -> Heartbeat {
        let own = Identity::own().unwrap();
        Heartbeat {
            session_id: Uuid::from_u128(7),
            pid: own.pid,
            proc_start: own.proc_start,
            peer_pid: Some(11),
            state,
            at: clock::now() - SignedDuration::from_secs(age),
            boot_id: host::boot_id(),
            delivered: 0,
            pending: 0,
            oo_version: String::new(),
        }
    }

    #[test]
    fn what_a_heartbeat_means() {
        let table = [
            (State::Following, 1, Post::Kept),
            (State::Following, 20, Post::Overdue),
            (State::Starting, 1, Post::Coming),
            (State::Starting, 20, Post::Coming),
            (State::Stopped, 1, Post::Left),
            (State::Switched, 1, Post::Left),
            (State::Unknown, 1, Post::Left),
        ];
        for (state, age, expected) in table {
            assert_eq!(post(&heartbeat(state, age)), expected, "{state:?}");
            let dead = Heartbeat {
                proc_start: "1".to_owned(),
                ..heartbeat(state, age)
            };
            assert_eq!(post(&dead), Post::Left, "{state:?}");
            let before = Heartbeat {
                boot_id: Some("another".to_owned()),
                ..heartbeat(state, age)
            };
            assert_eq!(post(&before), Post::Left, "{state:?}");
        }
    }

    #[test]
    fn a_doorman_is_expected_of_a_new_run_that_has_one() {
        let run = |pid: i32, age: i64| LiveRun {
            run_id: Uuid::from_u128(1),
            has_own_doorman: true,
            claude: Some(Identity {
                pid,
                proc_start: "1".to_owned(),
            }),
            started_at: Some(clock::now() - SignedDuration::from_secs(age)),
        };
        let stopped = heartbeat(State::Stopped, 5);
        // what, run, heartbeat, expected
        let table = [
            ("no word yet", run(11, 1), None, true),
            ("no word for long", run(11, 61), None, false),
            ("its own farewell", run(11, 9), Some(&stopped), false),
            ("another one's farewell", run(12, 9), Some(&stopped), true),
            ("one of an earlier pid", run(11, 1), Some(&stopped), true),
        ];
        for (what, run, last, expected) in table {
            assert_eq!(comes(&run, last), expected, "{what}");
        }
        let unspawned = LiveRun {
            claude: None,
            started_at: None,
            ..run(11, 1)
        };
        assert!(comes(&unspawned, None));
        let without = LiveRun {
            has_own_doorman: false,
            ..run(11, 1)
        };
        assert!(!comes(&without, None));
    }
}
