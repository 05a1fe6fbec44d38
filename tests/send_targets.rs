//! `oo send`: the session that a word means.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::runs::play;
use crate::support::env::TestEnv;
use crate::support::post::{Session, proc_start};
use crate::support::process::until;

const SOON: Duration = Duration::from_secs(60);

/// Sends a line to a word, and returns the document.
#[track_caller]
fn to(env: &TestEnv, word: &str, code: i32) -> Value {
    let done = env
        .oo(["send", word, "x", "--json", "--min-interval=0s"])
        .run();
    done.expect_code(code);
    done.json()
}

fn uuid(text: &str) -> Uuid {
    text.parse().unwrap()
}

#[track_caller]
fn refusal(env: &TestEnv, word: &str, words: &[&str]) {
    let document = to(env, word, 1);
    assert_eq!(document["class"], "refused");
    let message = document["message"].as_str().unwrap();
    for wanted in words {
        assert!(message.contains(wanted), "{word}: {wanted}: {message}");
    }
}

#[test]
fn a_session_goes_by_many_words() {
    let env = TestEnv::new();
    let run = play(&env, &["--name=The Nightly", "first"]);
    let played = env.oo(["show", &run, "--json"]).run().json()["session_id"].clone();
    let id = played.as_str().unwrap().to_owned();
    let live = Session::with_id(
        &env,
        uuid("0badcafe-0000-4000-8000-00000000beef"),
        Some("work-f8"),
    );
    let other = uuid("77c69075-1c8e-4953-abac-a26fead0cc6d");
    fs::write(env.state().join(format!("inbox/{other}.inbox")), "").unwrap();
    let transcript = uuid("46e9f1c6-44d2-44d5-aef6-afd63e114744");
    let project = env.home().join(".claude/projects/-w");
    fs::create_dir_all(&project).unwrap();
    fs::write(project.join(format!("{transcript}.jsonl")), "").unwrap();
    let live_id = live.id.to_string();
    let table: [(&str, &str, &str); 16] = [
        (&live_id, &live_id, "queued-no-doorman"),
        (&live_id.to_uppercase(), &live_id, "queued-no-doorman"),
        (&live_id.replace('-', ""), &live_id, "queued-no-doorman"),
        ("0bad", &live_id, "queued-no-doorman"),
        ("BEEF", &live_id, "queued-no-doorman"),
        ("work-f8", &live_id, "queued-no-doorman"),
        ("WORK", &live_id, "queued-no-doorman"),
        (&id, &id, "queued-offline"),
        (&run, &id, "queued-offline"),
        (&run[28..], &id, "queued-offline"),
        ("The Nightly", &id, "queued-offline"),
        ("the nightly", &id, "queued-offline"),
        ("nigh", &id, "queued-offline"),
        (
            "77c6",
            "77c69075-1c8e-4953-abac-a26fead0cc6d",
            "queued-offline",
        ),
        (
            "46e9f1c6-44d2-44d5-aef6-afd63e114744",
            "46e9f1c6-44d2-44d5-aef6-afd63e114744",
            "queued-offline",
        ),
        (
            "4744",
            "46e9f1c6-44d2-44d5-aef6-afd63e114744",
            "queued-offline",
        ),
    ];
    for (word, session, class) in table {
        let document = to(&env, word, 3);
        assert_eq!(
            (&document["session_id"], &document["class"]),
            (&json!(session), &json!(class)),
            "{word}"
        );
    }
}

