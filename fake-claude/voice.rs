//! Who speaks: the main conversation or a sub-agent, on stdout and in the transcript at once.
//!
//! A sub-agent's rows carry the call they belong to and go to a transcript of their own.

use std::sync::Mutex;

use serde_json::Value;

use crate::hub::{Task, lock};
use crate::ids;
use crate::row::{Raw, Row, row};
use crate::script::{Reply, Usage};
use crate::session::Session;
use crate::transcript::Log;

/// A sub-agent as a speaker.
pub(crate) struct AgentVoice {
    pub(crate) task: Task,
    pub(crate) log: Mutex<Log>,
}

/// A speaker.
pub(crate) struct Voice<'a> {
    pub(crate) s: &'a Session,
    pub(crate) agent: Option<&'a AgentVoice>,
    pub(crate) prompt_id: String,
}

/// A tool call as it was said.
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) input: Value,
    pub(crate) replies: Option<Vec<Reply>>,
    /// The transcript row that holds it.
    pub(crate) row: String,
}

/// What a tool gave back.
pub(crate) struct Outcome {
    /// `content` of the tool_result block.
    pub(crate) content: Raw,
    /// `None`: the block has no is_error field.
    pub(crate) is_error: Option<bool>,
    /// `tool_use_result`.
    pub(crate) result: Option<Raw>,
    /// The permission: how it was decided, or why not.
    pub(crate) permission: Permission,
    /// The block's fields come in another order when the tool failed.
    pub(crate) ran_bash: bool,
}

/// How a call was permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Permission {
    /// By mode, rule or as read-only.
    Accepted(&'static str),
    /// `permission_denied`.
    Denied,
    /// Cut off by the user.
    Rejected,
    /// The call never came to a decision.
    None,
}

