//! What the rows of a run have told so far: a fold over [`Row`]s.
//!
//! The supervisor folds rows as they come, `oo show` folds a folder's whole events file: the same
//! code, so that both reach the same verdict.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::row::{ApiError, Block, Denial, Init, Message, ResultRow, Retry, Row, TaskChange};

/// How claude marks a turn that was interrupted: a user row of its own making with this text.
const INTERRUPTED: &str = "[Request interrupted by user";

/// The state of a run as its rows tell it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Lines read.
    pub rows: u64,
    /// Lines that were no row: kept in the events file, counted here.
    pub unparsed: u64,
    /// The newest init row.
    pub init: Option<Box<Init>>,
    /// Every result row, in order.
    pub results: Vec<ResultRow>,
    /// Every retry, in order.
    pub retries: Vec<Retry>,
    /// Background tasks by id, ended ones too.
    pub tasks: BTreeMap<String, Task>,
    /// The tool calls that wait for their result.
    pub tools: BTreeMap<String, ToolCall>,
    /// The newest text of the model at the top level.
    pub last_text: Option<String>,
    /// The newest failed API request.
    pub last_error: Option<ApiError>,
    /// Denied tool calls, from rows of their own.
    pub denials: Vec<Denial>,
    /// Whether the newest turn was marked as interrupted.
    pub interrupted: bool,
    /// Whether a turn is under way: something came after the newest result.
    pub in_turn: bool,
    /// When the account's limit resets, in seconds since the epoch.
    pub resets_at: Option<i64>,
    /// How many retries were earlier turns'.
    retries_before: usize,
    turns: BTreeSet<String>,
}

/// A background task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Task {
    /// Names the task.
    pub task_id: String,
    /// `local_bash`, `local_agent`, …
    pub task_type: Option<String>,
    /// What it does.
    pub description: Option<String>,
    /// `running`, or what claude said of its end: `completed`, `failed`, `stopped`, …
    pub status: String,
    /// Whether it ended, if at all, before the newest result row: then the model knew.
    #[serde(skip)]
    settled: bool,
}

/// A tool call that waits for its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// What it is about, in a few words.
    pub brief: Option<String>,
    /// The tool call of the sub-agent that made it; none at the top level.
    pub parent: Option<String>,
}

const RUNNING: &str = "running";
const ENDED: &str = "ended";

impl Task {
    /// Whether it still runs.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.status == RUNNING
    }

    /// Whether the run ended without it: it was alive at the end, or was ended after the last
    /// result, when no turn could take notice any more.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        let by_itself = matches!(self.status.as_str(), "completed" | "failed" | ENDED);
        self.lives() || !(self.settled || by_itself)
    }
}

impl Observed {
    /// Takes in one line; the row, when it is one.
    pub fn line(&mut self, line: &[u8]) -> Option<Row> {
        if line.trim_ascii().is_empty() {
            return None;
        }
        self.rows += 1;
        let row = super::row::parse(line);
        match &row {
            Some(row) => self.row(row),
            None => self.unparsed += 1,
        }
        row
    }

    fn row(&mut self, row: &Row) {
        match row {
            Row::Init(init) => {
                self.in_turn = true;
                self.interrupted = false;
                // What failed in an earlier turn says nothing of this one.
                self.last_error = None;
                self.retries_before = self.retries.len();
                self.init = Some(init.clone());
            }
            Row::Assistant(message) => self.assistant(message),
            Row::User(message) => self.user(message),
            Row::Result(result) => self.result(result),
            Row::Retry(retry) => self.retries.push(retry.clone()),
            Row::Task(change) => self.task(change),
            Row::BackgroundTasks(live) => self.background(live),
            Row::PermissionDenied(denial) => self.denials.push(denial.clone()),
            Row::RateLimit { resets_at, .. } => self.resets_at = resets_at.or(self.resets_at),
            Row::Other { .. } => {}
        }
    }

    fn assistant(&mut self, message: &Message) {
        let top = message.parent.is_none();
        if top {
            self.in_turn = true;
            match (&message.error, &message.id) {
                (None, Some(id)) => drop(self.turns.insert(id.clone())),
                (Some(error), _) => self.last_error = Some(error.clone()),
                (None, None) => {}
            }
        }
        for block in &message.blocks {
            match block {
                Block::Text(text) if top && message.error.is_none() && !text.trim().is_empty() => {
                    self.last_text = Some(text.clone());
                }
                Block::ToolUse { id, name, brief } => {
                    let call = ToolCall {
                        name: name.clone(),
                        brief: brief.clone(),
                        parent: message.parent.clone(),
                    };
                    self.tools.insert(id.clone(), call);
                }
                Block::Text(_) | Block::ToolResult { .. } | Block::Other => {}
            }
        }
    }

