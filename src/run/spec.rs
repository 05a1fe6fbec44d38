//! The launch spec: everything that is needed to start a run, as plain data.
//!
//! Every verb that starts a claude builds one and hands it to the same launch path; it is written
//! to `spec.json`, so that a run can be understood, and its verdict computed, from its folder.
//! Values of `--env NAME=VALUE` are in it, which is why `Debug` is written by hand.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::watchdog::{Hold, Limits};
use crate::exit::Verb;

/// The schema of `spec.json`.
pub const SCHEMA: &str = "oo/spec/v1";

/// What is to be run, and how.
#[derive(Clone, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run.
    pub run_id: Uuid,
    /// Who asked for it.
    pub verb: Verb,
    /// The session: chosen by oo, unless it is gone on with.
    pub session_id: Uuid,
    /// The session that is gone on with: this very one, or another, of which it is a fork.
    #[serde(default)]
    pub resumes: Option<Uuid>,
    /// The claude to execute, as it was found; executed by this path.
    pub claude: ClaudeProgram,
    /// The folder it works in.
    pub cwd: PathBuf,
    /// What claude is told besides.
    pub options: ClaudeOptions,
    /// Whether and how a doorman comes with it.
    pub doorman: DoormanMode,
    /// Variables that are set, or passed on (no value), for the child.
    pub env: BTreeMap<String, Option<String>>,
    /// Variables that are taken from it.
    pub drop_env: Vec<String>,
    /// Its clocks.
    pub limits: Limits,
    /// Whether the session is held open between turns.
    #[serde(default)]
    pub hold: Option<Hold>,
    /// The session that started it, with how that is known.
    pub parent: Option<Parent>,
    /// What the session had cost before, in dollars.
    pub cost_before_usd: f64,
    /// When it was made.
    pub created_at: Timestamp,
    /// By which oo.
    pub oo_version: String,
}

impl LaunchSpec {
    /// Whether it goes on with another session as a new one.
    #[must_use]
    pub fn is_fork(&self) -> bool {
        self.resumes
            .is_some_and(|resumed| resumed != self.session_id)
    }
}

/// The program that is claude.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaudeProgram {
    /// As it was named or found; `argv[0]` of the child.
    pub name: PathBuf,
    /// With every link resolved; what is executed.
    pub path: PathBuf,
    /// The version, where the path or the package beside it tells.
    pub version: Option<String>,
}

/// The options that are claude's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaudeOptions {
    /// `--name`.
    pub name: Option<String>,
    /// `--model`.
    pub model: Option<String>,
    /// `--max-turns`.
    pub max_turns: Option<u32>,
    /// `--max-budget-usd`.
    pub budget_usd: Option<f64>,
    /// `--tools`.
    pub tools: Vec<String>,
    /// `--allowedTools`.
    pub allowed_tools: Vec<String>,
    /// `--disallowedTools`.
    pub disallowed_tools: Vec<String>,
    /// `--permission-mode`.
    pub permission_mode: Option<String>,
    /// `--settings`: a file or inline JSON.
    pub settings: Option<String>,
    /// `--add-dir`.
    pub add_dir: Vec<String>,
    /// `--system-prompt-file`.
    pub system_prompt_file: Option<String>,
    /// `--append-system-prompt-file`.
    pub append_system_prompt_file: Option<String>,
    /// `--mcp-config`, besides the doorman's.
    pub mcp_config: Vec<String>,
    /// Handed over as they are.
    pub extra: Vec<String>,
}

/// Whether and how a doorman comes with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoormanMode {
    /// By an MCP configuration of oo's own, alone but for `--mcp-config`.
    Injected,
    /// By the user's own MCP configuration, if it is there.
    UserMcp,
    /// Not at all.
    None,
}

/// The session that started a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Its id.
    pub session_id: Uuid,
    /// Whether it was named by `--parent` rather than found.
    pub named: bool,
}

impl fmt::Debug for LaunchSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchSpec")
            .field("run_id", &self.run_id)
            .field("verb", &self.verb)
            .field("session_id", &self.session_id)
            .field("claude", &self.claude)
            .field("cwd", &self.cwd)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