fn full_usage(usage: &Usage) -> Row {
    row! {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": row! { "thinking_tokens": 0 },
        "server_tool_use": row! { "web_search_requests": 0, "web_fetch_requests": 0 },
        "service_tier": "standard",
        "cache_creation": row! { "ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0 },
        "inference_geo": "",
        "iterations": ([] as [u8; 0]),
        "speed": "standard",
        "fallback_credit": (),
    }
}

/// `usage` of a result row; one that counts nothing has its fields in another order.
pub(crate) fn turn_usage(usage: Option<&Usage>) -> Row {
    let nothing = Usage {
        input_tokens: 0,
        output_tokens: 0,
        ..Usage::default()
    };
    match usage {
        Some(usage) => full_usage(usage),
        None => row! { "output_tokens_details": row! { "thinking_tokens": 0 } }
            .join(&full_usage(&nothing).without("output_tokens_details")),
    }
}

impl Voice<'_> {
    /// A row in this speaker's transcript.
    pub(crate) fn log(&self, uuid: &str, body: &Row) {
        match self.agent {
            Some(agent) => {
                let tail = self.s.tail();
                lock(&agent.log).chained(uuid, body, &tail);
            }
            None => self.s.log(uuid, body),
        }
    }

    /// A row outside the conversation in this speaker's transcript.
    pub(crate) fn note(&self, row: &Row) {
        match self.agent {
            Some(agent) => lock(&agent.log).plain(row),
            None => self.s.note(row),
        }
    }

    fn say(&self, kind: &str, message: &Row, extra: &Row) -> String {
        let uuid = ids::uuid();
        let parent = self.agent.map(|agent| &agent.task.tool_use_id);
        let row = row! { "type": kind, "message": message, "parent_tool_use_id": parent }
            .put_some("agent_id", self.agent.map(|agent| &agent.task.id))
            .put("session_id", &self.s.shown_id())
            .put("uuid", &uuid)
            .put("timestamp", &ids::timestamp())
            .join(extra);
        let row = match self.agent {
            Some(agent) => row
                .put_some("subagent_type", agent.task.agent.as_ref())
                .put("task_description", &agent.task.description),
            None => row,
        };
        self.s.say(&row);
        uuid
    }

    /// An answer of the API: a row for each block. Gives the tool calls back.
    pub(crate) fn answer(&self, reply: Reply, request: &str, first_extra: Row) -> Vec<Call> {
        let usage = reply.usage.unwrap_or_default();
        let id = format!("msg_{}", ids::hex(20));
        let request_id = format!("req_{}", ids::hex(12));
        let stop = reply
            .stop_reason
            .clone()
            .unwrap_or_else(|| stop_reason(&reply).to_owned());
        let names = self.s.new_tools(&reply.tools);
        if self.s.newer && !names.is_empty() {
            let row = row! { "type": "tools-used", "tools": names, "sessionId": self.s.id() };
            self.s.note(&row);
        }
        let mut blocks: Vec<(Row, Option<Call>)> = Vec::new();
        if let Some(text) = &reply.text {
            blocks.push((row! { "type": "text", "text": text }, None));
        }
        for tool in reply.tools {
            let call = format!("toolu_{}", ids::hex(20));
            let block =
                row! { "type": "tool_use", "id": call, "name": tool.name, "input": tool.input };
            let call = Call {
                id: call,
                name: tool.name,
                input: tool.input,
                replies: tool.replies,
                row: String::new(),
            };
            blocks.push((block, Some(call)));
        }
        let mut calls = Vec::new();
        let mut first_extra = Some(first_extra);
        for (index, (block, call)) in blocks.into_iter().enumerate() {
            let message = |stop: Option<&str>, usage: &Row| {
                row! {
                    "id": id,
                    "type": "message",
                    "role": "assistant",
                    "model": self.s.model,
                    "content": [&block],
                    "stop_reason": stop,
                    "stop_sequence": (),
                    "usage": usage,
                }
            };
            let early = row! {
                "input_tokens": usage.input_tokens,
                "output_tokens": 1,
                "cache_read_input_tokens": usage.cache_read_input_tokens,
                "cache_creation_input_tokens": usage.cache_creation_input_tokens,
            };
            let extra =
                row! { "request_id": request_id }.join(&first_extra.take().unwrap_or_default());
            let said = message(None, &early).put("context_management", &());
            let uuid = self.say("assistant", &said, &extra);
            let logged = message(Some(&stop), &full_usage(&usage)).put("stop_details", &());
            let body = row! { "message": logged }
                .put_if(call.is_some(), "toolInputStreamMs", &2)
                .put("apiBlockIndex", &index)
                .put("requestId", &request_id)
                .put("requestRef", request)
                .put("requestedModel", &self.s.model)
                .put_if(self.s.newer, "promptCacheRequested", "5m")
                .put_some(
                    "attributionAgent",
                    self.agent.and_then(|a| a.task.agent.as_ref()),
                )
                .put("type", "assistant")
                .put("uuid", &uuid)
                .put("timestamp", &ids::timestamp())
                .put("perTurnEffort", &())
                .put_if(self.s.newer, "madeBy", "model");
            self.log(&uuid, &body);
            calls.extend(call.map(|call| Call { row: uuid, ..call }));
        }
        calls
    }

    /// The row of a tool's result.
    pub(crate) fn tool_result(&self, call: &Call, outcome: &Outcome) {
        let failed = outcome.is_error == Some(true);
        let block = if failed {
            row! {
                "type": "tool_result",
                "content": outcome.content,
                "is_error": true,
                "tool_use_id": call.id,
            }
        } else {
            row! {
                "tool_use_id": call.id,
                "type": "tool_result",
                "content": outcome.content,
            }
            .put_some("is_error", outcome.is_error.as_ref())
        };
        let message = row! { "role": "user", "content": [block] };
        let (meta, kind, decision) = permission_fields(call, &outcome.permission);
        // A sub-agent's own results are not spelled out, unless they failed.
        let result = outcome
            .result
            .as_ref()
            .filter(|_| self.agent.is_none() || failed);
        let extra = Row::new()
            .put_some("tool_use_result", result)
            .put_some("tool_result_meta", meta.map(|m| [m]).as_ref());
        let uuid = self.say("user", &message, &extra);
        let body = row! {
            "promptId": self.prompt_id,
            "type": "user",
            "message": message,
            "uuid": uuid,
            "timestamp": ids::timestamp(),
        }
        .put_some("toolUseResult", result)
        .put_if(outcome.ran_bash, "sandboxed", &false)
        .put_some("toolDenialKind", kind.as_ref())
        .put("sourceToolAssistantUUID", &call.row)
        .put_some("permissionDecision", decision.as_ref());
        self.log(&uuid, &body);
    }

    /// `[Request interrupted by user]`
    pub(crate) fn interrupted(&self, in_tool: bool) {
        let text = if in_tool {
            "[Request interrupted by user for tool use]"
        } else {
            "[Request interrupted by user]"
        };
        let message = row! { "role": "user", "content": [row! { "type": "text", "text": text }] };
        let uuid = self.say("user", &message, &Row::new());
        let body = row! {
            "promptId": self.prompt_id,
            "type": "user",
            "message": message,
        }
        .put_if(self.s.newer, "rowSource", "harness")
        .put("uuid", &uuid)
        .put("timestamp", &ids::timestamp());
        self.log(&uuid, &body);
    }

    /// A sub-agent's prompt, said only when it runs in the foreground.
    pub(crate) fn agent_prompt(&self, text: &str, aloud: bool) {
        let uuid = if aloud {
            let content = [row! { "type": "text", "text": text }];
            self.say(
                "user",
                &row! { "role": "user", "content": content },
                &Row::new(),
            )
        } else {
            ids::uuid()
        };
        let body = row! {
            "promptId": self.prompt_id,
            "type": "user",
            "message": row! { "role": "user", "content": text },
        }
        .put_if(self.s.newer, "rowSource", "recorded")
        .put("uuid", &uuid)
        .put("timestamp", &ids::timestamp());
        self.log(&uuid, &body);
    }
}

fn permission_fields(
    call: &Call,
    permission: &Permission,
) -> (Option<Row>, Option<&'static str>, Option<Row>) {
    let meta = row! { "id": call.id };
    match permission {
        Permission::Accepted(by) => {
            let shown = row! { "decision": "accept", "source": "config", "reason_type": by };
            let kept = row! { "decision": "accept", "source": "config", "reasonType": by }.put_if(
                *by == "rule",
                "ruleSource",
                "cliArg",
            );
            (
                Some(meta.put("permission_decision", &shown)),
                None,
                Some(kept),
            )
        }
        Permission::Denied => {
            let shown = row! { "decision": "reject", "source": "config" };
            let kept = row! { "decision": "reject", "source": "config", "reasonCode": "unknown" };
            let meta = meta
                .put("non_execution_kind", "user-rejected")
                .put("permission_decision", &shown);
            (Some(meta), Some("user-rejected"), Some(kept))
        }
        Permission::Rejected => (
            Some(meta.put("non_execution_kind", "user-rejected")),
            Some("user-rejected"),
            None,
        ),
        Permission::None => (None, None, None),
    }
}

/// The stop reason of a reply that names none.
pub(crate) fn stop_reason(reply: &Reply) -> &'static str {
    if reply.tools.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    }
}
