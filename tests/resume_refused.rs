//! `oo resume` of what cannot be gone on with: said before anything runs, and nothing is touched.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::lanes::on_each_claude;
use crate::support::process::Finished;
use crate::support::scenario::{Reply, Scenario};
use crate::support::sleeping::Sleeping;

/// Asserts the class of something that never began: no run came of it.
#[track_caller]
fn never_began(
    env: &TestEnv,
    done: &Finished,
    class: &str,
    cause: Option<&str>,
    code: i32,
) -> Value {
    done.expect_code(code);
    let result = done.json();
    assert_eq!(
        (&result["class"], &result["cause"], &result["state"]),
        (&json!(class), &json!(cause), &json!("refused"))
    );
    assert_eq!(result["exit_code"], code);
    assert_eq!(result["verb"], "resume");
    assert_eq!(result["run_id"], Value::Null);
    assert!(result["hint"].as_str().is_some(), "{result:#}");
    let said = result["message"].as_str().unwrap();
    assert!(done.stderr.contains(said), "{}", done.stderr);
    let runs = env.oo(["runs", "--json"]).run().json();
    let resumed = runs["runs"].as_array().unwrap().iter();
    assert_eq!(resumed.filter(|run| run["verb"] == "resume").count(), 0);
    result
}

on_each_claude!(a_session_whose_transcript_is_gone, |claude| {
    let slept = Sleeping::new(&claude);
    let transcript = slept.transcript();
    fs::remove_file(&transcript).unwrap();
    let done = slept.resuming(&[]).wait(PATIENCE);
    let result = never_began(&slept.env, &done, "error", Some("session-lost"), 4);
    let said = result["message"].as_str().unwrap();
    assert!(said.contains(".claude/projects/*/"), "{said}");
    assert_eq!(result["requested_session_id"], slept.session);
    // An empty one is as good as none.
    fs::write(&transcript, "").unwrap();
    let done = slept.resuming(&[]).wait(PATIENCE);
    let result = never_began(&slept.env, &done, "error", Some("session-lost"), 4);
    let said = result["message"].as_str().unwrap();
    assert!(said.contains(transcript.to_str().unwrap()), "{said}");
    let receipts = fs::read_to_string(slept.env.state().join("receipts.jsonl")).unwrap();
    let last: Value = serde_json::from_str(receipts.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["verb"], &last["class"]),
        (&json!("resume"), &json!("error"))
    );
    assert_eq!(last["session_id"], slept.session);
});

#[test]
fn a_session_that_nobody_knows() {
    let env = TestEnv::new();
    let id = Uuid::new_v4().to_string();
    let done = env.oo(["resume", &id, "x", "--json"]).run();
    never_began(&env, &done, "error", Some("session-lost"), 4);
    let done = env.oo(["resume", "nobody", "x", "--json"]).run();
    never_began(&env, &done, "refused", None, 1);
    assert!(!env.state().exists(), "looking makes nothing");
}

#[test]
fn a_session_that_another_configuration_folder_has() {
    let env = TestEnv::new();
    let other = env.home().join("other");
    let variable = format!("--env=CLAUDE_CONFIG_DIR={}", other.display());
    let done = env.oo(["start", "--json", &variable, "x"]).run();
    let session = done.json()["session_id"].as_str().unwrap().to_owned();
    let done = env.oo(["resume", &session, "x", "--json"]).run();
    let result = never_began(&env, &done, "error", Some("session-lost"), 4);
    let hint = result["hint"].as_str().unwrap();
    assert!(
        hint.contains(&variable.replace("--env=", "--env ")),
        "{hint}"
    );
    env.script(&Scenario::says("two"));
    env.oo(["resume", &session, "x", &variable])
        .run()
        .expect_code(0);
}

on_each_claude!(a_folder_that_is_gone, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("one"));
    let folder = env.home().join("tree");
    fs::create_dir(&folder).unwrap();
    let done = env.oo(["start", "--json", "x"]).folder(&folder).run();
    let session = done.json()["session_id"].as_str().unwrap().to_owned();
    fs::remove_dir(&folder).unwrap();
    let done = env.oo(["resume", &session, "x", "--json"]).run();
    let result = never_began(&env, &done, "refused", None, 1);
    let said = result["message"].as_str().unwrap();
    assert!(said.contains(folder.to_str().unwrap()), "{said}");
    assert!(
        result["hint"].as_str().unwrap().contains("--cwd"),
        "{result:#}"
    );
    env.script(&Scenario::says("two"));
    let work = env.work();
    let done = env
        .oo(["resume", &session, "x", "--json", "--cwd"])
        .args([&work])
        .run();
    done.expect_code(0);
    assert_eq!(done.json()["cwd"], work.to_str().unwrap());
    assert_eq!(done.json()["session_id"], session);
});