#[test]
fn what_fits_nothing_or_too_much_is_refused() {
    let env = TestEnv::new();
    let nobody = "00000000-0000-4000-8000-000000000001";
    refusal(
        &env,
        nobody,
        &[nobody, "is known here", "would wait for ever"],
    );
    for word in [
        "",
        " ",
        "abc",
        "no such thing",
        "../../etc",
        "beefbeef",
        "\u{1b}[31m",
    ] {
        let document = to(&env, word, 1);
        assert_eq!(document["session_id"], Value::Null, "{word}");
    }
    assert!(!env.state().exists(), "nothing was made for nobody");

    let one = Session::with_id(
        &env,
        uuid("beef0000-0000-4000-8000-000000000002"),
        Some("alpha one"),
    );
    let two = Session::with_id(
        &env,
        uuid("beef0000-0000-4000-8000-000000000003"),
        Some("alpha two"),
    );
    let ids = [one.id.to_string(), two.id.to_string()];
    let both = [
        ids[0].as_str(),
        ids[1].as_str(),
        "fits 2",
        "live",
        "\"alpha one\"",
        "/w",
    ];
    for word in ["beef", "alpha", "beef0000-0000-4000-8000-00000000000"] {
        refusal(&env, word, &both);
    }
    for word in ["alp", "lpha tw"] {
        let document = to(&env, word, if word == "alp" { 1 } else { 3 });
        assert_eq!(document["session_id"] == json!(two.id), word != "alp");
    }
    // A whole name that is also the beginning of another one's id: neither is guessed.
    let twin = Session::live(&env, Some("beef0"));
    refusal(&env, "beef0", &["fits 3", &twin.id.to_string()]);
    // What was for nobody has no receipt.
    let receipts = fs::read_to_string(env.state().join("receipts.jsonl")).unwrap();
    assert_eq!(receipts.lines().count(), 1, "{receipts}");
}

#[test]
fn of_several_with_one_name_the_live_one_is_meant() {
    let env = TestEnv::new();
    for prompt in ["one", "two"] {
        play(&env, &["--name=nightly", prompt]);
    }
    refusal(&env, "nightly", &["fits 2", "run ", "\"nightly\""]);
    let live = Session::live(&env, Some("nightly"));
    assert_eq!(to(&env, "nightly", 3)["session_id"], json!(live.id));
    assert_eq!(to(&env, "night", 3)["session_id"], json!(live.id));
}

/// Writes the folder of a run whose claude is the session's process, as its supervisor would.
fn run_folder(env: &TestEnv, session: &Session, doorman: &str, age: i64) -> Uuid {
    let run = Uuid::now_v7();
    let folder = env.run_folder(&run.to_string());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let started = oo::platform::clock::now() - jiff::SignedDuration::from_secs(age);
    let spec = json!({
        "schema": "oo/spec/v9", "run_id": run, "session_id": session.id, "doorman": doorman,
    });
    let process = json!({
        "schema": "oo/process/v1", "claude": { "pid": session.pid(), "proc_start": proc_start(session.pid()) },
        "supervisor": null, "boot_id": boot.trim(), "started_at": started, "env_kept": [], "stop": null,
    });
    fs::write(folder.join("spec.json"), spec.to_string()).unwrap();
    fs::write(folder.join("process.json"), process.to_string()).unwrap();
    run
}

#[test]
fn the_doorman_of_a_new_run_is_waited_for() {
    let table = [
        ("injected", 1, true),
        ("injected", 120, false),
        ("user-mcp", 1, false),
        ("none", 1, false),
    ];
    for (doorman, age, waits) in table {
        let env = TestEnv::new();
        let session = Session::live(&env, None);
        let row = env
            .home()
            .join(format!(".claude/sessions/{}.json", session.pid()));
        // Its claude is too young for a row, or has it in another configuration folder.
        fs::remove_file(row).unwrap();
        // What an earlier run's doorman left says nothing about this one's.
        session.beat(std::process::id(), "stopped", 100);
        let run = run_folder(&env, &session, doorman, age).to_string();
        let sending = env.oo(["send", &run, "x", "--json", "--wait=60s"]).spawn();
        until(SOON, "the line", || session.lines().len() == 1);
        if waits {
            let _doorman = session.doorman(&[("delivered-start", "seen")]);
            let document = sending.wait(SOON).json();
            assert_eq!(
                document["class"], "delivered-start",
                "{doorman}, {age} s old"
            );
        } else {
            let document = sending.wait(SOON).json();
            assert_eq!(
                document["class"], "queued-no-doorman",
                "{doorman}, {age} s old"
            );
        }
    }
}

#[test]
fn a_run_whose_claude_has_gone_over_to_another_session_does_not_have_this_one() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let run = run_folder(&env, &session, "none", 1);
    let process = env.run_folder(&run.to_string()).join("process.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&process).unwrap()).unwrap();
    record["config_dir"] = json!(env.home().join(".claude"));
    fs::write(&process, record.to_string()).unwrap();
    let id = session.id.to_string();
    assert_eq!(to(&env, &id, 3)["class"], "queued-no-doorman");
    session.switch(Uuid::new_v4());
    assert_eq!(to(&env, &id, 3)["class"], "queued-offline");
}
