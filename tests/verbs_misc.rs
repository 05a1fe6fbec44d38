//! What holds for every verb: --json, a full or closed stdout; and the small verbs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::runs::play;
use crate::support::env::TestEnv;
use crate::support::lanes::on_each_claude;
use crate::support::scenario::Scenario;

/// Every verb that answers on stdout, with a run for those that need one.
fn answers(run: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["start", "hello"],
        vec!["start", "hello", "--json"],
        vec!["start", "hello", "--follow"],
        vec!["start", "hello", "--follow", "--json"],
        vec!["resume", run, "hello"],
        vec!["resume", run, "hello", "--json"],
        vec!["resume", run, "hello", "--follow", "--json"],
        vec!["send", run, "hello", "--min-interval=0s"],
        vec!["send", run, "hello", "--min-interval=0s", "--json"],
        vec!["runs"],
        vec!["runs", "--json"],
        vec!["show", run],
        vec!["show", run, "--json"],
        vec!["doctor"],
        vec!["doctor", "--json"],
        vec!["version"],
        vec!["version", "--json"],
        vec!["completions", "bash"],
        vec!["completions", "bash", "--json"],
        vec!["man"],
        vec!["man", "--json"],
        vec!["--help"],
        vec!["start", "--help"],
        vec!["--version"],
    ]
}

#[test]
fn every_verb_is_among_those_that_are_tried() {
    for verb in oo::cli::command().get_subcommands() {
        // A doorman's stdout is a conversation.
        let tried = answers("").iter().any(|args| args[0] == verb.get_name());
        assert!(tried || verb.get_name() == "doorman", "{}", verb.get_name());
    }
}

/// Runs oo with its stdout as `script` has it, and gives exit code and stderr.
#[track_caller]
fn with_stdout(env: &TestEnv, script: &str, args: &[&str]) -> (String, String) {
    env.script(&Scenario::says("hello"));
    for file in ["code", "gone"] {
        // Of the one before.
        let _ = fs::remove_file(env.work().join(file));
    }
    let done = env
        .program("/bin/sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_oo")])
        .args(args.iter().copied())
        .run();
    let code = fs::read_to_string(env.work().join("code")).unwrap();
    (code.trim().to_owned(), done.stderr)
}

#[track_caller]
fn is_said(env: &TestEnv, script: &str, words: &str) {
    let run = play(env, &["model"]);
    for args in answers(&run) {
        let (code, stderr) = with_stdout(env, script, &args);
        assert_eq!(code, "4", "{args:?}: {stderr}");
        assert!(stderr.contains("stdout"), "{args:?}: {stderr}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
        assert!(!stderr.contains("panic"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_full_stdout_is_said() {
    let env = TestEnv::new();
    is_said(
        &env,
        r#""$0" "$@" > /dev/full; echo $? > code"#,
        "o space left",
    );
}

#[test]
fn a_closed_stdout_is_said() {
    let env = TestEnv::new();
    // As into `head -c0`, but that the reader has surely gone.
    let script = r#"
        { until [ -e gone ]; do /bin/sleep 0.01; done; "$0" "$@"; echo $? > code; } |
        { exec <&-; : > gone; }
    "#;
    is_said(&env, script, "roken pipe");
}

#[test]
fn a_usage_error_prints_nothing_to_stdout() {
    let env = TestEnv::new();
    for args in [
        &[][..],
        &["fly"],
        &["show"],
        &["show", "--json"],
        &["completions", "tcsh"],
        &["runs", "--limit=few"],
        &["runs", "--all", "--limit=3"],
        &["doorman"],
    ] {
        let done = env.oo(args.iter().copied()).run();
        done.expect_code(2);
        assert_eq!(done.stdout, "", "{args:?}");
        assert!(!done.stderr.is_empty());
    }
}

on_each_claude!(the_version_of_claude_is_asked, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("unused"));
    let done = env.oo(["version", "--json"]).run();
    done.expect_code(0);
    let document = done.json();
    assert_eq!(document["schema"], "oo/version/v1");
    assert_eq!(document["oo_version"], env!("CARGO_PKG_VERSION"));
    let version = document["claude"]["version"].as_str().unwrap();
    let path = fs::canonicalize(claude.path()).unwrap();
    assert_eq!(document["claude"]["path"], path.display().to_string());
    assert_eq!(document["message"], Value::Null);
    let done = env.oo(["version"]).run();
    done.expect_code(0);
    let wanted = format!(
        "oo {}\nclaude {version}, {}\n",
        env!("CARGO_PKG_VERSION"),
        path.display()
    );
    assert_eq!(done.stdout, wanted);
});

#[test]
fn a_claude_is_asked_without_another_sessions_variables() {
    let env = TestEnv::new();
    let path = env.file("claude", "#!/bin/sh\nenv > seen\necho 2.1.400\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let done = env
        .oo(["version", "--json", "--claude=./claude"])
        .var("CLAUDE_CODE_SESSION_ID", "theirs")
        .var("CLAUDECODE", "1")
        .var("CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR", "9")
        .var("CLAUDE_CONFIG_DIR", "/kept")
        .run();
    assert_eq!(done.json()["claude"]["version"], "2.1.400");
    let seen = fs::read_to_string(env.work().join("seen")).unwrap();
    let names: Vec<&str> = seen
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .filter(|name| name.starts_with("CLAUDE"))
        .collect();
    assert_eq!(names, ["CLAUDE_CONFIG_DIR"]);
}

#[test]
fn no_claude_is_said_and_no_failure() {
    let env = TestEnv::new();
    let missing = "--claude=/nonexistent/claude";
    let done = env.oo(["version", missing]).run();
    done.expect_code(0);
    assert!(
        done.stdout.contains("claude: none found"),
        "{}",
        done.stdout
    );
    assert!(
        done.stderr.contains("/nonexistent/claude"),
        "{}",
        done.stderr
    );
    let document = env.oo(["version", missing, "--json"]).run().json();
    assert_eq!(document["claude"], Value::Null);
    assert!(
        document["message"]
            .as_str()
            .unwrap()
            .contains("/nonexistent/claude")
    );
}

#[test]
fn completions_know_the_verbs() {
    let env = TestEnv::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = env.oo(["completions", shell]).run();
        done.expect_code(0);
        for verb in oo::cli::command().get_subcommands() {
            assert!(
                done.stdout.contains(verb.get_name()),
                "{shell}: {}",
                verb.get_name()
            );
        }
        let document = env.oo(["completions", shell, "--json"]).run().json();
        assert_eq!(document["text"], done.stdout);
    }
    let script = env.file("oo.bash", env.oo(["completions", "bash"]).run().stdout);
    let checked = env
        .program("/bin/bash")
        .args(["-n".into(), script.into_os_string()])
        .run();
    checked.expect_code(0);
}

#[test]
fn the_manual_has_every_verb() {
    let env = TestEnv::new();
    let page = env.oo(["man"]).run().stdout;
    for verb in oo::cli::command().get_subcommands() {
        let heading = format!("\n.SH \"oo {}\"\n", verb.get_name());
        assert!(page.contains(&heading), "{}", verb.get_name());
    }
    for section in ["NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "FILES"] {
        let plain = format!(".SH {section}\n");
        let quoted = format!(".SH \"{section}\"\n");
        assert!(page.contains(&plain) || page.contains(&quoted), "{section}");
    }
}
