//! `oo show`: one run, by whatever name, whatever became of its supervisor.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::runs::play;
use crate::support::claude::Claude;
use crate::support::env::TestEnv;
use crate::support::lanes::on_each_claude;
use crate::support::process::{Running, until, until_some};
use crate::support::scenario::{Reply, Scenario};

const SOON: Duration = Duration::from_secs(60);

/// A turn with a tool that ends when the file `go` appears in the working folder.
fn waits_for_a_file() -> Scenario {
    let command = "until [ -e go ]; do /bin/sleep 0.05; done; echo over";
    Scenario::new([
        Reply::bash(command).saying("I wait"),
        Reply::text("the whole truth"),
    ])
}

/// Starts a run and waits until its model is at work: its id, and claude's pid.
#[track_caller]
fn at_work(env: &TestEnv) -> (Running, String, i32) {
    let mut oo = env
        .oo([
            "start",
            "--permission-mode=bypassPermissions",
            "wait for it",
        ])
        .spawn();
    let folder = env.state().join("runs");
    let run = oo.until_some(SOON, "a run at work", || {
        let id = fs::read_dir(&folder)
            .ok()?
            .next()?
            .ok()?
            .file_name()
            .into_string()
            .ok()?;
        let events = fs::read_to_string(folder.join(&id).join("events.jsonl")).ok()?;
        events.contains("tool_use").then_some(id)
    });
    let process: Value =
        serde_json::from_slice(&fs::read(folder.join(&run).join("process.json")).unwrap()).unwrap();
    let pid = process["claude"]["pid"].as_i64().unwrap();
    (oo, run, i32::try_from(pid).unwrap())
}

#[track_caller]
fn shown(env: &TestEnv, run: &str) -> Value {
    let done = env.oo(["show", run, "--json"]).run();
    done.expect_code(0);
    done.json()
}

