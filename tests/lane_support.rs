//! The test support itself: what the other tests take for granted.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::claude::Version;
use crate::support::env::TestEnv;
use crate::support::process::until;
use crate::support::scenario::{Reply, Scenario, Tool};

#[test]
fn a_world_is_private_and_cleared() {
    let env = TestEnv::new();
    let done = env.program("/usr/bin/env").run();
    done.expect_code(0);
    let names: Vec<&str> = done
        .stdout
        .lines()
        .filter_map(|l| Some(l.split_once('=')?.0))
        .collect();
    for name in &names {
        let known = ["HOME", "PATH", "TMPDIR", "LANG", "TERM", "IS_SANDBOX"].contains(name);
        let ours = ["OO_", "FAKE_CLAUDE_", "ANTHROPIC_"]
            .iter()
            .any(|p| name.starts_with(p));
        assert!(known || ours, "{name} came in from outside");
    }
    assert!(
        !names.contains(&"OO_STATE_DIR"),
        "oo has to find its state folder by itself"
    );
    assert!(
        done.stdout
            .contains(&format!("HOME={}", env.home().display()))
    );
}

#[test]
fn what_left_its_session_is_still_ended() {
    let env = TestEnv::new();
    let done = env
        .program("/bin/sh")
        .args(["-c", "setsid sleep 1000 & echo $!"])
        .run();
    done.expect_code(0);
    until(Duration::from_secs(10), "the orphan to live", || {
        !env.alive().is_empty()
    });
    let orphans = env.alive();
    drop(env);
    for pid in orphans {
        let gone = !std::path::Path::new(&format!("/proc/{pid}")).exists();
        let zombie = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| stat.contains(") Z "));
        assert!(gone || zombie, "{pid} outlived the world it was started in");
    }
}

#[test]
#[should_panic(expected = "did not end within")]
fn a_deadline_ends_the_wait() {
    let env = TestEnv::new();
    env.program("/bin/sleep")
        .args(["1000"])
        .run_within(Duration::from_millis(50));
}

#[test]
fn a_held_input_is_answered_line_by_line() {
    let env = TestEnv::new();
    let mut cat = env.program("/bin/cat").held_stdin().spawn();
    cat.say(r#"{"type":"first"}"#);
    assert_eq!(cat.until_rows("first", 1, Duration::from_secs(10)).len(), 1);
    cat.close_stdin();
    cat.wait(Duration::from_secs(10)).expect_code(0);
}

#[test]
fn a_scenario_has_the_form_that_the_stand_in_reads() {
    let scenario = Scenario::new([
        Reply::bash("true").saying("wait"),
        Reply::tool(Tool::agent("look", [Reply::text("seen")])).usage(7, 3),
        Reply::error(529).times(2).after(Duration::from_millis(20)),
        Reply::error(429)
            .forever()
            .retry_after(9)
            .described("rate_limit_error", "slow down"),
        Reply::text("done").stopped_by("max_tokens"),
    ]);
    let agent =
        json!({ "description": "a rider", "prompt": "look", "subagent_type": "general-purpose" });
    let bash = json!({ "command": "true", "description": "a scripted command" });
    assert_eq!(
        serde_json::to_value(scenario).unwrap_or(Value::Null),
        json!({ "replies": [
            { "text": "wait", "tools": [{ "name": "Bash", "input": bash }] },
            {
                "tools": [{ "name": "Agent", "input": agent, "replies": [{ "text": "seen" }] }],
                "usage": { "input_tokens": 7, "output_tokens": 3 },
            },
            { "status": 529, "repeat": 2, "delay_ms": 20 },
            {
                "status": 429, "repeat": "forever", "retry_after": 9,
                "type": "rate_limit_error", "message": "slow down",
            },
            { "text": "done", "stop_reason": "max_tokens" },
        ] })
    );
}

#[test]
fn two_builds_are_pinned() {
    assert_eq!(
        Version::floor().as_str(),
        "2.1.308",
        "the floor is part of the contract"
    );
    assert_ne!(Version::floor(), Version::newest());
}
