//! What claude inherits: its three streams, a credential's descriptor that was named, and nothing
//! else.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::support::env::TestEnv;
use crate::support::process::Finished;

/// The open descriptors of the claude that was started, as it recorded them itself.
fn descriptors(env: &TestEnv) -> BTreeMap<i32, String> {
    let starts = env.recorded_starts();
    assert_eq!(starts.len(), 1, "{starts:?}");
    let found: BTreeMap<String, String> =
        serde_json::from_value(starts[0]["fds"].clone()).expect("the stand-in records them");
    found
        .into_iter()
        .map(|(number, target)| (number.parse().unwrap(), target))
        .collect()
}

fn in_shell(env: &TestEnv, line: &str) -> Finished {
    let line = format!("{line} ; code=$?; exit $code");
    env.program("/bin/bash").args(["-c", &line]).run()
}

#[test]
fn nothing_that_was_left_open_reaches_claude() {
    let env = TestEnv::new();
    let oo = env!("CARGO_BIN_EXE_oo");
    env.file("open", "not for claude");
    in_shell(
        &env,
        &format!("{oo} start --json x 5<open 9>>open 200<open"),
    )
    .expect_code(0);
    let found = descriptors(&env);
    let stray: Vec<_> = found
        .iter()
        .filter(|(_, target)| target.contains("/work/open"))
        .collect();
    assert!(stray.is_empty(), "{found:?}");
    // Nor any of oo's own: locks, the events file read by the supervisor, its watches.
    for (number, target) in found.iter().filter(|(number, _)| **number > 2) {
        assert!(!target.contains(".local/state/oo"), "{number} -> {target}");
        assert!(
            !target.contains("inotify") && !target.contains("pidfd"),
            "{number} -> {target}"
        );
    }
    // The three streams are files of the run.
    for (number, name) in [(0, "prompt"), (1, "events.jsonl"), (2, "stderr.log")] {
        assert!(
            found[&number].ends_with(name),
            "{number} -> {}",
            found[&number]
        );
    }
}

#[test]
fn a_named_credential_is_handed_over_and_no_other() {
    let oo = env!("CARGO_BIN_EXE_oo");
    for name in [
        "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR",
        "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
    ] {
        let env = TestEnv::new();
        env.file("token", "secret");
        env.file("other", "secret");
        let done = in_shell(
            &env,
            &format!("{name}=9 {oo} start --json x 9<token 8<other"),
        );
        done.expect_code(0);
        assert_eq!(done.json()["env_kept"], json!([name]));
        let found = descriptors(&env);
        assert!(
            found
                .get(&9)
                .is_some_and(|target| target.ends_with("/work/token")),
            "{found:?}"
        );
        assert!(
            !found.values().any(|target| target.ends_with("/work/other")),
            "{found:?}"
        );
    }
}

#[test]
fn a_number_that_is_oos_own_is_refused() {
    // The variable names a number that the caller never opened: oo has a file of its own there.
    let env = TestEnv::new();
    for number in ["3", "4", "5", "6", "7", "8"] {
        let name = "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR";
        let done = env.oo(["start", "--json", "x"]).var(name, number).run();
        done.expect_code(1);
        assert_eq!(done.json()["class"], "refused");
    }
    assert!(env.recorded_starts().is_empty());
}

#[test]
fn secrets_are_in_no_record() {
    let env = TestEnv::new();
    let done = env
        .oo([
            "start",
            "--json",
            "--env",
            "MY_TOKEN=s3cret-value",
            "--settings",
        ])
        .args(["{\"env\":{\"OTHER\":\"s3cret-settings\"}}", "x"])
        .var("ANTHROPIC_AUTH_TOKEN", "s3cret-inherited")
        .run();
    done.expect_code(0);
    let result = done.json();
    assert_eq!(result["env_kept"], json!(["MY_TOKEN"]));
    let argv: Vec<&str> = result["argv"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(argv.contains(&"--settings={env}"), "{argv:?}");
    let run = result["run_id"].as_str().unwrap();
    for name in ["result.json", "process.json"] {
        let text = fs::read_to_string(env.run_folder(run).join(name)).unwrap();
        assert!(!text.contains("s3cret"), "{name}");
    }
    assert!(!done.stderr.contains("s3cret") && !done.stdout.contains("s3cret"));
    let starts = env.recorded_starts();
    assert_eq!(starts[0]["env"]["MY_TOKEN"], "s3cret-value");
}
