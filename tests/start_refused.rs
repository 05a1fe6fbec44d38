//! Bad input: one clear sentence with the path, the right code, and nothing half-written.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::{Start, TestEnv};
use crate::support::process::Finished;
use crate::support::scenario::Scenario;

/// Refused: exit 1, no run, and a sentence that holds each of `words`.
#[track_caller]
fn assert_refused(env: &TestEnv, start: Start<'_>, words: &[&str]) -> Finished {
    let done = start.args(["--json"]).run();
    done.expect_code(1);
    let result = done.json();
    assert_eq!(
        (&result["class"], &result["run_id"]),
        (&json!("refused"), &Value::Null)
    );
    assert_eq!(result["state"], "refused");
    let message = result["message"].as_str().unwrap();
    for word in words {
        assert!(message.contains(word), "{word:?} in {message:?}");
        assert!(done.stderr.contains(word), "{word:?} in {:?}", done.stderr);
    }
    assert!(!message.contains("os error"), "{message}");
    let runs = env.state().join("runs");
    let left: Vec<_> = fs::read_dir(&runs).into_iter().flatten().collect();
    assert!(left.is_empty(), "nothing half-written: {left:?}");
    assert!(env.recorded_starts().is_empty(), "claude was started");
    done
}

/// As root every file can be read; only others are kept out by its mode.
fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn prompts_that_are_none() {
    let env = TestEnv::new();
    let long = "x".repeat(10 * 1024 * 1024 + 1);
    for (prompt, word) in [
        ("", "is empty"),
        (" \n\t\u{2003}", "is empty"),
        ("a\0b", "NUL byte, at byte 1"),
        (long.as_str(), "10 MiB"),
    ] {
        assert_refused(&env, env.oo(["start", "-"]).stdin(prompt), &[word]);
        let file = env.file("prompt", prompt);
        let start = env.oo([
            OsStr::new("start"),
            OsStr::new("--prompt-file"),
            file.as_os_str(),
        ]);
        assert_refused(&env, start, &[word, &file.display().to_string()]);
    }
    assert_refused(&env, env.oo(["start", ""]), &["is empty"]);
    assert_refused(
        &env,
        env.oo(["start", "-"]).stdin(b"ab\xffc".to_vec()),
        &["UTF-8", "byte 2"],
    );
    assert_refused(
        &env,
        env.oo([OsStr::new("start"), OsStr::from_bytes(b"\xff")]),
        &["UTF-8"],
    );
}

#[test]
fn arguments_that_contradict_what_oo_decides() {
    let env = TestEnv::new();
    for (word, said) in [
        ("--input-format=stream-json", "how claude reads and writes"),
        ("--output-format=text", "how claude reads and writes"),
        ("-p", "how claude reads and writes"),
        ("--resume=x", "the session"),
        ("-c", "the session"),
        ("--session-id=x", "the session"),
        ("mcp", "the prompt"),
        ("--version", "run nothing"),
    ] {
        let done = env.oo(["start", "--json", "x", "--", word]).run();
        done.expect_code(2);
        assert_eq!(done.stdout, "");
        let name = word.split('=').next().unwrap();
        assert!(
            done.stderr.contains(&format!("{name:?}")) && done.stderr.contains(said),
            "{}",
            done.stderr
        );
    }
    assert!(env.recorded_starts().is_empty(), "claude was started");
    assert!(!env.state().exists(), "nothing is left");
}

#[test]
fn a_prompt_of_ten_megabytes_passes() {
    let env = TestEnv::new();
    let prompt = "y".repeat(10 * 1024 * 1024);
    env.oo(["start", "-"]).stdin(prompt).run().expect_code(0);
}

