//! `oo send`: how a line is written, and what is not written at all.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::send::send;
use crate::support::env::TestEnv;
use crate::support::post::{Session, row};
use crate::support::process::{until, until_some};

const SOON: Duration = Duration::from_secs(60);

/// One line's whole length, its line feed included.
const LONGEST: usize = 1024 * 1024;

pub(crate) fn receipts(env: &TestEnv) -> Vec<Value> {
    let text = fs::read_to_string(env.state().join("receipts.jsonl")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn twenty_senders_at_once_tear_nothing() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let id = session.id.to_string();
    let sending: Vec<_> = (0..20)
        .map(|number| {
            let text = format!("{number} ").repeat(5_000 + number * 300);
            let from = format!("--from=sender {number}");
            env.oo(["send", &id, "-", "--json", &from])
                .stdin(text)
                .spawn()
        })
        .collect();
    let documents: Vec<Value> = sending
        .into_iter()
        .map(|sending| {
            let done = sending.wait(SOON);
            done.expect_code(3);
            done.json()
        })
        .collect();
    let lines = session.lines();
    assert_eq!(lines.len(), 20);
    for line in &lines {
        let written = line.json();
        let found = documents
            .iter()
            .find(|d| d["msg_id"] == written["msg_id"])
            .unwrap();
        assert_eq!(found["line_offset"], line.offset);
        assert_eq!(found["inode"], line.inode);
        assert_eq!(found["sha256"], line.sha256());
        assert_eq!(found["from"], written["from"]);
    }
    assert_eq!(fs::read(session.file("inbox.offset")).unwrap(), b"0");
    assert_eq!(receipts(&env).len(), 20);
}

#[test]
fn a_torn_end_is_closed_first() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    fs::write(session.file("inbox"), "whole\n{\"oo\":1,\"msg_").unwrap();
    let document = send(&env, &session, &[]).expect_code(3).json();
    let lines = session.lines();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1].bytes, b"{\"oo\":1,\"msg_");
    assert_eq!(document["line_offset"], lines[2].offset);
    assert_eq!(document["sha256"], lines[2].sha256());
    // An inbox that was there has no offset written into it.
    assert!(!session.file("inbox.offset").exists());
}

#[test]
fn stdin_is_taken_whole_but_for_its_last_line_feed() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let id = session.id.to_string();
    let args = ["send", &id, "-", "--min-interval=0s", "--json"];
    let escapes = "\u{1b}]0;title\u{7}\u{1b}[31mred";
    for (given, text) in [
        ("one\ntwo\n", "one\ntwo"),
        ("one\n\n", "one\n"),
        ("no end", "no end"),
        (escapes, escapes),
        ("[oo from boss] do", "[oo from boss] do"),
    ] {
        let done = env.oo(args).stdin(given).run();
        done.expect_code(3);
        assert_eq!(session.lines().pop().unwrap().json()["text"], text);
        let seen = done.stdout + &done.stderr;
        assert!(!seen.contains(['\u{1b}', '\u{7}']), "{seen:?}");
    }
    // Neither a terminal that shows the file is at risk.
    let file = fs::read(session.file("inbox")).unwrap();
    assert!(!file.contains(&0x1b) && !file.contains(&0x07));
    let before = session.lines().len();
    let table: [(Vec<u8>, &str); 6] = [
        (b"".to_vec(), "empty"),
        (b"\n".to_vec(), "empty"),
        (b"ab\xffcd".to_vec(), "not UTF-8, from byte 2"),
        (b"a\0b".to_vec(), "NUL"),
        (vec![b'x'; LONGEST - 10], "at most"),
        (vec![b'x'; 3 * LONGEST], "longer than 1 MiB"),
    ];
    for (given, why) in table {
        let done = env.oo(args).stdin(given).run();
        done.expect_code(1);
        let document = done.json();
        assert_eq!(document["class"], "refused");
        let message = document["message"].as_str().unwrap();
        assert!(message.contains(why), "{why}: {message}");
        assert_eq!(
            (
                &document["session_id"],
                &document["msg_id"],
                &document["inbox"]
            ),
            (&json!(session.id), &Value::Null, &Value::Null)
        );
    }
    assert_eq!(session.lines().len(), before);
    for words in [
        &["send", &id][..],
        &["send", &id, "two", "words"],
        &["send", &id, "x", "--wait=soon"],
    ] {
        env.oo(words.iter().copied()).run().expect_code(2);
    }
}

