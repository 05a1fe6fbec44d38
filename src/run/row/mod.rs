//! The rows that claude writes to stdout, as far as oo needs them.
//!
//! Rows and fields are an open set. A row is read for the few fields that matter, by name and
//! never by position (the result row does not begin with its type); a field of an unexpected kind
//! counts as absent, an unknown row as [`Row::Other`]. Parsing is pure and copies no more of a line
//! than what is kept, so that a line of many MiB costs little beyond itself.
//!
//! Field names and values: measured on Claude Code 2.1.308 and 2.1.332.

use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

mod escapes;
mod parse;

pub use parse::parse;

/// One row.
#[derive(Clone, Debug)]
pub enum Row {
    /// The first row of a turn: what claude is about to work with.
    Init(Box<Init>),
    /// Something that the model said or wants.
    Assistant(Message),
    /// Something that the model was told: a prompt, a tool's result, a marker.
    User(Message),
    /// The end of a turn.
    Result(Box<ResultRow>),
    /// claude will ask the API again.
    Retry(Retry),
    /// A task began, or changed, or ended.
    Task(TaskChange),
    /// The whole set of background tasks that live now.
    BackgroundTasks(Vec<TaskChange>),
    /// A tool was denied.
    PermissionDenied(Denial),
    /// The state of a subscription's limits; `resets_at` in seconds since the epoch.
    RateLimit {
        /// `allowed`, `rejected`, …
        status: Option<String>,
        /// When the limit resets.
        resets_at: Option<i64>,
    },
    /// Any other row.
    Other {
        /// Its `type`.
        kind: String,
        /// Its `subtype`.
        subtype: Option<String>,
    },
}

/// A `system/init` row.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub struct Init {
    /// The session that claude works in.
    #[serde(default)]
    pub session_id: Lenient<String>,
    /// The model.
    #[serde(default)]
    pub model: Lenient<String>,
    /// The MCP servers and whether they connected.
    #[serde(default)]
    pub mcp_servers: Lenient<Vec<McpServer>>,
    /// Which credentials are in use.
    #[serde(default, rename = "apiKeySource")]
    pub api_key_source: Lenient<String>,
    /// claude's version.
    #[serde(default)]
    pub claude_code_version: Lenient<String>,
}

/// An MCP server, as the init row lists it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct McpServer {
    /// Its name in the configuration.
    pub name: String,
    /// `connected`, `failed`, `pending`, …
    #[serde(default)]
    pub status: String,
    /// Where its configuration comes from: `dynamic` for `--mcp-config`, …
    #[serde(default)]
    pub source: Option<String>,
}

/// A row that stands for a message.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The message's id: several rows can carry parts of one message.
    pub id: Option<String>,
    /// The tool call of the sub-agent that it belongs to; none at the top level.
    pub parent: Option<String>,
    /// Its parts.
    pub blocks: Vec<Block>,
    /// When the row stands for a failed API request: what failed.
    pub error: Option<ApiError>,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Text.
    Text(String),
    /// A tool call.
    ToolUse {
        /// Names the call.
        id: String,
        /// The tool.
        name: String,
        /// What it is about, in a few words: a command, a path.
        brief: Option<String>,
    },
    /// The end of a tool call.
    ToolResult {
        /// Names the call.
        id: String,
        /// Whether the tool failed.
        is_error: bool,
    },
    /// Anything else: thinking, images.
    Other,
}

/// A failed API request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiError {
    /// `authentication_failed`, `rate_limit`, …
    pub kind: Option<String>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// The API's own word: `authentication_error`, `billing_error`, …
    pub api_kind: Option<String>,
}

/// A `result` row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultRow {
    /// `success`, `error_max_turns`, …; says little about success.
    pub subtype: Option<String>,
    /// Whether claude counts the turn as failed.
    pub is_error: Option<bool>,
    /// Why the turn ended.
    pub terminal_reason: Option<String>,
    /// The HTTP status of the request that failed.
    pub api_error_status: Option<u16>,
    /// The API's own word for it.
    pub api_error_type: Option<String>,
    /// Turns of the model.
    pub num_turns: Option<u64>,
    /// Why the model stopped.
    pub stop_reason: Option<String>,
    /// The final text.
    pub text: Option<String>,
    /// What went wrong, in claude's words.
    pub errors: Vec<String>,
    /// What began the turn, when it was not the prompt.
    pub origin: Option<Value>,
    /// The session's cost so far, in dollars, over all its processes.
    pub total_cost_usd: Option<f64>,
    /// How long the turn took, in milliseconds.
    pub duration_ms: Option<u64>,
    /// Tokens of the turn.
    pub usage: Option<Value>,
    /// Tokens and cost by model, over the session.
    pub model_usage: Option<Value>,
    /// The tool calls that were denied.
    pub permission_denials: Vec<Value>,
}

/// A `system/api_retry` row.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Retry {
    /// Which try this was, from 1.
    #[serde(default)]
    pub attempt: Option<u64>,
    /// How many there will be.
    #[serde(default)]
    pub max_retries: Option<u64>,
    /// How long claude waits before the next, in milliseconds.
    #[serde(default)]
    pub retry_delay_ms: Option<f64>,
    /// The HTTP status; none when no answer came.
    #[serde(default)]
    pub error_status: Option<u16>,
    /// `overloaded`, `rate_limit`, `authentication_failed`, …
    #[serde(default)]
    pub error: Option<String>,
}

/// A change of a task: `task_started`, `task_updated`, `task_notification`, or an entry of
/// `background_tasks_changed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskChange {
    /// Names the task.
    pub id: String,
    /// `local_bash`, `local_agent`, …
    pub kind: Option<String>,
    /// What it does.
    pub description: Option<String>,
    /// Whether the model goes on while it runs. A foreground tool of some seconds is a task too.
    pub is_backgrounded: Option<bool>,
    /// `completed`, `failed`, `stopped`, …; none while it runs.
    pub status: Option<String>,
}

/// A denied tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Denial {
    /// The tool.
    pub tool_name: Option<String>,
    /// Names the call.
    pub tool_use_id: Option<String>,
}

impl Retry {
    /// Whether the credentials were refused: no retry will help.
    #[must_use]
    pub fn is_auth(&self) -> bool {
        matches!(self.error_status, Some(401 | 403))
            || matches!(
                self.error.as_deref(),
                Some("authentication_failed" | "authentication_error" | "permission_error")
            )
    }
}

/// A field that counts as absent when it is of another kind than expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lenient<T>(pub Option<T>);

impl<T> Default for Lenient<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(raw.get()).ok()))
    }
}
