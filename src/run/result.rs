//! `result.json`: the document that says what became of a run.
//!
//! The field names are a contract (`docs/contracts/result-v1.md`): fields are only ever added, and
//! one that does not apply is null, not missing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::held::HoldEntry;
use super::holders::Holder;
use super::observed::Task;
use super::row::{McpServer, ResultRow, Retry};
use super::spec::DoormanMode;
use super::verdict::Exit;
use crate::exit::{Cause, Class, Verb};
use crate::session::lineage::By;

/// The schema of `result.json`.
pub const SCHEMA: &str = "oo/result/v1";

/// Where a run is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum State {
    /// Its supervisor is getting it ready, or watches it.
    Running,
    /// claude runs, and nobody watches it.
    Unsupervised,
    /// It is over, and this document is final.
    Ended,
    /// It never began.
    Refused,
}

impl State {
    /// The state as it is written in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Unsupervised => "unsupervised",
            Self::Ended => "ended",
            Self::Refused => "refused",
        }
    }
}

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run; null when it was refused before there was one.
    pub run_id: Option<Uuid>,
    /// The session that claude says it worked in.
    pub session_id: Option<String>,
    /// The session that was asked for.
    pub requested_session_id: Option<Uuid>,
    /// Who asked.
    pub verb: Verb,
    /// Where the run is in its life.
    pub state: State,
    /// What became of it; null while it runs.
    pub class: Option<Class>,
    /// Why it did not simply complete.
    pub cause: Option<Cause>,
    /// What happened, in one sentence.
    pub message: Option<String>,
    /// What to do next.
    pub hint: Option<String>,
    /// The exit code of `oo start`; null while it runs.
    pub exit_code: Option<u8>,
    /// The answer, when the run completed.
    pub result: Option<String>,
    /// The model's last words, when it did not.
    pub partial_result: Option<String>,
    /// Every result row.
    pub results: Vec<ResultEntry>,
    /// Which of them decided.
    pub deciding_index: Option<usize>,
    /// Of the row that decided.
    pub subtype: Option<String>,
    /// Of the row that decided.
    pub is_error: Option<bool>,
    /// Of the row that decided.
    pub terminal_reason: Option<String>,
    /// Of the row that decided: an HTTP status.
    pub api_error_status: Option<u16>,
    /// Of the row that decided.
    pub num_turns: Option<u64>,
    /// Of the row that decided.
    pub stop_reason: Option<String>,
    /// As claude reported it: the session's cost over all its processes, in dollars.
    pub total_cost_usd: Option<f64>,
    /// What this run alone cost, in dollars.
    pub cost_usd: Option<f64>,
    /// Of the row that decided.
    pub usage: Option<Value>,
    /// Of the newest row: tokens and cost by model, over the session.
    pub model_usage: Option<Value>,
    /// Whether and how a doorman came with the run.
    pub doorman: Option<DoormanMode>,
    /// The doorman's last sign of life.
    pub doorman_heartbeat: Option<Value>,
    /// How many lines it carried into the model's context.
    pub doorman_delivered: Option<u64>,
    /// How many lines still wait.
    pub doorman_pending: Option<u64>,
    /// What a reader should know besides.
    pub note: Option<String>,
    /// How the session is held open.
    #[serde(default)]
    pub hold: Option<HoldEntry>,
    /// Who has the session, when it was not touched for that.
    #[serde(default)]
    pub holder: Option<Holder>,
    /// Which session started this one.
    pub lineage: Option<LineageEntry>,
    /// The systemd unit that it ran in.
    pub unit: Option<String>,
    /// That unit's invocation.
    pub invocation_id: Option<String>,
    /// The tool calls that were denied.
    pub permission_denials: Vec<Value>,
    /// Every background task, with what became of it.
    pub background: Vec<Task>,
    /// The session's MCP servers and whether they connected.
    pub mcp_servers: Vec<McpServer>,
    /// Which credentials were in use.
    pub auth_source: Option<String>,
    /// Every time that claude had to ask the API again.
    pub retries: Vec<Retry>,
    /// When the account's limit resets, if claude told.
    pub limit_resets_at: Option<Timestamp>,
    /// The claude that ran.
    pub claude: Option<ClaudeEntry>,
    /// The folder it worked in.
    pub cwd: Option<String>,
    /// Its command line; inline JSON is shown by its keys.
    pub argv: Vec<String>,
    /// The variables that were kept or added, by name.
    pub env_kept: Vec<String>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How long it took.
    pub duration_ms: Option<u64>,
    /// How long until claude's first byte.
    pub first_output_ms: Option<u64>,
    /// Lines on stdout that were no row; they are in the events file.
    pub unparsed_rows: u64,
    /// The session's transcript.
    pub transcript: Option<String>,
    /// The events file.
    pub events: Option<String>,
    /// The end of claude's stderr.
    pub stderr_tail: Option<String>,
    /// Which oo wrote this.
    pub oo_version: String,
}

