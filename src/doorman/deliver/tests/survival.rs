//! What a line survives: doormen, claudes, files and sessions that go.

use super::*;

#[test]
fn a_doorman_that_was_killed_at_any_stage_is_followed_by_one_that_searches() {
    // What the transcript has when the next one comes, and how many lines it offers again.
    type Rows = fn(&Value) -> Vec<Value>;
    let table: [(&str, Rows, usize, LineState); 4] = [
        ("dropped", |_| vec![], 1, Offered),
        ("accepted", |frame| vec![enqueue(frame)], 0, Accepted),
        (
            "seen",
            |frame| vec![enqueue(frame), attachment(frame)],
            0,
            Seen,
        ),
        (
            "seen, its queue row lost",
            |frame| vec![user(frame)],
            0,
            Seen,
        ),
    ];
    for (what, rows, offered_again, last) in table {
        let mut session = Session::new();
        session.rows(&[json!({ "type": "user", "message": "before" })]);
        session.send("alice", "one");
        let mut first = session.delivery();
        let frames = session.turn(&mut first);
        drop(first);
        session.rows(&rows(&frames[0]));
        let mut second = session.delivery();
        let at_once = session.turn(&mut second);
        assert!(
            at_once.is_empty(),
            "{what}: the time to be accepted is waited out"
        );
        session.later(ACCEPT + Duration::from_millis(10));
        let mut again = session.turn(&mut second);
        session.later(Duration::from_secs(5));
        again.extend(session.turn(&mut second));
        assert_eq!(again.len(), offered_again, "{what}");
        assert_eq!(session.acks().last().unwrap().state, last, "{what}");
    }
}

#[test]
fn an_offer_to_a_claude_that_is_gone_is_made_again_unless_it_was_seen() {
    for seen in [false, true] {
        let mut session = Session::new();
        session.send("alice", "one");
        let mut first = session.delivery();
        let frames = session.turn(&mut first);
        session.rows(&[enqueue(&frames[0])]);
        session.turn(&mut first);
        if seen {
            session.rows(&[attachment(&frames[0])]);
        }
        drop(first);
        let path = session.inbox.acks();
        let acks = std::fs::read_to_string(&path).unwrap();
        let own = Identity::own().unwrap().pid;
        let other = acks.replace(&format!("\"pid\":{own}"), "\"pid\":1");
        assert_ne!(acks, other);
        std::fs::write(path, other).unwrap();
        let mut second = session.delivery();
        let again = session.turn(&mut second);
        assert_eq!(again.len(), usize::from(!seen));
    }
}

#[test]
fn what_does_not_arrive_is_queued_again_and_found_by_the_next() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    session.send("alice", "one");
    session.send("bob", "two");
    let frames = session.turn(&mut delivery);
    session.rows(&[enqueue(&frames[0]), attachment(&frames[1])]);
    delivery.leave("the session ended");
    assert_eq!((delivery.pending(), delivery.delivered()), (1, 1));
    let acks = session.acks();
    let last = acks.last().unwrap();
    assert_eq!((last.state, last.class), (Queued, None));
    assert_eq!(last.reason.as_deref(), Some("the session ended"));
    assert_eq!(session.inbox.counts().unwrap().pending, 1);
    // It was seen in the last moment, when nobody looked any more.
    session.rows(&[attachment(&frames[0])]);
    let mut next = session.delivery();
    assert!(session.turn(&mut next).is_empty());
    assert_eq!(session.inbox.counts().unwrap().pending, 0);
}

#[test]
fn a_message_that_was_seen_is_not_carried_twice() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    let message = session.send("alice", "one");
    session.append(&message.encode().unwrap());
    let frames = session.turn(&mut delivery);
    assert_eq!(frames.len(), 1);
    session.rows(&[attachment(&frames[0])]);
    session.later(Duration::from_secs(30));
    assert!(session.turn(&mut delivery).is_empty());
    assert_eq!(session.states(), [Offered, Seen, Seen]);
    // The file is replaced by one with the same messages: another inode, other offsets.
    let lines = std::fs::read(session.inbox.lines()).unwrap();
    std::fs::rename(session.inbox.lines(), session.folder.path().join("old")).unwrap();
    session.append(&lines);
    assert!(session.turn(&mut delivery).is_empty());
    assert_eq!(session.states()[3..], [Seen, Seen]);
}

#[test]
fn a_replaced_or_cut_inbox_is_read_anew() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    session.append(b"plain\n");
    let frames = session.turn(&mut delivery);
    assert_eq!(frames[0]["from"], host::user_at_host());
    session.rows(&[attachment(&frames[0])]);
    session.turn(&mut delivery);
    assert_eq!(session.offset(), 6);
    std::fs::write(session.inbox.lines(), "").unwrap();
    session.turn(&mut delivery);
    assert_eq!(session.offset(), 0);
    session.append(b"plain and new\n");
    let frames = session.turn(&mut delivery);
    assert!(text_of(&frames[0]).ends_with("] plain and new"));
}