#[test]
fn files_and_folders_that_are_not_there() {
    let env = TestEnv::new();
    let folder = env.work();
    let file = env.file("a-file", "x");
    let missing = env.work().join("missing");
    let at = |flag: &str, path: &Path| {
        let mut args = vec![OsString::from("start"), OsString::from(flag)];
        args.push(path.into());
        args
    };
    let shown = |path: &Path| path.display().to_string();
    assert_refused(
        &env,
        env.oo(at("--prompt-file", &missing)),
        &[&shown(&missing), "No such file"],
    );
    assert_refused(
        &env,
        env.oo(at("--prompt-file", &folder)),
        &[&shown(&folder)],
    );
    for flag in [
        "--settings",
        "--mcp-config",
        "--system-prompt-file",
        "--append-system-prompt-file",
    ] {
        let start = env.oo(at(flag, &missing)).args(["x"]);
        assert_refused(&env, start, &[flag, &shown(&missing), "No such file"]);
        assert_refused(
            &env,
            env.oo(at(flag, &folder)).args(["x"]),
            &[flag, "is a folder"],
        );
    }
    for flag in ["--cwd", "--add-dir"] {
        assert_refused(
            &env,
            env.oo(at(flag, &missing)).args(["x"]),
            &[flag, &shown(&missing)],
        );
        assert_refused(
            &env,
            env.oo(at(flag, &file)).args(["x"]),
            &[flag, "is not a folder"],
        );
    }
    if !is_root() {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
        assert_refused(
            &env,
            env.oo(at("--prompt-file", &file)),
            &["Permission denied"],
        );
    }
}

#[test]
fn inline_json_that_is_none_keeps_its_secrets() {
    let env = TestEnv::new();
    for flag in ["--settings", "--mcp-config"] {
        let start = env.oo(["start", "x", flag, "{\"token\": s3cret}"]);
        let done = assert_refused(&env, start, &[flag, "not valid JSON", "column"]);
        assert!(!done.stderr.contains("s3cret") && !done.stdout.contains("s3cret"));
    }
}

#[test]
fn no_claude_to_run() {
    let env = TestEnv::new();
    let none = || env.oo(["start", "x"]).without_var("OO_CLAUDE");
    // The usual places are outside the test's world; only an empty PATH and HOME are its own.
    if [
        "/usr/bin/claude",
        "/usr/local/bin/claude",
        "/opt/claude/bin/claude",
    ]
    .iter()
    .all(|place| !Path::new(place).exists())
    {
        assert_refused(&env, none().var("PATH", env.work()), &["no claude on PATH"]);
    }
    let missing = env.work().join("no-claude");
    let shown = missing.display().to_string();
    assert_refused(&env, none().var("OO_CLAUDE", &missing), &[&shown]);
    assert_refused(
        &env,
        none().args(["--claude".into(), missing.into_os_string()]),
        &[&shown],
    );
    let text = env.file("not-executable", "#!/bin/sh\n");
    assert_refused(&env, none().var("OO_CLAUDE", &text), &["is not executable"]);
    assert_refused(
        &env,
        none().var("OO_CLAUDE", env.work()),
        &["is not a file"],
    );
    assert_refused(
        &env,
        none().args(["--claude", "no-such-program-anywhere"]),
        &["on PATH"],
    );
}

#[test]
fn claude_is_found_on_the_path_and_in_the_usual_places() {
    let env = TestEnv::new();
    let fake = Claude::Fake.path();
    for place in ["work/bin/claude", "home/.local/bin/claude"] {
        let link = env.root().join(place);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&fake, &link).unwrap();
        let path = format!("{}:/usr/bin:/bin", env.work().join("bin").display());
        let start = env
            .oo(["start", "--json", "x"])
            .without_var("OO_CLAUDE")
            .var("PATH", path);
        let done = start.run();
        done.expect_code(0);
        // Links are resolved at every start.
        assert_eq!(done.json()["claude"]["path"], fake.display().to_string());
        fs::remove_file(&link).unwrap();
    }
}

