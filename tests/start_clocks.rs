//! Runs that do not end by themselves: each clock, the ladder, orphans, late exits.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::TestEnv;
use crate::support::lanes::on_each_claude;
use crate::support::process::{Finished, until};
use crate::support::scenario::{Reply, Scenario, Tool};

const BYPASS: &str = "--permission-mode=bypassPermissions";
const FOREVER: &str = "tail -f /dev/null";
const PATIENCE: Duration = Duration::from_secs(60);

fn fake(script: &Scenario, args: &[&str]) -> (TestEnv, Finished) {
    let env = TestEnv::with(&Claude::Fake, script);
    let mut all = vec!["start", "--json", BYPASS, "--grace=200ms", "x"];
    all.extend(args);
    let done = env.oo(all).run();
    (env, done)
}

/// Exit code, class and cause of a run; its result.
#[track_caller]
pub(crate) fn assert_ends(done: &Finished, code: i32, class: &str, cause: Option<&str>) -> Value {
    done.expect_code(code);
    let result = done.json();
    assert_eq!(
        (&result["class"], &result["cause"]),
        (&json!(class), &json!(cause)),
        "{result:#}"
    );
    result
}

on_each_claude!(a_turn_that_takes_too_long, |claude| {
    let env = TestEnv::with(&claude, &Scenario::new([Reply::bash(FOREVER)]));
    let done = env
        .oo(["start", BYPASS, "--json", "--timeout=4s", "x"])
        .run();
    let result = assert_ends(&done, 5, "timeout", None);
    assert!(
        result["message"].as_str().unwrap().contains("--timeout 4s"),
        "{result:#}"
    );
    // The interrupt was enough: claude said so itself, and its tool is gone.
    assert!(
        result["terminal_reason"]
            .as_str()
            .unwrap()
            .starts_with("aborted_"),
        "{result:#}"
    );
    assert_eq!(env.alive(), [] as [i32; 0]);
});

#[test]
fn never_a_word() {
    let script = Scenario::says("x").quirks(json!({"silent_start": true}));
    let (_, done) = fake(&script, &["--first-output=300ms"]);
    let result = assert_ends(&done, 5, "timeout", Some("silent-start"));
    assert_eq!(result["first_output_ms"], Value::Null);
    assert_eq!(done.stdout.matches("oo/result/v1").count(), 1);
}

#[test]
fn never_a_word_and_deaf() {
    let quirks = json!({"silent_start": true, "ignore_signals": ["INT", "TERM", "HUP"]});
    let (env, done) = fake(
        &Scenario::says("x").quirks(quirks),
        &["--first-output=300ms"],
    );
    let result = assert_ends(&done, 5, "timeout", Some("silent-start"));
    assert_eq!(result["exit"], json!({"code": null, "signal": 9}));
    assert_eq!(env.alive(), [] as [i32; 0]);
}

#[test]
fn silent_after_a_tool() {
    let script = Scenario::new([Reply::bash("echo hi"), Reply::text("never said")])
        .quirks(json!({"hang_after_tool_result": true}));
    let (_, done) = fake(&script, &["--idle-timeout=400ms"]);
    let result = assert_ends(&done, 5, "timeout", Some("stalled"));
    assert!(
        result["message"]
            .as_str()
            .unwrap()
            .contains("--idle-timeout")
    );
}

#[test]
fn a_quiet_tool_is_no_silence_of_the_model() {
    let script = Scenario::new([Reply::bash("/bin/sleep 1.2"), Reply::text("done")]);
    let (_, done) = fake(&script, &["--idle-timeout=500ms"]);
    assert_ends(&done, 0, "completed", None);
}

#[test]
fn a_tool_that_does_not_end() {
    let script = Scenario::new([Reply::bash(FOREVER)]).quirks(json!({"tool_progress_ms": 50}));
    let (env, done) = fake(&script, &["--tool-timeout=600ms"]);
    let result = assert_ends(&done, 5, "timeout", Some("stalled"));
    assert!(
        result["message"]
            .as_str()
            .unwrap()
            .contains("--tool-timeout"),
        "{result:#}"
    );
    assert_eq!(env.alive(), [] as [i32; 0]);
}

#[test]
fn a_growing_transcript_is_a_sign_of_life() {
    // stdout is silent for longer than the clock allows, the transcript is not.
    let grow = |_| json!([{"transcript": "{\"type\":\"note\"}\n"}, {"sleep_ms": 200}]);
    let acts: Vec<Value> = (0..6)
        .map(grow)
        .flat_map(|acts| acts.as_array().cloned().unwrap())
        .collect();
    let script = Scenario::says("done").quirks(json!({"at": {"init": acts}}));
    let (_, done) = fake(&script, &["--idle-timeout=600ms"]);
    assert_ends(&done, 0, "completed", None);
}

#[test]
fn an_answer_and_no_exit() {
    for ignored in [json!([]), json!(["INT", "TERM"])] {
        let quirks = json!({"never_exit": true, "ignore_signals": ignored});
        let (env, done) = fake(
            &Scenario::says("the answer").quirks(quirks),
            &["--drain=300ms"],
        );
        let result = assert_ends(&done, 0, "completed", None);
        assert_eq!(result["result"], "the answer");
        assert!(
            result["note"].as_str().unwrap().contains("late exit"),
            "{result:#}"
        );
        assert_eq!(env.alive(), [] as [i32; 0]);
    }
}