#[test]
fn garbage_in_the_offset_is_rebuilt_from_acks_and_transcript() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    for (sender, text) in [("alice", "one"), ("bob", "two"), ("eve", "three")] {
        session.send(sender, text);
    }
    let frames = session.turn(&mut delivery);
    session.rows(&[attachment(&frames[0]), attachment(&frames[1])]);
    session.turn(&mut delivery);
    drop(delivery);
    // The second one's acks are lost as well; the transcript has it.
    let acks = std::fs::read_to_string(session.inbox.acks()).unwrap();
    let id = frames[1]["msg_id"].as_str().unwrap();
    let kept: String = acks
        .lines()
        .filter(|line| !line.contains(id))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(session.inbox.acks(), kept).unwrap();
    std::fs::write(session.inbox.offset(), "12x").unwrap();
    let mut next = session.delivery();
    session.turn(&mut next);
    session.later(ACCEPT);
    session.turn(&mut next);
    session.later(Duration::from_secs(5));
    let again = session.turn(&mut next);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0]["from"], "eve");
}

#[test]
fn what_cannot_be_carried_is_refused_once_and_passed() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    session.append(b"\xff\xfe\n{\"oo\":1,\"torn\n");
    let long = vec![b'x'; 1024 * 1024];
    session.append(&long);
    session.append(b"\nlast\n");
    // One that fits the inbox, but not the door.
    session.append(&long[..1024 * 1024 - 1]);
    session.append(b"\n");
    let frames = session.turn(&mut delivery);
    assert_eq!(frames.len(), 1);
    let refused = |acks: &[Ack]| {
        let refused = |ack: &&Ack| ack.class == Some(AckClass::Refused);
        acks.iter().filter(refused).count()
    };
    session.rows(&[enqueue(&frames[0]), attachment(&frames[0])]);
    session.turn(&mut delivery);
    assert_eq!(refused(&session.acks()), 4);
    assert!(
        session
            .acks()
            .iter()
            .all(|ack| ack.state != Queued || ack.reason.is_some())
    );
    let mut next = session.delivery();
    assert!(session.turn(&mut next).is_empty());
    assert_eq!(refused(&session.acks()), 4);
    let length = std::fs::metadata(session.inbox.lines()).unwrap().len();
    assert_eq!(session.offset(), length);
}

#[test]
fn without_a_record_nothing_is_written_to_the_door() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    session.send("alice", "one");
    std::fs::create_dir(session.inbox.acks()).unwrap();
    while delivery.wake(session.at) {}
    assert!(session.turn(&mut delivery).is_empty());
    std::fs::remove_dir(session.inbox.acks()).unwrap();
    session.later(DOOR_PAUSES.1);
    assert_eq!(session.turn(&mut delivery).len(), 1);
    assert_eq!(session.states(), [Offered]);
}

#[test]
fn a_plain_line_keeps_its_id_over_a_restart() {
    let mut session = Session::new();
    session.append(b"plain\n");
    let mut first = session.delivery();
    let frames = session.turn(&mut first);
    let mut next = session.delivery();
    session.turn(&mut next);
    session.later(ACCEPT);
    session.turn(&mut next);
    session.later(Duration::from_secs(30));
    let again = session.turn(&mut next);
    assert_eq!(again[0]["msg_id"], frames[0]["msg_id"]);
}

#[test]
fn lines_that_were_in_the_queue_are_found_where_the_owner_has_gone() {
    let mut session = Session::new();
    let mut delivery = session.delivery();
    for sender in ["alice", "bob", "eve"] {
        session.send(sender, "one");
    }
    let frames = session.turn(&mut delivery);
    session.rows(&[enqueue(&frames[0]), enqueue(&frames[1])]);
    session.turn(&mut delivery);
    let other = Uuid::from_u128(8);
    delivery.go_along(other);
    assert!(delivery.expects());
    let path = session
        .folder
        .path()
        .join(format!("projects/-w/{other}.jsonl"));
    std::fs::write(path, format!("{}\n", user(&frames[0]))).unwrap();
    delivery.look_for_the_rest(session.at);
    session.later(ACCEPT);
    delivery.look_for_the_rest(session.at);
    assert!(delivery.expects(), "bob's line may still come");
    delivery.leave("left");
    let last: Vec<_> = ["alice", "bob", "eve"]
        .iter()
        .map(|name| {
            let of = |ack: &Ack| ack.from.as_deref() == Some(name);
            session.acks().into_iter().rfind(of).unwrap().state
        })
        .collect();
    assert_eq!(last, [Seen, Queued, Queued]);
}
