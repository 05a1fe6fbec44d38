//! `cargo demo`: a real start, played on the stand-in for claude. No account, no network.
//!
//! It runs with the tests too, so that what a newcomer sees first cannot break unseen.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a demonstration prints what it does, starts programs and stops at a surprise"
)]

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const OO: &str = env!("CARGO_BIN_EXE_oo");
const FAKE: &str = env!("CARGO_BIN_EXE_fake-claude");

/// What the stand-in plays: a tool, an API that is overloaded twice, an answer.
const SCRIPT: &str = r#"{
  "replies": [
    {"text": "I look at the tests.", "tools": [
      {"name": "Bash", "input": {"command": "echo 'test flaky ... FAILED (1 of 20)'; sleep 0.4"}}]},
    {"status": 529, "repeat": 2},
    {"text": "The test waits for luck: it sleeps 10 ms instead of waiting for the server."}
  ],
  "quirks": {"retry_scale": 0.5}
}"#;

/// And a claude that says "success" although the API refused the model.
const DECEIVES: &str =
    r#"{"replies": [{"status": 404, "repeat": "forever"}], "quirks": {"exit_code": 0}}"#;

struct Stage<'a> {
    home: &'a Path,
}

impl Stage<'_> {
    /// Plays one command line and shows it; the exit code and stdout.
    fn play(&self, script: &str, args: &[&str]) -> (i32, String) {
        let script_file = self.home.join("script.json");
        std::fs::write(&script_file, script).expect("the scratch folder takes files");
        let words: Vec<String> = args
            .iter()
            .map(|arg| {
                if arg.contains(' ') {
                    format!("\"{arg}\"")
                } else {
                    (*arg).to_owned()
                }
            })
            .collect();
        println!("\n$ oo {}", words.join(" "));
        let output = Command::new(OO)
            .args(args)
            .env_clear()
            .env("HOME", self.home)
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("IS_SANDBOX", "1")
            .env("ANTHROPIC_API_KEY", "none-needed")
            .env("OO_CLAUDE", FAKE)
            .env("FAKE_CLAUDE_SCRIPT", &script_file)
            .current_dir(self.home)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .expect("oo starts");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let code = output.status.code().unwrap_or(-1);
        (code, stdout)
    }
}

fn main() -> ExitCode {
    // Test runners ask a binary for its tests; this one has none of that kind.
    if std::env::args().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    let home = tempfile::tempdir().expect("a scratch folder");
    let stage = Stage { home: home.path() };
    println!("A start on the stand-in for claude, in a scratch folder. No account is needed.");

    let prompt = "fix the flaky test";
    let (code, answer) = stage.play(
        SCRIPT,
        &[
            "start",
            prompt,
            "--permission-mode",
            "bypassPermissions",
            "--name",
            "demo",
        ],
    );
    print!("{answer}");
    println!("(exit code {code}: the answer alone is on stdout)");
    let mut fine = code == 0 && answer.contains("waits for luck");

    let (code, runs) = stage.play(SCRIPT, &["runs"]);
    print!("{runs}");
    fine &= code == 0 && runs.contains("completed");

    let (code, shown) = stage.play(SCRIPT, &["show", "demo"]);
    print!("{shown}");
    fine &= code == 0;

    println!("\nAnd one where claude exits 0 and says \"success\", although it failed:");
    let (code, answer) = stage.play(DECEIVES, &["start", "hello", "--model", "no-such-model"]);
    println!("(exit code {code}, nothing on stdout: {answer:?})");
    fine &= code == 4 && answer.is_empty();

    if fine {
        println!("\nThat was it. Next: README.md, `oo start --help`.");
        ExitCode::SUCCESS
    } else {
        println!("\nThe demonstration did not go as it should.");
        ExitCode::FAILURE
    }
}