fn gone(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
        || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

on_each_claude!(a_killed_supervisor_loses_nothing, |claude| {
    let env = TestEnv::with(&claude, &waits_for_a_file());
    let (oo, run, pid) = at_work(&env);

    // While it is watched.
    let live = shown(&env, &run);
    assert_eq!(
        (&live["state"], &live["class"]),
        (&json!("running"), &Value::Null)
    );
    assert_eq!(live["partial_result"], Value::Null);

    oo.signal(Signal::SIGKILL);
    assert_eq!(oo.wait(SOON).signal, Some(9));
    let alone = shown(&env, &run);
    assert_eq!(
        (&alone["state"], &alone["class"], &alone["exit_code"]),
        (&json!("unsupervised"), &Value::Null, &Value::Null)
    );
    let listing = env.oo(["runs", "--json"]).run().json();
    assert_eq!(listing["runs"][0]["state"], "unsupervised");
    let table = env.oo(["runs"]).run();
    assert!(table.stdout.contains("unsupervised"), "{}", table.stdout);
    let result = env.run_folder(&run).join("result.json");
    assert!(!result.exists(), "it is not over");

    // claude ends its turn by itself.
    env.file("go", "");
    until(SOON, "the end of claude", || gone(pid));
    let truth = shown(&env, &run);
    assert_eq!(
        (&truth["state"], &truth["class"], &truth["result"]),
        (
            &json!("ended"),
            &json!("completed"),
            &json!("the whole truth")
        )
    );
    assert_eq!(truth["exit_code"], 0);
    assert!(truth["cost_usd"].as_f64().unwrap() > 0.0);
    assert!(truth["transcript"].as_str().is_some());
    assert!(
        truth["note"]
            .as_str()
            .unwrap()
            .contains("supervisor of this run died")
    );
    let written: Value = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    assert_eq!(written, truth);
    assert_eq!(shown(&env, &run), truth);
});

#[test]
fn with_claude_killed_too_nothing_better_is_known() {
    let mut env = TestEnv::with(&Claude::Fake, &waits_for_a_file());
    // The run's own configuration folder is on record: who looks later has another one.
    let config = env.root().join("elsewhere");
    env.set("CLAUDE_CONFIG_DIR", &config);
    let (oo, run, pid) = at_work(&env);
    oo.signal(Signal::SIGKILL);
    oo.wait(SOON);
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    until(SOON, "the end of claude", || gone(pid));
    env.unset("CLAUDE_CONFIG_DIR");

    // Several look at once: one judges, none calls it running.
    let looks: Vec<Running> = (0..4)
        .map(|_| env.oo(["show", &run, "--json"]).spawn())
        .collect();
    for look in looks {
        let document = look.wait(SOON).json();
        assert_eq!(
            (&document["state"], &document["class"], &document["cause"]),
            (&json!("ended"), &json!("failed"), &json!("lost-supervisor"))
        );
    }
    let document = shown(&env, &run);
    assert_eq!(document["result"], Value::Null);
    let transcript = document["transcript"].as_str().unwrap();
    assert!(Path::new(transcript).starts_with(&config), "{transcript}");
    let listing = env.oo(["runs", "--json"]).run().json();
    assert_eq!(listing["runs"][0]["cause"], "lost-supervisor");
    let words = env.oo(["show", &run]).run();
    words.expect_code(0);
    assert!(
        words.stdout.contains("failed (lost-supervisor)"),
        "{}",
        words.stdout
    );
}

#[test]
fn a_run_goes_by_many_names() {
    let env = TestEnv::new();
    let first = play(&env, &["--name=the nightly one", "first"]);
    let second = play(&env, &["second"]);
    let session = shown(&env, &first)["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let names = [
        first.clone(),
        first.to_uppercase(),
        first.replace('-', ""),
        first[28..].to_owned(),
        first[first.len() - 4..].to_owned(),
        "the nightly one".to_owned(),
        session.clone(),
        session[..8].to_owned(),
    ];
    for name in names {
        assert_eq!(shown(&env, &name)["run_id"], first, "{name}");
    }
    assert_eq!(shown(&env, &second[28..])["run_id"], second);

    // Runs of one minute begin alike.
    let common: String = first
        .chars()
        .zip(second.chars())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a)
        .collect();
    let done = env.oo(["show", &common]).run();
    done.expect_code(1);
    for run in [&first, &second] {
        assert!(done.stderr.contains(run.as_str()), "{}", done.stderr);
    }
    for nothing in [
        "abc",
        "",
        "no such session",
        "../../etc",
        &Uuid::now_v7().to_string(),
    ] {
        let done = env.oo(["show", nothing, "--json"]).run();
        done.expect_code(1);
        assert_eq!(done.json()["exit_code"], 1, "{nothing}");
    }
}

#[test]
fn a_session_that_was_named_twice_is_not_guessed() {
    let env = TestEnv::new();
    for prompt in ["one", "two"] {
        play(&env, &["--name=twin", prompt]);
    }
    let done = env.oo(["show", "twin"]).run();
    done.expect_code(1);
    assert!(done.stderr.contains("fits 2"), "{}", done.stderr);
}

#[test]
fn a_person_sees_the_answer_and_what_it_took() {
    let env = TestEnv::new();
    env.script(&Scenario::says("forty\x1b[2Jtwo"));
    let done = env.oo(["start", "--json", "--name=n", "what?"]).run();
    let run = done.json()["run_id"].as_str().unwrap().to_owned();
    let done = env.oo(["show", &run]).run();
    done.expect_code(0);
    let text = &done.stdout;
    let wanted = [
        format!("run         {run}"),
        "class       completed".to_owned(),
        "(n)".to_owned(),
        format!("cwd         {}", env.work().display()),
        "turns       1".to_owned(),
        "cost        $".to_owned(),
        "doorman     injected, last seen following; 0 lines delivered, 0 wait".to_owned(),
        format!("files       {}", env.run_folder(&run).display()),
        "--- answer\nforty[2Jtwo\n".to_owned(),
    ];
    for wanted in wanted {
        assert!(text.contains(&wanted), "{wanted}\n{text}");
    }
    assert!(!text.contains('\x1b'));
    assert_eq!(done.stderr, "");
    // The document itself has the exact bytes.
    assert_eq!(shown(&env, &run)["result"], "forty\x1b[2Jtwo");
}

