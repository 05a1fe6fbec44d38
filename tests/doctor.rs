//! `oo doctor`: what is wrong, where, and what to do.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::runs::play;
use crate::support::env::TestEnv;

/// A world in which the doctor has nothing to say.
fn healthy() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("PATH", "/usr/bin:/bin");
    env
}

#[track_caller]
fn report(env: &TestEnv, code: i32) -> Value {
    let done = env.oo(["doctor", "--json"]).run();
    done.expect_code(code);
    done.json()
}

/// The findings of one check.
#[track_caller]
fn findings(report: &Value, name: &str) -> Vec<Value> {
    let checks = report["checks"].as_array().unwrap();
    let found = checks
        .iter()
        .filter(|check| check["name"] == name && check["status"] == "finding");
    found.cloned().collect()
}

#[track_caller]
fn the_one(report: &Value, name: &str) -> Value {
    assert_eq!(report["findings"], 1, "{report:#}");
    let found = findings(report, name);
    assert_eq!(found.len(), 1, "{report:#}");
    assert!(
        found[0]["hint"]
            .as_str()
            .is_some_and(|hint| !hint.is_empty())
    );
    found[0].clone()
}

#[track_caller]
fn says(finding: &Value, words: &str) {
    let message = finding["message"].as_str().unwrap();
    assert!(message.contains(words), "{words}: {message}");
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn all_is_well() {
    let env = healthy();
    let before = report(&env, 0);
    assert_eq!(
        (&before["schema"], &before["findings"]),
        (&json!("oo/doctor/v1"), &json!(0))
    );
    assert!(!env.state().exists(), "looking makes nothing");
    play(&env, &["something"]);
    let after = report(&env, 0);
    let names = |report: &Value| -> Vec<String> {
        let checks = report["checks"].as_array().unwrap();
        checks
            .iter()
            .map(|check| check["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&before), names(&after));
    let done = env.oo(["doctor"]).run();
    done.expect_code(0);
    assert!(done.stdout.ends_with("no findings\n"), "{}", done.stdout);
    assert!(
        done.stdout.contains("answered initialize after"),
        "{}",
        done.stdout
    );
    assert_eq!(done.stderr, "");
}

#[test]
fn a_state_folder_that_is_open_to_others() {
    let env = healthy();
    let run = play(&env, &["something"]);
    let spec = env.run_folder(&run).join("spec.json");
    mode(&spec, 0o644);
    let finding = the_one(&report(&env, 1), "state");
    assert_eq!(finding["path"], spec.display().to_string());
    says(&finding, "open to others (mode 0644)");
    assert_eq!(
        finding["hint"],
        format!("run `chmod go= {}`", spec.display())
    );
    mode(&spec, 0o600);
    mode(&env.state(), 0o755);
    let finding = the_one(&report(&env, 1), "state");
    assert_eq!(finding["path"], env.state().display().to_string());
    // And a start refuses it.
    env.oo(["start", "x"]).run().expect_code(1);
    mode(&env.state(), 0o700);
    // Many are cut.
    let many = env.state().join("runs/many");
    fs::create_dir(&many).unwrap();
    mode(&many, 0o700);
    for at in 0..30 {
        let file = many.join(format!("{at}"));
        fs::write(&file, "").unwrap();
        mode(&file, 0o666);
    }
    let report = report(&env, 1);
    assert_eq!(report["findings"], 21);
    says(&findings(&report, "state")[20], "and 10 more");
}

#[test]
fn a_claude_that_does_not_serve() {
    let mut env = healthy();
    let program = |name: &str, script: &str| {
        let path = env.file(name, script);
        mode(&path, 0o755);
        path
    };
    let old = program("old", "#!/bin/sh\necho '2.1.99 (Claude Code)'\n");
    let silent = program("silent", "#!/bin/sh\nexit 0\n");
    let broken = program(
        "broken",
        "#!/bin/sh\necho 'cannot find module' >&2; exit 1\n",
    );
    let plain = program("plain", "#!/bin/sh\n");
    mode(&plain, 0o644);
    let gone = env.work().join("gone");
    for (path, words) in [
        (&old, "older than 2.1.308"),
        (&silent, "names no version"),
        (&broken, "cannot find module"),
        (&plain, "not executable"),
        (&gone, "gone"),
    ] {
        env.set("OO_CLAUDE", path);
        let finding = the_one(&report(&env, 1), "claude");
        says(&finding, words);
        says(&finding, &path.display().to_string());
    }
    env.unset("OO_CLAUDE");
    // No claude at all, and what only looks like one.
    let bin = env.root().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env.root().join("removed"), bin.join("claude")).unwrap();
    env.set("PATH", &bin);
    let report = report(&env, 1);
    let found = findings(&report, "claude");
    if !Path::new("/usr/local/bin/claude").exists() && !Path::new("/usr/bin/claude").exists() {
        says(&found[0], "there is no claude");
    }
    says(found.last().unwrap(), "removed, which is gone");
}

#[test]
fn a_claude_that_hangs_is_given_up() {
    let mut env = healthy();
    let path = env.file("hangs", "#!/bin/sh\nexec tail -f /dev/null\n");
    mode(&path, 0o755);
    env.set("OO_CLAUDE", &path);
    let done = env
        .oo(["doctor", "--json"])
        .run_within(Duration::from_secs(40));
    done.expect_code(1);
    says(&the_one(&done.json(), "claude"), "timed out");
    assert!(env.alive().is_empty(), "it was left running");
}

#[test]
fn a_key_that_outranks_a_login() {
    let mut env = healthy();
    let claude = env.home().join(".claude");
    fs::create_dir_all(&claude).unwrap();
    fs::write(claude.join(".credentials.json"), "{\"secret\":\"s3cret\"}").unwrap();
    let done = env.oo(["doctor", "--json"]).run();
    done.expect_code(1);
    says(
        &the_one(&done.json(), "login"),
        "ANTHROPIC_API_KEY outranks the login",
    );
    for secret in ["s3cret", "sk-test-0000"] {
        assert!(!done.stdout.contains(secret) && !done.stderr.contains(secret));
    }
    env.unset("ANTHROPIC_API_KEY");
    report(&env, 0);
    // A login can be in the other file, too, and elsewhere.
    fs::remove_file(claude.join(".credentials.json")).unwrap();
    let elsewhere = env.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(
        elsewhere.join(".claude.json"),
        r#"{"oauthAccount":{"id":1}}"#,
    )
    .unwrap();
    env.set("CLAUDE_CONFIG_DIR", &elsewhere);
    report(&env, 0);
    env.set("ANTHROPIC_API_KEY", "sk-test-0000");
    says(
        &the_one(&report(&env, 1), "login"),
        "elsewhere/.claude.json",
    );
}

#[test]
fn files_that_do_not_parse() {
    let env = healthy();
    play(&env, &["something"]);
    let config = env.home().join(".claude.json");
    fs::write(&config, "{\"a\": s3cret").unwrap();
    let report_of_config = report(&env, 1);
    let finding = the_one(&report_of_config, "config");
    assert_eq!(finding["path"], config.display().to_string());
    assert!(!report_of_config.to_string().contains("s3cret"));
    fs::write(&config, "{}").unwrap();

    let receipts = env.state().join("receipts.jsonl");
    let good = fs::read_to_string(&receipts).unwrap();
    fs::write(&receipts, format!("{good}not json\n{good}{{\"torn\":")).unwrap();
    let found = findings(&report(&env, 1), "ledgers");
    assert_eq!(found.len(), 2);
    says(&found[0], "receipts.jsonl has lines that are no records: 2");
    says(&found[1], "cut short");
    fs::write(&receipts, good).unwrap();
    let lineage = env.state().join("lineage.jsonl");
    fs::write(&lineage, "{}\n").unwrap();
    mode(&lineage, 0o600);
    says(&the_one(&report(&env, 1), "ledgers"), "lineage.jsonl");
    fs::remove_file(lineage).unwrap();

    let sessions = env.home().join(".claude/sessions");
    fs::create_dir_all(&sessions).unwrap();
    fs::write(sessions.join("4827.json"), "{\"pid\":").unwrap();
    says(
        &the_one(&report(&env, 1), "registry"),
        "4827.json is no registry row",
    );
}

#[test]
fn an_inbox_whose_place_is_not_known_is_taken_over_when_asked() {
    let env = healthy();
    play(&env, &["x"]);
    let session = "0b5e6c52-6d0f-4a52-9d57-3b6b3f0a7c11";
    let file = |ending: &str| env.state().join(format!("inbox/{session}.{ending}"));
    fs::write(file("inbox"), "old\nolder\n").unwrap();
    mode(&file("inbox"), 0o600);
    says(
        &the_one(&report(&env, 1), "inboxes"),
        "has lines and no offset",
    );
    assert!(!file("inbox.offset").exists(), "a look changes nothing");
    let done = env.oo(["doctor", "--json", "--fix"]).run();
    done.expect_code(0);
    let fixed = done.json()["fixed"].clone();
    assert!(fixed[0].as_str().unwrap().contains("byte 10"), "{fixed}");
    assert_eq!(fs::read_to_string(file("inbox.offset")).unwrap(), "10");
}

#[test]
fn a_doorman_that_is_turned_off() {
    let mut env = healthy();
    env.set("OO_DOORMAN", "0");
    says(&the_one(&report(&env, 1), "doorman"), "OO_DOORMAN=0");
}

#[test]
fn without_a_home_it_says_what_it_cannot_see() {
    let env = healthy();
    let done = env.oo(["doctor", "--json"]).without_var("HOME").run();
    done.expect_code(1);
    let report = done.json();
    says(
        &findings(&report, "state")[0],
        "cannot tell where the state folder is",
    );
    let skipped = |check: &&Value| check["status"] == "skipped";
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.iter().filter(skipped).count(), 4, "{report:#}");
}
