//! `oo resume` while somebody has the session: it is not touched, and the holder is named.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::held::{Held, until_file};
use crate::support::lanes::on_each_claude;
use crate::support::process::{Finished, until};
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
fn a_doorman_at_its_post_holds_its_session() {
    let slept = Sleeping::new(&Claude::Fake);
    let path = slept.env.state();
    let path = path.join(format!("inbox/{}.inbox.heartbeat", slept.session));
    let (pid, start) = identity(std::process::id());
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let beat = json!({
        "session_id": slept.session, "pid": pid, "proc_start": start, "state": "following",
        "at": jiff::Timestamp::now().to_string(), "boot_id": boot.trim(),
    });
    fs::write(&path, beat.to_string()).unwrap();
    let before = slept.bytes();
    let holder = held_by(&slept.resuming(&[]).wait(PATIENCE), "doorman");
    assert_eq!(holder["pid"], pid);
    assert_eq!(slept.bytes(), before);
    // It has left.
    let mut left = beat;
    left["state"] = json!("stopped");
    fs::write(&path, left.to_string()).unwrap();
    slept.resume(Reply::text("two"), &[]).expect_code(0);
}

/// A process with its start time, as claude and oo write both down.
fn identity(pid: u32) -> (u32, String) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    (
        pid,
        fields.split_ascii_whitespace().nth(19).unwrap().to_owned(),
    )
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
    // A row of a pid that lives, of another pid namespace.
    let (other, started) = identity(nix::unistd::getppid().as_raw().cast_unsigned());
    let elsewhere = env.home().join(format!(".claude/sessions/{other}.json"));
    let text = json!({
        "pid": other, "sessionId": session, "procStart": started, "pidDomain": "linux::pid:[1]",
    });
    fs::write(&elsewhere, text.to_string()).unwrap();
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
    let (_, start) = identity(own);
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
    for path in [&row, &elsewhere, &bad, &beat, &lock] {
        assert!(path.exists(), "{} is not ours to remove", path.display());
    }
}

on_each_claude!(a_session_cannot_wait_for_itself, |claude| {
    let slept = Sleeping::new(&claude);
    let oo = env!("CARGO_BIN_EXE_oo");
    let command = format!("{oo} resume {} x --json --wait=1h", slept.session);
    slept
        .env
        .script(&Scenario::new([Reply::bash(&command), Reply::text("two")]));
    let done = slept.resuming(&["--allowed-tools=Bash"]).wait(PATIENCE);
    done.expect_code(0);
    let text = String::from_utf8(slept.bytes()).unwrap();
    assert!(text.contains("held-by-session"), "{text}");
    assert!(text.contains("called in that very session"), "{text}");
});