#[test]
fn a_late_exit_within_the_drain_is_just_late() {
    let script = Scenario::says("the answer").quirks(json!({"linger_ms": 500}));
    let (_, done) = fake(&script, &[]);
    let result = assert_ends(&done, 0, "completed", None);
    assert_eq!(result["note"], Value::Null);
}

#[test]
fn background_work_that_does_not_end() {
    let script = Scenario::new([
        Reply::tool(Tool::background(FOREVER)),
        Reply::text("an answer"),
        Reply::text("unreached"),
    ]);
    let (env, done) = fake(&script, &["--background-timeout=500ms"]);
    let result = assert_ends(&done, 5, "timeout", Some("unfinished-background"));
    assert_eq!(result["background"].as_array().unwrap().len(), 1);
    assert_eq!(result["partial_result"], "an answer");
    assert_eq!(env.alive(), [] as [i32; 0]);
}

#[test]
fn background_work_outlives_the_drain() {
    let script = Scenario::new([
        Reply::tool(Tool::background("/bin/sleep 1")),
        Reply::text("first"),
        Reply::text("second"),
    ]);
    let (_, done) = fake(&script, &["--drain=200ms"]);
    let result = assert_ends(&done, 0, "completed", None);
    assert_eq!(result["result"], "second");
}

#[test]
fn an_orphan_that_holds_stdout_holds_up_nobody() {
    let script = Scenario::says("the answer").quirks(json!({"orphan_ms": 20_000}));
    let began = Instant::now();
    let (_, done) = fake(&script, &[]);
    let result = assert_ends(&done, 0, "completed", None);
    assert_eq!(result["result"], "the answer");
    // Not a measurement: the orphan would have held it for twenty seconds.
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn the_ladder_ends_what_claude_left_in_other_sessions() {
    let script = Scenario::new([Reply::bash(FOREVER)])
        .quirks(json!({"ignore_signals": ["INT", "TERM", "HUP"]}));
    let (env, done) = fake(&script, &["--timeout=800ms"]);
    let result = assert_ends(&done, 5, "timeout", None);
    assert_eq!(result["exit"]["signal"], 9);
    until(PATIENCE, "the tool in its own session is gone", || {
        env.alive().is_empty()
    });
}

#[test]
fn a_second_ctrl_c_kills() {
    let script = Scenario::new([Reply::bash(FOREVER)])
        .quirks(json!({"ignore_signals": ["INT", "TERM", "HUP"]}));
    let env = TestEnv::with(&Claude::Fake, &script);
    let mut running = env
        .oo(["start", BYPASS, "--json", "--follow", "--grace=1h", "x"])
        .spawn();
    running.until_rows("assistant", 1, PATIENCE);
    running.signal(Signal::SIGINT);
    until(PATIENCE, "oo says that it ends the run", || {
        running.stderr().contains("SIGINT")
    });
    running.signal(Signal::SIGTERM);
    let done = running.wait(PATIENCE);
    done.expect_code(6);
    let rows = done.rows();
    let result = &rows.last().unwrap().0;
    assert_eq!(
        (&result["class"], &result["exit"]["signal"]),
        (&json!("cancelled"), &json!(9))
    );
    // The result is on disk all the same.
    let run = result["run_id"].as_str().unwrap();
    assert!(env.run_folder(run).join("result.json").exists());
}

#[test]
fn the_other_signals_ask_for_the_same() {
    for (signal, name) in [
        (Signal::SIGTERM, "SIGTERM"),
        (Signal::SIGHUP, "SIGHUP"),
        (Signal::SIGQUIT, "SIGQUIT"),
    ] {
        let env = TestEnv::with(&Claude::Fake, &Scenario::new([Reply::bash(FOREVER)]));
        let mut running = env.oo(["start", BYPASS, "--json", "--follow", "x"]).spawn();
        running.until_rows("assistant", 1, PATIENCE);
        running.signal(signal);
        let done = running.wait(PATIENCE);
        done.expect_code(6);
        assert!(done.stderr.contains(name), "{}", done.stderr);
    }
}

#[test]
fn a_doorman_that_does_not_connect_fails_the_run_early() {
    let script = Scenario::new([Reply::text("x").after(Duration::from_secs(30))])
        .quirks(json!({"mcp_status": {"oo": "failed"}}));
    let (env, done) = fake(&script, &[]);
    let result = assert_ends(&done, 4, "failed", Some("doorman"));
    assert!(
        result["message"].as_str().unwrap().contains("failed"),
        "{result:#}"
    );
    drop(env);
    let script = Scenario::says("fine").quirks(json!({"mcp_status": {"oo": "failed"}}));
    let (_, done) = fake(&script, &["--no-doorman"]);
    let result = assert_ends(&done, 0, "completed", None);
    assert_eq!(result["doorman"], "none");
}
