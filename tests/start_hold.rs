//! `oo start --hold`: turn after turn in one session, until it is closed.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::held::{Held, results, shown, until_file};
use crate::support::lanes::on_each_claude;
use crate::support::process::until;
use crate::support::rows;
use crate::support::scenario::{Reply, Scenario, Tool};

fn texts(results: &[Value]) -> Vec<&str> {
    results
        .iter()
        .map(|row| row["text"].as_str().unwrap())
        .collect()
}

on_each_claude!(a_line_starts_a_turn, |claude| {
    let script = Scenario::new([
        Reply::text("one"),
        Reply::bash("echo hi"),
        Reply::text("two"),
        Reply::text("three"),
    ]);
    let env = TestEnv::with(&claude, &script);
    let mut held = Held::start(&env, &["--hold", "--json"]);
    held.until_results(1);
    held.until_idle();

    // While it is idle: it waits, its answers can be seen, and so it is listed.
    let live = held.shown();
    assert_eq!(
        (&live["state"], &live["class"]),
        (&json!("running"), &Value::Null)
    );
    assert_eq!(live["hold"], json!({"idle_ms": null, "waiting": true}));
    assert_eq!(live["results"][0]["text"], "one");
    let words = env.oo(["show", &held.run]).run().stdout;
    assert!(words.contains("--- answer 1\none\n"), "{words}");
    assert!(
        words.contains("idle, waiting for lines; 1 turn so far"),
        "{words}"
    );
    let listed = env.oo(["runs", "--json"]).run().json();
    assert_eq!(listed["runs"][0]["hold"], live["hold"]);
    let table = env.oo(["runs"]).run().stdout;
    assert!(table.contains("running (held, idle)"), "{table}");

    let second = held.send("second", "next");
    held.until_results(2);
    held.until_idle();
    let third = held.send("third", "next");
    held.until_results(3);
    held.until_idle();
    held.oo.signal(Signal::SIGTERM);
    let kept = held.folder();
    let done = held.oo.wait(PATIENCE);
    done.expect_code(0);
    let result = done.json();
    assert_eq!(
        (&result["class"], &result["cause"]),
        (&json!("completed"), &Value::Null)
    );
    assert_eq!(
        (&result["result"], &result["deciding_index"]),
        (&json!("three"), &json!(2))
    );
    assert_eq!(result["hold"], json!({"idle_ms": null, "waiting": false}));
    let all = result["results"].as_array().unwrap();
    assert_eq!(texts(all), ["one", "two", "three"]);
    assert_eq!(all[0]["origin"], Value::Null);
    for (row, id) in all[1..].iter().zip([second, third]) {
        assert_eq!(row["origin"]["kind"], "peer", "{row:#}");
        assert_eq!(row["origin"]["msg_id"], id);
    }
    assert_eq!(results(&kept), *all);
    assert!(
        result["argv"]
            .to_string()
            .contains("--input-format=stream-json")
    );
});

on_each_claude!(it_closes_after_its_idle_time, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("one\nand a half"));
    let held = Held::start(&env, &["--hold=1s"]);
    let run = held.run.clone();
    let done = held.oo.wait(PATIENCE);
    done.expect_code(0);
    assert_eq!(done.stdout, "one\nand a half\n");
    assert!(
        done.stderr.contains("idle for 1s (--hold)"),
        "{}",
        done.stderr
    );
    let result = shown(&env, &run);
    assert_eq!(result["class"], "completed");
    assert_eq!(result["note"], Value::Null);
    assert_eq!(result["exit"], json!({"code": 0, "signal": null}));
    assert_eq!(result["hold"], json!({"idle_ms": 1000, "waiting": false}));
    assert!(
        result["duration_ms"].as_u64().unwrap() >= 1000,
        "{result:#}"
    );
    assert_eq!(
        results(&env.run_folder(&run)),
        *result["results"].as_array().unwrap()
    );
});

on_each_claude!(
    with_no_idle_time_it_takes_lines_during_its_turn_only,
    |claude| {
        let script = Scenario::new([until_file("go"), Reply::text("one"), Reply::text("two")]);
        let env = TestEnv::with(&claude, &script);
        let mut held = Held::start(&env, &["--hold=0s", "--json"]);
        held.until_at_work();
        held.send("after that", "later");
        let session = held.session.clone();
        until(PATIENCE, "the line in the queue", || {
            let transcript = rows::transcript(&env.home(), &session);
            transcript
                .iter()
                .any(|row| row.0["operation"] == "enqueue" && row.0["content"] == "after that")
        });
        env.file("go", "");
        let done = held.oo.wait(PATIENCE);
        done.expect_code(0);
        let result = done.json();
        assert_eq!(texts(result["results"].as_array().unwrap()), ["one", "two"]);
        assert_eq!(result["class"], "completed");
    }
);

on_each_claude!(background_work_keeps_it_from_being_idle, |claude| {
    let script = Scenario::new([
        Reply::tool(Tool::background(
            "until [ -e go ]; do /bin/sleep 0.05; done",
        )),
        Reply::text("first"),
        Reply::text("second"),
    ]);
    let env = TestEnv::with(&claude, &script);
    let mut held = Held::start(&env, &["--hold=200ms", "--json"]);
    held.until_results(1);
    held.until_idle();
    let live = held.shown();
    assert_eq!(
        live["hold"],
        json!({"idle_ms": 200, "waiting": false}),
        "{live:#}"
    );
    // A line is answered meanwhile, and the idle time begins when all is done.
    env.file("go", "");
    let done = held.oo.wait(PATIENCE);
    done.expect_code(0);
    let result = done.json();
    assert_eq!(
        texts(result["results"].as_array().unwrap()),
        ["first", "second"]
    );
    assert_eq!(result["background"][0]["status"], "completed");
});

