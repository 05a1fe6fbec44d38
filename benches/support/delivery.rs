//! How long a line takes: from its append to the door, and to the ack that says it was seen.
//!
//! This program plays the session's claude: it listens at the door, and writes the rows that claude
//! would write at once. So what is measured is the doorman alone; a real claude takes a tenth of a
//! second to show a line in its queue, and folds it in when a tool has ended.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::claude_under_test::Chosen;
use super::doorman::{Doorman, Session};
use super::table::{Gauge, Table};

/// How many lines are measured, and how many come before to warm up.
const LINES: (usize, usize) = (500, 20);

/// Each line has a sender of its own: the guard's pace is not what is measured.
pub(crate) fn latency(_: &Chosen, table: &mut Table) {
    let session = Session::new();
    let doorman = Doorman::greeted(&session);
    let mut to_the_door = Vec::new();
    let mut to_seen = Vec::new();
    for number in 0..LINES.0 + LINES.1 {
        let (door, seen) = one(&session, number);
        if number >= LINES.1 {
            to_the_door.push(door);
            to_seen.push(seen);
        }
        // One after the other, as people and agents send them, and not in step with anything.
        std::thread::sleep(Duration::from_millis(3 + number as u64 % 7));
    }
    doorman.leave(&session);
    to_the_door.sort_unstable();
    to_seen.sort_unstable();
    for (name, times, share, limit) in [
        ("a line, from append to door, p50", &to_the_door, 0.5, 5.0),
        ("a line, from append to door, p99", &to_the_door, 0.99, 25.0),
        (
            "a line, from append to the ack `seen`, p50",
            &to_seen,
            0.5,
            10.0,
        ),
        (
            "a line, from append to the ack `seen`, p99",
            &to_seen,
            0.99,
            50.0,
        ),
    ] {
        table.gauge(&Gauge {
            name,
            value: percentile(times, share),
            limit,
            unit: "ms",
        });
    }
}

fn one(session: &Session, number: usize) -> (Duration, Duration) {
    let began = Instant::now();
    append(
        &session.inbox_file("inbox"),
        &json!({ "oo": 1, "msg_id": uuid::Uuid::new_v4(), "from": format!("s{number}"), "text": "look" }),
    );
    let (mut line, _) = session.door().accept().expect("the doorman comes");
    let mut text = String::new();
    line.read_to_string(&mut text).expect("the doorman writes");
    let door = began.elapsed();
    let frame: Value = serde_json::from_str(text.trim()).expect("a frame is JSON");
    let transcript = session.transcript();
    append(
        &transcript,
        &json!({ "type": "queue-operation", "operation": "enqueue", "content": frame["message"]["content"] }),
    );
    append(
        &transcript,
        &json!({ "type": "attachment", "attachment": { "type": "queued_command",
            "origin": { "msg_id": frame["msg_id"] } } }),
    );
    let acks = session.inbox_file("inbox.acks");
    let id = frame["msg_id"].as_str().expect("a frame has an id");
    loop {
        let text = std::fs::read_to_string(&acks).unwrap_or_default();
        let last = text.lines().next_back().unwrap_or_default();
        if last.contains(id) && last.contains("\"seen\"") && text.ends_with('\n') {
            return (door, began.elapsed());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn append(path: &Path, row: &Value) {
    let mut file = File::options()
        .append(true)
        .create(true)
        .open(path)
        .expect("the scratch folder takes files");
    file.write_all(format!("{row}\n").as_bytes())
        .expect("a row can be appended");
}

/// Of times in their order, in milliseconds.
fn percentile(times: &[Duration], share: f64) -> f64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place among some hundred"
    )]
    let at = ((times.len() - 1) as f64 * share).round() as usize;
    times[at].as_secs_f64() * 1000.0
}
