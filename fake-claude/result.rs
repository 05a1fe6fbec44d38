//! Result rows: what a turn came to.
//!
//! Invariants: total_cost_usd and modelUsage are the session's running totals at the moment the
//! row is written; usage and num_turns are the turn's own; result_index counts rows.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::hub::lock;
use crate::ids;
use crate::quirks::Point;
use crate::row::{Number, Row, row};
use crate::script::Usage;
use crate::session::{Format, Session};
use crate::stream::patched;
use crate::voice::turn_usage;

static INDEX: AtomicU32 = AtomicU32::new(0);

/// How a turn ended.
#[derive(Clone)]
pub(crate) enum End {
    /// With an answer.
    Answer(String),
    /// The API said no.
    ApiError {
        status: Option<u16>,
        kind: Option<String>,
        connection: bool,
        text: String,
    },
    /// `--max-turns`.
    MaxTurns(u64),
    /// `--max-budget-usd`, as it was given.
    MaxBudget(String),
    /// Interrupted, in a tool or while waiting for an answer.
    Interrupted { in_tool: bool },
    /// Cut short by a line that wants to be taken now.
    CutShort,
}

/// A finished turn whose row may still have to wait.
#[derive(Clone)]
pub(crate) struct Finished {
    pub(crate) end: End,
    pub(crate) user_rows: u32,
    pub(crate) usage: Usage,
    pub(crate) stop_reason: Option<String>,
    pub(crate) denials: Vec<Row>,
    pub(crate) origin: Option<Row>,
    /// The uuid of the line from stdin that began this turn.
    pub(crate) user_uuid: Option<String>,
    /// The uuids of the lines that stdin brought to this turn.
    pub(crate) user_uuids: Vec<String>,
    pub(crate) took_ms: u64,
    pub(crate) first_ms: u64,
    pub(crate) request_at_ms: u64,
}

impl Finished {
    pub(crate) fn is_error(&self) -> bool {
        !matches!(self.end, End::Answer(_) | End::CutShort)
    }
}

fn stats(s: &Session) -> Row {
    let stats = lock(&s.stats).clone();
    row! {
        "spawned": stats.spawned,
        "requested": row! {
            "background": stats.background,
            "foreground": stats.foreground,
            "unset": stats.unset,
        },
        "started_in_background": stats.started_in_background,
        "max_depth": u32::from(stats.spawned > 0),
        "spawned_by_subagents": 0,
        "completed": stats.completed,
        "failed": stats.failed,
        "killed": row! { "parent": 0, "user": 0, "system": stats.killed_by_system },
        "refused": row! { "depth_limit": 0, "concurrency_limit": 0, "budget": 0 },
        "by_type": stats.by_type,
    }
}

fn terminal_reason(end: &End) -> &'static str {
    match end {
        End::Answer(_) => "completed",
        End::ApiError {
            status: Some(413), ..
        } => "image_error",
        End::ApiError { .. } => "api_error",
        End::MaxTurns(_) => "max_turns",
        End::MaxBudget(_) => "budget_exhausted",
        End::Interrupted { in_tool: true } | End::CutShort => "aborted_tools",
        End::Interrupted { in_tool: false } => "aborted_streaming",
    }
}

/// What the turn says of itself: subtype and text, or errors.
fn outcome(row: Row, finished: &Finished, newer: bool) -> Row {
    let turns = finished.user_rows;
    let row = row
        .put("is_error", &finished.is_error())
        .put("num_turns", &turns);
    let failed = |row: Row, subtype: &str, error: String| {
        row.put("subtype", subtype).put("errors", &[error])
    };
    match &finished.end {
        End::Answer(text) => row
            .put("subtype", "success")
            .put("api_error_status", &())
            .put("result", text)
            .put("ttft_ms", &finished.first_ms),
        End::CutShort => row
            .put("subtype", "success")
            .put("api_error_status", &())
            .put("result", "")
            .put("ttft_ms", &finished.first_ms),
        End::ApiError {
            status,
            kind,
            connection,
            text,
        } => row
            .put("subtype", "success")
            .put("api_error_status", status)
            .put_some("api_error_type", kind.as_ref().filter(|_| newer))
            .put_if(*connection, "api_error", "connection_failed")
            .put("result", text),
        End::MaxTurns(n) => failed(
            row,
            "error_max_turns",
            format!("Reached maximum number of turns ({n})"),
        ),
        End::MaxBudget(n) => failed(
            row,
            "error_max_budget_usd",
            format!("Reached maximum budget (${n})"),
        ),
        End::Interrupted { .. } => {
            let stop = finished.stop_reason.as_deref().unwrap_or("null");
            let text = format!(
                "[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={stop}"
            );
            failed(row, "error_during_execution", text)
        }
    }
}

