//! What a hostile or broken claude, disk or caller does to oo, and what oo says then.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::process::until;
use crate::support::scenario::{Reply, Scenario};

/// A claude that is a shell script: it answers `--version`, reads its prompt, writes an init row
/// and then does what `body` says.
fn shell_claude(env: &TestEnv, body: &str) -> PathBuf {
    let init = json!({
        "type": "system", "subtype": "init", "claude_code_version": "2.1.332",
        "mcp_servers": [{"name": "oo", "status": "connected"}],
    });
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *--version*) echo '2.1.332 (Claude Code)'; exit;; esac\n\
         cat > /dev/null\necho '{init}'\n{body}\n"
    );
    let path = env.file("shell-claude", text);
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

/// The folder of the only run, once it is there.
fn the_run(env: &TestEnv) -> Option<PathBuf> {
    let mut runs = fs::read_dir(env.state().join("runs")).ok()?;
    Some(runs.next()?.ok()?.path())
}

fn with_claude<'p>(path: &'p Path, rest: &[&'p str]) -> Vec<&'p str> {
    let mut args = vec!["start", "--json", "--claude", path.to_str().unwrap()];
    args.extend(rest);
    args.push("x");
    args
}

#[test]
fn a_claude_that_writes_faster_than_oo_reads_does_not_stop_the_clocks() {
    let env = TestEnv::new();
    // More than can be read in the time that the test waits.
    let claude = shell_claude(
        &env,
        "yes '{\"type\":\"noise\"}' | head -c 300000000; exec tail -f /dev/null",
    );
    let mut oo = env
        .oo(with_claude(&claude, &["--timeout=1s", "--grace=100ms"]))
        .spawn();
    oo.until(Duration::from_secs(15), "oo ends the run", || {
        the_run(&env).is_some_and(|run| {
            fs::read_to_string(run.join("process.json"))
                .is_ok_and(|text| text.contains("\"after_answer\""))
        })
    });
}

/// A run whose supervisor was killed, and whose claude has ended since.
fn lost_run(env: &TestEnv) -> PathBuf {
    let mut oo = env.oo(["start", "--json", "x"]).spawn();
    let run = oo.until_some(PATIENCE, "the run's first row", || {
        let run = the_run(env)?;
        let rows = fs::read_to_string(run.join("events.jsonl")).ok()?;
        rows.contains('\n').then_some(run)
    });
    oo.signal(Signal::SIGKILL);
    oo.wait(PATIENCE);
    until(PATIENCE, "claude answers and leaves", || {
        env.alive().is_empty()
    });
    run
}

fn slow_answer() -> Scenario {
    Scenario::new([Reply::text("the answer").after(Duration::from_millis(500))])
}

#[test]
fn a_list_judges_a_run_that_lost_its_supervisor() {
    let env = TestEnv::with(&Claude::Fake, &slow_answer());
    let run = lost_run(&env);
    let listed = env.oo(["runs", "--json"]).run();
    listed.expect_code(0);
    let row = &listed.json()["runs"][0];
    assert_eq!(
        (&row["state"], &row["class"]),
        (&json!("ended"), &json!("completed")),
        "{row:#}"
    );
    assert!(run.join("result.json").exists());
}

#[test]
fn a_judgement_that_cannot_be_saved_is_shown_all_the_same() {
    let env = TestEnv::with(&Claude::Fake, &slow_answer());
    let run = lost_run(&env);
    let id = run.file_name().unwrap().to_str().unwrap();
    // No file can be written, not even by root; 25 is SIGXFSZ.
    let full = "(trap '' 25; ulimit -f 0; exec \"$0\" show \"$1\" --json) | cat";
    let shown = env
        .program("/bin/sh")
        .args(["-c", full, env!("CARGO_BIN_EXE_oo"), id])
        .run();
    shown.expect_code(0);
    let document = shown.json();
    assert_eq!(document["result"], "the answer");
    let note = document["note"].as_str().unwrap();
    assert!(note.contains("cannot write"), "{note}");
    assert!(!run.join("result.json").exists());
}

/// A claude whose stdout is the init row and these lines.
fn claude_that_says(env: &TestEnv, lines: &str) -> PathBuf {
    shell_claude(env, &format!("cat <<'END'\n{lines}\nEND"))
}

#[test]
fn half_a_character_does_not_cost_the_answer() {
    let env = TestEnv::new();
    let row = r#"{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"a \ud83d b"}"#;
    let claude = claude_that_says(&env, row);
    let done = env.oo(with_claude(&claude, &[])).run();
    done.expect_code(0);
    assert_eq!(done.json()["result"], "a \u{fffd} b");
}

#[test]
fn a_result_without_a_text_is_no_answer() {
    let env = TestEnv::new();
    for row in [
        r#"{"type":"result"}"#,
        r#"{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":{"a":1}}"#,
    ] {
        let claude = claude_that_says(&env, row);
        let done = env.oo(with_claude(&claude, &[])).run();
        done.expect_code(4);
        assert_eq!(done.json()["cause"], "no-result");
    }
}

#[test]
fn a_child_whose_supervisor_died_before_it_was_claude_leaves_without_a_word() {
    for _ in 0..20 {
        let env = TestEnv::new();
        let mut oo = env.oo(["start", "x"]).spawn();
        // The child waits while it is put on record: a matter of milliseconds.
        let recorded = || {
            let files = the_run(&env).and_then(|run| fs::read_dir(run).ok());
            files.into_iter().flatten().flatten().any(|file| {
                let name = file.file_name();
                name == "process.json" || name.to_string_lossy().starts_with(".oo-")
            })
        };
        while !recorded() {
            assert!(!oo.has_ended(), "oo ended too early");
        }
        oo.signal(Signal::SIGKILL);
        oo.wait(PATIENCE);
        until(PATIENCE, "what it left behind ends", || {
            env.alive().is_empty()
        });
        let said = fs::read_to_string(the_run(&env).unwrap().join("stderr.log")).unwrap();
        assert_eq!(said, "");
    }
}

#[test]
fn too_few_descriptors_are_refused_before_anything_is_made() {
    let env = TestEnv::new();
    for limit in [8, 12, 16, 20, 24, 28] {
        let line = format!("ulimit -n {limit}; exec \"$0\" start --json x");
        let done = env
            .program("/bin/sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_oo")])
            .run();
        done.expect_code(1);
        assert_eq!(done.json()["class"], "refused");
        assert!(the_run(&env).is_none());
    }
}

#[test]
fn a_name_as_long_as_a_page_does_not_fill_the_list() {
    let env = TestEnv::new();
    let name = "n".repeat(5000);
    env.oo(["start", "--name", &name, "x"]).run().expect_code(0);
    let listed = env.oo(["runs"]).run();
    listed.expect_code(0);
    assert!(listed.stdout.lines().all(|line| line.len() < 400));
    assert!(listed.stdout.contains("nnn…"));
}

#[test]
fn a_start_that_was_cut_off_is_called_that() {
    let env = TestEnv::new();
    env.oo(["start", "x"]).run().expect_code(0);
    let run = the_run(&env).unwrap();
    fs::remove_file(run.join("result.json")).unwrap();
    fs::remove_file(run.join("spec.json")).unwrap();
    let shown = env
        .oo(["show", run.file_name().unwrap().to_str().unwrap()])
        .run();
    shown.expect_code(1);
    assert!(shown.stderr.contains("cut off"), "{}", shown.stderr);
}