#[test]
fn words_of_a_run_that_failed_are_no_answer() {
    let env = TestEnv::new();
    env.script(&Scenario::new([
        Reply::bash("true").saying("half of it"),
        Reply::error(400),
    ]));
    let done = env
        .oo([
            "start",
            "--json",
            "--permission-mode=bypassPermissions",
            "what?",
        ])
        .run();
    done.expect_code(4);
    let run = done.json()["run_id"].as_str().unwrap().to_owned();
    let done = env.oo(["show", &run]).run();
    done.expect_code(0);
    assert!(
        done.stdout.contains("class       failed (invalid-request)"),
        "{}",
        done.stdout
    );
    assert!(
        done.stdout.contains("which are no answer"),
        "{}",
        done.stdout
    );
    assert!(!done.stdout.contains("--- answer"), "{}", done.stdout);
}

#[test]
fn a_run_cut_off_before_its_claude_is_judged() {
    let env = TestEnv::new();
    let run = play(&env, &["model"]);
    // As if the supervisor had died between the spec and the spawn.
    for file in ["process.json", "result.json"] {
        fs::remove_file(env.run_folder(&run).join(file)).unwrap();
    }
    fs::write(env.run_folder(&run).join("events.jsonl"), "").unwrap();
    let document = shown(&env, &run);
    assert_eq!(
        (&document["state"], &document["class"]),
        (&json!("ended"), &json!("failed"))
    );
    assert_ne!(document["cause"], Value::Null);
}

#[test]
fn a_damaged_spec_of_a_live_looking_run_is_named() {
    let env = TestEnv::new();
    let run = play(&env, &["model"]);
    fs::remove_file(env.run_folder(&run).join("result.json")).unwrap();
    let spec = env.run_folder(&run).join("spec.json");
    let good = fs::read_to_string(&spec).unwrap();
    fs::write(&spec, "{\"schema\":").unwrap();
    let done = env.oo(["show", &run]).run();
    done.expect_code(1);
    assert!(
        done.stderr.contains(&spec.display().to_string()),
        "{}",
        done.stderr
    );

    // One of a newer oo is judged as far as it is understood, and nothing is written.
    let mut newer: Value = serde_json::from_str(&good).unwrap();
    newer["schema"] = json!("oo/spec/v2");
    newer["wisdom"] = json!(1);
    fs::write(&spec, newer.to_string()).unwrap();
    assert_eq!(shown(&env, &run)["class"], "completed");
    assert!(!env.run_folder(&run).join("result.json").exists());
    newer.as_object_mut().unwrap().remove("limits");
    newer["oo_version"] = json!("9.0.0");
    fs::write(&spec, newer.to_string()).unwrap();
    let done = env.oo(["show", &run]).run();
    done.expect_code(1);
    assert!(
        done.stderr.contains("written by oo 9.0.0"),
        "{}",
        done.stderr
    );
}

#[test]
fn the_lock_of_a_live_supervisor_is_respected() {
    let env = TestEnv::with(&Claude::Fake, &waits_for_a_file());
    let (oo, run, _) = at_work(&env);
    for _ in 0..3 {
        assert_eq!(shown(&env, &run)["state"], "running");
    }
    let listing = env.oo(["runs", "--json"]).run().json();
    assert_eq!(listing["runs"][0]["state"], "running");
    env.file("go", "");
    let done = oo.wait(SOON);
    done.expect_code(0);
    assert_eq!(done.stdout, "the whole truth\n");
    let result = env.run_folder(&run).join("result.json");
    until_some(SOON, "the result", || fs::read(&result).ok());
    assert_eq!(shown(&env, &run)["note"], Value::Null);
}