fn render(s: &Session, finished: &Finished) -> Row {
    let answered = matches!(finished.end, End::Answer(_) | End::CutShort);
    // A turn that was cut off by its budget, or in the middle of an answer, has counted nothing.
    let counted = !matches!(
        finished.end,
        End::MaxBudget(_) | End::ApiError { .. } | End::Interrupted { in_tool: false }
    );
    let (total, model_usage, since, api_ms) = {
        let mut ledger = lock(&s.ledger);
        let model_usage = ledger.model_usage(s.newer);
        (
            ledger.total(),
            model_usage,
            ledger.take_since(s.newer),
            ledger.api_ms,
        )
    };
    let uuids = &finished.user_uuids;
    let first_uuid = finished.user_uuid.as_ref().or_else(|| uuids.first());
    let interrupted = matches!(finished.end, End::Interrupted { .. });
    // 2.1.308 sees that the budget is used up before it hears why the model stopped.
    let unheard = matches!(finished.end, End::MaxBudget(_)) && !s.newer;
    let row = row! {
        "duration_api_ms": api_ms,
        "stop_reason": finished.stop_reason.as_ref().filter(|_| !unheard),
        "session_id": s.shown_id(),
        "total_cost_usd": Number(total),
        "usage": turn_usage(counted.then_some(&finished.usage)),
        "modelUsage": model_usage,
        "permission_denials": finished.denials,
        "terminal_reason": terminal_reason(&finished.end),
        "fast_mode_state": "off",
        "fast_mode_disabled_reason": "sdk_opt_in_required",
    }
    .put_some("origin", finished.origin.as_ref())
    .put("subagent_stats", &stats(s))
    .put("safety_stops", &0);
    let row = outcome(row, finished, s.newer)
        .put_some("user_message_uuid", first_uuid.filter(|_| interrupted))
        .put("type", "result")
        .put("duration_ms", &finished.took_ms)
        .put("uuid", &ids::uuid())
        .put_if(answered, "ttft_stream_ms", &finished.first_ms)
        .put_if(answered, "time_to_request_ms", &finished.first_ms)
        .put_if(answered, "first_content_frame_ms", &finished.first_ms)
        .put_some("user_message_uuid", first_uuid.filter(|_| !interrupted))
        .put_if(first_uuid.is_some(), "user_message_uuids", uuids)
        .put_if(
            first_uuid.is_some() && answered,
            "request_sent_wall_ms",
            &finished.request_at_ms,
        )
        .put_if(
            first_uuid.is_some() && answered,
            "first_request_input_tokens",
            &100,
        )
        .put_if(
            first_uuid.is_some() && answered,
            "first_request_cache_read_input_tokens",
            &0,
        )
        .put("queued_turn_count", &0)
        .put("result_index", &INDEX.fetch_add(1, Ordering::Relaxed));
    row.put_if(s.newer, "model_usage_since_last_result", &since)
}

fn patch(s: &Session, row: Row) -> Row {
    let mut row = row;
    for patch in &s.quirks.result_patch {
        let fields: Value = serde_json::from_str(&row.line()).unwrap_or_default();
        let index = fields["result_index"]
            .as_u64()
            .and_then(|i| u32::try_from(i).ok());
        if patch.index.is_some() && patch.index != index {
            continue;
        }
        row = patched(row, &patch.set);
        if !patch.drop.is_empty() {
            let fields: Value = serde_json::from_str(&row.line()).unwrap_or_default();
            row = fields
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(key, _)| !patch.drop.contains(key))
                .fold(Row::new(), |row, (key, value)| row.put(key, value));
        }
    }
    row
}

/// Writes the result of a turn, in the format asked for; json and text print only the last.
pub(crate) fn write(s: &Session, finished: &Finished, last: bool) {
    crate::acts::play(s, Point::BeforeResult);
    let row = patch(s, render(s, finished));
    if !s.quirks.no_result {
        match s.format {
            Format::Stream => s.say(&row),
            Format::Json if last => s.print(format!("{}\n", row.line()).as_bytes()),
            Format::Text if last => {
                let fields: Value = serde_json::from_str(&row.line()).unwrap_or_default();
                let text = fields["result"]
                    .as_str()
                    .or_else(|| fields["errors"][0].as_str());
                s.print(format!("{}\n", text.unwrap_or_default()).as_bytes());
            }
            Format::Json | Format::Text => {}
        }
    }
    crate::acts::play(s, Point::Result);
}

/// The single row of a refused `--resume`.
pub(crate) fn lost_session(session: &str, error: &str) -> Row {
    row! {
        "type": "result",
        "subtype": "error_during_execution",
        "duration_ms": 0,
        "duration_api_ms": 0,
        "is_error": true,
        "num_turns": 0,
        "stop_reason": (),
        "session_id": session,
        "total_cost_usd": 0,
        "usage": turn_usage(None),
        "modelUsage": Row::new(),
        "permission_denials": ([] as [u8; 0]),
        "uuid": ids::uuid(),
        "errors": [error],
        "result_index": 0,
    }
}
