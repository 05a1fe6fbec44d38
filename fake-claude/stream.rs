//! Rows on stdout that stand alone: init, api_retry, tasks, lifecycles, control responses.
//!
//! Field names and their order are those of captured rows.

use serde_json::Value;

use crate::hub::{Command, Source, Task};
use crate::ids;
use crate::quirks::Point;
use crate::row::{Row, row};
use crate::session::Session;

const TOOLS: &[&str] = &[
    "Task",
    "Bash",
    "CronCreate",
    "CronDelete",
    "CronList",
    "DesignSync",
    "Edit",
    "EnterWorktree",
    "ExitWorktree",
    "ListAgents",
    "Monitor",
    "NotebookEdit",
    "Read",
    "ReportFindings",
    "ScheduleWakeup",
    "SendMessage",
    "Skill",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskStop",
    "TaskUpdate",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
];
const COMMANDS: &[&str] = &[
    "code-review",
    "clear",
    "compact",
    "context",
    "init",
    "review",
];
const SKILLS: &[&str] = &["code-review", "simplify", "loop"];
const AGENTS: &[&str] = &[
    "claude",
    "Explore",
    "general-purpose",
    "Plan",
    "statusline-setup",
];
const CAPABILITIES: &[&str] = &[
    "interrupt_receipt_v1",
    "interrupt_cancel_queued_v1",
    "interrupt_send_now_v1",
    "interrupt_requeue_taken_v1",
    "msg_lifecycle_v1",
    "request_marker_lists_v1",
];

/// Adds the two fields at the end of most rows.
fn signed(s: &Session, row: Row) -> Row {
    row.put("uuid", &ids::uuid())
        .put("session_id", &s.shown_id())
}

/// `system/init`, at the start of every turn.
pub(crate) fn init(s: &Session) {
    let mut tools: Vec<String> = TOOLS
        .iter()
        .filter(|tool| s.newer || **tool != "Monitor")
        .filter(|tool| wanted(s, tool))
        .map(|tool| (*tool).to_owned())
        .collect();
    tools.extend(s.mcp.tool_names());
    let servers: Vec<Row> = s
        .mcp
        .statuses(&s.quirks.mcp_status)
        .into_iter()
        .map(|(name, status)| row! { "name": name, "status": status, "source": "dynamic" })
        .collect();
    let key = [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
    ]
    .into_iter()
    .find(|name| !s.quirks.not_logged_in && std::env::var_os(name).is_some())
    .unwrap_or("none");
    let memory = s
        .config
        .join("projects")
        .join(ids::encode(&s.cwd))
        .join("memory/");
    let row = row! {
        "type": "system",
        "subtype": "init",
        "cwd": s.cwd,
        "session_id": s.shown_id(),
        "tools": tools,
        "mcp_servers": servers,
        "model": s.model,
        "permissionMode": s.mode,
        "slash_commands": COMMANDS,
        "terminal_slash_commands": ["doctor", "color", "focus", "reload-plugins"],
        "apiKeySource": key,
        "claude_code_version": s.version,
        "output_style": "default",
        "agents": AGENTS,
        "skills": SKILLS,
        "plugins": ([] as [u8; 0]),
        "capabilities": CAPABILITIES,
        "analytics_disabled": false,
        "product_feedback_disabled": false,
    }
    .put_if(s.newer, "served_by_anthropic", &false)
    .put("uuid", &ids::uuid())
    .put_if(s.newer, "sandbox_enabled", &false)
    .put("memory_paths", &row! { "auto": memory })
    .put("original_cwd", &s.cwd)
    .put("additional_directories", &s.flags.values("--add-dir"))
    .put("messaging_socket_path", &s.socket)
    .put("fast_mode_state", "off")
    .put("fast_mode_disabled_reason", "sdk_opt_in_required")
    .put("per_turn_effort_active", &false)
    .put_if(s.newer, "ultrathink_available", &false)
    .put_if(s.newer, "ultrathink_typed_raises", &false)
    .put("view_mode", "default");
    s.say(&patched(row, &s.quirks.init_patch));
    crate::acts::play(s, Point::Init);
}

