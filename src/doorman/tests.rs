//! The doorman without a process of its own: events in, answers and files out.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use super::stdio::{Connection, Peer};
use super::*;
use crate::inbox::Heartbeat;
use crate::platform::process::Identity;
use crate::platform::signals::StopSignals;

/// A state folder, and an inbox of a session in it.
pub(super) fn scratch() -> (tempfile::TempDir, Inbox) {
    let folder = tempfile::tempdir().unwrap();
    let state = StateDir::locate(&environment(&folder)).unwrap();
    std::fs::create_dir(state.inbox()).unwrap();
    (folder, Inbox::of(&state, Uuid::from_u128(7)))
}

fn environment(folder: &tempfile::TempDir) -> Environment {
    [("OO_STATE_DIR", folder.path()), ("HOME", folder.path())]
        .map(|(name, path)| (OsString::from(name), path.as_os_str().to_owned()))
        .into_iter()
        .collect()
}

/// The way to this very process, which has no row and no door.
pub(super) fn reach() -> Reach {
    Reach::outside(&Environment::default(), Identity::own().unwrap())
}

fn seated(folder: &tempfile::TempDir, inbox: &Inbox) -> Doorman {
    Doorman {
        post: Post::Seated(Box::new(Seat::take(inbox.clone(), reach()))),
        environment: environment(folder),
        greeted: false,
        held: None,
        busy: false,
        left: None,
        until: None,
    }
}

fn line(text: &str) -> Event {
    Event::Incoming(Incoming::Line(text.as_bytes().to_vec()))
}

fn answers(reaction: &Reaction) -> Vec<Value> {
    reaction
        .answers
        .iter()
        .map(|answer| serde_json::from_slice(&rpc::encode(answer)).unwrap())
        .collect()
}

fn heartbeat(inbox: &Inbox) -> Option<Heartbeat> {
    Heartbeat::read(&inbox.heartbeat()).unwrap()
}

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;