on_each_claude!(a_torn_transcript_is_gone_on_with, |claude| {
    let slept = Sleeping::new(&claude);
    let path = slept.transcript();
    let whole = fs::read_to_string(&path).unwrap();
    // As a kill in the middle of a write leaves it.
    let last = whole.lines().last().unwrap();
    let torn = whole.len() - last.len() / 2;
    fs::write(&path, &whole.as_bytes()[..torn]).unwrap();
    let done = slept.resume(Reply::text("two"), &[]);
    done.expect_code(0);
    assert_eq!(done.json()["class"], "delivered-resume");
    assert_eq!(done.json()["cwd"], slept.env.work().to_str().unwrap());
});

#[test]
fn folders_with_one_encoding_or_too_long_a_name() {
    let env = TestEnv::new();
    let deep = "a".repeat(80);
    let mut sessions = Vec::new();
    for folder in ["t/a_b", "t/a-b", "t/a.b", &format!("t/{deep}/{deep}")] {
        let folder = env.home().join(folder);
        fs::create_dir_all(&folder).unwrap();
        env.script(&Scenario::says("one"));
        let done = env.oo(["start", "--json", "x"]).folder(&folder).run();
        sessions.push((
            done.json()["session_id"].as_str().unwrap().to_owned(),
            folder,
        ));
    }
    // claude shortens what is longer than a name may be.
    let projects = env.home().join(".claude/projects");
    let long = fs::read_dir(&projects).unwrap().flatten();
    let long = long
        .map(|entry| entry.path())
        .max_by_key(|path| path.as_os_str().len());
    fs::rename(long.unwrap(), projects.join("-shortened-1a2b3c")).unwrap();
    for (session, folder) in sessions {
        env.script(&Scenario::says("two"));
        let done = env.oo(["resume", &session, "x", "--json"]).run();
        done.expect_code(0);
        assert_eq!(done.json()["cwd"], folder.to_str().unwrap());
    }
}

/// A transcript of 1 GiB: rows at both ends, and a hole between.
fn huge(path: &Path, cwd: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let row = json!({"type": "user", "cwd": cwd, "message": {"role": "user", "content": "x"}});
    writeln!(file, "{row}").unwrap();
    file.seek(SeekFrom::Start(1 << 30)).unwrap();
    writeln!(
        file,
        "\n{}",
        json!({"type": "cost-state", "totalCostUSD": 1.5})
    )
    .unwrap();
}

#[test]
fn a_transcript_of_a_gibibyte_is_read_at_its_ends() {
    let env = TestEnv::new();
    let session = Uuid::new_v4();
    let project = env.home().join(".claude/projects/-x");
    fs::create_dir_all(&project).unwrap();
    let path = project.join(format!("{session}.jsonl"));
    let gone = env.home().join("gone");
    huge(&path, &gone);
    let id = session.to_string();
    let done = env.oo(["resume", &id, "x", "--json"]).run();
    never_began(&env, &done, "refused", None, 1);
    // One that can be gone on with, by a claude that does not read it.
    fs::create_dir(&gone).unwrap();
    let claude = env.file("claude", format!(
        "#!/bin/sh\ncat >/dev/null\necho '{}'\necho '{}'\n",
        json!({"type": "system", "subtype": "init", "session_id": id, "cwd": "/", "mcp_servers": []}),
        json!({"type": "result", "subtype": "success", "is_error": false, "num_turns": 1,
               "result": "two", "total_cost_usd": 2.0, "session_id": id}),
    ));
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    let done = env
        .oo(["resume", &id, "x", "--json", "--no-doorman", "--claude"])
        .args([&claude])
        .run();
    done.expect_code(0);
    assert_eq!(done.json()["class"], "delivered-resume");
    assert_eq!(done.json()["cost_usd"], 0.5);
    // Nothing but a hole is no session.
    let hole = fs::File::create(&path).unwrap();
    hole.set_len(1 << 30).unwrap();
    let done = env.oo(["resume", &id, "x", "--json"]).run();
    done.expect_code(4);
    assert_eq!(done.json()["cause"], "session-lost");
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    let slept = Sleeping::new(&Claude::Fake);
    for args in [
        &["--fork", "--wait=1s"][..],
        &["--fork", "--send-if-held"],
        &["--wait=1s", "--send-if-held"],
        &["--prompt-file=x"],
        &["--", "--resume=x"],
    ] {
        let done = slept.resuming(args).wait(PATIENCE);
        done.expect_code(2);
        assert_eq!(done.stdout, "", "{args:?}");
    }
}