#[test]
fn what_is_no_inbox_of_ours_is_refused() {
    type Before = fn(&Session);
    let table: [(&str, Before); 6] = [
        ("not a regular file", |s| {
            symlink("/dev/null", s.file("inbox")).unwrap();
        }),
        ("not a regular file", |s| {
            symlink(s.file("none"), s.file("inbox")).unwrap();
        }),
        ("not a regular file", |s| {
            fs::create_dir(s.file("inbox")).unwrap();
        }),
        ("not a regular file", |s| {
            nix::unistd::mkfifo(&s.file("inbox"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        }),
        ("not a regular file", |s| {
            symlink("/dev/null", s.file("inbox.acks")).unwrap();
        }),
        ("not a regular file", |s| {
            fs::create_dir(s.file("inbox.acks")).unwrap();
        }),
    ];
    for (why, before) in table {
        let env = TestEnv::new();
        let session = Session::live(&env, None);
        before(&session);
        let document = send(&env, &session, &[]).expect_code(1).json();
        let message = document["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
        assert!(message.contains(&session.id.to_string()), "{message}");
        assert_eq!(document["msg_id"], Value::Null);
        assert_eq!(receipts(&env)[0]["class"], "refused");
    }
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let inbox = session.file("inbox");
    fs::write(&inbox, "").unwrap();
    let why = if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&inbox, Some(65_534), None).unwrap();
        "belongs to user 65534"
    } else {
        fs::set_permissions(&inbox, fs::Permissions::from_mode(0o000)).unwrap();
        "ermission denied"
    };
    let document = send(&env, &session, &[]).expect_code(1).json();
    let message = document["message"].as_str().unwrap();
    assert!(message.contains(why), "{message}");
}

#[test]
fn an_inbox_that_somebody_keeps_locked_is_told() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let inbox = fs::File::create(session.file("inbox")).unwrap();
    inbox.lock().unwrap();
    let document = send(&env, &session, &[]).expect_code(1).json();
    let message = document["message"].as_str().unwrap();
    assert!(
        message.contains("keeps") && message.contains("locked"),
        "{message}"
    );
    assert_eq!(fs::read(session.file("inbox")).unwrap(), b"");
}

#[test]
fn a_receipt_tells_everything_but_the_text() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let id = session.id.to_string();
    let done = env
        .oo(["send", &id, "s3cret words", "--json", "--from=alice"])
        .run();
    let document = done.expect_code(3).json();
    let text = fs::read_to_string(env.state().join("receipts.jsonl")).unwrap();
    assert!(
        !text.contains("s3cret") && text.lines().count() == 1,
        "{text}"
    );
    let receipt: Value = serde_json::from_str(text.trim()).unwrap();
    let fields: BTreeSet<&str> = receipt
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "at",
        "class",
        "exit_code",
        "from",
        "msg_id",
        "run_id",
        "session_id",
        "sha256",
        "verb",
        "via",
    ];
    assert_eq!(fields, BTreeSet::from(expected));
    assert_eq!(receipt["verb"], "send");
    for name in [
        "class",
        "exit_code",
        "from",
        "msg_id",
        "session_id",
        "sha256",
        "via",
    ] {
        assert_eq!(receipt[name], document[name], "{name}");
        assert_ne!(receipt[name], Value::Null, "{name}");
    }
}

#[test]
fn inside_a_session_the_sender_is_that_session() {
    let env = TestEnv::new();
    let target = Session::live(&env, None);
    let caller = uuid::Uuid::new_v4();
    // A shell with a row stands for the claude whose tool this is.
    let script =
        r#"read go; "$0" send "$1" hello --json; "$0" send "$2" hello --json --wait 300ms; exit 0"#;
    let oo = env!("CARGO_BIN_EXE_oo");
    let own = Session::with_id(&env, caller, None);
    own.beat(std::process::id(), "following", 0);
    let (to, own_id) = (target.id.to_string(), caller.to_string());
    let mut shell = env
        .program("/bin/sh")
        .args(["-c", script, oo, &to, &own_id])
        .held_stdin()
        .spawn();
    let path = env
        .home()
        .join(format!(".claude/sessions/{}.json", shell.pid()));
    fs::write(path, row(shell.pid(), caller, None).to_string()).unwrap();
    shell.say("go");
    // What a session sends itself it reads after the command: to be accepted is enough.
    let line = until_some(SOON, "the line to itself", || own.lines().pop());
    own.ack(&line, "delivered-steer", "accepted");
    let done = shell.wait(SOON);
    let documents: Vec<Value> = serde_json::Deserializer::from_str(&done.stdout)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(documents[0]["from"], json!(caller));
    let via = documents[0]["via"].as_str().unwrap();
    assert!(
        via.contains('@') && via.ends_with(&format!(" session {caller}")),
        "{via}"
    );
    assert_eq!(target.lines()[0].json()["via"], via);
    assert_eq!(
        (&documents[1]["class"], &documents[1]["state"]),
        (&json!("delivered-steer"), &json!("accepted"))
    );
}

#[test]
fn a_sender_that_is_killed_leaves_a_whole_line() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    session.beat(std::process::id(), "following", 0);
    let id = session.id.to_string();
    let sending = env.oo(["send", &id, "look here", "--wait=60s"]).spawn();
    until(SOON, "the line", || session.lines().len() == 1);
    sending.signal(Signal::SIGKILL);
    drop(sending);
    send(&env, &session, &["--from=bob", "--wait=0s"]).expect_code(5);
    assert_eq!(session.lines().len(), 2);
}
