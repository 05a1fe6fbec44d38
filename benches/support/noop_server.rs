//! An MCP server that offers nothing: what any doorman costs at least.
//!
//! It is this very program, started again with [`WORD`]. It behaves as claude expects of a good
//! server: the probe before the handshake is "no such method", and SIGINT ends it at once.

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

/// The argument that makes this program the server.
pub(crate) const WORD: &str = "no-op-mcp-server";

/// Serves until the input ends.
pub(crate) fn serve() {
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("claude writes lines");
        let Some(answer) = answer(&line) else {
            continue;
        };
        let sent = writeln!(output, "{answer}").and_then(|()| output.flush());
        if sent.is_err() {
            return;
        }
    }
}

fn answer(line: &str) -> Option<Value> {
    let request: Value = serde_json::from_str(line).ok()?;
    // A notification gets no answer.
    let id = request.get("id")?;
    let mut answer = json!({ "jsonrpc": "2.0", "id": id });
    match request["method"].as_str().unwrap_or_default() {
        "initialize" => {
            answer["result"] = json!({
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "no-op", "version": "1" },
            });
        }
        "tools/list" => answer["result"] = json!({ "tools": [] }),
        "ping" => answer["result"] = json!({}),
        _ => answer["error"] = json!({ "code": -32601, "message": "method not found" }),
    }
    Some(answer)
}
