//! Which tests can run here, and what becomes of those that cannot.
//!
//! `OO_TEST_LANES` says what must run: nothing (what can run does), `all` (a lane that cannot
//! start fails its tests), a list of lane names (those must), `hermetic` (the others are left
//! out). A test that is skipped says so in one line with the reason, on the real standard error,
//! which the test runner does not swallow; the number in it counts the skips of this process.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::claude::{self, Claude, Version};
use super::netns;

/// How long one test may take inside the walls.
const LIMIT: Duration = Duration::from_secs(180);

/// A group of tests that need something of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// A real `systemd --user`.
    RealSystemd,
    /// The npm builds of Claude Code against the mock.
    RealClaude,
    /// Small file systems of a test's own, in a private mount namespace.
    Mounts,
}

impl Lane {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RealSystemd => "real-systemd",
            Self::RealClaude => "real-claude",
            Self::Mounts => "mounts",
        }
    }

    fn wish(self) -> Wish {
        let wishes = std::env::var("OO_TEST_LANES").unwrap_or_default();
        let mut wishes = wishes
            .split(',')
            .map(str::trim)
            .filter(|wish| !wish.is_empty())
            .peekable();
        if wishes.peek().is_none() {
            return Wish::IfPossible;
        }
        if wishes.any(|wish| wish == "all" || wish == self.name()) {
            Wish::Must
        } else {
            Wish::Not
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Must,
    IfPossible,
    Not,
}

/// Whether the test goes on. When it does not, the line has been printed, or the test failed.
#[track_caller]
pub(crate) fn goes_on(lane: Lane, test: &str, unavailable: Option<String>) -> bool {
    match (lane.wish(), unavailable) {
        (Wish::Not, _) => skip(test, &format!("OO_TEST_LANES leaves out {}", lane.name())),
        (Wish::IfPossible, Some(reason)) => skip(test, &reason),
        (Wish::Must, Some(reason)) => panic!("the lane {} cannot start: {reason}", lane.name()),
        (Wish::Must | Wish::IfPossible, None) => return true,
    }
    false
}

fn skip(test: &str, reason: &str) {
    static SKIPS: AtomicUsize = AtomicUsize::new(0);
    let count = SKIPS.fetch_add(1, Ordering::Relaxed) + 1;
    // `eprintln` would be swallowed by the test runner.
    let line = format!("skipped {count}: {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Runs a body with a real claude, inside the walls.
#[track_caller]
pub(crate) fn with_real(version: &Version, test: &str, body: impl FnOnce(Claude)) {
    if netns::inside().is_some() {
        netns::enter();
        return body(Claude::Real(version.clone()));
    }
    let unavailable =
        claude::unavailable(version).or_else(|| netns::unavailable().map(str::to_owned));
    if goes_on(Lane::RealClaude, test, unavailable) {
        netns::run_inside(test, LIMIT);
    }
}

/// The name by which the test runner knows a test, from `module_path!()` and the function.
pub(crate) fn test_name(module: &str, function: &str) -> String {
    let inner = module.split_once("::").map_or("", |(_, inner)| inner);
    format!("{inner}::{function}")
}

/// One body, run on the stand-in and on each real claude:
///
/// ```ignore
/// on_each_claude!(says_hello, |claude| {
///     let env = TestEnv::with(&claude, &Scenario::says("hello"));
///     …
/// });
/// ```
///
/// makes `says_hello::fake`, `says_hello::real_floor` and `says_hello::real_newest`.
macro_rules! on_each_claude {
    ($name:ident, |$claude:ident| $body:block) => {
        fn $name($claude: $crate::support::claude::Claude) $body

        mod $name {
            #[test]
            fn fake() {
                super::$name($crate::support::claude::Claude::Fake);
            }

            $crate::support::lanes::real_tests!(super::$name);
        }
    };
}

/// As `on_each_claude`, without the stand-in.
macro_rules! on_real_claude {
    ($name:ident, |$claude:ident| $body:block) => {
        fn $name($claude: $crate::support::claude::Claude) $body

        mod $name {
            $crate::support::lanes::real_tests!(super::$name);
        }
    };
}

macro_rules! real_tests {
    ($body:path) => {
        #[test]
        fn real_floor() {
            let test = $crate::support::lanes::test_name(module_path!(), "real_floor");
            let version = $crate::support::claude::Version::floor();
            $crate::support::lanes::with_real(&version, &test, $body);
        }

        #[test]
        fn real_newest() {
            let test = $crate::support::lanes::test_name(module_path!(), "real_newest");
            let version = $crate::support::claude::Version::newest();
            $crate::support::lanes::with_real(&version, &test, $body);
        }
    };
}

pub(crate) use {on_each_claude, on_real_claude, real_tests};
