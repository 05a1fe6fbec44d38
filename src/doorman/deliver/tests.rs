//! Carrying lines without a claude: a socket of the test's own is the door, and the test writes
//! the transcript.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use super::*;
use crate::inbox::Message;
use crate::inbox::Priority;
use crate::platform::environment::Environment;
use crate::platform::host;
use crate::platform::process::Identity;
use crate::store::Ledger;
use crate::store::StateDir;

const SESSION: Uuid = Uuid::from_u128(7);

/// A session of this process: its row, its door, its transcript.
struct Session {
    folder: tempfile::TempDir,
    door: UnixListener,
    inbox: Inbox,
    environment: Environment,
    at: Instant,
}

impl Session {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let environment: Environment = ["OO_STATE_DIR", "CLAUDE_CONFIG_DIR"]
            .map(|name| (OsString::from(name), path.clone().into_os_string()))
            .into_iter()
            .collect();
        for name in ["inbox", "sessions", "projects/-w"] {
            std::fs::create_dir_all(path.join(name)).unwrap();
        }
        let state = StateDir::locate(&environment).unwrap();
        let session = Self {
            door: UnixListener::bind(path.join("door.sock")).unwrap(),
            inbox: Inbox::of(&state, SESSION),
            environment,
            folder,
            at: Instant::now(),
        };
        session.door.set_nonblocking(true).unwrap();
        session.inbox.create().unwrap();
        session.write_row(SESSION, "busy");
        session
    }

    fn write_row(&self, session: Uuid, status: &str) {
        let own = Identity::own().unwrap();
        let row = json!({
            "pid": own.pid, "procStart": own.proc_start, "sessionId": session, "status": status,
            "pidDomain": format!("linux::pid:[{}]", crate::platform::process::pid_namespace(own.pid).unwrap()),
            "messagingSocketPath": self.folder.path().join("door.sock"),
        });
        let path = self
            .folder
            .path()
            .join(format!("sessions/{}.json", own.pid));
        std::fs::write(path, row.to_string()).unwrap();
    }

    fn delivery(&self) -> Delivery {
        let reach = Reach::outside(&self.environment, Identity::own().unwrap());
        Delivery::new(self.inbox.clone(), reach)
    }

    fn send(&self, from: &str, text: &str) -> Message {
        let message = Message {
            msg_id: Uuid::now_v7(),
            from: Some(from.to_owned()),
            via: Some("test".to_owned()),
            text: text.to_owned(),
            priority: Priority::Next,
            at: None,
            tagged: true,
        };
        self.append(&message.encode().unwrap());
        message
    }

    fn append(&self, bytes: &[u8]) {
        let mut file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.inbox.lines())
            .unwrap();
        file.write_all(bytes).unwrap();
    }

    /// Looks, and writes what there is to be written; the frames that came to the door.
    fn turn(&mut self, delivery: &mut Delivery) -> Vec<Value> {
        let mut frames = Vec::new();
        while delivery.wake(self.at) {}
        while let Offer::Write(open, bytes) = delivery.offer(self.at) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let result = runtime.block_on(open.door.write(bytes));
            delivery.written(result, self.at);
            frames.extend(self.arrived());
        }
        while delivery.wake(self.at) {}
        frames
    }

    fn arrived(&self) -> Vec<Value> {
        let mut frames = Vec::new();
        while let Ok((mut stream, _)) = self.door.accept() {
            stream.set_nonblocking(false).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            frames.extend(text.lines().map(|line| serde_json::from_str(line).unwrap()));
        }
        frames
    }

    fn later(&mut self, by: Duration) {
        self.at += by;
    }

    fn rows(&self, rows: &[Value]) {
        let path = self
            .folder
            .path()
            .join(format!("projects/-w/{SESSION}.jsonl"));
        let mut file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        for row in rows {
            writeln!(file, "{row}").unwrap();
        }
    }

    fn acks(&self) -> Vec<Ack> {
        let ledger = Ledger::at(self.inbox.acks());
        let lines = ledger.read().unwrap();
        assert!(lines.bad.is_empty() && !lines.torn);
        lines.lines
    }

    /// The states of the acks, in order.
    fn states(&self) -> Vec<LineState> {
        self.acks().iter().map(|ack| ack.state).collect()
    }

    fn offset(&self) -> u64 {
        let text = std::fs::read_to_string(self.inbox.offset()).unwrap();
        text.parse().unwrap()
    }
}

fn text_of(frame: &Value) -> &str {
    frame["message"]["content"].as_str().unwrap()
}

