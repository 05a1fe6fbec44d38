//! Tools: what is allowed, and what a call gives back.
//!
//! Bash commands are really run. Anything that is no tool gets the real program's answer to an
//! unknown tool; a known tool that is not played is an error of the script.

use std::sync::Arc;

use crate::row::{Raw, row};
use crate::session::Session;
use crate::voice::{Call, Outcome, Permission, Voice};
use crate::{agents, bash, stream};

/// Commands that are taken for read-only in the default mode.
const READ_ONLY: &[&str] = &[
    "cat", "date", "echo", "head", "ls", "pwd", "sleep", "tail", "true", "wc",
];

/// Tools of the real program that the stand-in does not play.
const UNPLAYED: &[&str] = &[
    "Edit",
    "Glob",
    "Grep",
    "Monitor",
    "NotebookEdit",
    "Read",
    "SendMessage",
    "Skill",
    "Task",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
];

/// A call that has been made.
pub(crate) struct Done {
    pub(crate) call: Call,
    pub(crate) outcome: Outcome,
    pub(crate) denied: bool,
    /// Somebody wants the turn or the process to end.
    pub(crate) aborted: bool,
}

/// Whether a call is allowed, and if not, what is said of it.
enum Decision {
    Allow(&'static str),
    Deny {
        reason: Option<&'static str>,
        text: String,
    },
}

/// Makes one call.
pub(crate) fn run(voice: &Voice<'_>, s: &Arc<Session>, call: Call) -> Done {
    if UNPLAYED.contains(&call.name.as_str()) {
        crate::strict(&format!("the tool {} is not played", call.name));
    }
    let known = ["Bash", "Agent"].contains(&call.name.as_str()) || s.mcp.has_tool(&call.name);
    if !known {
        let text = format!("Error: No such tool available: {}", call.name);
        return refused(call, &text);
    }
    let by = match decide(s, &call) {
        Decision::Allow(by) => by,
        Decision::Deny { reason, text } => {
            stream::denied(s, &call.name, &call.id, reason, &text);
            let outcome = Outcome {
                content: Raw::new(&text),
                is_error: Some(true),
                result: Some(Raw::new(&format!("Error: {text}"))),
                permission: Permission::Denied,
                ran_bash: false,
            };
            return Done {
                call,
                outcome,
                denied: true,
                aborted: false,
            };
        }
    };
    match call.name.as_str() {
        "Bash" => match standalone_sleep(&call) {
            Some(text) => refused(call, &text),
            None => bash::run(voice, s, call, by),
        },
        "Agent" => agents::run(voice, s, call),
        _ => {
            let answer = s.mcp.call(&call.name, &call.input);
            let outcome = Outcome {
                content: Raw::new(&answer),
                is_error: None,
                result: Some(Raw::new(&answer)),
                permission: Permission::Accepted(by),
                ran_bash: false,
            };
            Done {
                call,
                outcome,
                denied: false,
                aborted: false,
            }
        }
    }
}

/// A call that never came to a decision.
fn refused(call: Call, text: &str) -> Done {
    let shown = text
        .strip_prefix("Error: Blocked")
        .map_or_else(|| text.to_owned(), |rest| format!("Blocked{rest}"));
    let outcome = Outcome {
        content: Raw::new(&format!("<tool_use_error>{shown}</tool_use_error>")),
        is_error: Some(true),
        result: Some(Raw::new(text)),
        permission: Permission::None,
        ran_bash: false,
    };
    Done {
        call,
        outcome,
        denied: false,
        aborted: false,
    }
}

/// A bare `sleep 30` in the foreground is refused.
fn standalone_sleep(call: &Call) -> Option<String> {
    let command = call.input.get("command")?.as_str()?.trim();
    let seconds: f64 = command.strip_prefix("sleep ")?.trim().parse().ok()?;
    let background = call
        .input
        .get("run_in_background")
        .and_then(serde_json::Value::as_bool);
    if seconds < 30.0 || background == Some(true) {
        return None;
    }
    Some(format!(
        "Error: Blocked: standalone {command}. To wait for a condition, use Monitor with an \
         until-loop (e.g. `until <check>; do sleep 2; done`). To wait for a command you started, \
         use run_in_background: true. Do not chain shorter sleeps to work around this block."
    ))
}

fn decide(s: &Session, call: &Call) -> Decision {
    let name = call.name.as_str();
    let needs = || Decision::Deny {
        reason: Some("other"),
        text: "This command requires approval".to_owned(),
    };
    let command = call
        .input
        .get("command")
        .and_then(serde_json::Value::as_str)
        .unwrap_or("");
    let matches = |option: &str| {
        s.flags
            .tool_rules(option)
            .iter()
            .any(|r| covers(r, name, command))
    };
    if s.quirks.deny.iter().any(|tool| tool == name) || matches("--disallowedTools") {
        return needs();
    }
    if s.bypass() || name == "Agent" {
        return Decision::Allow("mode");
    }
    if matches("--allowedTools") {
        return Decision::Allow("rule");
    }
    if name == "Bash" && read_only(command) {
        return Decision::Allow("subcommandResults");
    }
    if s.mode == "dontAsk" {
        return Decision::Deny {
            reason: Some("mode"),
            text: format!(
                "Permission to use {name} has been denied because Claude Code is running in \
                 don't ask mode."
            ),
        };
    }
    needs()
}

/// Whether a rule such as `Bash`, `Bash(git *)` or `mcp__server` covers a call.
fn covers(rule: &str, name: &str, command: &str) -> bool {
    if rule == name || (name.starts_with("mcp__") && name.starts_with(&format!("{rule}__"))) {
        return true;
    }
    let Some(pattern) = rule.strip_prefix(name).and_then(|r| r.strip_prefix('(')) else {
        return false;
    };
    let pattern = pattern.trim_end_matches(')');
    match pattern.strip_suffix('*') {
        Some(prefix) => command.starts_with(prefix.trim_end_matches(':')),
        None => command == pattern,
    }
}

fn read_only(command: &str) -> bool {
    let first = command.split_whitespace().next().unwrap_or("");
    READ_ONLY.contains(&first) && !command.contains(['>', ';', '&', '|', '`', '$', '\n'])
}

/// The result of a tool that was cut off by TERM or HUP.
pub(crate) fn killed() -> Outcome {
    Outcome {
        content: Raw::new("Exit code 137"),
        is_error: Some(true),
        result: Some(Raw::new("Error: Exit code 137")),
        permission: Permission::Accepted("mode"),
        ran_bash: true,
    }
}

/// The result of a tool that was cut off by the user; a control request says more about it.
pub(crate) fn rejected(by_request: bool) -> Outcome {
    // The real texts are advice to the model, which nobody but the model reads.
    let text = if by_request {
        "The user stopped the tool while it ran."
    } else {
        "The user rejected the tool use."
    };
    Outcome {
        content: Raw::new(text),
        is_error: Some(true),
        result: Some(Raw::new("User rejected tool use")),
        permission: Permission::Rejected,
        ran_bash: false,
    }
}

/// `content` as a list with one text block.
pub(crate) fn text_blocks(text: &str) -> Raw {
    Raw::new(&[row! { "type": "text", "text": text }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_cover_what_they_name() {
        assert!(covers("Bash", "Bash", "rm -rf x"));
        assert!(covers("Bash(git *)", "Bash", "git log"));
        assert!(covers("Bash(git:*)", "Bash", "git log"));
        assert!(!covers("Bash(git *)", "Bash", "rm x"));
        assert!(covers("mcp__oo", "mcp__oo__ping", ""));
        assert!(!covers("Edit", "Bash", "x"));
        assert!(read_only("echo hi") && !read_only("echo hi > x") && !read_only("touch x"));
    }
}
