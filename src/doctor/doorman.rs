//! Does a doorman shake hands? This very program is started as one and asked what claude asks.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Finding, Outcome, Surroundings};
use crate::doorman;
use crate::platform::environment::Environment;
use crate::platform::host;
use crate::platform::probe::{Dialogue, Program};
use crate::run::claude_version;

/// How long it may take; claude itself waits for half a minute.
const LIMIT: Duration = Duration::from_secs(10);

/// The protocol that the newest claude speaks (measured: 2.1.332).
const PROTOCOL: &str = "2025-11-25";

pub(super) fn check(surroundings: &Surroundings<'_>) -> Outcome {
    if doorman::is_off(surroundings.environment) {
        return Outcome::Found(vec![Finding::new(
            "OO_DOORMAN=0 turns doormen off: no line reaches a session",
            "unset OO_DOORMAN",
        )]);
    }
    let program = match program(surroundings) {
        Ok(program) => program,
        Err(finding) => return Outcome::Found(vec![finding]),
    };
    match shake_hands(&program) {
        Ok(well) => Outcome::Well(well),
        Err(message) => Outcome::Found(vec![
            Finding::new(
                format!("the doorman of this oo did not shake hands: {message}"),
                "run `oo doorman --mcp` by hand to see what it says; `oo start --no-doorman` does \
                 without one",
            )
            .at(&program.path),
        ]),
    }
}

fn program(surroundings: &Surroundings<'_>) -> Result<Program, Finding> {
    let hint = "start this program again from where it is now";
    let path = host::own_program().map_err(|error| Finding::error(&error, hint))?;
    let mut environment: Environment = claude_version::environment(surroundings.environment)
        .map_err(|error| Finding::error(&error, "see the message"))?;
    if let Ok(state) = &surroundings.state {
        environment.set("OO_STATE_DIR", state.root());
        environment.set("OO_INBOX_DIR", state.inbox());
    }
    Ok(Program {
        path,
        arguments: vec!["doorman".into(), "--mcp".into()],
        environment,
    })
}

fn shake_hands(program: &Program) -> Result<String, String> {
    let began = Instant::now();
    let mut dialogue = Dialogue::start(program, LIMIT).map_err(|e| format!("cannot start: {e}"))?;
    let answer = request(&mut dialogue, "server/discover", &json!({}))?;
    if answer["error"]["code"] != -32601 {
        return Err(format!("it answered server/discover with {answer}"));
    }
    let hello = json!({
        "protocolVersion": PROTOCOL,
        "capabilities": {},
        "clientInfo": { "name": "oo-doctor", "version": env!("CARGO_PKG_VERSION") },
    });
    let answer = request(&mut dialogue, "initialize", &hello)?;
    if answer["result"]["protocolVersion"] != PROTOCOL {
        return Err(format!("it answered initialize with {answer}"));
    }
    let ready = began.elapsed();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    say(&mut dialogue, &initialized)?;
    let answer = request(&mut dialogue, "tools/list", &json!({}))?;
    let tools: Vec<&str> = answer["result"]["tools"]
        .as_array()
        .ok_or_else(|| format!("it answered tools/list with {answer}"))?
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let tools = tools.join(", ");
    let said = dialogue
        .end()
        .map_err(|e| format!("it did not leave when its input closed: {e}"))?;
    if !said.status.success() {
        return Err(format!("it left with {}: {}", said.status, said.stderr));
    }
    Ok(format!(
        "a doorman answered initialize after {} ms and offers: {tools}",
        ready.as_millis()
    ))
}

fn say(dialogue: &mut Dialogue, message: &Value) -> Result<(), String> {
    dialogue.say(&message.to_string()).map_err(|e| {
        let complaint = dialogue.complaint();
        format!("it left: {e} {complaint}")
    })
}

/// Asks, and waits for the answer to that very question.
fn request(dialogue: &mut Dialogue, method: &str, params: &Value) -> Result<Value, String> {
    say(
        dialogue,
        &json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": params }),
    )?;
    loop {
        let line = match dialogue.hear() {
            Ok(Some(line)) => line,
            Ok(None) => {
                let complaint = dialogue.complaint();
                return Err(format!("it left before it answered {method}: {complaint}"));
            }
            Err(e) => return Err(format!("no answer to {method}: {e}")),
        };
        let answer: Value = serde_json::from_slice(&line)
            .map_err(|e| format!("what it writes to stdout is no JSON: {e}"))?;
        if answer["id"] == method {
            return Ok(answer);
        }
    }
}