#[test]
fn a_claude_that_cannot_be_executed_or_dies_at_once() {
    let env = TestEnv::new();
    let write = |name: &str, text: &str| {
        let path = env.file(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    for (name, text, cause, word) in [
        (
            "bad-interpreter",
            "#!/no/such/interpreter\n",
            "spawn",
            "No such file",
        ),
        (
            "dies",
            "#!/bin/sh\necho gone >&2\nexit 3\n",
            "no-output",
            "gone",
        ),
        ("killed", "#!/bin/sh\nkill -9 $$\n", "signal", "signal 9"),
    ] {
        let done = env
            .oo(["start", "--json", "x"])
            .var("OO_CLAUDE", write(name, text))
            .run();
        done.expect_code(4);
        let result = done.json();
        assert_eq!(
            (&result["class"], &result["cause"]),
            (&json!("failed"), &json!(cause))
        );
        assert!(
            result["message"].as_str().unwrap().contains(word),
            "{result:#}"
        );
        let kept = env
            .run_folder(result["run_id"].as_str().unwrap())
            .join("result.json");
        assert!(kept.exists());
    }
}

#[test]
fn a_state_folder_that_cannot_be_used() {
    let env = TestEnv::new();
    let state = env.work().join("state");
    fs::create_dir(&state).unwrap();
    for mode in [0o755, 0o701, 0o770] {
        fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
        let start = env.oo(["start", "x"]).var("OO_STATE_DIR", &state);
        let done = assert_refused(
            &env,
            start,
            &[&state.display().to_string(), "open to others"],
        );
        assert!(done.stderr.contains("chmod 700"));
    }
    let file = env.file("a-file", "");
    let start = env.oo(["start", "x"]).var("OO_STATE_DIR", &file);
    assert_refused(&env, start, &[&file.display().to_string(), "not a folder"]);
    // Nobody can write there, root neither.
    let start = env.oo(["start", "x"]).var("OO_STATE_DIR", "/proc/oo-state");
    assert_refused(&env, start, &["/proc/oo-state"]);
    let start = env.oo(["start", "x"]).without_var("HOME");
    assert_refused(&env, start, &["where the state folder is"]);
}

#[test]
fn names_and_values_that_are_not_utf8() {
    let env = TestEnv::new();
    let odd = OsStr::from_bytes(b"na\xffme");
    for flag in ["--name", "--env"] {
        let start = env.oo([OsStr::new("start"), OsStr::new("x"), OsStr::new(flag), odd]);
        assert_refused(&env, start, &[flag, "not UTF-8"]);
    }
    // An inherited value passes as the bytes that it is.
    let done = env.oo(["start", "x"]).var("ODD", odd).run();
    done.expect_code(0);
}

#[test]
fn variables_that_cannot_be_passed_on() {
    let env = TestEnv::new();
    let start = env.oo(["start", "x", "--env", "NOT_SET_ANYWHERE"]);
    assert_refused(&env, start, &["NOT_SET_ANYWHERE"]);
    assert_refused(&env, env.oo(["start", "x", "--env", "=x"]), &["no name"]);
    let name = "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR";
    assert_refused(&env, env.oo(["start", "x"]).var(name, "77"), &[name]);
}

#[test]
fn options_that_make_no_sense_are_usage_errors() {
    let env = TestEnv::new();
    for args in [
        &["start"][..],
        &["start", "x", "--prompt-file", "y"],
        &["start", "x", "--no-doorman", "--user-mcp"],
        &["start", "x", "--timeout", "soon"],
        &["start", "x", "--max-turns", "0"],
        &["start", "x", "--budget", "-1"],
        &["start", "x", "--parent", "not-an-id"],
        &["start", "x", "--no-such-option"],
        &["start", "x", "--env", "A=1", "--drop-env", "A"],
        &["start", "x", "y"],
        &["no-such-verb"],
        &[],
    ] {
        let done = env.oo(args.iter().copied()).run();
        done.expect_code(2);
        assert_eq!(done.stdout, "", "{args:?}");
        assert_ne!(done.stderr, "", "{args:?}");
    }
}

#[test]
fn a_stdout_that_takes_nothing() {
    let env = TestEnv::with(&Claude::Fake, &Scenario::says("the answer"));
    let oo = env!("CARGO_BIN_EXE_oo");
    for (command, json) in [
        (format!("{oo} start x > /dev/full"), false),
        (format!("{oo} start --json x > /dev/full"), true),
        (format!("{oo} start --follow x > /dev/full"), false),
        (
            format!("{oo} start x | true; exit ${{PIPESTATUS[0]}}"),
            false,
        ),
    ] {
        let done = env.program("/bin/bash").args(["-c", &command]).run();
        if command.contains("| true") && done.code == Some(0) {
            // The reader was still there when the answer came; the answer is in its pipe.
            continue;
        }
        done.expect_code(4);
        assert!(done.stderr.contains("stdout"), "{json} {}", done.stderr);
        assert!(done.stderr.contains("oo show"), "{}", done.stderr);
    }
    for run in fs::read_dir(env.state().join("runs")).unwrap() {
        let text = fs::read(run.unwrap().path().join("result.json")).unwrap();
        let kept: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            (&kept["class"], &kept["result"]),
            (&json!("completed"), &json!("the answer"))
        );
    }
}
