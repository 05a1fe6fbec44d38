//! `oo doorman --allow-foreground`: by the owner's row alone, and never from inside.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;

use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::lanes::on_each_claude;
use crate::support::process::{Running, until_some};
use crate::support::rows;
use crate::support::scenario::{Reply, Scenario};
use crate::support::steered::{acks, inbox_file, seen_in_transcript};

const SESSION: &str = "0b5e6c52-6d0f-4a52-9d57-3b6b3f0a7c11";

/// A claude that nobody gave a doorman, in a tool that ends when the gate opens.
fn claude(env: &TestEnv, args: &[&str]) -> Running {
    let gate = env.work().join("gate");
    let gate = gate.to_str().unwrap();
    env.script(&Scenario::new([
        Reply::bash(&format!("while [ ! -e {gate} ]; do sleep 0.02; done")),
        Reply::text("done"),
    ]));
    let session = format!("--session-id={SESSION}");
    let mut all = vec![session.as_str()];
    all.extend(args);
    let mut claude = env.claude(all).stdin("begin").spawn();
    claude.until_rows("assistant", 1, PATIENCE);
    claude
}

fn append(env: &TestEnv, session: &str, text: &str) {
    let path = inbox_file(env, session, "inbox");
    let mut folders = fs::DirBuilder::new();
    folders.recursive(true).mode(0o700);
    folders.create(path.parent().unwrap()).unwrap();
    let lines = fs::read_to_string(&path).unwrap_or_default();
    fs::write(path, format!("{lines}{text}\n")).unwrap();
}

fn by_hand(env: &TestEnv, args: &[&str]) -> Running {
    let mut all = vec!["doorman", "--allow-foreground"];
    all.extend(args);
    env.oo(all).spawn()
}

fn open_gate(env: &TestEnv) {
    fs::write(env.work().join("gate"), "").unwrap();
}

on_each_claude!(what_waits_is_delivered_from_outside, |claude_to_run| {
    let env = TestEnv::with(&claude_to_run, &Scenario::default());
    let mut running = claude(&env, &["--allowed-tools=Bash"]);
    append(&env, SESSION, "by hand");
    let mut doorman = by_hand(&env, &["--session", SESSION, "--once"]);
    doorman.until(PATIENCE, "the line is accepted", || {
        acks(&env, SESSION)
            .iter()
            .any(|ack| ack["state"] == "accepted")
    });
    open_gate(&env);
    doorman.wait(PATIENCE).expect_code(0);
    let last = acks(&env, SESSION).pop().unwrap();
    assert_eq!(
        (&last["state"], &last["class"]),
        (&json!("seen"), &json!("delivered-steer"))
    );
    running.until_rows("result", 1, PATIENCE);
    running.wait(PATIENCE).expect_code(0);
    assert_eq!(seen_in_transcript(&env, SESSION).len(), 1);
});

on_each_claude!(a_session_in_bypass_mode_lets_nobody_in, |claude_to_run| {
    let env = TestEnv::with(&claude_to_run, &Scenario::default());
    let running = claude(&env, &["--permission-mode=bypassPermissions"]);
    append(&env, SESSION, "by hand");
    let done = by_hand(&env, &["--session", SESSION, "--once"]).wait(PATIENCE);
    done.expect_code(3);
    assert!(done.stderr.contains("bypassPermissions"), "{}", done.stderr);
    assert_eq!(acks(&env, SESSION), Vec::<Value>::new());
    open_gate(&env);
    running.wait(PATIENCE).expect_code(0);
});

#[test]
fn a_named_session_needs_the_row_of_its_owner() {
    let env = TestEnv::with(&Claude::Fake, &Scenario::default());
    let running = claude(&env, &["--allowed-tools=Bash"]);
    // Another session, whose lines must not come to the one that lives; the variables name that.
    let other = "11111111-2222-4333-8444-555555555555";
    append(&env, other, "not for you");
    let socket = until_some(PATIENCE, "the row", || {
        let row = rows::registered(&env.home(), running.pid())?;
        Some(row.text("messagingSocketPath").to_owned())
    });
    let done = env
        .oo([
            "doorman",
            "--allow-foreground",
            "--once",
            "--session",
            other,
        ])
        .var("CLAUDE_CODE_MESSAGING_SOCKET", socket)
        .var("CLAUDE_CODE_SESSION_ID", other)
        .run();
    done.expect_code(3);
    assert!(done.stderr.contains(other), "{}", done.stderr);
    assert_eq!(acks(&env, other), Vec::<Value>::new());
    open_gate(&env);
    running.wait(PATIENCE).expect_code(0);
    assert_eq!(seen_in_transcript(&env, SESSION), Vec::<String>::new());
}

#[test]
fn without_a_session_around_or_named_nothing_is_delivered() {
    let env = TestEnv::with(&Claude::Fake, &Scenario::default());
    let done = by_hand(&env, &["--once"]).wait(PATIENCE);
    done.expect_code(3);
    assert!(
        done.stderr.contains("no session is named"),
        "{}",
        done.stderr
    );
}

#[test]
fn run_by_the_sessions_own_tool_it_delivers_nothing() {
    for named in [true, false] {
        let env = TestEnv::with(&Claude::Fake, &Scenario::default());
        append(&env, SESSION, "from my own tool");
        let program = env!("CARGO_BIN_EXE_oo");
        let name = if named {
            format!("--session {SESSION}")
        } else {
            String::new()
        };
        let said = env.work().join("said");
        let command = format!(
            "{program} doorman --allow-foreground --once {name} 2>{0}; echo $? >>{0}",
            said.display(),
        );
        env.script(&Scenario::new([Reply::bash(&command), Reply::text("done")]));
        let session = format!("--session-id={SESSION}");
        env.claude(["--allowed-tools=Bash", &session])
            .stdin("begin")
            .run()
            .expect_code(0);
        let said = fs::read_to_string(said).unwrap();
        assert!(
            said.contains("inside the session") && said.trim_end().ends_with('3'),
            "{said}"
        );
        assert_eq!(acks(&env, SESSION), Vec::<Value>::new());
    }
}
