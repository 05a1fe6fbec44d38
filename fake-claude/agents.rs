//! Sub-agents: a conversation of their own, with replies of their own.
//!
//! Invariants: without `run_in_background: false` a sub-agent runs in the background and its
//! result row is held back; its rows carry the call it belongs to; its cost is the session's.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

use crate::api::{Answer, ask};
use crate::hub::{Task, lock};
use crate::ids;
use crate::quirks::Point;
use crate::row::{Raw, Row, row};
use crate::script::{Replies, Reply};
use crate::session::Session;
use crate::tasks::{self, Ended};
use crate::tools::{self, Done};
use crate::transcript::Log;
use crate::voice::{AgentVoice, Call, Outcome, Permission, Voice};
use crate::{acts, stream};

struct Agent {
    voice: AgentVoice,
    prompt: String,
    prompt_id: String,
    replies: Mutex<Replies>,
    background: bool,
    began: Instant,
}

/// What a sub-agent came to.
#[derive(Default)]
struct Report {
    text: String,
    tools: Vec<String>,
    tokens: u64,
    failed: bool,
    aborted: bool,
}

fn replies(s: &Session, call: &Call, description: &str) -> Vec<Reply> {
    call.replies
        .clone()
        .or_else(|| lock(&s.subagents).remove(description))
        .unwrap_or_else(|| {
            crate::strict(&format!("the sub-agent \"{description}\" has no replies"))
        })
}

/// Starts a sub-agent, and waits for it unless it runs in the background.
pub(crate) fn run(voice: &Voice<'_>, s: &Arc<Session>, call: Call) -> Done {
    let input = |key: &str| {
        call.input
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned()
    };
    let asked = call.input.get("run_in_background").and_then(Value::as_bool);
    let background = asked != Some(false);
    let kind = match input("subagent_type") {
        kind if kind.is_empty() => "general-purpose".to_owned(),
        kind => kind,
    };
    {
        let mut stats = lock(&s.stats);
        stats.spawned += 1;
        *match asked {
            Some(true) => &mut stats.background,
            Some(false) => &mut stats.foreground,
            None => &mut stats.unset,
        } += 1;
        stats.started_in_background += u32::from(background);
        *stats.by_type.entry(kind.clone()).or_insert(0) += 1;
    }
    let id = format!("a{}", ids::hex(16));
    let path = {
        let log = lock(&s.log);
        log.path()
            .with_extension("")
            .join("subagents")
            .join(format!("agent-{id}.jsonl"))
    };
    let mut log = Log::of_agent(path, &id, !s.quirks.no_transcript);
    log.open();
    let agent = Agent {
        voice: AgentVoice {
            task: Task {
                id,
                run_id: ids::run_id(),
                tool_use_id: call.id.clone(),
                description: input("description"),
                agent: Some(kind),
            },
            log: Mutex::new(log),
        },
        prompt: input("prompt"),
        prompt_id: voice.prompt_id.clone(),
        replies: Mutex::new(Replies::new(replies(s, &call, &input("description")))),
        background,
        began: Instant::now(),
    };
    meta(s, &agent, false);
    let task = agent.voice.task.clone();
    if background {
        s.hub.tell(|state| state.tasks.push(task.clone()));
        stream::tasks_changed(s);
        stream::task_started(s, &task, true, Some(&agent.prompt));
        let outcome = launched(s, &agent);
        let session = Arc::clone(s);
        let thread = std::thread::spawn(move || {
            let report = converse(&session, &agent);
            finish(&session, &agent, &report);
        });
        lock(&s.threads).push(thread);
        return Done {
            call,
            outcome,
            denied: false,
            aborted: false,
        };
    }
    stream::task_started(s, &task, false, Some(&agent.prompt));
    let report = converse(s, &agent);
    finish(s, &agent, &report);
    let outcome = handed_back(s, &agent, &report);
    Done {
        call,
        outcome,
        denied: false,
        aborted: report.aborted,
    }
}

/// The sub-agent's rounds.
fn converse(s: &Arc<Session>, agent: &Agent) -> Report {
    let voice = Voice {
        s,
        agent: Some(&agent.voice),
        prompt_id: agent.prompt_id.clone(),
    };
    voice.agent_prompt(&agent.prompt, !agent.background);
    let task = &agent.voice.task;
    let mut report = Report::default();
    let mut first = true;
    loop {
        let (reply, request) = match ask(&voice, &agent.replies, std::mem::take(&mut first)) {
            Answer::Reply { reply, request } => (reply, request),
            Answer::Aborted => {
                report.aborted = true;
                return report;
            }
            Answer::Error(problem) => {
                problem.say(&voice);
                report.text = problem.text;
                report.failed = true;
                return report;
            }
        };
        let usage = reply.usage.unwrap_or_default();
        report.tokens = usage.input_tokens + usage.output_tokens;
        if let Some(text) = &reply.text {
            report.text.clone_from(text);
        }
        let calls = voice.answer(*reply, &request, Row::new());
        if calls.is_empty() {
            return report;
        }
        for call in calls {
            let doing = call.input.get("description").and_then(Value::as_str);
            let doing = doing.unwrap_or(&call.name).to_owned();
            report.tools.push(call.name.clone());
            let usage = row! {
                "total_tokens": report.tokens - 1,
                "tool_uses": report.tools.len(),
                "duration_ms": ids::since(agent.began),
            };
            stream::task_progress(s, task, &doing, &usage, &call.name);
            let done = tools::run(&voice, s, call);
            if done.aborted {
                voice.tool_result(&done.call, &tools::killed());
                report.aborted = true;
                return report;
            }
            voice.tool_result(&done.call, &done.outcome);
        }
    }
}

