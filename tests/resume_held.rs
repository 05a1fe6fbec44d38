//! `oo resume` while somebody has the session: it is not touched, and the holder is named.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::held::{Held, until_file};
use crate::support::lanes::on_each_claude;
use crate::support::process::{Finished, until, until_some};
use crate::support::rows;
use crate::support::scenario::{Reply, Scenario};
use crate::support::sleeping::{Sleeping, settled};

/// Asserts that somebody has the session: the holder.
#[track_caller]
fn held_by(done: &Finished, kind: &str) -> Value {
    done.expect_code(3);
    let result = done.json();
    assert_eq!(
        (&result["class"], &result["state"], &result["cause"]),
        (&json!("held-by-session"), &json!("refused"), &Value::Null)
    );
    assert_eq!(result["run_id"], Value::Null);
    let holder = result["holder"].clone();
    assert_eq!(holder["kind"], kind, "{result:#}");
    let since: Result<jiff::Timestamp, _> = holder["since"].as_str().unwrap().parse();
    assert!(since.is_ok(), "{holder}");
    let said = result["message"].as_str().unwrap();
    assert!(said.contains(&format!("pid {}", holder["pid"])), "{said}");
    assert!(done.stderr.contains(said), "{}", done.stderr);
    holder
}

/// The session is at work in a tool until the file `go` is there.
fn at_work(then: &str) -> Scenario {
    Scenario::new([until_file("go"), Reply::text(then)])
}

on_each_claude!(a_second_resume_while_the_first_runs, |claude| {
    let slept = Sleeping::new(&claude);
    slept.env.script(&at_work("two"));
    let mut first = slept.resuming(&["--allowed-tools=Bash"]);
    let (run, pid) = slept.until_at_work(&mut first);
    let before = slept.settled();
    let holder = held_by(&slept.resuming(&[]).wait(PATIENCE), "run");
    assert_eq!(
        (&holder["run_id"], &holder["pid"]),
        (&json!(run), &json!(pid))
    );
    assert_eq!(slept.bytes(), before, "not a byte");
    // Nor by way of one of its runs, and waiting in vain is no other class.
    let done = slept
        .env
        .oo(["resume", &run, "x", "--json", "--wait=100ms"])
        .run();
    held_by(&done, "run");
    assert_eq!(slept.bytes(), before);
    // In a new session it can be gone on with, and that disturbs nobody.
    // (The mock counts answers by session, the stand-in by process: both have one of their own.)
    slept.env.file("go", "");
    let fork = slept.env.oo([
        "resume",
        &slept.session,
        "x",
        "--fork",
        "--json",
        "--allowed-tools=Bash",
    ]);
    let done = fork.run();
    done.expect_code(0);
    assert_eq!(done.json()["result"], "two");
    assert_ne!(done.json()["session_id"], slept.session);
    let done = first.wait(PATIENCE);
    done.expect_code(0);
    assert_eq!(done.json()["result"], "two");
    let text = String::from_utf8(slept.bytes()).unwrap();
    assert!(text.starts_with(std::str::from_utf8(&before).unwrap()));
});