/// Whether `--tools` leaves a built-in tool in.
fn wanted(s: &Session, tool: &str) -> bool {
    let named = |option: &str, tool: &str| s.flags.tool_rules(option).iter().any(|r| r == tool);
    let given = !s.flags.has("--tools") || named("--tools", tool) || named("--tools", "default");
    given && !named("--disallowedTools", tool)
}

/// A row with some fields replaced or added; without a patch it is left as it is.
pub(crate) fn patched(row: Row, patch: &serde_json::Map<String, Value>) -> Row {
    if patch.is_empty() {
        return row;
    }
    let fields: Value = serde_json::from_str(&row.line()).unwrap_or_default();
    let mut fields = fields.as_object().cloned().unwrap_or_default();
    fields.extend(patch.clone());
    fields
        .iter()
        .fold(Row::new(), |row, (key, value)| row.put(key, value))
}

/// `command_lifecycle`, for commands that have one.
pub(crate) fn lifecycle(s: &Session, command: &Command, state: &str) {
    let told = match command.source {
        Source::Sdk { named } => named,
        Source::Peer { .. } => true,
        Source::Task { .. } => false,
    };
    if told {
        s.say(&signed(
            s,
            row! { "type": "command_lifecycle", "command_uuid": command.uuid, "state": state },
        ));
    }
}

/// The process is about to turn to another session; the row does not say to which.
pub(crate) fn reset(s: &Session) {
    let uuid = ids::uuid();
    s.say(&row! {
        "type": "conversation_reset",
        "new_conversation_id": uuid,
        "uuid": uuid,
        "trigger": "clear",
        "timestamp": ids::timestamp(),
        "session_id": s.shown_id(),
    });
}

/// The answer to a control request.
pub(crate) fn control(s: &Session, request_id: &Value, answer: Result<Row, String>) {
    let response = match answer {
        Ok(body) => {
            row! { "subtype": "success", "request_id": request_id, "response": body }
        }
        Err(error) => row! {
            "subtype": "error",
            "request_id": request_id,
            "error": error,
            "error_code": "unsupported_request",
        },
    };
    s.say(&row! { "type": "control_response", "response": response });
}

/// A user line that comes back (`--replay-user-messages`).
pub(crate) fn replay(s: &Session, command: &Command, text: &str) {
    if !s.flags.has("--replay-user-messages") {
        return;
    }
    let row = row! {
        "type": "user",
        "message": row! { "role": "user", "content": text },
        "session_id": s.shown_id(),
        "parent_tool_use_id": (),
        "uuid": command.uuid,
        "timestamp": ids::timestamp(),
        "isReplay": true,
    };
    s.say(&match &command.source {
        Source::Sdk { .. } => row,
        Source::Peer { origin, .. } | Source::Task { origin, .. } => {
            row.put("isSynthetic", &true).put("origin", origin)
        }
    });
}

/// `background_tasks_changed`: the whole set of live tasks.
pub(crate) fn tasks_changed(s: &Session) {
    let tasks: Vec<Row> = s.hub.look(|state| {
        state
            .tasks
            .iter()
            .map(|t| {
                row! {
                    "task_id": t.id,
                    "run_id": t.run_id,
                    "task_type": task_type(t),
                }
                .put_some("subagent_type", t.agent.as_ref())
                .put("description", &t.description)
            })
            .collect()
    });
    s.say(&signed(
        s,
        row! { "type": "system", "subtype": "background_tasks_changed", "tasks": tasks },
    ));
}

fn task_type(task: &Task) -> &'static str {
    if task.agent.is_some() {
        "local_agent"
    } else {
        "local_bash"
    }
}

fn task_row(task: &Task, subtype: &str) -> Row {
    row! {
        "type": "system",
        "subtype": subtype,
        "task_id": task.id,
        "run_id": task.run_id,
    }
}

