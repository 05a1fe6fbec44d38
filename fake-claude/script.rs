//! The script that drives the stand-in.
//!
//! `replies` is what the API would answer, one per request, in order; the same list can feed a
//! mock of the API for the real program, so its form is fixed. Everything is strict: an unknown
//! field, or something that cannot be played, ends the process with code 70.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::quirks::Quirks;

/// The whole script file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// The version to play; `2.1.332` when absent.
    pub(crate) version: Option<String>,
    /// Answers to the main conversation's requests.
    pub(crate) replies: Vec<Reply>,
    /// Answers for sub-agents that bring none of their own, by the description of the call.
    #[serde(default)]
    pub(crate) subagents: BTreeMap<String, Vec<Reply>>,
    /// Deviations from the usual behaviour.
    #[serde(default)]
    pub(crate) quirks: Quirks,
}

/// One answer of the API.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reply {
    pub(crate) text: Option<String>,
    #[serde(default)]
    pub(crate) tools: Vec<ToolCall>,
    /// An HTTP error instead of a message.
    pub(crate) status: Option<u16>,
    #[serde(rename = "type")]
    pub(crate) error_type: Option<String>,
    pub(crate) message: Option<String>,
    /// Seconds in the `retry-after` header of an HTTP error.
    pub(crate) retry_after: Option<u64>,
    /// How many requests this answers.
    pub(crate) repeat: Option<Repeat>,
    /// Time before the answer.
    pub(crate) delay_ms: Option<u64>,
    pub(crate) usage: Option<Usage>,
    pub(crate) stop_reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Repeat {
    Times(u32),
    Word(RepeatWord),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RepeatWord {
    Forever,
}

/// A call of one tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    pub(crate) input: Value,
    /// For `Agent`: the answers to the sub-agent's requests.
    pub(crate) replies: Option<Vec<Reply>>,
}

/// Tokens of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Usage {
    #[serde(default = "default_input")]
    pub(crate) input_tokens: u64,
    #[serde(default = "default_output")]
    pub(crate) output_tokens: u64,
    #[serde(default)]
    pub(crate) cache_read_input_tokens: u64,
    #[serde(default)]
    pub(crate) cache_creation_input_tokens: u64,
}

fn default_input() -> u64 {
    100
}

fn default_output() -> u64 {
    5
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            input_tokens: default_input(),
            output_tokens: default_output(),
            cache_read_input_tokens: 0,
            cache_creation_input_tokens: 0,
        }
    }
}

impl Script {
    /// Without a script: one reply, `ok`.
    pub(crate) fn plain() -> Self {
        Self {
            replies: vec![Reply {
                text: Some("ok".to_owned()),
                tools: Vec::new(),
                status: None,
                error_type: None,
                message: None,
                retry_after: None,
                repeat: None,
                delay_ms: None,
                usage: None,
                stop_reason: None,
            }],
            ..Self::default()
        }
    }

    /// Reads and checks a script file.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("cannot read the script {}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| format!("script {}: {e}", path.display()))
    }

    /// Parses and checks a script.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let script: Self = serde_json::from_str(text).map_err(|e| e.to_string())?;
        check(&script.replies, 0)?;
        for replies in script.subagents.values() {
            check(replies, 1)?;
        }
        script.quirks.check()?;
        Ok(script)
    }
}

/// What a reply list must hold to be playable.
fn check(replies: &[Reply], depth: usize) -> Result<(), String> {
    for (i, reply) in replies.iter().enumerate() {
        let place = format!("reply {i} at depth {depth}");
        if reply.status.is_some() {
            if reply.text.is_some() || !reply.tools.is_empty() {
                return Err(format!("{place}: an HTTP error has no text and no tools"));
            }
        } else {
            if reply.text.is_none() && reply.tools.is_empty() {
                return Err(format!("{place}: neither text, nor tools, nor status"));
            }
            if reply.retry_after.is_some() || reply.error_type.is_some() || reply.message.is_some()
            {
                return Err(format!(
                    "{place}: retry_after, type and message need a status"
                ));
            }
        }
        for tool in &reply.tools {
            if let Some(nested) = &tool.replies {
                if tool.name != "Agent" {
                    return Err(format!(
                        "{place}: only Agent has replies, not {}",
                        tool.name
                    ));
                }
                check(nested, depth + 1)?;
            }
            if tool.name == "Agent" && depth > 0 {
                return Err(format!("{place}: a sub-agent of a sub-agent is not played"));
            }
            if tool.name == "Bash" && tool.input.get("command").and_then(Value::as_str).is_none() {
                return Err(format!("{place}: Bash needs a command"));
            }
        }
    }
    Ok(())
}

/// The replies still to be given, in order.
#[derive(Debug)]
pub(crate) struct Replies(VecDeque<Reply>);

impl Replies {
    pub(crate) fn new(replies: Vec<Reply>) -> Self {
        Self(replies.into())
    }

    /// The answer to the next request.
    pub(crate) fn next(&mut self) -> Option<Reply> {
        let mut reply = self.0.pop_front()?;
        match &mut reply.repeat {
            Some(Repeat::Word(RepeatWord::Forever)) => self.0.push_front(reply.clone()),
            Some(Repeat::Times(n)) if *n > 1 => {
                *n -= 1;
                self.0.push_front(reply.clone());
            }
            Some(Repeat::Times(_)) | None => {}
        }
        Some(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_and_unplayable_things_are_refused() {
        for bad in [
            r#"{"replies":[],"extra":1}"#,
            r#"{"replies":[{"txt":"x"}]}"#,
            r#"{"replies":[{}]}"#,
            r#"{"replies":[{"text":"x","status":500}]}"#,
            r#"{"replies":[{"text":"x","retry_after":2}]}"#,
            r#"{"replies":[{"status":500,"repeat":"always"}]}"#,
            r#"{"replies":[{"tools":[{"name":"Bash","input":{}}]}]}"#,
            r#"{"replies":[],"quirks":{"no_such_quirk":true}}"#,
        ] {
            assert!(Script::parse(bad).is_err(), "{bad}");
        }
        assert!(Script::parse(r#"{"replies":[{"text":"x"}]}"#).is_ok());
    }

    #[test]
    fn a_reply_repeats_as_often_as_told() {
        let script = Script::parse(
            r#"{"replies":[{"status":529,"repeat":2},{"text":"a","repeat":1},{"status":500,"repeat":"forever"}]}"#,
        )
        .unwrap();
        let mut replies = Replies::new(script.replies);
        let seen: Vec<_> = (0..6).map(|_| replies.next().unwrap().status).collect();
        assert_eq!(
            seen,
            [Some(529), Some(529), None, Some(500), Some(500), Some(500)]
        );
    }
}