on_each_claude!(a_claude_that_oo_did_not_start, |claude| {
    let slept = Sleeping::new(&claude);
    slept.env.script(&at_work("two"));
    let mut bare = slept
        .env
        .claude([
            &format!("--resume={}", slept.session),
            "--input-format=stream-json",
            "--allowedTools=Bash",
        ])
        .held_stdin()
        .spawn();
    let pid = bare.pid();
    bare.until(PATIENCE, "a registry row", || {
        rows::registered(&slept.env.home(), pid).is_some()
    });
    let idle = slept.settled();
    let holder = held_by(&slept.resuming(&[]).wait(PATIENCE), "session");
    assert_eq!(
        (&holder["pid"], &holder["run_id"]),
        (&json!(pid), &Value::Null)
    );
    assert_eq!(slept.bytes(), idle);
    bare.say(r#"{"type":"user","message":{"role":"user","content":"go on"}}"#);
    bare.until(PATIENCE, "a tool at work", || {
        String::from_utf8_lossy(&slept.bytes()).contains("tool_use")
    });
    let busy = slept.settled();
    held_by(&slept.resuming(&[]).wait(PATIENCE), "session");
    assert_eq!(slept.bytes(), busy);
    // Killed, it leaves its row behind, which holds nothing and is not ours to remove.
    bare.signal(Signal::SIGKILL);
    bare.wait(PATIENCE);
    slept.env.file("go", "");
    assert!(rows::registered(&slept.env.home(), pid).is_some());
    let done = slept.resume(Reply::text("three"), &["--wait=10s"]);
    done.expect_code(0);
    assert_eq!(done.json()["result"], "three");
    assert!(rows::registered(&slept.env.home(), pid).is_some());
});

on_each_claude!(a_session_that_is_held_open, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("one"));
    let mut held = Held::start(&env, &["--hold"]);
    held.until_results(1);
    held.until_idle();
    let transcript = rows::transcript_path(&env.home(), &held.session).unwrap();
    let before = settled(&transcript);
    let session = held.session.clone();
    let done = env.oo(["resume", &session, "x", "--json"]).run();
    let holder = held_by(&done, "run");
    assert_eq!(holder["run_id"], held.run);
    assert_eq!(fs::read(&transcript).unwrap(), before);
    held.oo.signal(Signal::SIGTERM);
    // Whoever waits is there as soon as it is left.
    env.script(&Scenario::says("two"));
    let waiting = env
        .oo(["resume", &session, "x", "--json", "--wait=1m"])
        .spawn();
    held.oo.wait(PATIENCE).expect_code(0);
    let done = waiting.wait(PATIENCE);
    done.expect_code(0);
    assert_eq!(done.json()["result"], "two");
});

on_each_claude!(a_claude_whose_supervisor_was_killed, |claude| {
    let slept = Sleeping::new(&claude);
    // The mock counts answers by session, the stand-in by process.
    let replies = [until_file("go"), Reply::text("two"), Reply::text("three")];
    slept.env.script(&Scenario::new(replies));
    let mut first = slept.resuming(&["--allowed-tools=Bash"]);
    let (run, pid) = slept.until_at_work(&mut first);
    first.signal(Signal::SIGKILL);
    first.wait(PATIENCE);
    let before = slept.settled();
    let holder = held_by(&slept.resuming(&[]).wait(PATIENCE), "run");
    assert_eq!(
        (&holder["run_id"], &holder["pid"]),
        (&json!(run), &json!(pid))
    );
    assert_eq!(slept.bytes(), before);
    let waiting = slept.resuming(&["--wait=1m", "--allowed-tools=Bash"]);
    slept.env.file("go", "");
    waiting.wait(PATIENCE).expect_code(0);
    let shown = slept.env.oo(["show", &run, "--json"]).run().json();
    assert_eq!(
        (&shown["class"], &shown["result"]),
        (&json!("delivered-resume"), &json!("two"))
    );
});

on_each_claude!(the_line_is_sent_instead, |claude| {
    let env = TestEnv::with(
        &claude,
        &Scenario::new([Reply::text("one"), Reply::text("two")]),
    );
    let mut held = Held::start(&env, &["--hold"]);
    held.until_results(1);
    held.until_idle();
    let done = env
        .oo(["resume", &held.session, "more", "--json", "--send-if-held"])
        .run();
    done.expect_code(0);
    let sent = done.json();
    assert_eq!(
        (&sent["schema"], &sent["class"]),
        (&json!("oo/send/v1"), &json!("delivered-start"))
    );
    let note = sent["note"].as_str().unwrap();
    assert!(
        note.contains(&format!("held by run {}", held.run)),
        "{note}"
    );
    held.until_results(2);
    held.until_idle();
    held.oo.signal(Signal::SIGTERM);
    held.oo.wait(PATIENCE).expect_code(0);
});