fn enqueue(frame: &Value) -> Value {
    json!({ "type": "queue-operation", "operation": "enqueue", "content": text_of(frame) })
}

fn attachment(frame: &Value) -> Value {
    json!({ "type": "attachment", "attachment": {
        "type": "queued_command", "origin": { "kind": "peer", "msg_id": frame["msg_id"] } } })
}

fn user(frame: &Value) -> Value {
    json!({ "type": "user", "turnOrigin": "peer",
        "origin": { "kind": "peer", "msg_id": frame["msg_id"] } })
}

use LineState::{Accepted, Offered, Queued, Seen};

mod survival;

#[test]
fn a_line_goes_from_state_to_state_as_the_transcript_tells() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    let message = session.send("alice", "look here");
    let frames = session.turn(&mut delivery);
    assert_eq!(frames.len(), 1);
    let frame = &frames[0];
    assert_eq!(frame["session_id"], SESSION.to_string());
    assert_eq!(frame["msg_id"], message.msg_id.to_string());
    assert_eq!(
        (&frame["from"], &frame["priority"]),
        (&json!("alice"), &json!("next"))
    );
    assert!(text_of(frame).ends_with("] look here"));
    assert_eq!((session.states(), session.offset()), (vec![Offered], 0));

    session.rows(&[enqueue(frame)]);
    session.turn(&mut delivery);
    assert_eq!(session.states(), [Offered, Accepted]);
    assert_eq!((delivery.pending(), delivery.delivered()), (1, 0));
    // An accepted line is not offered again, however long it waits.
    session.later(Duration::from_secs(60));
    assert_eq!(session.turn(&mut delivery), Vec::<Value>::new());

    session.rows(&[attachment(frame)]);
    session.turn(&mut delivery);
    let acks = session.acks();
    let last = acks.last().unwrap();
    assert_eq!(session.states(), [Offered, Accepted, Seen]);
    assert_eq!(last.class, Some(AckClass::DeliveredSteer));
    assert!(last.offered_at.is_some() && last.accepted_at.is_some() && last.seen_at.is_some());
    assert_eq!(
        (last.from.as_deref(), last.via.as_deref()),
        (Some("alice"), Some("test"))
    );
    assert_eq!((last.attempts, last.msg_id), (1, Some(message.msg_id)));
    let length = std::fs::metadata(session.inbox.lines()).unwrap().len();
    assert_eq!(session.offset(), length);
    assert_eq!((delivery.pending(), delivery.delivered()), (0, 1));
    assert!(
        delivery.due(session.at).is_none(),
        "nothing is left to wait for"
    );
}

#[test]
fn a_line_that_begins_a_turn_says_so() {
    let mut session = Session::new();
    session.write_row(SESSION, "idle");
    let mut delivery = session.delivery();
    session.send("alice", "wake up");
    let frames = session.turn(&mut delivery);
    assert_eq!(session.acks()[0].class, Some(AckClass::DeliveredStart));
    session.rows(&[user(&frames[0])]);
    session.turn(&mut delivery);
    let acks = session.acks();
    assert_eq!(acks.last().unwrap().class, Some(AckClass::DeliveredStart));
    assert_eq!(session.states(), [Offered, Seen]);
}

#[test]
fn what_is_not_accepted_is_offered_again_and_what_comes_late_is_believed() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    session.send("alice", "one");
    session.send("alice", "two");
    let first = session.turn(&mut delivery);
    assert_eq!(first.len(), 1, "the second line waits for the first");
    session.later(ACCEPT);
    assert!(session.turn(&mut delivery).is_empty());
    session.later(Duration::from_secs(3));
    let again = session.turn(&mut delivery);
    assert_eq!((again.len(), &again[0]["msg_id"]), (1, &first[0]["msg_id"]));
    assert_eq!(session.acks().last().unwrap().attempts, 2);
    session.later(ACCEPT);
    session.turn(&mut delivery);
    // Now it rests; the row of the first offer was slow.
    session.rows(&[enqueue(&first[0])]);
    let next = session.turn(&mut delivery);
    assert_eq!(session.states(), [Offered, Offered, Accepted]);
    assert!(next.is_empty(), "the guard's pace holds");
    session.later(Duration::from_secs(10));
    let next = session.turn(&mut delivery);
    assert_eq!(text_of(&next[0]).rsplit(' ').next(), Some("two"));
}

