//! JSON-RPC with one MCP server: requests with answers, and the handshake.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::hub::lock;
use crate::row::{Row, row};

#[derive(Default)]
struct Inbox {
    answers: HashMap<String, Value>,
    closed: bool,
}

/// The server's end of the conversation.
pub(crate) struct Peer {
    stdin: Mutex<UnixStream>,
    inbox: Arc<(Mutex<Inbox>, Condvar)>,
    next: Mutex<u64>,
}

impl Peer {
    /// Starts to listen.
    pub(crate) fn new(stdin: UnixStream, stdout: UnixStream, mut stderr: UnixStream) -> Self {
        let inbox = Arc::new((Mutex::new(Inbox::default()), Condvar::new()));
        let (theirs, answer) = (Arc::clone(&inbox), stdin.try_clone());
        std::thread::spawn(move || listen(BufReader::new(stdout), answer.ok(), &theirs));
        std::thread::spawn(move || {
            let mut dropped = [0; 4096];
            while stderr.read(&mut dropped).is_ok_and(|n| n > 0) {}
        });
        Self {
            stdin: Mutex::new(stdin),
            inbox,
            next: Mutex::new(0),
        }
    }

    /// Whether the server has closed its stdout.
    pub(crate) fn closed(&self) -> bool {
        lock(&self.inbox.0).closed
    }

    /// Waits until the server has closed its stdout.
    pub(crate) fn wait_closed(&self) {
        let (inbox, bell) = &*self.inbox;
        let mut inbox = lock(inbox);
        while !inbox.closed {
            inbox = bell
                .wait(inbox)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn write(&self, row: &Row) {
        let _ = lock(&self.stdin).write_all(format!("{}\n", row.line()).as_bytes());
    }

    fn answer(&self, id: &Value, deadline: Instant) -> Option<Value> {
        let (inbox, bell) = &*self.inbox;
        let mut inbox = lock(inbox);
        loop {
            if let Some(answer) = inbox.answers.remove(&id.to_string()) {
                return Some(answer);
            }
            if inbox.closed {
                return None;
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            inbox = bell
                .wait_timeout(inbox, left)
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
    }

    /// Sends a request and waits for its result.
    pub(crate) fn request(&self, method: &str, params: &Value, deadline: Instant) -> Option<Value> {
        let id = self.id();
        self.write(&row! { "method": method, "params": params, "jsonrpc": "2.0", "id": id });
        self.answer(&json!(id), deadline)
            .map(|answer| answer["result"].clone())
    }

    fn id(&self) -> u64 {
        let mut next = lock(&self.next);
        let id = *next;
        *next += 1;
        id
    }

    /// Probe, initialize, initialized, tools/list. Gives the tools' names.
    pub(crate) fn handshake(&self, version: &str, deadline: Instant) -> Option<Vec<String>> {
        let client = row! {
            "name": "claude-code",
            "title": "Claude Code",
            "version": version,
            "description": "Anthropic's agentic coding tool",
            "websiteUrl": "https://claude.com/claude-code",
        };
        let capabilities = row! {
            "roots": row! { "listChanged": true },
            "elicitation": row! { "form": Row::new(), "url": Row::new() },
        };
        let probe = "server-discover-probe-1";
        let meta = row! {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": client,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        };
        self.write(&row! {
            "jsonrpc": "2.0",
            "id": probe,
            "method": "server/discover",
            "params": row! { "_meta": meta },
        });
        self.answer(&json!(probe), deadline)?;
        let id = self.id();
        self.write(&row! {
            "method": "initialize",
            "params": row! {
                "protocolVersion": "2025-11-25",
                "capabilities": capabilities,
                "clientInfo": client,
            },
            "jsonrpc": "2.0",
            "id": id,
        });
        let answer = self.answer(&json!(id), deadline)?;
        let result = answer.get("result")?;
        self.write(&row! { "jsonrpc": "2.0", "method": "notifications/initialized" });
        if result.pointer("/capabilities/tools").is_none() {
            return Some(Vec::new());
        }
        let id = self.id();
        self.write(&row! { "method": "tools/list", "jsonrpc": "2.0", "id": id });
        let listed = self.answer(&json!(id), deadline)?;
        let tools = listed.pointer("/result/tools").and_then(Value::as_array);
        let names = tools
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["name"].as_str());
        Some(names.map(str::to_owned).collect())
    }
}

/// Reads the server's lines; its own requests are answered, pings with nothing.
fn listen(
    mut stdout: BufReader<UnixStream>,
    mut answer: Option<UnixStream>,
    inbox: &(Mutex<Inbox>, Condvar),
) {
    let mut line = Vec::new();
    while stdout.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if let Ok(message) = serde_json::from_slice::<Value>(&line) {
            match (
                message.get("id"),
                message.get("method").and_then(Value::as_str),
            ) {
                (Some(id), None) => {
                    lock(&inbox.0)
                        .answers
                        .insert(id.to_string(), message.clone());
                    inbox.1.notify_all();
                }
                (Some(id), Some(method)) => {
                    let reply = match method {
                        "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
                        "roots/list" => {
                            json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": [] } })
                        }
                        _ => json!({ "jsonrpc": "2.0", "id": id,
                            "error": { "code": -32601, "message": "Method not found" } }),
                    };
                    if let Some(answer) = &mut answer {
                        let _ = answer.write_all(format!("{reply}\n").as_bytes());
                    }
                }
                (None, _) => {}
            }
        }
        line.clear();
    }
    lock(&inbox.0).closed = true;
    inbox.1.notify_all();
}
