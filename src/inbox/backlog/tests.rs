//! Inboxes as senders, doormen and accidents leave them.

use std::io::Write;

use uuid::Uuid;

use super::super::tests::scratch;
use super::super::{AckClass, LineState};
use super::*;

fn append(inbox: &Inbox, text: &[u8]) {
    let mut file = File::options()
        .append(true)
        .create(true)
        .open(inbox.lines())
        .unwrap();
    file.write_all(text).unwrap();
}

fn texts(backlog: &mut Backlog) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let mut take = |entry: Entry| {
        let text = match entry.message {
            Ok(message) => message.text,
            Err(Refusal(reason)) => format!("refused: {reason}"),
        };
        found.push((entry.place.offset, text));
    };
    while backlog.read_new(1, &mut take).unwrap() > 0 {}
    found
}

fn open(inbox: &Inbox) -> Backlog {
    Backlog::open(inbox).unwrap().unwrap()
}

fn ack(inbox: &Inbox, text: &str, offset: u64, state: &str, class: &str) -> String {
    let inode = std::fs::metadata(inbox.lines()).unwrap().ino();
    format!(
        "{{\"class\":{class},\"state\":\"{state}\",\"line_offset\":{offset},\"inode\":{inode},\"sha256\":\"{}\"}}\n",
        message::sha256(text.as_bytes())
    )
}

#[test]
fn whole_lines_are_read_as_they_come() {
    let (_folder, inbox) = scratch();
    assert!(Backlog::open(&inbox).unwrap().is_none());
    append(&inbox, b"one\n\ntw");
    let mut backlog = open(&inbox);
    assert_eq!(texts(&mut backlog), [(0, "one".to_owned())]);
    assert_eq!(backlog.position(), 5);
    append(&inbox, b"o\n\xff\n");
    let refused = "refused: not UTF-8 at byte 0 of the line".to_owned();
    assert_eq!(texts(&mut backlog), [(5, "two".to_owned()), (9, refused)]);
    assert!(backlog.is_current(&inbox));
    let (message, sha256) = backlog.message(5, 4).unwrap().unwrap();
    assert_eq!(
        (message.text.as_str(), sha256),
        ("two", message::sha256(b"two"))
    );
    for (offset, length) in [(5, 3), (4, 4), (5, 5), (90, 4)] {
        assert_eq!(backlog.message(offset, length).unwrap(), None, "{offset}");
    }
}

#[test]
fn a_line_that_is_too_long_is_hashed_and_passed() {
    let (_folder, inbox) = scratch();
    let long = vec![b'x'; LONGEST_LINE];
    for part in [&b"one\n"[..], &long, b"\n", &long[1..], b"\nend\n"] {
        append(&inbox, part);
    }
    let mut entries = Vec::new();
    open(&inbox)
        .read_new(u64::MAX, |entry| entries.push(entry))
        .unwrap();
    let lengths: Vec<u64> = entries.iter().map(|entry| entry.length).collect();
    let most = LONGEST_LINE as u64;
    assert_eq!(lengths, [4, most + 1, most, 4]);
    assert!(entries[1].message.is_err() && entries[2].message.is_ok());
    assert_eq!(entries[1].sha256, message::sha256(&long));
}

#[test]
fn the_offset_counts_when_it_is_the_start_of_a_line() {
    let all = [(0, "one".to_owned()), (4, "two".to_owned())];
    let table = [
        (None, &all[..], false),
        (Some("0"), &all[..], false),
        (Some("4\n"), &all[1..], false),
        (Some("8"), &[], false),
        (Some("3"), &all[..], true),
        (Some("9"), &all[..], true),
        (Some("-1"), &all[..], true),
        (Some("garbage"), &all[..], true),
        (Some(""), &all[..], true),
    ];
    for (offset, expected, rebuilt) in table {
        let (_folder, inbox) = scratch();
        append(&inbox, b"one\ntwo\n");
        if let Some(offset) = offset {
            std::fs::write(inbox.offset(), offset).unwrap();
        }
        let mut backlog = open(&inbox);
        assert_eq!(backlog.rebuilt(), rebuilt, "{offset:?}");
        assert_eq!(texts(&mut backlog), expected, "{offset:?}");
    }
}

#[test]
fn acks_tell_what_was_handled_if_they_fit_the_line() {
    let (_folder, inbox) = scratch();
    append(&inbox, b"one\ntwo\ntri\nfor\nfiv\n");
    let id = "\"msg_id\":\"00000000-0000-0000-0000-000000000005\",";
    let acks = [
        ack(&inbox, "one", 0, "offered", "null"),
        ack(&inbox, "one", 0, "seen", "\"delivered-steer\"").replacen('{', &format!("{{{id}"), 1),
        ack(&inbox, "another", 4, "seen", "\"delivered-start\""),
        ack(&inbox, "tri", 8, "seen", "null").replace("\"inode\":", "\"inode\":9"),
        ack(&inbox, "for", 12, "queued", "\"refused\""),
        ack(&inbox, "fiv", 16, "accepted", "null"),
        "{\"torn\n".to_owned(),
    ];
    std::fs::write(inbox.acks(), acks.concat()).unwrap();
    let mut backlog = open(&inbox);
    let past = backlog.past();
    assert_eq!((past.delivered, past.bad), (3, 1));
    let seen = past.seen.get(&Uuid::from_u128(5));
    assert_eq!(seen, Some(&Some(AckClass::DeliveredSteer)));
    let mut entries = Vec::new();
    backlog
        .read_new(u64::MAX, |entry| entries.push(entry))
        .unwrap();
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (entry.place.offset, entry.ack.as_ref().map(|ack| ack.state)))
        .collect();
    let expected = [(4, None), (8, None), (16, Some(LineState::Accepted))];
    assert_eq!(found, expected);
}

#[test]
fn an_offset_counts_only_while_the_last_ack_fits_its_line() {
    let (_folder, inbox) = scratch();
    append(&inbox, b"one\n");
    std::fs::write(inbox.acks(), ack(&inbox, "one", 0, "seen", "null")).unwrap();
    std::fs::write(inbox.offset(), "4").unwrap();
    assert_eq!(texts(&mut open(&inbox)), []);
    // Cut, and as long again with another line.
    std::fs::write(inbox.lines(), "two\n").unwrap();
    let mut backlog = open(&inbox);
    assert!(backlog.rebuilt());
    assert_eq!(texts(&mut backlog), [(0, "two".to_owned())]);
}

#[test]
fn a_file_that_was_replaced_or_cut_is_noticed() {
    let (_folder, inbox) = scratch();
    append(&inbox, b"one\ntwo");
    let mut backlog = open(&inbox);
    texts(&mut backlog);
    assert!(backlog.is_current(&inbox));
    std::fs::write(inbox.lines(), "one\ntw").unwrap();
    assert!(!backlog.is_current(&inbox));
    std::fs::remove_file(inbox.lines()).unwrap();
    assert!(!backlog.is_current(&inbox));
    append(&inbox, b"one\ntwo\nthree\n");
    assert!(!backlog.is_current(&inbox));
}