#[test]
fn a_session_without_a_doorman_has_sends_classes_too() {
    let slept = Sleeping::new(&Claude::Fake);
    slept.env.script(&at_work("two"));
    let mut first = slept.resuming(&["--no-doorman", "--allowed-tools=Bash"]);
    slept.until_at_work(&mut first);
    let done = slept.resuming(&["--send-if-held"]).wait(PATIENCE);
    done.expect_code(3);
    assert_eq!(done.json()["class"], "queued-no-doorman");
    slept.env.file("go", "");
    first.wait(PATIENCE).expect_code(0);
    // With nobody there the line is resumed with, not sent; and what waited comes along.
    slept
        .env
        .script(&Scenario::new([Reply::text("three"), Reply::text("four")]));
    let done = slept.resuming(&["--send-if-held"]).wait(PATIENCE);
    done.expect_code(0);
    assert_eq!(done.json()["class"], "delivered-resume");
}

#[test]
fn a_claude_that_is_only_just_starting() {
    let slept = Sleeping::new(&Claude::Fake);
    slept
        .env
        .script(&Scenario::says("two").quirks(json!({"no_registry": true})));
    let bare = slept
        .env
        .claude([
            &format!("--resume={}", slept.session),
            "--input-format=stream-json",
        ])
        .held_stdin()
        .spawn();
    let pid = bare.pid();
    until(PATIENCE, "its own arguments", || {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("--resume="))
    });
    let holder = held_by(&slept.resuming(&[]).wait(PATIENCE), "process");
    assert_eq!(holder["pid"], pid);
    drop(bare);
}

#[test]
fn a_wait_that_is_ended_has_a_class() {
    let slept = Sleeping::new(&Claude::Fake);
    slept.env.script(&at_work("two"));
    let mut first = slept.resuming(&["--allowed-tools=Bash"]);
    slept.until_at_work(&mut first);
    let before = slept.settled();
    let waiting = slept.resuming(&["--wait=1h"]);
    let pid = waiting.pid();
    until(PATIENCE, "the signal to be waited for", || {
        fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| {
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            caught.is_some_and(|mask| mask >> 14 & 1 == 1)
        })
    });
    waiting.signal(Signal::SIGTERM);
    let done = waiting.wait(PATIENCE);
    done.expect_code(6);
    let result = done.json();
    assert_eq!(
        (&result["class"], &result["state"]),
        (&json!("cancelled"), &json!("refused"))
    );
    assert_eq!(slept.bytes(), before);
    slept.env.file("go", "");
    first.wait(PATIENCE).expect_code(0);
}

#[test]
fn what_is_stale_blocks_nobody_and_stays() {
    let slept = Sleeping::new(&Claude::Fake);
    let env = &slept.env;
    let session = &slept.session;
    let own = std::process::id();
    // A row of a pid that is another process's now; this test's, as it happens.
    let row = env.home().join(format!(".claude/sessions/{own}.json"));
    let text = json!({
        "pid": own, "sessionId": session, "procStart": "1",
        "pidDomain": "linux::pid:[4026531836]",
    });
    fs::write(&row, text.to_string()).unwrap();
    // A row that is garbage.
    let bad = env.home().join(".claude/sessions/4194303.json");
    fs::write(&bad, "{\"pid\":").unwrap();
    // The record of a run whose processes are gone, and are of another boot.
    let runs = env.state().join("runs");
    let run = runs.join("01900000-0000-7000-8000-000000000001");
    fs::create_dir(&run).unwrap();
    let first = env.run_folder(slept.first["run_id"].as_str().unwrap());
    let mut spec: Value =
        serde_json::from_slice(&fs::read(first.join("spec.json")).unwrap()).unwrap();
    spec["run_id"] = json!("01900000-0000-7000-8000-000000000001");
    fs::write(run.join("spec.json"), spec.to_string()).unwrap();
    fs::write(run.join("events.jsonl"), "").unwrap();
    let start = fs::read_to_string(format!("/proc/{own}/stat")).unwrap();
    let start = start
        .rsplit_once(')')
        .unwrap()
        .1
        .split_ascii_whitespace()
        .nth(19)
        .unwrap()
        .to_owned();
    let process = json!({
        "schema": "oo/process/v1", "claude": {"pid": own, "proc_start": start},
        "supervisor": null, "boot_id": "another", "started_at": "2026-11-30T12:00:00Z",
        "env_kept": [], "stop": null,
    });
    fs::write(run.join("process.json"), process.to_string()).unwrap();
    // A heartbeat of another boot, whose pid lives.
    let beat = env.state().join(format!("inbox/{session}.inbox.heartbeat"));
    let text = json!({
        "session_id": session, "pid": own, "proc_start": start, "state": "following",
        "at": jiff::Timestamp::now().to_string(), "boot_id": "another",
    });
    fs::write(&beat, text.to_string()).unwrap();
    // A lock file that nobody has locked.
    let lock = env.state().join(format!("locks/{session}.lock"));
    assert!(lock.exists(), "the first run's");
    let done = slept.resume(Reply::text("two"), &["--no-doorman"]);
    done.expect_code(0);
    for path in [&row, &bad, &beat, &lock] {
        assert!(path.exists(), "{} is not ours to remove", path.display());
    }
}