/// `task_started`; a foreground command is announced too, when it runs long.
pub(crate) fn task_started(s: &Session, task: &Task, background: bool, prompt: Option<&str>) {
    let row = task_row(task, "task_started")
        .put("tool_use_id", &task.tool_use_id)
        .put("description", &task.description)
        .put_some("subagent_type", task.agent.as_ref())
        .put("is_backgrounded", &background)
        .put_if(task.agent.is_some(), "spawn_depth", &1)
        .put("task_type", task_type(task))
        .put_some("prompt", prompt.as_ref());
    s.say(&signed(s, row));
}

/// `task_progress` of a sub-agent.
pub(crate) fn task_progress(s: &Session, task: &Task, doing: &str, usage: &Row, tool: &str) {
    let row = task_row(task, "task_progress")
        .put("tool_use_id", &task.tool_use_id)
        .put("description", &format!("Running {doing}"))
        .put_some("subagent_type", task.agent.as_ref())
        .put("usage", usage)
        .put("last_tool_name", tool);
    s.say(&signed(s, row));
}

/// `task_updated`: completed, failed or killed.
pub(crate) fn task_updated(s: &Session, task: &Task, status: &str) {
    let patch = row! { "status": status, "end_time": ids::now_ms() };
    s.say(&signed(
        s,
        task_row(task, "task_updated").put("patch", &patch),
    ));
}

/// `task_notification`.
pub(crate) fn task_notification(s: &Session, task: &Task, end: &TaskEnd<'_>) {
    let row = task_row(task, "task_notification")
        .put("tool_use_id", &task.tool_use_id)
        .put("status", end.status)
        .put("output_file", end.output_file)
        .put("summary", end.summary)
        .put_if(end.is_report, "summary_is_report", &true)
        .put_some("usage", end.usage);
    s.say(&signed(s, row));
}

/// How a task ended.
pub(crate) struct TaskEnd<'a> {
    pub(crate) status: &'a str,
    pub(crate) output_file: &'a str,
    pub(crate) summary: &'a str,
    pub(crate) is_report: bool,
    pub(crate) usage: Option<&'a Row>,
}

/// `permission_denied`.
pub(crate) fn denied(s: &Session, tool: &str, tool_use_id: &str, reason: Option<&str>, text: &str) {
    let row = row! {
        "type": "system",
        "subtype": "permission_denied",
        "tool_name": tool,
        "tool_use_id": tool_use_id,
    }
    .put_some("decision_reason_type", reason.as_ref())
    .put_if(reason == Some("other"), "decision_reason", text)
    .put("message", text);
    s.say(&signed(s, row));
}

/// `tool_progress`, a heartbeat while a tool runs.
pub(crate) fn tool_progress(s: &Session, tool: &str, tool_use_id: &str, seconds: u64) {
    let row = row! {
        "type": "tool_progress",
        "tool_use_id": tool_use_id,
        "tool_name": tool,
        "parent_tool_use_id": (),
        "elapsed_time_seconds": seconds,
    };
    s.say(&signed(s, row));
}

/// A line at the door that nobody will see.
pub(crate) fn hold(s: &Session, message: &str, hold: &str, pid: u32, dropped: bool) {
    let row = row! {
        "type": "system",
        "subtype": "peer_message_hold",
        "state": if dropped { "dropped" } else { "held" },
        "message_uuid": message,
        "lane": "socket",
        "from": "",
    }
    .put_if(dropped, "outcome", "discarded")
    .put_if(!dropped, "cause", "no-mode-asserted")
    .put_if(s.newer, "hold_id", hold)
    .put_if(s.newer && !dropped, "can_deliver", &true)
    .put_if(s.newer && !dropped, "always_scope", "anyone")
    .put_if(s.newer && !dropped, "session_class", "bypass")
    .put_if(s.newer && !dropped, "verified_pid", &pid);
    s.say(&signed(s, row));
}