/// A result row, as the document lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultEntry {
    /// Its place among the result rows, from 0.
    pub index: usize,
    /// claude's word for it.
    pub subtype: Option<String>,
    /// Whether claude counts it as failed.
    pub is_error: Option<bool>,
    /// Why the turn ended.
    pub terminal_reason: Option<String>,
    /// Turns of the model.
    pub num_turns: Option<u64>,
    /// Its text.
    pub text: Option<String>,
    /// What went wrong, in claude's words.
    pub errors: Vec<String>,
    /// What began the turn, when it was not the prompt.
    pub origin: Option<Value>,
    /// The session's cost so far, in dollars.
    pub total_cost_usd: Option<f64>,
    /// How long the turn took.
    pub duration_ms: Option<u64>,
}

/// The claude that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaudeEntry {
    /// The program, links resolved.
    pub path: String,
    /// Its version, as it says itself.
    pub version: Option<String>,
    /// Its process id.
    pub pid: Option<i32>,
}

/// Which session started this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineageEntry {
    /// The session that was started.
    pub child: Uuid,
    /// The session that started it.
    pub parent: Uuid,
    /// Who says so.
    pub by: By,
}

impl ResultDocument {
    /// A document in which nothing applies yet.
    #[must_use]
    pub fn blank(verb: Verb, state: State) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            run_id: None,
            session_id: None,
            requested_session_id: None,
            verb,
            state,
            class: None,
            cause: None,
            message: None,
            hint: None,
            exit_code: None,
            result: None,
            partial_result: None,
            results: Vec::new(),
            deciding_index: None,
            subtype: None,
            is_error: None,
            terminal_reason: None,
            api_error_status: None,
            num_turns: None,
            stop_reason: None,
            total_cost_usd: None,
            cost_usd: None,
            usage: None,
            model_usage: None,
            doorman: None,
            doorman_heartbeat: None,
            doorman_delivered: None,
            doorman_pending: None,
            note: None,
            hold: None,
            holder: None,
            lineage: None,
            unit: None,
            invocation_id: None,
            permission_denials: Vec::new(),
            background: Vec::new(),
            mcp_servers: Vec::new(),
            auth_source: None,
            retries: Vec::new(),
            limit_resets_at: None,
            claude: None,
            cwd: None,
            argv: Vec::new(),
            env_kept: Vec::new(),
            exit: None,
            started_at: None,
            ended_at: None,
            duration_ms: None,
            first_output_ms: None,
            unparsed_rows: 0,
            transcript: None,
            events: None,
            stderr_tail: None,
            oo_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The document of a request that was refused: nothing was spawned and nothing is on disk.
    #[must_use]
    pub fn refused(verb: Verb, error: &crate::error::Error) -> Self {
        Self {
            class: Some(Class::Refused),
            exit_code: Some(Class::Refused.exit_code()),
            message: Some(error.to_string()),
            hint: error.hint_text().map(str::to_owned),
            ..Self::blank(verb, State::Refused)
        }
    }
}

impl ResultEntry {
    /// The entry of a row.
    #[must_use]
    pub fn of(index: usize, row: &ResultRow) -> Self {
        Self {
            index,
            subtype: row.subtype.clone(),
            is_error: row.is_error,
            terminal_reason: row.terminal_reason.clone(),
            num_turns: row.num_turns,
            text: row.text.clone(),
            errors: row.errors.clone(),
            origin: row.origin.clone(),
            total_cost_usd: row.total_cost_usd,
            duration_ms: row.duration_ms,
        }
    }
}