on_each_claude!(lines_that_waited_come_in_the_same_turn, |claude| {
    let slept = Sleeping::new(&claude);
    let env = &slept.env;
    for line in ["first line", "second line"] {
        let done = env
            .oo(["send", &slept.session, line, "--json", "--min-interval=0s"])
            .run();
        done.expect_code(3);
        assert_eq!(done.json()["class"], "queued-offline");
        let hint = done.json()["hint"].as_str().unwrap().to_owned();
        assert!(
            hint.contains(&format!("oo resume {}", slept.session)),
            "{hint}"
        );
    }
    let gate = until_file("go");
    env.script(&Scenario::new([
        gate,
        Reply::text("two"),
        Reply::text("three"),
    ]));
    let mut oo = slept.resuming(&["--allowed-tools=Bash"]);
    slept.until_at_work(&mut oo);
    until_some(PATIENCE, "both lines in the queue", || {
        let text = String::from_utf8(slept.bytes()).ok()?;
        let queued = |line: &str| {
            text.lines()
                .any(|row| row.contains("\"enqueue\"") && row.contains(line))
        };
        (queued("first line") && queued("second line")).then_some(())
    });
    env.file("go", "");
    let done = oo.wait(PATIENCE);
    done.expect_code(0);
    let result = done.json();
    assert_eq!(
        (&result["doorman_delivered"], &result["doorman_pending"]),
        (&json!(2), &json!(0))
    );
    // Those that waited come in their order. The prompt is before them as a rule; but a line that
    // is in the queue when claude looks there first begins the turn, and the prompt is folded in at
    // the next tool boundary as if it were the line (measured on both builds, the machine loaded).
    let arrived = in_context(&slept);
    assert_eq!(arrived.len(), 3, "{arrived:?}");
    let place = |line: &str| arrived.iter().position(|other| *other == line);
    assert!(place("first line") < place("second line"), "{arrived:?}");
});

/// In the order in which they came into the model's context: this turn's line, and those sent.
fn in_context(slept: &Sleeping) -> Vec<&'static str> {
    let rows = rows::transcript(&slept.env.home(), &slept.session);
    let context = rows.iter().filter(|row| {
        row.is("user") || (row.is("attachment") && row.0["attachment"]["type"] == "queued_command")
    });
    let texts: String = context.map(|row| row.0.to_string()).collect();
    let mut found: Vec<(usize, &str)> = ["go on", "first line", "second line"]
        .into_iter()
        .filter_map(|line| Some((texts.find(line)?, line)))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, line)| line).collect()
}

on_each_claude!(
    without_a_tool_they_come_as_a_turn_of_their_own_or_wait,
    |claude| {
        let slept = Sleeping::new(&claude);
        let env = &slept.env;
        for line in ["first line", "second line"] {
            env.oo(["send", &slept.session, line, "--min-interval=0s"])
                .run()
                .expect_code(3);
        }
        let more = (0..3).map(|_| Reply::text("more"));
        env.script(&Scenario::new([Reply::text("two")].into_iter().chain(more)));
        let done = slept.resuming(&[]).wait(PATIENCE);
        done.expect_code(0);
        let result = done.json();
        let count = |field: &str| result[field].as_u64().unwrap();
        assert_eq!(
            count("doorman_delivered") + count("doorman_pending"),
            2,
            "{result:#}"
        );
        let arrived = in_context(&slept);
        assert!(arrived.contains(&"go on"), "{arrived:?}");
        assert_eq!(arrived.len() as u64, 1 + count("doorman_delivered"));
    }
);
