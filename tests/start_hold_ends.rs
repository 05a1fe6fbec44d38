//! How a held session ends: by a signal, with its supervisor, by a clock, by itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::start_clocks::assert_ends;
use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::held::{Held, results, shown, until_file};
use crate::support::lanes::on_each_claude;
use crate::support::process::until;
use crate::support::scenario::{Reply, Scenario};

const FOREVER: &str = "tail -f /dev/null";

fn gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
        || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

/// With a grace of an hour only the first rung can end it in time: nothing but the end of stdin.
const GENTLY: [&str; 3] = ["--hold", "--json", "--grace=1h"];

on_each_claude!(a_signal_closes_a_session_that_rests, |claude| {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let env = TestEnv::with(&claude, &Scenario::says("whole"));
        let mut held = Held::start(&env, &GENTLY);
        held.until_results(1);
        held.until_idle();
        held.oo.signal(signal);
        let folder = held.folder();
        let result = assert_ends(&held.oo.wait(PATIENCE), 0, "completed", None);
        assert_eq!(result["result"], "whole");
        assert_eq!(result["exit"], json!({"code": 0, "signal": null}));
        let note = result["note"].as_str().unwrap();
        assert!(
            note.contains("asked to stop after the answer was whole"),
            "{note}"
        );
        let process = fs::read(folder.join("process.json")).unwrap();
        let process: Value = serde_json::from_slice(&process).unwrap();
        assert_eq!(process["stop"]["after_answer"], true);
        assert_eq!(env.alive(), [] as [i32; 0]);
    }
});

on_each_claude!(a_signal_interrupts_a_first_turn, |claude| {
    let script = Scenario::new([until_file("never"), Reply::text("not wanted")]);
    let env = TestEnv::with(&claude, &script);
    let mut held = Held::start(&env, &GENTLY);
    held.until_at_work();
    held.oo.signal(Signal::SIGTERM);
    let folder = held.folder();
    let result = assert_ends(&held.oo.wait(PATIENCE), 6, "cancelled", Some("interrupted"));
    assert_eq!(result["result"], Value::Null);
    assert_eq!(results(&folder), *result["results"].as_array().unwrap());
    assert_eq!(env.alive(), [] as [i32; 0]);
});

on_each_claude!(a_signal_interrupts_a_further_turn, |claude| {
    let script = Scenario::new([
        Reply::text("one"),
        until_file("never"),
        Reply::text("not wanted"),
    ]);
    let env = TestEnv::with(&claude, &script);
    let mut held = Held::start(&env, &GENTLY);
    held.until_results(1);
    held.until_idle();
    held.send("more", "next");
    held.until_at_work();
    held.oo.signal(Signal::SIGINT);
    let folder = held.folder();
    let result = assert_ends(&held.oo.wait(PATIENCE), 6, "cancelled", Some("interrupted"));
    assert_eq!(result["result"], Value::Null);
    let all = result["results"].as_array().unwrap();
    assert_eq!(all[0]["text"], "one");
    assert_eq!(results(&folder), *all);
    assert_eq!(env.alive(), [] as [i32; 0]);
});

on_each_claude!(with_its_supervisor_killed_while_it_rests, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("whole"));
    let mut held = Held::start(&env, &GENTLY);
    held.until_results(1);
    held.until_idle();
    held.oo.signal(Signal::SIGKILL);
    let (run, pid, folder) = (held.run.clone(), held.claude, held.folder());
    assert_eq!(held.oo.wait(PATIENCE).signal, Some(9));
    until(PATIENCE, "claude leaves with its stdin closed", || {
        gone(pid)
    });
    // As if it had died in the middle of a line.
    let text = fs::read(folder.join("results.jsonl")).unwrap();
    fs::write(folder.join("results.jsonl"), &text[..text.len() / 2]).unwrap();
    let truth = shown(&env, &run);
    assert_eq!(
        (&truth["state"], &truth["class"], &truth["result"]),
        (&json!("ended"), &json!("completed"), &json!("whole"))
    );
    assert_eq!(truth["hold"]["waiting"], false);
    assert_eq!(fs::read(folder.join("results.jsonl")).unwrap(), text);
    assert_eq!(env.alive(), [] as [i32; 0]);
});

