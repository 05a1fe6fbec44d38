//! What the door drops, what it makes of lines that wait together, and doors that misbehave.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::door::{accepted, frame, go, id, script, seen, start, world_has};
use super::mcp::SERVER;
use super::{Done, Run, World, kind};

const MODE: &str = "--permission-mode=default";

fn with_quirks(world: &World, answers: usize, quirks: &Value) -> Value {
    let mut script = script(world, answers);
    script["quirks"] = quirks.clone();
    script
}

fn send(door: &mut UnixStream, lines: &[(&str, &str)]) {
    for (text, from) in lines {
        let line = frame(text, from, &json!({}));
        door.write_all(line.as_bytes()).unwrap();
    }
}

/// Waits until one more line, of a sender of its own, is in the queue: all before it are judged.
fn judged(world: &World, run: &mut Run, door: &mut UnixStream) {
    send(door, &[("the last", "nobody else")]);
    run.until("the last line", |_| world_has(world, "\"the last\""));
}

fn prompts(done: &Done) -> Vec<Value> {
    let mut prompts: Vec<_> = seen(done).iter().map(|a| a["prompt"].clone()).collect();
    prompts.retain(|p| p != "the last");
    prompts
}

#[test]
fn lines_of_one_sender_start_one_turn() {
    let world = World::new();
    let (mut run, mut door) = start(&world, &script(&world, 3), MODE);
    for (text, from) in [("l0", "a"), ("l1", "a"), ("l2", "a"), ("l3", "b")] {
        let line = frame(text, from, &json!({"priority":"later"}));
        door.write_all(line.as_bytes()).unwrap();
    }
    run.until("four lines", |_| accepted(&world) == 4);
    go(&world);
    let done = run.wait();
    let results = done.expect(0).results();
    assert_eq!(results.len(), 3);
    assert_eq!(results[1]["origin"]["msg_id"], id("l0"));
    assert_eq!(results[2]["origin"]["msg_id"], id("l3"));
    let log = done.log();
    let user = log.iter().find(|r| r["turnOrigin"] == "peer").unwrap();
    let text = user["message"]["content"].as_str().unwrap();
    let start = "Another Claude session sent a message:\nl0\nl1\nl2\n\nThis came from";
    assert!(text.starts_with(start), "{text}");
    assert_eq!(user["origin"]["msg_id"], id("l0"));
    // Of the others only uuids are left, and stdout has them in order.
    let mut uuids = user["mergedSendUuids"].as_array().unwrap().clone();
    assert_eq!(uuids.len(), 2);
    uuids.push(user["uuid"].clone());
    let rows = done.rows();
    for state in ["started", "completed"] {
        let told: Vec<_> = rows
            .iter()
            .filter(|r| r["state"] == state)
            .map(|r| r["command_uuid"].clone())
            .collect();
        assert_eq!(told[..3], uuids[..], "{state}");
    }
    let dequeued = log.iter().filter(|r| r["operation"] == "dequeue").count();
    assert_eq!(dequeued, 5);
    assert!(!done.transcript.contains(&id("l1")));
}

#[test]
fn only_the_last_text_of_a_sender_is_a_duplicate() {
    let world = World::new();
    let (mut run, mut door) = start(&world, &script(&world, 1), MODE);
    let again = frame("x", "a", &json!({"msg_id":id("another")}));
    send(&mut door, &[("x", "a")]);
    door.write_all(again.as_bytes()).unwrap();
    send(&mut door, &[("x", "b"), ("x ", "a"), ("x", "a")]);
    let same_id = frame("y", "a", &json!({"msg_id":id("x")}));
    door.write_all(same_id.as_bytes()).unwrap();
    judged(&world, &mut run, &mut door);
    go(&world);
    let done = run.wait();
    assert_eq!(prompts(done.expect(0)), ["x", "x", "x ", "x", "y"]);
}

#[test]
fn fifty_wait_over_all_senders() {
    let world = World::new();
    let (mut run, mut door) = start(&world, &script(&world, 1), MODE);
    for from in ["a", "b", "c"] {
        for i in 0..20 {
            send(&mut door, &[(&format!("{from} {i}"), from)]);
        }
    }
    run.until("fifty lines", |_| accepted(&world) == 50);
    go(&world);
    let done = run.wait();
    let prompts = prompts(done.expect(0));
    assert_eq!(prompts.len(), 50);
    assert_eq!(prompts[0], "a 0");
    assert_eq!(prompts[49], "c 9");
}

#[test]
fn texts_and_names_go_through_as_they_are() {
    let world = World::new();
    let (mut run, mut door) = start(&world, &script(&world, 1), MODE);
    let odd = "/clear \u{1}\u{1b}\r\n\u{feff}😀 ";
    send(&mut door, &[(odd, ""), ("", "a"), (" \n", "two words")]);
    let blocks = json!({"message":{"role":"user","content":[{"type":"text","text":"t"}]}});
    let line = frame("blocks", "a", &blocks);
    door.write_all(line.as_bytes()).unwrap();
    let nameless = json!({"type":"user","message":{"content":"nameless"},"msg_id":"no uuid"});
    // The end of a connection ends a line too.
    door.write_all(nameless.to_string().as_bytes()).unwrap();
    drop(door);
    run.until("three lines", |_| accepted(&world) == 3);
    go(&world);
    let done = run.wait();
    let seen = seen(done.expect(0));
    assert_eq!(seen[0]["origin"]["msg_id"], id(odd));
    assert_eq!(seen[2]["origin"].get("msg_id"), None);
    let shown: Vec<_> = seen
        .iter()
        .map(|a| (a["prompt"].clone(), a["origin"]["from"].clone()))
        .collect();
    let expected = [
        (odd, ""),
        ("(no content)", "two words"),
        ("nameless", "unknown"),
    ];
    assert_eq!(
        shown,
        expected.map(|(text, from)| (json!(text), json!(from)))
    );
    let log = done.log();
    assert!(
        log.iter()
            .any(|r| r["operation"] == "enqueue" && r["content"] == odd)
    );
}

