//! `oo start` against `claude -p`: from the start of the process to its end.
//!
//! Both sides run in one world: the same HOME, working folder and variables, the same flags (this
//! is checked), the prompt in a file on stdin, the output in a file.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::claude_under_test::Chosen;
use super::noop_server;
use super::pair::Pair;
use super::table::Table;
use crate::world::claude::MODEL;
use crate::world::env::TestEnv;
use crate::world::process::Finished;

pub(crate) const PROMPT: &str = "say hello";

/// The bare `claude -p`.
pub(crate) fn without_doorman(chosen: &Chosen, table: &mut Table) {
    let env = chosen.world(Duration::ZERO);
    check_flags(&env, &["--no-doorman"], &[]);
    table.compare(Pair {
        name: "`oo start --no-doorman`",
        against: "the bare `claude -p`",
        ours: &mut || oo(&env, &["--no-doorman"]).took,
        theirs: &mut || claude(&env, &[]).took,
        limit: 1.05,
    });
}

/// A `claude -p` that has to start a server too.
pub(crate) fn with_doorman(chosen: &Chosen, table: &mut Table) {
    let env = chosen.world(Duration::ZERO);
    let flags = noop_flags(&env);
    check_flags(&env, &[], &flags);
    let row = claude(&env, &flags).stdout;
    assert!(row.contains(r#""status":"connected""#), "{row}");
    table.compare(Pair {
        name: "`oo start`",
        against: "`claude -p` with a compiled MCP server that does nothing",
        ours: &mut || oo(&env, &[]).took,
        theirs: &mut || claude(&env, &flags).took,
        limit: 1.05,
    });
}

fn oo(env: &TestEnv, flags: &[&str]) -> Finished {
    let finished = env
        .oo(["start", PROMPT, "--model", MODEL])
        .args(flags.iter().copied())
        .run();
    finished.expect_code(0);
    assert_eq!(finished.stdout.trim(), "hello");
    finished
}

fn claude(env: &TestEnv, flags: &[String]) -> Finished {
    let session = format!("--session-id={}", Uuid::new_v4());
    let finished = env.claude([session]).args(flags).stdin(PROMPT).run();
    finished.expect_code(0);
    finished
}

/// The configuration of the server that does nothing, in the form of the doorman's.
pub(crate) fn noop_flags(env: &TestEnv) -> Vec<String> {
    let program = std::env::current_exe().expect("a process knows its own path");
    let config = json!({ "mcpServers": { "oo": {
        "type": "stdio",
        "command": program,
        "args": [noop_server::WORD],
        "env": { "OO_STATE_DIR": env.state(), "OO_INBOX_DIR": env.state().join("inbox") },
    } } });
    let path = env.file("mcp.json", config.to_string());
    vec![
        format!("--mcp-config={}", path.display()),
        "--strict-mcp-config".to_owned(),
    ]
}

/// Fails unless oo gives claude the flags that the other side gives it.
fn check_flags(env: &TestEnv, oo_flags: &[&str], claude_flags: &[String]) {
    oo(env, oo_flags);
    let result = newest_run(env).join("result.json");
    let result: Value = serde_json::from_slice(&std::fs::read(result).expect("the run has ended"))
        .expect("a result is JSON");
    let ours = result["argv"].as_array().expect("a result has its argv");
    let ours = ours.iter().skip(1).map(|word| word.as_str().expect("text"));
    let model = format!("--model={MODEL}");
    let theirs = ["-p", "--output-format=stream-json", "--verbose", &model]
        .into_iter()
        .chain(["--session-id="])
        .chain(claude_flags.iter().map(String::as_str));
    assert_eq!(comparable(ours), comparable(theirs));
}

/// The flags in an order of their own, without the values that differ from run to run.
fn comparable<'a>(flags: impl Iterator<Item = &'a str>) -> Vec<String> {
    let varying = ["--session-id=", "--mcp-config="];
    let mut flags: Vec<String> = flags
        .map(|flag| {
            let prefix = varying.iter().find(|prefix| flag.starts_with(**prefix));
            (*prefix.unwrap_or(&flag)).to_owned()
        })
        .collect();
    flags.sort();
    flags
}

/// Run ids sort by time.
pub(crate) fn newest_run(env: &TestEnv) -> PathBuf {
    let runs = std::fs::read_dir(env.state().join("runs")).expect("there are runs");
    let newest = runs.flatten().map(|entry| entry.path()).max();
    newest.expect("there was a run")
}