fn usage(agent: &Agent, report: &Report) -> Row {
    row! {
        "total_tokens": report.tokens,
        "tool_uses": report.tools.len(),
        "duration_ms": ids::since(agent.began),
    }
}

fn tools_used(report: &Report) -> Option<String> {
    let mut tools = report.tools.clone();
    tools.dedup();
    (!tools.is_empty()).then(|| tools.join(","))
}

/// The end of a sub-agent; one that was cut off by a signal says nothing more.
fn finish(s: &Arc<Session>, agent: &Agent, report: &Report) {
    if report.aborted {
        return;
    }
    acts::play(s, Point::TaskEnd);
    let task = &agent.voice.task;
    {
        let mut stats = lock(&s.stats);
        let outcome = if report.failed {
            &mut stats.failed
        } else {
            &mut stats.completed
        };
        *outcome += 1;
    }
    meta(s, agent, true);
    let status = if report.failed { "failed" } else { "completed" };
    if !agent.background {
        stream::task_updated(s, task, status);
        let file = tasks::output_file(s, &task.id).display().to_string();
        let usage = usage(agent, report);
        let end = stream::TaskEnd {
            status,
            output_file: &file,
            summary: &report.text,
            is_report: false,
            usage: Some(&usage),
        };
        stream::task_notification(s, task, &end);
        return;
    }
    let told = format!(
        "<note>A task-notification fires each time this agent stops with no live background \
         children of its own. The user can send it another message and resume it, so the same \
         task-id may notify more than once.</note>\n<result>{}</result>\n\
         <usage><subagent_tokens>{}</subagent_tokens><tool_uses>{}</tool_uses>\
         <duration_ms>{}</duration_ms></usage>\n",
        report.text,
        report.tokens,
        report.tools.len(),
        ids::since(agent.began)
    );
    let summary = format!("Agent \"{}\" finished", task.description);
    tasks::ended(
        s,
        task,
        Ended {
            status,
            summary: report.text.clone(),
            told: summary,
            report: Some(told),
            usage: Some(usage(agent, report)),
            tools_used: tools_used(report).filter(|_| s.newer),
        },
    );
}

fn meta(s: &Session, agent: &Agent, finished: bool) {
    if s.quirks.no_transcript {
        return;
    }
    let task = &agent.voice.task;
    let shape = if agent.background {
        "background"
    } else {
        "foreground"
    };
    let row = row! {
        "agentType": task.agent,
        "isBuiltIn": true,
        "launchedWithDefaults": true,
        "description": task.description,
        "toolUseId": task.tool_use_id,
        "spawnDepth": 1,
        "requestShape": shape,
        "requestNonInteractive": true,
        "model": s.model,
        "modelNotNamed": true,
        "pickedEffortModel": s.model,
    }
    .put_if(finished, "finished", &true);
    let path = lock(&agent.voice.log).path().with_extension("meta.json");
    let _ = std::fs::write(path, row.line());
}

/// The result of a call whose sub-agent runs in the background.
fn launched(s: &Session, agent: &Agent) -> Outcome {
    let task = &agent.voice.task;
    let file = tasks::output_file(s, &task.id).display().to_string();
    // What the real one tells the model here is prose that nobody but the model reads.
    let text = format!("agentId: {}\noutput_file: {file}", task.id);
    let result = row! {
        "isAsync": true,
        "status": "async_launched",
        "agentId": task.id,
        "description": task.description,
        "resolvedModel": s.model,
        "prompt": agent.prompt,
        "outputFile": file,
        "canReadOutputFile": true,
        "canContinueAgent": true,
    };
    Outcome {
        content: tools::text_blocks(&text),
        is_error: None,
        result: Some(Raw::new(&result)),
        permission: Permission::Accepted("mode"),
        ran_bash: false,
    }
}

/// The result of a call whose sub-agent ran in the foreground.
fn handed_back(s: &Session, agent: &Agent, report: &Report) -> Outcome {
    let task = &agent.voice.task;
    let took = ids::since(agent.began);
    let text = format!(
        "{}\nagentId: {}\n<usage>subagent_tokens: {}\ntool_uses: {}\nduration_ms: {took}</usage>",
        report.text,
        task.id,
        report.tokens,
        report.tools.len()
    );
    let result = row! {
        "status": "completed",
        "prompt": agent.prompt,
        "agentId": task.id,
        "agentType": task.agent,
        "toolsUsed": report.tools,
        "content": [row! { "type": "text", "text": report.text }],
        "resolvedModel": s.model,
        "totalDurationMs": took,
        "totalTokens": report.tokens,
        "totalToolUseCount": report.tools.len(),
        "canContinueAgent": true,
    };
    Outcome {
        content: tools::text_blocks(&text),
        is_error: None,
        result: Some(Raw::new(&result)),
        permission: Permission::Accepted("mode"),
        ran_bash: false,
    }
}
