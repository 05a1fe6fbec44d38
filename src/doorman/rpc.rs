//! JSON-RPC 2.0 as MCP uses it: one message a line. Pure: text in, values out.
//!
//! A message that is no message costs itself and nothing else: it is answered where it can be,
//! and the next one is read. No tree is built of what a peer sends, so that a message costs a
//! small multiple of its size at most.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// The text was no JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The JSON was no request.
pub const INVALID_REQUEST: i32 = -32600;
/// There is no such method here.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The method's parameters make no sense.
pub const INVALID_PARAMS: i32 = -32602;

/// What a peer sent.
#[derive(Debug)]
pub enum Message {
    /// It waits for an answer.
    Request(Request),
    /// It does not.
    Notification,
    /// An answer to something that was never asked.
    Response,
    /// No message; the answer to it.
    Broken(Response),
}

/// A request.
#[derive(Debug)]
pub struct Request {
    /// Any string or number, given back as it came.
    pub id: Box<RawValue>,
    /// What is asked for.
    pub method: String,
    /// With what, if anything.
    pub params: Option<Box<RawValue>>,
}

/// An answer.
#[derive(Debug, Serialize)]
pub struct Response {
    jsonrpc: &'static str,
    id: Option<Box<RawValue>>,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Result(Value),
    Error(Fault),
}

/// Why there is no result.
#[derive(Debug, Serialize)]
pub struct Fault {
    /// One of JSON-RPC's numbers.
    pub code: i32,
    /// What is wrong, for a person.
    pub message: String,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Reads one line. An empty one is nothing.
#[must_use]
pub fn decode(line: &[u8]) -> Option<Message> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return None;
    }
    Some(decode_text(line))
}

fn decode_text(line: &[u8]) -> Message {
    // A batch, a number or a text is JSON; only an object can be a message.
    if line[0] != b'{' {
        return match serde_json::from_slice::<serde::de::IgnoredAny>(line) {
            Ok(_) => broken(None, INVALID_REQUEST, "a message is one JSON object"),
            Err(e) => broken(None, PARSE_ERROR, &e.to_string()),
        };
    }
    let fields: Fields<'_> = match serde_json::from_slice(line) {
        Ok(fields) => fields,
        Err(e) if e.is_data() => return broken(id_of(line), INVALID_REQUEST, &e.to_string()),
        Err(e) => return broken(None, PARSE_ERROR, &e.to_string()),
    };
    match (fields.id, fields.method) {
        (Some(id), Some(method)) if is_id(id) => Message::Request(Request {
            id: id.to_owned(),
            method: method.into_owned(),
            params: fields.params.map(ToOwned::to_owned),
        }),
        (Some(_), Some(_)) => broken(None, INVALID_REQUEST, "an id is a string or a number"),
        (None, Some(_)) => Message::Notification,
        (Some(_), None) if fields.result.is_some() || fields.error.is_some() => Message::Response,
        (id, None) => {
            let id = id.filter(|id| is_id(id)).map(ToOwned::to_owned);
            broken(id, INVALID_REQUEST, "there is no method")
        }
    }
}

/// The id of an object whose other fields have the wrong types.
fn id_of(line: &[u8]) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Id<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let found: Id<'_> = serde_json::from_slice(line).ok()?;
    found.id.filter(|id| is_id(id)).map(ToOwned::to_owned)
}

fn is_id(id: &RawValue) -> bool {
    id.get()
        .starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

fn broken(id: Option<Box<RawValue>>, code: i32, message: &str) -> Message {
    Message::Broken(Response::error(id, code, message))
}

/// Writes one line.
#[must_use]
pub fn encode(response: &Response) -> Vec<u8> {
    // Cannot fail: every part is a value or already JSON. If it could, an empty line is harmless.
    let mut line = serde_json::to_vec(response).unwrap_or_default();
    line.push(b'\n');
    line
}

impl Request {
    /// The parameters as a type of the caller's; nothing when they are missing or different.
    #[must_use]
    pub fn params<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.params.as_ref()?.get()).ok()
    }

    /// The answer to this request.
    #[must_use]
    pub fn answer(&self, outcome: Result<Value, Fault>) -> Response {
        Response {
            jsonrpc: "2.0",
            id: Some(self.id.clone()),
            outcome: match outcome {
                Ok(value) => Outcome::Result(value),
                Err(fault) => Outcome::Error(fault),
            },
        }
    }
}

impl Response {
    /// An answer to what may have no id.
    #[must_use]
    pub fn error(id: Option<Box<RawValue>>, code: i32, message: &str) -> Self {
        Self {
            jsonrpc: "2.0",
            // JSON-RPC wants a null where the id could not be read.
            id: id.or_else(|| to_raw_value(&()).ok()),
            outcome: Outcome::Error(Fault {
                code,
                message: message.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a line is, in a word or as the answer to it.
    fn read(line: &str) -> String {
        match decode(line.as_bytes()) {
            None => "nothing".to_owned(),
            Some(Message::Request(request)) => format!("{} {}", request.id, request.method),
            Some(Message::Notification) => "notification".to_owned(),
            Some(Message::Response) => "response".to_owned(),
            Some(Message::Broken(response)) => {
                let value: Value = serde_json::from_slice(&encode(&response)).unwrap();
                format!("{} {}", value["id"], value["error"]["code"])
            }
        }
    }

    #[test]
    fn what_lines_are() {
        let table = [
            ("", "nothing"),
            (" \r", "nothing"),
            (
                r#"{"jsonrpc":"2.0","id":"server-discover-probe-1","method":"server/discover","params":{}}"#,
                "\"server-discover-probe-1\" server/discover",
            ),
            (
                r#"{"method":"initialize","params":{"a":[1,{"b":2}]},"jsonrpc":"2.0","id":0}"#,
                "0 initialize",
            ),
            (r#"{"id":-3.5,"method":"a\"b"}"#, "-3.5 a\"b"),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                "notification",
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
                "notification",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response"),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#, "response"),
            ("hello", "null -32700"),
            ("{", "null -32700"),
            (r#"{"id":1,"method":"x"} trailing"#, "null -32700"),
            ("[]", "null -32600"),
            (r#"[{"id":1,"method":"x"}]"#, "null -32600"),
            ("12", "null -32600"),
            ("{}", "null -32600"),
            (r#"{"id":{},"method":"x"}"#, "null -32600"),
            (r#"{"id":7}"#, "7 -32600"),
            (r#"{"id":7,"method":[]}"#, "7 -32600"),
        ];
        for (line, expected) in table {
            assert_eq!(read(line), expected, "{line}");
        }
        assert!(matches!(
            decode(b"{\"id\":1,\"method\":\"\xff\"}"),
            Some(Message::Broken(_))
        ));
    }

    #[test]
    fn an_answer_gives_the_id_back_as_it_came() {
        let Some(Message::Request(request)) = decode(br#"{"id":1.50,"method":"x"}"#) else {
            panic!("a request");
        };
        let line = encode(&request.answer(Ok(Value::Bool(true))));
        assert_eq!(line, b"{\"jsonrpc\":\"2.0\",\"id\":1.50,\"result\":true}\n");
        let fault = Fault {
            code: -1,
            message: "no".to_owned(),
        };
        let line = encode(&request.answer(Err(fault)));
        assert_eq!(
            line,
            b"{\"jsonrpc\":\"2.0\",\"id\":1.50,\"error\":{\"code\":-1,\"message\":\"no\"}}\n"
        );
    }
}
