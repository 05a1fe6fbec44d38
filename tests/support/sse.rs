//! Answers of the Messages API as bytes: a message as server-sent events or as one document, and
//! an error.
//!
//! Invariant: what is said here is what a real claude 2.1.308 and 2.1.332 accept.

use serde_json::{Value, json};
use uuid::Uuid;

use super::scenario::Reply;

/// What a scripted answer costs unless it says otherwise.
pub(crate) const USAGE: (u64, u64) = (100, 5);

/// The message as a document.
pub(crate) fn message(model: &str, reply: &Reply) -> Value {
    json!({
        "id": format!("msg_{}", Uuid::new_v4().simple()),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content(reply),
        "stop_reason": stop_reason(reply),
        "stop_sequence": null,
        "usage": usage(reply),
    })
}

/// The message as server-sent events.
pub(crate) fn events(model: &str, reply: &Reply) -> String {
    let mut message = message(model, reply);
    let content = message["content"].take();
    let usage = message["usage"].clone();
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    message["usage"]["output_tokens"] = json!(1);
    let mut stream = Stream::default();
    stream.event(&json!({ "type": "message_start", "message": message }));
    for (index, block) in content.as_array().into_iter().flatten().enumerate() {
        let (start, delta) = if block["type"] == "text" {
            (
                json!({ "type": "text", "text": "" }),
                json!({ "type": "text_delta", "text": block["text"] }),
            )
        } else {
            let mut start = block.clone();
            start["input"] = json!({});
            let input = block["input"].to_string();
            (
                start,
                json!({ "type": "input_json_delta", "partial_json": input }),
            )
        };
        stream.event(
            &json!({ "type": "content_block_start", "index": index, "content_block": start }),
        );
        stream.event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        stream.event(&json!({ "type": "content_block_stop", "index": index }));
    }
    stream.event(&json!({
        "type": "message_delta",
        "delta": { "stop_reason": stop_reason(reply), "stop_sequence": null },
        "usage": { "output_tokens": usage["output_tokens"] },
    }));
    stream.event(&json!({ "type": "message_stop" }));
    stream.text
}

/// The body of an HTTP error.
pub(crate) fn error(status: u16, reply: &Reply) -> Value {
    let kind = reply.kind.as_deref().unwrap_or(match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    });
    let message = reply
        .message
        .clone()
        .unwrap_or_else(|| format!("mock says {status}"));
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}

fn content(reply: &Reply) -> Vec<Value> {
    let text = reply
        .text
        .iter()
        .map(|text| json!({ "type": "text", "text": text }));
    let tools = reply.tools.iter().map(|tool| {
        let id = format!("toolu_{}", Uuid::new_v4().simple());
        json!({ "type": "tool_use", "id": id, "name": tool.name, "input": tool.input })
    });
    text.chain(tools).collect()
}

fn stop_reason(reply: &Reply) -> &str {
    let natural = if reply.tools.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    reply.stop_reason.as_deref().unwrap_or(natural)
}

fn usage(reply: &Reply) -> Value {
    let mut usage = json!({
        "input_tokens": USAGE.0,
        "output_tokens": USAGE.1,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0,
    });
    for (name, value) in reply.usage.iter().filter_map(Value::as_object).flatten() {
        usage[name] = value.clone();
    }
    usage
}

#[derive(Default)]
struct Stream {
    text: String,
}

impl Stream {
    fn event(&mut self, data: &Value) {
        let kind = data["type"].as_str().expect("an event has a type");
        self.text
            .push_str(&format!("event: {kind}\ndata: {data}\n\n"));
    }
}