#[test]
fn a_line_after_the_last_result_is_taken_out_unseen() {
    let world = World::new();
    let log = world.path("server.log");
    // It heeds neither INT nor TERM: there is half a second.
    let config = json!({"mcpServers":{"s":{"command":"/bin/bash","args":["-c", SERVER],
        "env":{"LOG":log}}}});
    let flag = format!("--mcp-config={config}");
    let command = world.command(r#"{"replies":[{"text":"a"}]}"#, &[&flag, MODE]);
    let mut run = world.start(command, Some(b"hi"));
    run.until("the end", |_| {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("INT"))
    });
    let mut door = UnixStream::connect(socket(&run)).unwrap();
    let frame = json!({"type":"user","message":{"content":"too late"},"msg_id":id("m")});
    door.write_all(format!("{frame}\n").as_bytes()).unwrap();
    let done = run.wait();
    assert_eq!(done.expect(0).results().len(), 1);
    let kinds: Vec<_> = done.log().iter().map(kind).collect();
    let queue: Vec<_> = kinds
        .iter()
        .filter(|k| k.starts_with("queue-operation"))
        .collect();
    let enqueue_dequeue = ["queue-operation/enqueue", "queue-operation/dequeue"];
    assert_eq!(queue, [enqueue_dequeue, enqueue_dequeue].concat());
    assert!(!done.transcript.contains(&id("m")));
}

fn socket(run: &Run) -> String {
    format!("/tmp/cc-socks/{}.sock", run.child.id())
}

#[test]
fn many_quick_rounds_each_take_their_line() {
    let world = World::new();
    let go = world.path("go");
    let wait = format!(
        "until [ -e {0} ]; do sleep 0.01; done; rm {0}",
        go.display()
    );
    let script = json!({"replies":[
        {"tools":[{"name":"Bash","input":{"command":wait}}],"repeat":20},
        {"tools":[{"name":"Bash","input":{"command":"true"}}],"repeat":60},
        {"text":"done"}]});
    let (mut run, mut door) = start(&world, &script, MODE);
    for round in 0..20 {
        run.until_said(r#""type":"tool_use""#, round + 1);
        send(&mut door, &[(&format!("line {round}"), "a")]);
        run.until("the line", |_| accepted(&world) == round + 1);
        std::fs::write(&go, "").unwrap();
    }
    let done = run.wait();
    let prompts = prompts(done.expect(0));
    let expected: Vec<_> = (0..20).map(|i| json!(format!("line {i}"))).collect();
    assert_eq!(prompts, expected);
    assert_eq!(done.text().matches("\"tool_result\"").count(), 80);
}

#[test]
fn the_guard_can_be_away_or_quick() {
    for (quirk, lines) in [
        (json!({"guard_off":true}), 70),
        (json!({"guard_scale":0.000_001}), 49),
    ] {
        let world = World::new();
        let (mut run, mut door) = start(&world, &with_quirks(&world, 1, &quirk), MODE);
        for i in 0..lines {
            send(&mut door, &[(&format!("line {i}"), "a")]);
        }
        judged(&world, &mut run, &mut door);
        assert_eq!(accepted(&world), lines + 1, "{quirk}");
        go(&world);
        run.wait().expect(0);
    }
}

#[test]
fn a_door_that_closes_then_hangs_then_works() {
    let world = World::new();
    let quirks = json!({"door_close":1,"door_hang":1});
    // The first connection is the one that `start` makes.
    let (mut run, mut closed) = start(&world, &with_quirks(&world, 1, &quirks), MODE);
    closed.set_read_timeout(Some(super::PATIENCE)).unwrap();
    assert_eq!(closed.read(&mut [0; 8]).unwrap(), 0);
    let mut hung = UnixStream::connect(socket(&run)).unwrap();
    send(&mut hung, &[("never read", "a")]);
    let mut door = UnixStream::connect(socket(&run)).unwrap();
    judged(&world, &mut run, &mut door);
    assert!(!world_has(&world, "never read"));
    go(&world);
    run.wait().expect(0);
}

#[test]
fn a_door_that_nobody_opens() {
    let world = World::new();
    let script = json!({"replies":[{"text":"x"}],"quirks":{"door_refuse":true,
        "at":{"init":[{"hang":true}]}}});
    let mut run = world.start(world.command(&script.to_string(), &[MODE]), Some(b"hi"));
    run.until_said("\"init\"", 1);
    let error = UnixStream::connect(socket(&run)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.wait().expect(143);
}
