//! `oo send`: one line, and what became of it, by the contract of the inbox.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::env::TestEnv;
use crate::support::post::Session;
use crate::support::process::Finished;

/// What a send that must not wait may take, on a busy machine; each of them could wait for longer.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(10);

pub(crate) const SEEN: &[(&str, &str)] = &[
    ("delivered-steer", "offered"),
    ("delivered-steer", "accepted"),
    ("delivered-steer", "seen"),
];

/// `oo send SESSION "look here" --json` with these options.
#[track_caller]
pub(crate) fn send(env: &TestEnv, session: &Session, options: &[&str]) -> Finished {
    let id = session.id.to_string();
    let args = ["send", &id, "look here", "--json"];
    env.oo(args).args(options.iter().copied()).run()
}

#[track_caller]
pub(crate) fn is(done: &Finished, class: &str, code: i32, state: Option<&str>) -> Value {
    done.expect_code(code);
    let document = done.json();
    assert_eq!(
        (
            &document["class"],
            &document["exit_code"],
            &document["state"]
        ),
        (&json!(class), &json!(code), &json!(state)),
        "{document:#}"
    );
    document
}

#[test]
fn a_line_that_the_model_has_is_delivered() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let _doorman = session.doorman(SEEN);
    let options = ["--from=alice", "--priority=later", "--wait=60s"];
    let document = is(
        &send(&env, &session, &options),
        "delivered-steer",
        0,
        Some("seen"),
    );
    let line = &session.lines()[0];
    let written = line.json();
    assert_eq!(
        (
            &written["oo"],
            &written["from"],
            &written["text"],
            &written["priority"]
        ),
        (
            &json!(1),
            &json!("alice"),
            &json!("look here"),
            &json!("later")
        )
    );
    let same = [
        ("msg_id", &written["msg_id"]),
        ("from", &written["from"]),
        ("via", &written["via"]),
    ];
    for (name, value) in same {
        assert_eq!(&document[name], value, "{name}");
        assert!(value.is_string(), "{name}");
    }
    let expected = json!({
        "schema": "oo/send/v1", "session_id": session.id, "sha256": line.sha256(),
        "line_offset": 0, "inode": line.inode, "attempts": 1, "reason": null, "retry_at": null,
        "offered_at": "2026-12-01T00:00:00.123Z", "accepted_at": "2026-12-01T00:00:00.123Z",
        "seen_at": "2026-12-01T00:00:00.123Z", "hint": null, "note": null,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&document[name], value, "{name}");
    }
    assert_eq!(document["doorman"]["state"], "following");
    assert_eq!(document["doorman"]["fresh"], true);
}

#[test]
fn a_person_gets_the_class_and_the_id() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let doorman = session.doorman(&[("delivered-start", "seen")]);
    let id = session.id.to_string();
    let done = env.oo(["send", &id, "one"]).run();
    done.expect_code(0);
    let msg_id = session.lines()[0].json()["msg_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(done.stdout, format!("delivered-start {msg_id}\n"));
    assert_eq!(done.stderr, "");
    drop(doorman);
    fs::remove_file(session.file("inbox.heartbeat")).unwrap();
    let done = env.oo(["send", &id, "two", "--min-interval=0s"]).run();
    done.expect_code(3);
    let msg_id = session.lines()[1].json()["msg_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(done.stdout, format!("queued-no-doorman {msg_id}\n"));
    assert!(
        done.stderr.contains("do not send it again"),
        "{}",
        done.stderr
    );
    let inbox = session.file("inbox").display().to_string();
    assert!(done.stderr.contains(&inbox), "{}", done.stderr);
    let done = env.oo(["send", &id, "three"]).run();
    done.expect_code(6);
    assert_eq!(done.stdout, "");
    assert!(done.stderr.contains("was not written"), "{}", done.stderr);
}

#[test]
fn less_than_seen_is_enough_for_who_asks_for_less() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let _doorman = session.doorman(&[("delivered-start", "offered")]);
    let off = "--min-interval=0s";
    let done = send(&env, &session, &["--until=offered", off]);
    is(&done, "delivered-start", 0, Some("offered"));
    // Of a line that is only offered it is not said that it arrived.
    for until in ["accepted", "seen"] {
        let options = [off, "--wait=400ms", "--until", until];
        let document = is(
            &send(&env, &session, &options),
            "timeout",
            5,
            Some("offered"),
        );
        let hint = document["hint"].as_str().unwrap();
        assert!(hint.contains("do not send it again"), "{hint}");
        assert!(document["waited_ms"].as_u64().unwrap() >= 400);
    }
    assert_eq!(session.lines().len(), 3);
}

#[test]
fn what_the_doorman_refuses_is_refused_with_its_reason() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let _doorman = session.doorman(&[("refused", "queued")]);
    let document = is(&send(&env, &session, &[]), "refused", 1, Some("queued"));
    assert_eq!(document["reason"], "it is too odd");
    assert!(document["msg_id"].is_string());
}

#[test]
fn without_a_doorman_it_is_queued_at_once() {
    type Before = fn(&Session);
    let table: [(&str, Before); 5] = [
        ("never one", |_| {}),
        ("one that left", |s| {
            s.beat(std::process::id(), "stopped", 1);
        }),
        ("one that is late", |s| {
            s.beat(std::process::id(), "following", 20);
        }),
        ("another session's", |s| {
            s.beat(std::process::id(), "switched", 1);
        }),
        ("garbage", |s| {
            fs::write(s.file("inbox.heartbeat"), "{").unwrap();
        }),
    ];
    for (what, before) in table {
        let env = TestEnv::new();
        let session = Session::live(&env, None);
        before(&session);
        let done = send(&env, &session, &["--wait=60s"]);
        let document = is(&done, "queued-no-doorman", 3, Some("queued"));
        assert!(done.took < AT_ONCE, "{what}: {:?}", done.took);
        assert_ne!(document["doorman"]["fresh"], json!(true), "{what}");
        assert_eq!(session.lines().len(), 1, "{what}");
        let note = document["note"].as_str().unwrap_or_default();
        assert_eq!(note.contains("heartbeat"), what == "garbage", "{note}");
    }
}

#[test]
fn for_a_session_that_does_not_run_it_is_queued_at_once() {
    let env = TestEnv::new();
    let mut session = Session::live(&env, None);
    fs::write(session.file("inbox"), "").unwrap();
    session.leave();
    let done = send(&env, &session, &["--wait=60s"]);
    let document = is(&done, "queued-offline", 3, Some("queued"));
    assert!(done.took < AT_ONCE, "{:?}", done.took);
    assert_eq!(document["doorman"], Value::Null);
    let hint = document["hint"].as_str().unwrap();
    assert!(hint.contains("oo resume"), "{hint}");
}

#[test]
fn who_does_not_wait_is_told_what_is_known() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let none = ["--wait=0s", "--min-interval=0s"];
    is(
        &send(&env, &session, &none),
        "queued-no-doorman",
        3,
        Some("queued"),
    );
    session.beat(std::process::id(), "starting", 0);
    is(
        &send(&env, &session, &none),
        "queued-no-doorman",
        3,
        Some("queued"),
    );
    session.beat(std::process::id(), "following", 0);
    let document = is(&send(&env, &session, &none), "timeout", 5, Some("queued"));
    let message = document["message"].as_str().unwrap();
    assert!(message.contains("was not waited for"), "{message}");
    assert_eq!(session.lines().len(), 3);
}
