//! The MCP server: a plain function from a request and the doorman's status to an answer.
//!
//! - `server/discover`, with which a newer claude asks first, is answered "no such method": then
//!   it goes on with `initialize`.
//! - Every request is answered, before `initialize` too: there is nothing here that depends on it.
//! - Whatever the doorman cannot do, it is a correct server: a claude is never broken by it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::rpc::{Fault, INVALID_PARAMS, METHOD_NOT_FOUND, Request, Response};
use jiff::Timestamp;

/// The protocol versions spoken here, newest first. What is used of them is the same in all.
const PROTOCOLS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The one tool.
const STATUS: &str = "status";

/// What the doorman is, as its tool tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// `off`, `looking`, `idle`, `starting`, `following` or `standby`.
    pub state: &'static str,
    /// Why it does not follow, or what goes wrong while it does.
    pub reason: Option<String>,
    /// The session.
    pub session_id: Option<Uuid>,
    /// The claude that it serves.
    pub peer_pid: Option<i32>,
    /// Itself.
    pub pid: u32,
    /// Lines that reached the model's context.
    pub delivered: u64,
    /// Lines that wait.
    pub pending: u64,
    /// When it last gave a sign of life.
    pub heartbeat_at: Option<Timestamp>,
    /// The version of oo.
    pub oo_version: &'static str,
}

/// Answers a request. The status is asked for only where the answer tells it.
#[must_use]
pub fn respond(request: &Request, status: impl FnOnce() -> Status) -> Response {
    request.answer(match request.method.as_str() {
        "initialize" => Ok(initialize(request)),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(tools()),
        "tools/call" => call(request, status),
        method => Err(Fault {
            code: METHOD_NOT_FOUND,
            message: format!("method not found: {}", shortened(method)),
        }),
    })
}

fn initialize(request: &Request) -> Value {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        protocol_version: Option<String>,
    }
    let asked = request
        .params::<Params>()
        .and_then(|params| params.protocol_version);
    let version = PROTOCOLS
        .into_iter()
        .find(|known| Some(*known) == asked.as_deref())
        .unwrap_or(PROTOCOLS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "oo-doorman", "version": env!("CARGO_PKG_VERSION") },
    })
}

fn tools() -> Value {
    json!({
        "tools": [{
            "name": STATUS,
            "description": "Tells what oo's doorman of this session is doing: whether it lives, \
                            how many lines wait for the session and how many have arrived.",
            "inputSchema": { "type": "object", "properties": {}, "additionalProperties": false },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        }],
    })
}

fn call(request: &Request, status: impl FnOnce() -> Status) -> Result<Value, Fault> {
    #[derive(Deserialize)]
    struct Params {
        name: String,
    }
    match request.params::<Params>() {
        Some(Params { name }) if name == STATUS => {
            let told = json!(status());
            Ok(json!({
                "content": [{ "type": "text", "text": told.to_string() }],
                "structuredContent": told,
            }))
        }
        Some(Params { name }) => Err(Fault {
            code: INVALID_PARAMS,
            message: format!("no such tool: {}", shortened(&name)),
        }),
        None => Err(Fault {
            code: INVALID_PARAMS,
            message: "a call names a tool".to_owned(),
        }),
    }
}

/// An answer does not repeat a megabyte.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::super::rpc::{Message, decode, encode};
    use super::*;

    fn status() -> Status {
        Status {
            state: "following",
            reason: None,
            session_id: Some(Uuid::from_u128(7)),
            peer_pid: Some(1),
            pid: 2,
            delivered: 3,
            pending: 4,
            heartbeat_at: None,
            oo_version: "0",
        }
    }

    fn ask(line: &str) -> Value {
        let Some(Message::Request(request)) = decode(line.as_bytes()) else {
            panic!("no request: {line}");
        };
        serde_json::from_slice(&encode(&respond(&request, status))).unwrap()
    }

    #[test]
    fn the_handshake_that_claude_was_seen_to_make() {
        let answer = ask(
            r#"{"jsonrpc":"2.0","id":"server-discover-probe-1","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        );
        assert_eq!(answer["id"], "server-discover-probe-1");
        assert_eq!(answer["error"]["code"], METHOD_NOT_FOUND);
        let answer = ask(
            r#"{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true}},"clientInfo":{"name":"claude-code"}},"jsonrpc":"2.0","id":0}"#,
        );
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        assert_eq!(answer["result"]["serverInfo"]["name"], "oo-doorman");
        let answer = ask(r#"{"method":"tools/list","jsonrpc":"2.0","id":1}"#);
        assert_eq!(answer["result"]["tools"][0]["name"], "status");
        assert_eq!(answer["result"]["tools"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn an_unknown_protocol_is_answered_with_the_newest() {
        for (asked, answered) in [
            (r#""2024-11-05""#, "2024-11-05"),
            (r#""2031-01-01""#, "2025-11-25"),
            ("12", "2025-11-25"),
        ] {
            let line = format!(
                r#"{{"id":0,"method":"initialize","params":{{"protocolVersion":{asked}}}}}"#
            );
            assert_eq!(ask(&line)["result"]["protocolVersion"], answered, "{asked}");
        }
        let line = r#"{"id":0,"method":"initialize"}"#;
        assert_eq!(ask(line)["result"]["protocolVersion"], "2025-11-25");
    }

    #[test]
    fn the_tool_tells_the_status_twice() {
        let line = r#"{"id":1,"method":"tools/call","params":{"name":"status","arguments":{}}}"#;
        let result = &ask(line)["result"];
        assert_eq!(result["structuredContent"]["state"], "following");
        let text: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"]);
        assert_eq!(
            (text["delivered"].as_u64(), text["pending"].as_u64()),
            (Some(3), Some(4))
        );
    }

    #[test]
    fn faults_have_their_numbers() {
        let long = "m".repeat(10_000);
        let table = [
            (
                r#"{"id":1,"method":"resources/list"}"#.to_owned(),
                METHOD_NOT_FOUND,
            ),
            (format!(r#"{{"id":1,"method":"{long}"}}"#), METHOD_NOT_FOUND),
            (
                r#"{"id":1,"method":"tools/call"}"#.to_owned(),
                INVALID_PARAMS,
            ),
            (
                r#"{"id":1,"method":"tools/call","params":[]}"#.to_owned(),
                INVALID_PARAMS,
            ),
            (
                r#"{"id":1,"method":"tools/call","params":{"name":"x"}}"#.to_owned(),
                INVALID_PARAMS,
            ),
        ];
        for (line, code) in table {
            let answer = ask(&line);
            assert_eq!(answer["error"]["code"], code, "{line}");
            assert!(answer.to_string().len() < 300);
        }
        assert_eq!(ask(r#"{"id":1,"method":"ping"}"#)["result"], json!({}));
    }
}
