//! Which claude a test runs, where it is, and how it gets its scenario.
//!
//! The stand-in reads a script file; a real claude talks to the mock. Both get the same
//! scenario, and for both [`Wired`] holds the variables that make it so.
//!
//! Invariants: the versions are named in `tests/claude-versions` and nowhere else; nothing is
//! looked for outside the build folder and `OO_TEST_CLAUDE_DIR`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::mock::{Mock, Recorded};
use super::netns;
use super::scenario::Scenario;

/// The stand-in, or a pinned build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claude {
    Fake,
    Real(Version),
}

/// The version of a pinned build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version(String);

impl Version {
    /// The pinned versions, the oldest first.
    pub(crate) fn pinned() -> Vec<Self> {
        include_str!("../claude-versions")
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| Self(line.to_owned()))
            .collect()
    }

    /// The oldest that oo supports.
    pub(crate) fn floor() -> Self {
        Self::pinned().first().expect("a version is pinned").clone()
    }

    /// The newest that passed.
    pub(crate) fn newest() -> Self {
        Self::pinned().last().expect("a version is pinned").clone()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Where its binary has to be.
    fn path(&self) -> PathBuf {
        let folder = std::env::var_os("OO_TEST_CLAUDE_DIR").map_or_else(default_folder, Into::into);
        folder.join(&self.0).join("claude")
    }
}

/// Why this build cannot be run, if it cannot.
pub(crate) fn unavailable(version: &Version) -> Option<String> {
    let path = version.path();
    (!netns::is_executable(&path)).then(|| {
        format!(
            "no claude {} at {} (.ci/claude-builds gets it)",
            version.0,
            path.display()
        )
    })
}

impl Claude {
    pub(crate) fn is_fake(&self) -> bool {
        *self == Self::Fake
    }

    /// The executable.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Fake => env!("CARGO_BIN_EXE_fake-claude").into(),
            Self::Real(version) => version.path(),
        }
    }
}

/// A claude with its scenario, ready to be started any number of times.
pub(crate) struct Wired {
    claude: Claude,
    folder: PathBuf,
    mock: Option<Mock>,
}

impl Wired {
    /// `folder` is for what the stand-in reads and records.
    pub(crate) fn new(claude: &Claude, scenario: &Scenario, folder: &Path) -> Self {
        let mock = match claude {
            Claude::Fake => None,
            Claude::Real(_) => {
                assert!(
                    netns::inside().is_some(),
                    "a real claude runs inside the walls only"
                );
                Some(Mock::start(scenario))
            }
        };
        let wired = Self {
            claude: claude.clone(),
            folder: folder.to_owned(),
            mock,
        };
        fs::create_dir_all(wired.record()).expect("the scratch folder takes folders");
        wired.script(scenario);
        wired
    }

    pub(crate) fn claude(&self) -> &Claude {
        &self.claude
    }

    /// Sets what the model says from now on, from its first answer.
    pub(crate) fn script(&self, scenario: &Scenario) {
        match &self.mock {
            Some(mock) => {
                assert!(scenario.quirks.is_null(), "only the stand-in has quirks");
                mock.script(scenario);
            }
            None => {
                let text = serde_json::to_string_pretty(scenario).expect("a scenario is JSON");
                fs::write(self.script_file(), text).expect("the scratch folder takes files");
            }
        }
    }

    /// The variables that claude needs, whoever starts it.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![
            ("OO_CLAUDE", self.claude.path().into_os_string()),
            ("ANTHROPIC_API_KEY", "sk-test-0000".into()),
            ("ANTHROPIC_MODEL", MODEL.into()),
            // Claude refuses bypassPermissions to root anywhere else.
            ("IS_SANDBOX", "1".into()),
        ];
        match &self.mock {
            Some(mock) => variables.push(("ANTHROPIC_BASE_URL", mock.url().into())),
            None => {
                variables.push(("FAKE_CLAUDE_SCRIPT", self.script_file().into_os_string()));
                variables.push(("FAKE_CLAUDE_RECORD", self.record().into_os_string()));
            }
        }
        variables
    }

    /// The requests that reached the API; none with the stand-in, which has no API.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.mock.as_ref().map(Mock::requests).unwrap_or_default()
    }

    /// What went against the scenario.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.mock.as_ref().map(Mock::faults).unwrap_or_default()
    }

    /// Where the stand-in writes down how it was started.
    pub(crate) fn record(&self) -> PathBuf {
        self.folder.join("record")
    }

    fn script_file(&self) -> PathBuf {
        self.folder.join("script.json")
    }
}

/// The model that every test names: its price is known to both pinned builds.
pub(crate) const MODEL: &str = "claude-haiku-4-5";

fn default_folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target"),
        PathBuf::from,
    );
    target.join("claude")
}
