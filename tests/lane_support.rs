//! The test support itself: what the other tests take for granted.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::claude::Version;
use crate::support::env::TestEnv;
use crate::support::mock::Mock;
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
        // One look: what cannot be read is gone.
        let over = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .map_or(true, |stat| stat.contains(") Z "));
        assert!(over, "{pid} outlived the world it was started in");
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

/// Asks the mock as claude does, and returns what it said in a few words.
fn ask(mock: &Mock, agent: Option<&str>, messages: &[&str]) -> String {
    let messages: Vec<Value> = messages
        .iter()
        .enumerate()
        .map(|(at, text)| {
            json!({ "role": if at % 2 == 0 { "user" } else { "assistant" }, "content": text })
        })
        .collect();
    let body = json!({
        "model": "m", "stream": true, "messages": messages, "tools": [{ "name": "Bash" }],
    })
    .to_string();
    let address = mock.url().trim_start_matches("http://").to_owned();
    let agent = agent
        .map(|id| format!("x-claude-code-agent-id: {id}\r\n"))
        .unwrap_or_default();
    let mut stream = TcpStream::connect(&address).expect("the mock listens");
    let length = body.len();
    let head = format!(
        "POST /v1/messages?beta=true HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         x-claude-code-session-id: s\r\n{agent}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).expect("the mock reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the mock answers");
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    let delta = answer.lines().find(|line| line.contains("text_delta"));
    let delta = delta.and_then(|line| line.strip_prefix("data: "));
    delta.map_or(status, |line| {
        let event: Value = serde_json::from_str(line).expect("an event holds JSON");
        event["delta"]["text"].as_str().expect("a text").to_owned()
    })
}

#[test]
fn the_mock_gives_each_conversation_its_own_answers() {
    let rider = Tool::agent(
        "look there",
        [Reply::text("seen"), Reply::text("seen again")],
    );
    let mock = Mock::start(&Scenario::new([
        Reply::tool(rider).saying("go"),
        Reply::error(529).times(2),
        Reply::error(404),
        Reply::text("last"),
    ]));
    let main = ["hello", "go", "result"];
    assert_eq!(ask(&mock, None, &main[..1]), "go");
    assert_eq!(ask(&mock, Some("a1"), &["please look there"]), "seen");
    assert_eq!(ask(&mock, None, &main), "529");
    assert_eq!(ask(&mock, None, &main), "529");
    assert_eq!(
        ask(&mock, Some("a1"), &["please look there", "seen", "more"]),
        "seen again"
    );
    assert_eq!(ask(&mock, None, &main), "404");
    assert_eq!(
        ask(&mock, None, &main),
        "404",
        "the same request gets the same refusal"
    );
    assert_eq!(
        ask(&mock, None, &["hello", "go", "result", "404", "on"]),
        "last"
    );
    assert_eq!(mock.faults(), [""; 0]);
    assert_eq!(
        ask(
            &mock,
            None,
            &["hello", "go", "result", "404", "on", "last", "more"]
        ),
        "400"
    );
    assert_eq!(mock.faults(), ["conversation 0 asked for answer 5 of 4"]);
    assert_eq!(mock.requests().len(), 9);
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
