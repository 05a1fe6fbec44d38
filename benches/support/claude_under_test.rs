//! The claude that is run: the newest pinned build that is here, inside its walls; else the
//! stand-in.

use std::process::ExitCode;
use std::time::Duration;

use crate::world::claude::{self, Claude, Version};
use crate::world::env::TestEnv;
use crate::world::netns;
use crate::world::scenario::{Reply, Scenario};

/// How long the stand-in's model thinks, so that a run of it has the length of a real one: a
/// ratio to nothing would say nothing.
const STAND_IN_THINKS: Duration = Duration::from_millis(900);

/// A claude, and why it is this one.
pub(crate) struct Chosen {
    claude: Claude,
    why_no_real: Option<String>,
}

impl Chosen {
    /// The claude of this process. When that is a real one, and this process is not inside the
    /// walls yet, everything is done by a second process inside; its exit code is the error.
    pub(crate) fn here_or_inside(arguments: &[String]) -> Result<Self, ExitCode> {
        let mut reason = None;
        let newest_first = Version::pinned().into_iter().rev();
        let found = newest_first
            .map(|version| (claude::unavailable(&version), version))
            .find_map(|(missing, version)| {
                reason = reason.take().or(missing.clone());
                missing.is_none().then_some(version)
            });
        let walls = netns::unavailable().map(str::to_owned);
        match (found, walls) {
            (Some(version), _) if netns::inside().is_some() => {
                netns::enter();
                Ok(Self {
                    claude: Claude::Real(version),
                    why_no_real: None,
                })
            }
            (Some(_), None) => {
                let status = netns::again_inside(arguments);
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                Err(ExitCode::from(code.unwrap_or(1)))
            }
            (found, walls) => Ok(Self {
                claude: Claude::Fake,
                why_no_real: if found.is_none() { reason } else { walls },
            }),
        }
    }

    /// In words, for the head of the table.
    pub(crate) fn describe(&self) -> String {
        match (&self.claude, &self.why_no_real) {
            (Claude::Real(version), _) => format!(
                "a real claude {}, the Messages API mocked on loopback",
                version.as_str()
            ),
            (Claude::Fake, why) => format!(
                "**the stand-in for claude**, which thinks for {STAND_IN_THINKS:?} ({})",
                why.as_deref().unwrap_or("no real one")
            ),
        }
    }

    /// A world with it, in which the model says one word after a while.
    pub(crate) fn world(&self, thinks: Duration) -> TestEnv {
        TestEnv::with(&self.claude, &self.hello(thinks))
    }

    /// Lets the model say its word once more in a conversation that it has said it in already.
    pub(crate) fn says_hello_again(&self, env: &TestEnv) {
        env.script(&self.hello(Duration::ZERO));
    }

    fn hello(&self, thinks: Duration) -> Scenario {
        let thinks = match self.claude {
            Claude::Fake => thinks.max(STAND_IN_THINKS),
            Claude::Real(_) => thinks,
        };
        let reply = Reply::text("hello").after(thinks);
        Scenario::new([reply])
    }
}