#[test]
fn a_sender_that_is_held_back_holds_back_nobody_else() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    session.send("alice", "one");
    assert_eq!(session.turn(&mut delivery).len(), 1);
    session.send("alice", "two");
    session.send("bob", "three");
    let frames = session.turn(&mut delivery);
    assert_eq!((frames.len(), &frames[0]["from"]), (1, &json!("bob")));
    session.rows(&[enqueue(&frames[0]), attachment(&frames[0])]);
    session.turn(&mut delivery);
    // What is behind the offset is known by its ack.
    assert_eq!(session.offset(), 0);
    let counts = session.inbox.counts().unwrap();
    assert_eq!((counts.pending, counts.delivered), (2, 1));
}

#[test]
fn no_more_than_the_queue_holds_are_on_their_way() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    for sender in 0..60 {
        session.send(&format!("s{sender}"), "x");
    }
    let frames = session.turn(&mut delivery);
    assert_eq!(frames.len(), QUEUE);
    let rows: Vec<Value> = frames.iter().map(enqueue).collect();
    session.rows(&rows);
    assert!(session.turn(&mut delivery).is_empty());
    session.rows(&[attachment(&frames[0])]);
    assert_eq!(session.turn(&mut delivery).len(), 1);
}

#[test]
fn a_session_that_was_left_gets_nothing() {
    let session = Session::new();
    let mut delivery = session.delivery();
    session.send("alice", "one");
    while delivery.wake(session.at) {}
    let other = Uuid::from_u128(8);
    session.write_row(other, "busy");
    assert!(matches!(delivery.offer(session.at), Offer::Moved(to) if to == other));
    assert!(session.arrived().is_empty() && session.acks().is_empty());
}

#[test]
fn a_door_that_is_gone_or_another_process_costs_nothing_but_time() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    session.send("alice", "one");
    let path = session.folder.path().join("door.sock");
    std::fs::remove_file(&path).unwrap();
    assert!(session.turn(&mut delivery).is_empty());
    assert!(delivery.trouble().unwrap().contains("door.sock"));
    assert!(
        session.acks().is_empty(),
        "what was not written is not on record"
    );
    let due = delivery.due(session.at).unwrap();
    assert!(due > session.at && due <= session.at + DOOR_PAUSES.1);
    session.door = UnixListener::bind(&path).unwrap();
    session.door.set_nonblocking(true).unwrap();
    session.later(DOOR_PAUSES.1);
    assert_eq!(session.turn(&mut delivery).len(), 1);
}

#[test]
fn texts_that_are_the_same_are_told_apart() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    for sender in ["alice", "bob"] {
        let message = Message {
            msg_id: Uuid::now_v7(),
            from: Some(sender.to_owned()),
            via: None,
            text: "same".to_owned(),
            priority: Priority::Next,
            at: None,
            tagged: false,
        };
        session.append(&message.encode().unwrap());
    }
    let first = session.turn(&mut delivery);
    assert_eq!((first.len(), text_of(&first[0])), (1, "same"));
    session.rows(&[enqueue(&first[0])]);
    session.turn(&mut delivery);
    session.later(TWIN_PAUSE);
    let second = session.turn(&mut delivery);
    assert_eq!(
        second.len(),
        1,
        "once the first is in the queue, the second can be told from it"
    );
    assert_ne!(second[0]["msg_id"], first[0]["msg_id"]);
}

#[test]
fn lines_that_claude_merges_into_one_row_have_all_arrived() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    let mut frames = Vec::new();
    for (sender, text) in [
        ("alice", "one"),
        ("bob", "b"),
        ("alice", "two"),
        ("alice", "three"),
    ] {
        session.send(sender, text);
        let new = session.turn(&mut delivery);
        let rows: Vec<Value> = new.iter().map(enqueue).collect();
        session.rows(&rows);
        session.turn(&mut delivery);
        frames.extend(new);
    }
    assert_eq!(frames.len(), 4);
    let merged = |texts: &[&Value], more: usize| {
        let texts: Vec<&str> = texts.iter().map(|frame| text_of(frame)).collect();
        let mut row = user(&frames[0]);
        row["mergedSendUuids"] = json!(vec!["x"; more]);
        row["message"] =
            json!({ "content": format!("Another session sent:\n{}\n\nThis", texts.join("\n")) });
        row
    };
    session.rows(&[merged(&[&frames[0], &frames[2]], 1)]);
    session.turn(&mut delivery);
    let seen: Vec<Value> = session
        .acks()
        .into_iter()
        .filter(|ack| ack.state == Seen)
        .map(|ack| json!(ack.msg_id))
        .collect();
    assert_eq!(
        seen,
        [frames[2]["msg_id"].clone(), frames[0]["msg_id"].clone()]
    );
    assert_eq!(delivery.pending(), 2);
}