on_each_claude!(with_its_supervisor_killed_in_a_turn, |claude| {
    let script = Scenario::new([Reply::text("one"), until_file("go"), Reply::text("two")]);
    let env = TestEnv::with(&claude, &script);
    let mut held = Held::start(&env, &GENTLY);
    held.until_results(1);
    held.until_idle();
    held.send("more", "next");
    held.until_at_work();
    held.oo.signal(Signal::SIGKILL);
    let (run, pid, folder) = (held.run.clone(), held.claude, held.folder());
    assert_eq!(held.oo.wait(PATIENCE).signal, Some(9));
    let alone = shown(&env, &run);
    assert_eq!(
        (&alone["state"], &alone["hold"]["waiting"]),
        (&json!("unsupervised"), &json!(false))
    );
    env.file("go", "");
    until(PATIENCE, "claude ends its turn and leaves", || gone(pid));
    // Whoever lists the runs judges it as well.
    let listed = env.oo(["runs", "--json"]).run().json();
    assert_eq!(listed["runs"][0]["class"], "completed");
    let truth = shown(&env, &run);
    assert_eq!(truth["result"], "two");
    let all = truth["results"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(results(&folder), *all);
});

on_each_claude!(the_wall_ends_a_turn_and_not_an_answer, |claude| {
    let env = TestEnv::with(&claude, &Scenario::new([Reply::bash(FOREVER)]));
    let held = Held::start(&env, &["--hold", "--json", "--timeout=4s"]);
    let result = assert_ends(&held.oo.wait(PATIENCE), 5, "timeout", None);
    assert!(result["message"].as_str().unwrap().contains("--timeout 4s"));
    drop(env);
    let env = TestEnv::with(&claude, &Scenario::says("whole"));
    // Time enough for the answer: the model is a script.
    let wall = if claude.is_fake() { "2s" } else { "12s" };
    let wall = format!("--timeout={wall}");
    let held = Held::start(&env, &["--hold", "--json", &wall, "--grace=1h"]);
    let result = assert_ends(&held.oo.wait(PATIENCE), 0, "completed", None);
    assert_eq!(result["result"], "whole");
    assert!(result["note"].is_string(), "{result:#}");
});

on_each_claude!(a_claude_that_refuses_to_begin, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("never"));
    let done = env
        .oo(["start", "--hold", "--json", "-", "--", "--no-such-option"])
        .stdin("x".repeat(9 * 1024 * 1024))
        .run();
    let result = assert_ends(&done, 4, "failed", Some("configuration"));
    assert_eq!(result["exit"], json!({"code": 1, "signal": null}));
    assert_eq!(result["note"], Value::Null);
});

/// A claude that begins a turn when its stdin is closed, as one does that a line reached in that
/// moment, and ends it on SIGINT as `on_interrupt` says.
fn begins_a_turn_too_late(on_interrupt: &str) -> String {
    format!(
        r#"#!/bin/sh
trap '{on_interrupt}exit 0' INT
read -r prompt
echo '{{"type":"system","subtype":"init"}}'
echo '{{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"whole","terminal_reason":"completed"}}'
while read -r line; do :; done
echo '{{"type":"system","subtype":"init"}}'
while :; do /bin/sleep 0.05; done
"#
    )
}

