//! From a line to a row. Pure; the shapes here are claude's, the types of the parent module ours.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::escapes;
use super::{ApiError, Block, Denial, Lenient, Message, ResultRow, Retry, Row, TaskChange};

/// Parses one line. Nothing when it is not a JSON object with a `type`.
#[must_use]
pub fn parse(line: &[u8]) -> Option<Row> {
    let line = &*escapes::repaired(line);
    match parse_text(line) {
        // One bad byte spoils a text, not the row.
        None if std::str::from_utf8(line).is_err() => {
            parse_text(String::from_utf8_lossy(line).as_bytes())
        }
        row => row,
    }
}

fn parse_text(line: &[u8]) -> Option<Row> {
    #[derive(serde::Deserialize)]
    struct Head<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(default, borrow)]
        subtype: Option<Cow<'a, str>>,
    }
    let head: Head<'_> = serde_json::from_slice(line).ok()?;
    let row = match (&*head.kind, head.subtype.as_deref()) {
        ("system", Some("init")) => Row::Init(read(line)?),
        ("assistant", _) => Row::Assistant(message(line)?),
        ("user", _) => Row::User(message(line)?),
        ("result", _) => Row::Result(Box::new(result(line)?)),
        ("system", Some("api_retry")) => Row::Retry(retry(line)?),
        ("system", Some("task_started" | "task_updated" | "task_notification")) => {
            Row::Task(read::<RawTask>(line)?.change()?)
        }
        ("system", Some("background_tasks_changed")) => {
            let tasks = read::<RawTasks>(line)?.tasks.0.unwrap_or_default();
            Row::BackgroundTasks(tasks.into_iter().filter_map(RawTask::change).collect())
        }
        ("system", Some("permission_denied")) => {
            let raw: RawDenial = read(line)?;
            Row::PermissionDenied(Denial {
                tool_name: raw.tool_name.0,
                tool_use_id: raw.tool_use_id.0,
            })
        }
        ("rate_limit_event", _) => {
            let info = read::<RawLimit>(line)?
                .rate_limit_info
                .0
                .unwrap_or_default();
            Row::RateLimit {
                status: info.status.0,
                resets_at: info.resets_at.0,
            }
        }
        _ => Row::Other {
            kind: head.kind.into_owned(),
            subtype: head.subtype.map(Cow::into_owned),
        },
    };
    Some(row)
}

fn read<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}

#[derive(serde::Deserialize)]
struct RawMessageRow {
    #[serde(default)]
    parent_tool_use_id: Lenient<String>,
    #[serde(default)]
    message: Lenient<RawMessage>,
    #[serde(default)]
    error: Lenient<String>,
    #[serde(default)]
    api_error_status: Lenient<u16>,
    #[serde(default)]
    api_error_type: Lenient<String>,
    #[serde(default)]
    is_api_error_message: Lenient<bool>,
}

#[derive(Default, serde::Deserialize)]
struct RawMessage {
    #[serde(default)]
    id: Lenient<String>,
    #[serde(default)]
    content: Content,
}

/// The content of a message: a text, or a list of blocks.
#[derive(Default)]
struct Content(Vec<Block>);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        if let Ok(text) = serde_json::from_str(raw) {
            return Ok(Self(vec![Block::Text(text)]));
        }
        let blocks: Vec<Lenient<RawBlock>> = serde_json::from_str(raw).unwrap_or_default();
        Ok(Self(
            blocks
                .into_iter()
                .map(|block| block.0.map_or(Block::Other, RawBlock::block))
                .collect(),
        ))
    }
}

#[derive(serde::Deserialize)]
struct RawBlock {
    #[serde(default, rename = "type")]
    kind: Lenient<String>,
    #[serde(default)]
    text: Lenient<String>,
    #[serde(default)]
    id: Lenient<String>,
    #[serde(default)]
    name: Lenient<String>,
    #[serde(default)]
    input: Lenient<RawInput>,
    #[serde(default)]
    tool_use_id: Lenient<String>,
    #[serde(default)]
    is_error: Lenient<bool>,
}

/// The inputs that say in a few words what a call is about.
#[derive(serde::Deserialize)]
struct RawInput {
    #[serde(default)]
    command: Lenient<String>,
    #[serde(default)]
    file_path: Lenient<String>,
    #[serde(default)]
    pattern: Lenient<String>,
    #[serde(default)]
    description: Lenient<String>,
    #[serde(default)]
    url: Lenient<String>,
    #[serde(default)]
    query: Lenient<String>,
}

impl RawBlock {
    fn block(self) -> Block {
        match self.kind.0.as_deref() {
            Some("text") => Block::Text(self.text.0.unwrap_or_default()),
            Some("tool_use") => Block::ToolUse {
                id: self.id.0.unwrap_or_default(),
                name: self.name.0.unwrap_or_default(),
                brief: self.input.0.and_then(|input| {
                    let RawInput {
                        command,
                        file_path,
                        pattern,
                        description,
                        url,
                        query,
                    } = input;
                    let first = [command, file_path, pattern, url, query, description];
                    first.into_iter().find_map(|field| field.0)
                }),
            },
            Some("tool_result") => Block::ToolResult {
                id: self.tool_use_id.0.unwrap_or_default(),
                is_error: self.is_error.0.unwrap_or(false),
            },
            _ => Block::Other,
        }
    }
}