    fn user(&mut self, message: &Message) {
        for block in &message.blocks {
            match block {
                Block::ToolResult { id, .. } => drop(self.tools.remove(id)),
                Block::Text(text) if message.parent.is_none() => {
                    self.interrupted |= text.starts_with(INTERRUPTED);
                }
                Block::Text(_) | Block::ToolUse { .. } | Block::Other => {}
            }
        }
    }

    fn result(&mut self, result: &ResultRow) {
        self.results.push(result.clone());
        self.in_turn = false;
        // A turn that ended has no call of its own left; a sub-agent's may go on.
        self.tools.retain(|_, call| call.parent.is_some());
        for task in self.tasks.values_mut() {
            task.settled = !task.lives();
        }
    }

    fn task(&mut self, change: &TaskChange) {
        if !self.tasks.contains_key(&change.id) {
            // A foreground tool of some seconds is announced as a task too; it is none of ours.
            if change.is_backgrounded != Some(true) {
                return;
            }
            self.tasks.insert(change.id.clone(), new_task(change));
        }
        if let (Some(task), Some(status)) = (self.tasks.get_mut(&change.id), &change.status) {
            let runs = matches!(status.as_str(), RUNNING | "pending" | "in_progress");
            task.status = if runs {
                RUNNING.to_owned()
            } else {
                status.clone()
            };
        }
    }

    fn background(&mut self, live: &[TaskChange]) {
        for change in live {
            self.tasks
                .entry(change.id.clone())
                .or_insert_with(|| new_task(change));
        }
        for task in self.tasks.values_mut() {
            if task.lives() && !live.iter().any(|change| change.id == task.task_id) {
                // It left the live set and nothing said how; a row that does may still come.
                ENDED.clone_into(&mut task.status);
            }
        }
    }

    /// Turns of the model at the top level so far.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Background tasks that live.
    #[must_use]
    pub fn live_tasks(&self) -> usize {
        self.tasks.values().filter(|task| task.lives()).count()
    }

    /// Sub-agents that live.
    #[must_use]
    pub fn riders(&self) -> usize {
        let agents =
            |task: &&Task| task.lives() && task.task_type.as_deref() == Some("local_agent");
        let calls = |call: &&ToolCall| matches!(call.name.as_str(), "Agent" | "Task");
        self.tasks.values().filter(agents).count() + self.tools.values().filter(calls).count()
    }

    /// The retries of the newest turn.
    #[must_use]
    pub fn turn_retries(&self) -> &[Retry] {
        self.retries.get(self.retries_before..).unwrap_or_default()
    }

    /// Denied calls come in rows of their own and in the result rows; each is listed once.
    #[must_use]
    pub fn all_denials(&self) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        let from_rows = self
            .results
            .iter()
            .flat_map(|row| row.permission_denials.clone());
        let own = self
            .denials
            .iter()
            .filter_map(|denial| serde_json::to_value(denial).ok());
        for denial in from_rows.chain(own) {
            let id = denial
                .get("tool_use_id")
                .cloned()
                .filter(|id| !id.is_null());
            let known = all.iter().any(|other| match &id {
                Some(id) => other.get("tool_use_id") == Some(id),
                None => *other == denial,
            });
            if !known {
                all.push(denial);
            }
        }
        all
    }

    /// The session's cost as claude last reported it, in dollars.
    #[must_use]
    pub fn total_cost_usd(&self) -> Option<f64> {
        self.results.iter().rev().find_map(|row| row.total_cost_usd)
    }

    /// The index of the row that decides: the last with turns, else the last.
    #[must_use]
    pub fn deciding(&self) -> Option<usize> {
        let with_turns = self
            .results
            .iter()
            .rposition(|row| row.num_turns.unwrap_or(0) > 0);
        with_turns.or_else(|| self.results.len().checked_sub(1))
    }

    /// Whether the last turn is over and nothing lives on in the background.
    #[must_use]
    pub fn at_rest(&self) -> bool {
        !self.results.is_empty() && !self.in_turn && self.live_tasks() == 0 && self.tools.is_empty()
    }
}

fn new_task(change: &TaskChange) -> Task {
    Task {
        task_id: change.id.clone(),
        task_type: change.kind.clone(),
        description: change.description.clone(),
        status: RUNNING.to_owned(),
        settled: false,
    }
}