#[test]
fn a_turn_that_begins_while_it_is_closed_is_interrupted() {
    let aborted = r#"echo "{\"type\":\"result\",\"subtype\":\"error_during_execution\",\"is_error\":true,\"num_turns\":2}"; "#;
    for (on_interrupt, count) in [(aborted, 2), ("", 1)] {
        let env = TestEnv::new();
        let program = env.file("claude", begins_a_turn_too_late(on_interrupt));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let program = format!("--claude={}", program.display());
        // With such a grace only the turn itself can bring the interrupt about.
        let args = ["--hold", "--json", "--grace=1h", "--no-doorman", &program];
        let mut held = Held::start(&env, &args);
        held.until_results(1);
        held.oo.signal(Signal::SIGTERM);
        let folder = held.folder();
        let result = assert_ends(&held.oo.wait(PATIENCE), 6, "cancelled", Some("interrupted"));
        assert_eq!(result["results"].as_array().unwrap().len(), count);
        assert_eq!(results(&folder).len(), count);
        let process = fs::read(folder.join("process.json")).unwrap();
        let process: Value = serde_json::from_slice(&process).unwrap();
        assert_eq!(process["stop"]["after_answer"], false);
    }
}

#[test]
fn a_claude_that_dies_at_once() {
    for (acts, cause) in [
        (json!([{"signal": "SEGV"}]), "signal"),
        (json!([{"exit": 3}]), "no-output"),
    ] {
        let script = Scenario::says("never").quirks(json!({"at": {"launch": acts}}));
        let env = TestEnv::with(&Claude::Fake, &script);
        let done = env
            .oo(["start", "--hold", "--json", "-"])
            .stdin("x".repeat(9 * 1024 * 1024))
            .run();
        let result = assert_ends(&done, 4, "failed", Some(cause));
        assert_eq!(result["note"], Value::Null);
        let folder = env.run_folder(result["run_id"].as_str().unwrap());
        assert_eq!(fs::read(folder.join("results.jsonl")).unwrap(), b"");
    }
}

#[test]
fn a_claude_that_reads_nothing_does_not_make_oo_deaf() {
    let script = Scenario::says("never").quirks(json!({"at": {"launch": [{"hang": true}]}}));
    let env = TestEnv::with(&Claude::Fake, &script);
    let done = env
        .oo(["start", "--hold", "--json", "--first-output=300ms", "-"])
        .stdin("x".repeat(9 * 1024 * 1024))
        .run();
    assert_ends(&done, 5, "timeout", Some("silent-start"));
}

#[test]
fn a_session_that_does_not_leave_is_ended_all_the_same() {
    let quirks = json!({"never_exit": true, "ignore_signals": ["INT", "TERM"]});
    let script = Scenario::says("whole").quirks(quirks);
    let env = TestEnv::with(&Claude::Fake, &script);
    // Closed by its idle time, and it stays: the drain clock runs from there.
    let held = Held::start(
        &env,
        &["--hold=100ms", "--json", "--drain=200ms", "--grace=100ms"],
    );
    let result = assert_ends(&held.oo.wait(PATIENCE), 0, "completed", None);
    assert!(result["note"].as_str().unwrap().contains("late exit"));
    assert_eq!(result["exit"]["signal"], 9);
    drop(env);
    // And by the ladder, rung after rung.
    let env = TestEnv::with(&Claude::Fake, &script);
    let mut held = Held::start(&env, &["--hold", "--json", "--grace=100ms"]);
    held.until_results(1);
    held.oo.signal(Signal::SIGTERM);
    let result = assert_ends(&held.oo.wait(PATIENCE), 0, "completed", None);
    assert_eq!(result["exit"]["signal"], 9);
    assert_eq!(env.alive(), [] as [i32; 0]);
}

#[test]
fn while_it_is_held_the_drain_clock_does_not_run() {
    let env = TestEnv::with(&Claude::Fake, &Scenario::says("whole"));
    let held = Held::start(&env, &["--hold=700ms", "--json", "--drain=100ms"]);
    let result = assert_ends(&held.oo.wait(PATIENCE), 0, "completed", None);
    assert_eq!(result["note"], Value::Null);
    assert!(result["duration_ms"].as_u64().unwrap() >= 700);
}
