//! Ends from outside: signals, and the interrupt of a held-open session.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal;
use serde_json::json;

use super::{Done, World};

const BYPASS: &str = "--permission-mode=bypassPermissions";

/// A command that says that it runs, then goes on for long.
fn working(world: &World) -> String {
    let pid = world.path("pid");
    json!({"replies":[{"tools":[{"name":"Bash","input":{"command": format!(
        "echo $$ > {0}.tmp; mv {0}.tmp {0}; exec tail -f /dev/null", pid.display())}}]}]})
    .to_string()
}

/// A run whose command is at work gets a signal.
fn signalled(signal: Signal) -> (World, Done, u32) {
    let world = World::new();
    let mut run = world.start(world.command(&working(&world), &[BYPASS]), Some(b"hi"));
    let pid = world.path("pid");
    run.until("the command", |_| pid.exists());
    run.signal(signal);
    let done = run.wait();
    let pid = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    (world, done, pid)
}

fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit_once(')')
            .unwrap()
            .1
            .trim_start()
            .starts_with('Z')
    })
}

fn left(world: &World) -> usize {
    fs::read_dir(world.path(".claude/sessions"))
        .unwrap()
        .count()
}

#[test]
fn int_gives_a_result_and_code_0() {
    let (world, done, pid) = signalled(Signal::SIGINT);
    done.expect(0);
    assert_eq!(
        done.kinds(),
        [
            "system/init",
            "assistant",
            "user",
            "user",
            "result/error_during_execution"
        ]
    );
    let result = &done.results()[0];
    assert_eq!(result["terminal_reason"], "aborted_tools");
    assert_eq!(result["num_turns"], 3);
    assert!(!lives(pid), "the command goes with claude");
    assert_eq!(left(&world), 0);
}

#[test]
fn term_and_hup_give_no_result() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let (world, done, pid) = signalled(signal);
        done.expect(code);
        assert_eq!(done.kinds(), ["system/init", "assistant", "user"]);
        assert_eq!(
            done.log()
                .iter()
                .filter(|r| r["type"] == "cost-state")
                .count(),
            1
        );
        assert!(!lives(pid), "the command goes with claude");
        assert_eq!(left(&world), 0);
    }
}

#[test]
fn kill_leaves_row_key_and_command() {
    let (world, done, pid) = signalled(Signal::SIGKILL);
    assert_eq!(done.status.signal(), Some(9));
    assert_eq!(left(&world), 2);
    assert!(lives(pid), "the command outlives a killed claude");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::killpg(pid, Signal::SIGKILL).unwrap();
    let _ = fs::remove_file(format!("/tmp/cc-socks/{}.sock", done.pid));
}

#[test]
fn a_held_open_session_takes_turns_and_can_be_interrupted() {
    let world = World::new();
    let begun = world.path("begun");
    let command = format!(": > {}; tail -f /dev/null", begun.display());
    let script = json!({"replies":[
        {"text":"one"},
        {"tools":[{"name":"Bash","input":{"command":command}}]},
        {"text":"three"}]});
    let flags = [
        "--input-format=stream-json",
        "--replay-user-messages",
        BYPASS,
    ];
    let mut run = world.start(world.command(&script.to_string(), &flags), None);
    let user = |text: &str, uuid: &str| {
        json!({"type":"user","uuid":uuid,
        "message":{"role":"user","content":text}})
    };
    run.write(&user("first", "aaaaaaaa-0000-4000-8000-000000000001"));
    run.until_said(r#""state":"completed""#, 1);
    run.write(&user("second", "aaaaaaaa-0000-4000-8000-000000000002"));
    run.until("the command runs", |_| begun.exists());
    run.write(&user("queued", "aaaaaaaa-0000-4000-8000-000000000003"));
    run.until_said(r#""state":"queued""#, 3);
    run.write(&json!({"type":"control_request","request_id":"r1",
        "request":{"subtype":"interrupt"}}));
    run.until_said(r#""result_index":2"#, 1);
    let done = run.wait();
    done.expect(0);
    let states: Vec<_> = done
        .rows()
        .iter()
        .filter(|r| r["type"] == "command_lifecycle")
        .map(|r| r["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        states,
        [
            "queued",
            "started",
            "completed",
            "queued",
            "started",
            "queued",
            "cancelled",
            "started",
            "completed"
        ]
    );
    let answer = done
        .rows()
        .into_iter()
        .find(|r| r["type"] == "control_response")
        .unwrap();
    assert_eq!(
        answer["response"]["response"]["still_queued"],
        json!(["aaaaaaaa-0000-4000-8000-000000000003"])
    );
    assert_eq!(
        done.rows().iter().filter(|r| r["isReplay"] == true).count(),
        3
    );
    let results = done.results();
    assert_eq!(results[1]["terminal_reason"], "aborted_tools");
    assert_eq!(results[2]["result"], "three");
}