fn message(line: &[u8]) -> Option<Message> {
    let raw: RawMessageRow = read(line)?;
    let error = ApiError {
        kind: raw.error.0,
        status: raw.api_error_status.0,
        api_kind: raw.api_error_type.0,
    };
    let failed = raw.is_api_error_message.0 == Some(true) || error.kind.is_some();
    let message = raw.message.0.unwrap_or_default();
    Some(Message {
        id: message.id.0,
        parent: raw.parent_tool_use_id.0,
        blocks: message.content.0,
        error: failed.then_some(error),
    })
}

#[derive(serde::Deserialize)]
struct RawResult {
    #[serde(default)]
    subtype: Lenient<String>,
    #[serde(default)]
    is_error: Lenient<bool>,
    #[serde(default)]
    terminal_reason: Lenient<String>,
    #[serde(default)]
    api_error_status: Lenient<u16>,
    #[serde(default)]
    api_error_type: Lenient<String>,
    #[serde(default)]
    num_turns: Lenient<u64>,
    #[serde(default)]
    stop_reason: Lenient<String>,
    #[serde(default)]
    result: Lenient<String>,
    #[serde(default)]
    errors: Lenient<Vec<Value>>,
    #[serde(default)]
    origin: Lenient<Value>,
    #[serde(default)]
    total_cost_usd: Lenient<f64>,
    #[serde(default)]
    duration_ms: Lenient<f64>,
    #[serde(default)]
    usage: Lenient<Value>,
    #[serde(default, rename = "modelUsage")]
    model_usage: Lenient<Value>,
    #[serde(default)]
    permission_denials: Lenient<Vec<Value>>,
}

fn result(line: &[u8]) -> Option<ResultRow> {
    let raw: RawResult = read(line)?;
    let text_of = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Some(ResultRow {
        subtype: raw.subtype.0,
        is_error: raw.is_error.0,
        terminal_reason: raw.terminal_reason.0,
        api_error_status: raw.api_error_status.0,
        api_error_type: raw.api_error_type.0,
        num_turns: raw.num_turns.0,
        stop_reason: raw.stop_reason.0,
        text: raw.result.0,
        errors: raw
            .errors
            .0
            .unwrap_or_default()
            .into_iter()
            .map(text_of)
            .collect(),
        origin: raw.origin.0.filter(|value| !value.is_null()),
        total_cost_usd: raw.total_cost_usd.0,
        duration_ms: raw.duration_ms.0.map(whole),
        usage: raw.usage.0.filter(|value| !value.is_null()),
        model_usage: raw.model_usage.0.filter(|value| !value.is_null()),
        permission_denials: raw.permission_denials.0.unwrap_or_default(),
    })
}

/// Milliseconds as claude writes them, whole. Negative ones count as 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` from a float saturates, which is what a duration needs"
)]
fn whole(milliseconds: f64) -> u64 {
    milliseconds.round() as u64
}

fn retry(line: &[u8]) -> Option<Retry> {
    #[derive(serde::Deserialize)]
    struct Raw {
        #[serde(default)]
        attempt: Lenient<u64>,
        #[serde(default)]
        max_retries: Lenient<u64>,
        #[serde(default)]
        retry_delay_ms: Lenient<f64>,
        #[serde(default)]
        error_status: Lenient<u16>,
        #[serde(default)]
        error: Lenient<String>,
    }
    let raw: Raw = read(line)?;
    Some(Retry {
        attempt: raw.attempt.0,
        max_retries: raw.max_retries.0,
        retry_delay_ms: raw.retry_delay_ms.0,
        error_status: raw.error_status.0,
        error: raw.error.0,
    })
}

#[derive(serde::Deserialize)]
struct RawTasks {
    #[serde(default)]
    tasks: Lenient<Vec<RawTask>>,
}

#[derive(serde::Deserialize)]
struct RawTask {
    #[serde(default)]
    task_id: Lenient<String>,
    #[serde(default)]
    task_type: Lenient<String>,
    #[serde(default)]
    description: Lenient<String>,
    #[serde(default)]
    is_backgrounded: Lenient<bool>,
    #[serde(default)]
    status: Lenient<String>,
    #[serde(default)]
    patch: Lenient<RawPatch>,
}

#[derive(Default, serde::Deserialize)]
struct RawPatch {
    #[serde(default)]
    status: Lenient<String>,
}

impl RawTask {
    fn change(self) -> Option<TaskChange> {
        Some(TaskChange {
            id: self.task_id.0?,
            kind: self.task_type.0,
            description: self.description.0,
            is_backgrounded: self.is_backgrounded.0,
            status: self
                .status
                .0
                .or_else(|| self.patch.0.and_then(|patch| patch.status.0)),
        })
    }
}

#[derive(serde::Deserialize)]
struct RawDenial {
    #[serde(default)]
    tool_name: Lenient<String>,
    #[serde(default)]
    tool_use_id: Lenient<String>,
}

#[derive(serde::Deserialize)]
struct RawLimit {
    #[serde(default)]
    rate_limit_info: Lenient<RawLimitInfo>,
}

#[derive(Default, serde::Deserialize)]
struct RawLimitInfo {
    #[serde(default)]
    status: Lenient<String>,
    #[serde(default, rename = "resetsAt")]
    resets_at: Lenient<i64>,
}