#[test]
fn the_sign_of_life_comes_before_the_answer() {
    let (folder, inbox) = scratch();
    let mut doorman = seated(&folder, &inbox);
    assert_eq!(heartbeat(&inbox).unwrap().state, State::Starting);
    let reaction = doorman.handle(line(r#"{"id":"d","method":"server/discover"}"#));
    assert_eq!(answers(&reaction)[0]["error"]["code"], -32601);
    assert_eq!(heartbeat(&inbox).unwrap().state, State::Starting);
    let reaction = doorman.handle(line(INITIALIZE));
    assert!(heartbeat(&inbox).unwrap().is_fresh());
    assert_eq!(
        answers(&reaction)[0]["result"]["protocolVersion"],
        "2025-11-25"
    );
    assert!(reaction.leave.is_none());
}

#[test]
fn it_leaves_when_it_has_to_and_says_so() {
    for (event, leave) in [
        (Event::InputEnded, Leave::WhenWritten),
        (Event::Stop, Leave::AtOnce),
        (Event::ParentEnded, Leave::AtOnce),
    ] {
        let (folder, inbox) = scratch();
        let mut doorman = seated(&folder, &inbox);
        doorman.handle(line(INITIALIZE));
        assert_eq!(doorman.handle(event).leave, Some(leave));
        assert_eq!(heartbeat(&inbox).unwrap().state, State::Stopped);
    }
}

#[test]
fn no_message_ends_it() {
    let (folder, inbox) = scratch();
    let mut doorman = seated(&folder, &inbox);
    let table = [
        (line("garbage"), vec![-32700]),
        (line("[1]"), vec![-32600]),
        (line("{}"), vec![-32600]),
        (line(""), vec![]),
        (
            line(r#"{"method":"notifications/cancelled","params":7}"#),
            vec![],
        ),
        (line(r#"{"id":1,"result":{}}"#), vec![]),
        (line(r#"{"id":1,"method":"nonsense"}"#), vec![-32601]),
        (Event::Incoming(Incoming::TooLong), vec![-32600]),
    ];
    for (event, codes) in table {
        let shown = format!("{event:?}");
        let reaction = doorman.handle(event);
        assert!(reaction.leave.is_none(), "{shown}");
        let found: Vec<_> = answers(&reaction)
            .iter()
            .map(|answer| answer["error"]["code"].as_i64())
            .collect();
        let codes: Vec<_> = codes.into_iter().map(Some).collect();
        assert_eq!(found, codes, "{shown}");
    }
    let reaction = doorman.handle(line(r#"{"id":2,"method":"ping"}"#));
    assert_eq!(answers(&reaction)[0]["result"], serde_json::json!({}));
}

#[test]
fn it_beats_when_it_is_due_and_asks_to_be_woken_again() {
    let (folder, inbox) = scratch();
    let mut doorman = seated(&folder, &inbox);
    doorman.handle(line(INITIALIZE));
    std::fs::remove_file(inbox.heartbeat()).unwrap();
    if let Post::Seated(seat) = &mut doorman.post {
        seat.wake(State::Following, Instant::now() + seat::INTERVAL);
    }
    assert!(heartbeat(&inbox).unwrap().is_fresh());
    let rest = doorman.due().unwrap() - Instant::now();
    assert!(
        rest > Duration::from_secs(1) && rest < Duration::from_secs(5),
        "{rest:?}"
    );
}

#[test]
fn the_status_tells_what_it_is() {
    let (folder, inbox) = scratch();
    let mut doorman = seated(&folder, &inbox);
    doorman.handle(line(INITIALIZE));
    let ask = r#"{"id":1,"method":"tools/call","params":{"name":"status"}}"#;
    let told = answers(&doorman.handle(line(ask)))[0]["result"]["structuredContent"].clone();
    assert_eq!(told["state"], "following");
    assert_eq!(told["session_id"], inbox.session().to_string());
    assert!(told["heartbeat_at"].is_string());
}

#[test]
fn switched_off_it_speaks_and_does_nothing_else() {
    let (folder, inbox) = scratch();
    let mut environment = environment(&folder);
    environment.set("OO_DOORMAN", "0");
    let mut doorman = Doorman::new(&environment, 1);
    let reaction = doorman.handle(line(INITIALIZE));
    assert_eq!(answers(&reaction).len(), 1);
    assert_eq!((doorman.status().state, doorman.due()), ("off", None));
    doorman.handle(Event::Due);
    doorman.handle(Event::Stop);
    assert_eq!(heartbeat(&inbox), None);
}

#[test]
fn an_initialize_waits_for_the_post_and_no_longer_than_it_must() {
    let (folder, inbox) = scratch();
    let mut doorman = seated(&folder, &inbox);
    let now = Instant::now();
    doorman.post = Post::Looking {
        lookout: Lookout::new(&environment(&folder), 1),
        until: now,
        next: now,
    };
    assert!(doorman.handle(line(INITIALIZE)).answers.is_empty());
    let ping = doorman.handle(line(r#"{"id":2,"method":"ping"}"#));
    assert_eq!(answers(&ping)[0]["id"], 2);
    assert_eq!(doorman.status().state, "looking");
    let reaction = doorman.handle(Event::Due);
    assert_eq!(answers(&reaction)[0]["id"], 0);
    assert_eq!(doorman.status().state, "idle");
}

#[test]
fn the_loop_over_a_connection_in_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (folder, inbox) = scratch();
    let mut doorman = seated(&folder, &inbox);
    let (connection, mut peer): (Connection, Peer) = Connection::memory();
    peer.send(r#"{"id":1,"method":"ping"}"#).unwrap();
    peer.send("garbage").unwrap();
    peer.send(INITIALIZE).unwrap();
    peer.close();
    runtime.block_on(async {
        let mut stop = StopSignals::listen().unwrap();
        attend::attend(
            &mut doorman,
            Some(connection),
            std::future::pending(),
            &mut stop,
        )
        .await;
    });
    let mut ids = Vec::new();
    while let Some(answer) = peer.answer() {
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        ids.push(answer["id"].clone());
    }
    assert_eq!(ids, [Value::from(1), Value::Null, Value::from(0)]);
    assert_eq!(heartbeat(&inbox).unwrap().state, State::Stopped);
}

#[test]
fn the_loop_ends_with_the_parent() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (folder, inbox) = scratch();
    let mut doorman = seated(&folder, &inbox);
    let (connection, _peer) = Connection::memory();
    runtime.block_on(async {
        let mut stop = StopSignals::listen().unwrap();
        attend::attend(
            &mut doorman,
            Some(connection),
            std::future::ready(()),
            &mut stop,
        )
        .await;
    });
    assert_eq!(heartbeat(&inbox).unwrap().state, State::Stopped);
}
