//! What the model says: a list of answers of the Messages API, in order.
//!
//! One form for both lanes. The stand-in reads it as a JSON file and plays claude's side of it;
//! the mock plays it as the API to a real claude. So a test written with it runs on both.
//!
//! Invariants: answers are used in order, one for each request of a conversation, and a
//! sub-agent has a list of its own inside the call that starts it; asking for more answers than
//! there are fails the test. Of the errors, 401, 408, 409, 429 and 5xx are what claude tries
//! again: each try uses up one (see [`Reply::times`]). The others end the turn; claude may send
//! the same request once more in another dress, and gets the same answer.

use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::claude::Version;

/// The answers of one conversation, and what only the stand-in can play.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Scenario {
    pub(crate) replies: Vec<Reply>,
    /// The version that the stand-in plays, when not the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Misbehaviour of claude itself: for the stand-in only.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) quirks: Value,
}

/// One answer: a message, or an HTTP error.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Reply {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<Tool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repeat: Option<Repeat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop_reason: Option<String>,
}

/// How often an error is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Times(u32),
    Forever,
}

/// A call of a tool.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) input: Value,
    /// What the model says in the sub-agent that an `Agent` call starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) replies: Vec<Reply>,
}

impl Scenario {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            replies: replies.into_iter().collect(),
            ..Self::default()
        }
    }

    /// One answer, this text.
    pub(crate) fn says(text: &str) -> Self {
        Self::new([Reply::text(text)])
    }

    /// As claude of this version does it: heard by the stand-in, while a real one has its own.
    pub(crate) fn of_version(mut self, version: &Version) -> Self {
        self.version = Some(version.as_str().to_owned());
        self
    }

    /// What only the stand-in can do wrong.
    pub(crate) fn quirks(mut self, quirks: Value) -> Self {
        self.quirks = quirks;
        self
    }

    /// Every list of answers with the prompt of the sub-agent it belongs to; the first is the
    /// main conversation's, which has none.
    pub(crate) fn conversations(&self) -> Vec<(Option<String>, Vec<Reply>)> {
        let mut found = vec![(None, self.replies.clone())];
        let mut next = 0;
        while next < found.len() {
            let tools: Vec<Tool> = found[next]
                .1
                .iter()
                .flat_map(|reply| reply.tools.clone())
                .collect();
            for tool in tools.into_iter().filter(|tool| tool.name == "Agent") {
                let prompt = tool.input["prompt"]
                    .as_str()
                    .expect("an Agent call has a prompt");
                assert!(
                    found
                        .iter()
                        .all(|(other, _)| other.as_deref() != Some(prompt)),
                    "two sub-agents with one prompt cannot be told apart: {prompt}"
                );
                found.push((Some(prompt.to_owned()), tool.replies));
            }
            next += 1;
        }
        found
    }
}

impl Reply {
    /// The model answers in words and ends its turn.
    pub(crate) fn text(text: &str) -> Self {
        Self {
            text: Some(text.to_owned()),
            ..Self::default()
        }
    }

    /// The model calls a tool.
    pub(crate) fn tool(tool: Tool) -> Self {
        Self {
            tools: vec![tool],
            ..Self::default()
        }
    }

    /// The model runs a shell command.
    pub(crate) fn bash(command: &str) -> Self {
        Self::tool(Tool::bash(command))
    }

    /// The API refuses.
    pub(crate) fn error(status: u16) -> Self {
        Self {
            status: Some(status),
            ..Self::default()
        }
    }

    /// Says something before it calls its tools.
    pub(crate) fn saying(mut self, text: &str) -> Self {
        self.text = Some(text.to_owned());
        self
    }

    /// Calls one more tool in the same message.
    pub(crate) fn and(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// The error is given this often.
    pub(crate) fn times(mut self, times: u32) -> Self {
        self.repeat = Some(Repeat::Times(times));
        self
    }

    /// The error never stops.
    pub(crate) fn forever(mut self) -> Self {
        self.repeat = Some(Repeat::Forever);
        self
    }

    /// The answer takes its time.
    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.delay_ms = Some(u64::try_from(delay.as_millis()).expect("a short delay"));
        self
    }

    /// The API says when to come back.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The kind and the words of the error.
    pub(crate) fn described(mut self, kind: &str, message: &str) -> Self {
        self.kind = Some(kind.to_owned());
        self.message = Some(message.to_owned());
        self
    }

    /// What the answer is said to have cost.
    pub(crate) fn usage(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Some(json!({ "input_tokens": input_tokens, "output_tokens": output_tokens }));
        self
    }

    /// Why the model stopped, when it is not what the content says.
    pub(crate) fn stopped_by(mut self, reason: &str) -> Self {
        self.stop_reason = Some(reason.to_owned());
        self
    }

    /// Whether claude gives up at once on this error.
    pub(crate) fn is_final_error(&self) -> bool {
        self.status.is_some_and(|status| {
            (400..500).contains(&status) && ![401, 408, 409, 429].contains(&status)
        })
    }
}

impl Tool {
    pub(crate) fn new(name: &str, input: Value) -> Self {
        Self {
            name: name.to_owned(),
            input,
            replies: Vec::new(),
        }
    }

    /// A shell command that the turn waits for.
    pub(crate) fn bash(command: &str) -> Self {
        Self::new(
            "Bash",
            json!({ "command": command, "description": "a scripted command" }),
        )
    }

    /// A shell command that goes on by itself.
    pub(crate) fn background(command: &str) -> Self {
        let mut tool = Self::bash(command);
        tool.input["run_in_background"] = Value::Bool(true);
        tool
    }

    /// A sub-agent, and what the model says in it. The prompt must be its alone.
    pub(crate) fn agent(prompt: &str, replies: impl IntoIterator<Item = Reply>) -> Self {
        let input = json!({
            "description": "a rider",
            "prompt": prompt,
            "subagent_type": "general-purpose",
        });
        Self {
            replies: replies.into_iter().collect(),
            ..Self::new("Agent", input)
        }
    }
}

impl Serialize for Repeat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Times(times) => serializer.serialize_u32(*times),
            Self::Forever => serializer.serialize_str("forever"),
        }
    }
}