on_each_claude!(riders_keep_it_from_being_idle, |claude| {
    let rider = Tool::agent(
        "look there",
        [Reply::text("seen").after(Duration::from_secs(1))],
    );
    let script = Scenario::new([
        Reply::tool(rider),
        Reply::text("first"),
        Reply::text("last"),
    ]);
    let env = TestEnv::with(&claude, &script);
    let held = Held::start(&env, &["--hold=100ms", "--json"]);
    let done = held.oo.wait(PATIENCE);
    done.expect_code(0);
    let result = done.json();
    assert_eq!(
        texts(result["results"].as_array().unwrap()),
        ["first", "last"]
    );
    assert_eq!(result["background"][0]["status"], "completed");
});

on_each_claude!(the_limit_of_turns_is_that_of_each_turn, |claude| {
    let script = Scenario::new([Reply::bash("echo hi"), Reply::text("two")]);
    let env = TestEnv::with(&claude, &script);
    let mut held = Held::start(&env, &["--hold", "--json", "--max-turns=1"]);
    let first = held.until_results(1);
    assert_eq!(first[0]["subtype"], "error_max_turns");
    held.until_idle();
    held.send("second", "next");
    held.until_results(2);
    held.until_idle();
    held.oo.signal(Signal::SIGTERM);
    let done = held.oo.wait(PATIENCE);
    done.expect_code(0);
    assert_eq!(done.json()["result"], "two");
});

on_each_claude!(a_turn_that_fails_does_not_close_it, |claude| {
    let script = Scenario::new([Reply::error(400).forever()]);
    let env = TestEnv::with(&claude, &script);
    let mut held = Held::start(&env, &["--hold", "--json"]);
    let first = held.until_results(1);
    assert_eq!(first[0]["is_error"], true);
    held.until_idle();
    env.script(&Scenario::says("better"));
    if claude.is_fake() {
        // The stand-in has read its script: its second turn fails as well.
        held.oo.signal(Signal::SIGTERM);
        let done = held.oo.wait(PATIENCE);
        done.expect_code(4);
        assert_eq!(done.json()["cause"], "invalid-request");
        return;
    }
    held.send("again", "next");
    held.until_results(2);
    held.until_idle();
    held.oo.signal(Signal::SIGTERM);
    let done = held.oo.wait(PATIENCE);
    done.expect_code(0);
    assert_eq!(done.json()["result"], "better");
});

/// A prompt that claude's pipe cannot take in one piece, with everything that JSON has to escape.
fn long_prompt() -> String {
    let line = "line separators \u{2028} and \u{2029}, \"quotes\", \\ and \t, ünïcode \u{1f980}\n";
    line.repeat(9 * 1024 * 1024 / line.len())
}

on_each_claude!(a_prompt_of_nine_megabytes, |claude| {
    let prompt = long_prompt();
    let env = TestEnv::with(&claude, &Scenario::says("long"));
    let done = env
        .oo(["start", "--hold=0s", "--json", "-"])
        .stdin(prompt.clone())
        .run();
    done.expect_code(0);
    let result = done.json();
    assert_eq!(result["result"], "long");
    let run = result["run_id"].as_str().unwrap();
    let kept = fs::read_to_string(env.run_folder(run).join("prompt")).unwrap();
    assert!(kept == prompt, "the prompt is kept byte for byte");
    if claude.is_fake() {
        return;
    }
    let arrived = env.requests().iter().any(|request| {
        let text = request.body["messages"][0]["content"].as_array();
        text.into_iter().flatten().any(|block| {
            let text = block["text"].as_str().unwrap_or_default();
            text.contains(prompt.trim())
        })
    });
    assert!(arrived, "the model got it whole");
});

#[test]
fn every_turn_is_followed() {
    let script = Scenario::new([Reply::text("one"), Reply::text("two")]);
    let env = TestEnv::with(&Claude::Fake, &script);
    let mut held = Held::start(&env, &["--hold", "--follow"]);
    held.until_results(1);
    held.send("second", "next");
    held.until_results(2);
    held.oo.signal(Signal::SIGINT);
    let done = held.oo.wait(PATIENCE);
    done.expect_code(0);
    assert_eq!(done.stdout, "one\ntwo\n");
}

#[test]
fn without_a_doorman_it_is_said_that_nothing_reaches_it() {
    let env = TestEnv::new();
    let done = env
        .oo(["start", "--hold=0s", "--no-doorman", "--json", "x"])
        .run();
    done.expect_code(0);
    let note = done.json()["note"].as_str().unwrap().to_owned();
    assert!(note.contains("without a doorman"), "{note}");
    assert_eq!(
        done.stderr.matches("without a doorman").count(),
        2,
        "{}",
        done.stderr
    );
}

#[test]
fn only_a_held_session_has_a_file_of_results() {
    let env = TestEnv::new();
    for (args, held) in [
        (&["start", "--json", "x"][..], false),
        (&["start", "--hold=0s", "--json", "x"], true),
    ] {
        let result = env.oo(args.iter().copied()).run().json();
        let folder = env.run_folder(result["run_id"].as_str().unwrap());
        let path = folder.join("results.jsonl");
        assert_eq!(path.exists(), held);
        assert_eq!(result["hold"].is_null(), !held);
        if held {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}

#[test]
fn the_prompt_is_not_taken_for_the_idle_time() {
    let env = TestEnv::new();
    // A value is given with `=` only.
    let done = env.oo(["start", "--hold", "10m", "--timeout=10ms"]).run();
    assert!(done.code != Some(2), "{}", done.stderr);
    for value in ["--hold=", "--hold=soon", "--hold=-1s"] {
        env.oo(["start", value, "x"]).run().expect_code(2);
    }
}
