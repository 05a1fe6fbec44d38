//! The door: who gets in, what is dropped, and what is left of it in the transcript.

use std::io::Write;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::{Done, Run, World, kind};

const ID: &str = "dddddddd-0000-4000-8000-000000000000";

/// A tool that runs until the test lets it go, and answers for some turns.
pub(super) fn script(world: &World, answers: usize) -> Value {
    let go = world.path("go");
    let mut replies = vec![json!({"tools":[{"name":"Bash","input":{"command":
        format!("until [ -e {} ]; do sleep 0.02; done", go.display())}}]})];
    replies.extend((0..answers).map(|i| json!({"text": format!("answer {i}")})));
    json!({ "replies": replies })
}

pub(super) fn start(world: &World, script: &Value, mode: &str) -> (Run, UnixStream) {
    let session = format!("--session-id={ID}");
    let flags = [session.as_str(), "--allowedTools=Bash", mode];
    let mut run = world.start(world.command(&script.to_string(), &flags), Some(b"hi"));
    run.until_said(r#""type":"tool_use""#, 1);
    let door = UnixStream::connect(format!("/tmp/cc-socks/{}.sock", run.child.id())).unwrap();
    (run, door)
}

/// The id of the line with a text.
pub(super) fn id(text: &str) -> String {
    let mut bytes = [0_u8; 16];
    for (i, byte) in text.bytes().enumerate() {
        bytes[i % 16] ^= byte;
    }
    uuid::Uuid::from_bytes(bytes).to_string()
}

pub(super) fn frame(text: &str, from: &str, more: &Value) -> String {
    let mut frame = json!({"msgV":1,"msg_id":id(text),"type":"user",
        "message":{"role":"user","content":text},"priority":"next","from":from,"session_id":ID});
    let fields = frame.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    format!("{frame}\n")
}

/// How many lines were taken into the queue, the prompt not counted.
pub(super) fn accepted(world: &World) -> usize {
    let projects = std::fs::read_dir(world.path(".claude/projects")).unwrap();
    let project = projects.flatten().next().unwrap().path();
    let text = std::fs::read_to_string(project.join(format!("{ID}.jsonl"))).unwrap();
    text.matches(r#""operation":"enqueue""#).count() - 1
}

pub(super) fn go(world: &World) {
    std::fs::write(world.path("go"), "").unwrap();
}

pub(super) fn seen(done: &Done) -> Vec<Value> {
    let folded = done
        .log()
        .into_iter()
        .filter(|r| kind(r) == "attachment/queued_command");
    folded.map(|r| r["attachment"].clone()).collect()
}

#[test]
fn next_is_folded_in_later_starts_a_turn_and_a_wrong_session_is_dropped() {
    let world = World::new();
    let (mut run, mut door) = start(&world, &script(&world, 2), "--permission-mode=default");
    let mut send = |text: &str, more: Value| {
        door.write_all(frame(text, "tester", &more).as_bytes())
            .unwrap();
    };
    send(
        "wrong",
        json!({"session_id":"eeeeeeee-0000-4000-8000-000000000000"}),
    );
    send("next", json!({}));
    send("next", json!({}));
    send("later", json!({"priority":"later"}));
    run.until("two lines in the queue", |_| accepted(&world) == 2);
    go(&world);
    let done = run.wait();
    done.expect(0);
    let seen = seen(&done);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["prompt"], "next");
    assert_eq!(seen[0]["origin"]["msg_id"], id("next"));
    assert_eq!(seen[0]["origin"]["verifiedPeerPid"], std::process::id());
    let results = done.results();
    assert_eq!(results.len(), 2);
    assert_eq!(results[1]["origin"]["msg_id"], id("later"));
    assert!(!done.transcript.contains(&id("wrong")));
    let removed = done
        .log()
        .into_iter()
        .find(|r| r["operation"] == "remove")
        .unwrap();
    assert_eq!(removed["reason"], "absorbed_mid_turn");
    assert_eq!(removed["commandUuid"], seen[0]["source_uuid"]);
}

#[test]
fn now_cuts_the_turn_short() {
    let world = World::new();
    let (mut run, mut door) = start(&world, &script(&world, 1), "--permission-mode=default");
    let line = frame("now", "tester", &json!({"priority":"now"}));
    door.write_all(line.as_bytes()).unwrap();
    run.until("the line in the queue", |_| accepted(&world) == 1);
    go(&world);
    let done = run.wait();
    let results = done.expect(0).results();
    assert_eq!(results[0]["terminal_reason"], "aborted_tools");
    assert_eq!(results[0]["result"], "");
    assert_eq!(results[1]["result"], "answer 0");
}

#[test]
fn a_stranger_is_held_in_bypass_permissions() {
    let world = World::new();
    let mode = "--permission-mode=bypassPermissions";
    let (mut run, mut door) = start(&world, &script(&world, 1), mode);
    door.write_all(frame("held", "tester", &json!({})).as_bytes())
        .unwrap();
    run.until_said("peer_message_hold", 1);
    go(&world);
    let done = run.wait();
    done.expect(0);
    assert!(!done.transcript.contains(&id("held")));
    let holds = done
        .rows()
        .into_iter()
        .filter(|r| r["subtype"] == "peer_message_hold");
    let states: Vec<_> = holds.map(|r| r["state"].clone()).collect();
    assert_eq!(states, ["held", "dropped"]);
}

#[test]
fn a_child_gets_in_in_bypass_permissions() {
    let world = World::new();
    // The command's own shell is the child; perl opens the socket for it.
    let command = "perl -MIO::Socket::UNIX -e '\
        $s = IO::Socket::UNIX->new(Peer => $ENV{CLAUDE_CODE_MESSAGING_SOCKET}) or die; \
        print $s qq({\"type\":\"user\",\"message\":{\"content\":\"from a child\"},\
        \"msg_id\":\"m\",\"from\":\"me\"}\\n); close $s; select undef, undef, undef, 0.3'";
    let script = json!({"replies":[
        {"tools":[{"name":"Bash","input":{"command":command}}]},{"text":"x"},{"text":"y"}]});
    let mode = "--permission-mode=bypassPermissions";
    let done = world.run(&script.to_string(), &[mode]);
    let origins: Vec<_> = done
        .log()
        .iter()
        .filter_map(|r| {
            let origin = r.get("origin").or_else(|| r["attachment"].get("origin"));
            origin.cloned()
        })
        .collect();
    assert_eq!(origins[0]["selfSent"], true, "{}", done.text());
}

#[test]
fn the_guard_lets_thirty_of_eighty_in() {
    let world = World::new();
    let (mut run, mut door) = start(&world, &script(&world, 1), "--permission-mode=default");
    for i in 0..80 {
        let line = frame(&format!("line {i}"), "tester", &json!({}));
        door.write_all(line.as_bytes()).unwrap();
    }
    // One more, from another sender, shows that all before it were judged.
    door.write_all(frame("the last", "other", &json!({})).as_bytes())
        .unwrap();
    run.until("the last line", |_| {
        let n = accepted(&world);
        n > 0 && world_has(&world, "the last")
    });
    let taken = accepted(&world);
    go(&world);
    run.wait().expect(0);
    assert!((31..=32).contains(&taken), "{taken}");
}

pub(super) fn world_has(world: &World, text: &str) -> bool {
    let projects = std::fs::read_dir(world.path(".claude/projects")).unwrap();
    let project = projects.flatten().next().unwrap().path();
    std::fs::read_to_string(project.join(format!("{ID}.jsonl")))
        .unwrap()
        .contains(text)
}

#[test]
fn a_line_of_more_than_a_mebibyte_closes_the_connection() {
    use std::io::Read;
    let world = World::new();
    let (run, mut door) = start(&world, &script(&world, 1), "--permission-mode=default");
    let _ = door.write_all(&vec![b'x'; (1 << 20) + 2]);
    door.set_read_timeout(Some(super::PATIENCE)).unwrap();
    let end = door.read(&mut [0; 8]);
    assert!(matches!(end, Ok(0)) || end.is_err_and(|e| e.raw_os_error() == Some(104)));
    go(&world);
    run.wait().expect(0);
}
