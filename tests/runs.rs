//! `oo runs`: what is there, and what is broken beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::env::TestEnv;
use crate::support::scenario::Scenario;

/// Plays a run, and gives its id.
#[track_caller]
pub(crate) fn play(env: &TestEnv, args: &[&str]) -> String {
    env.script(&Scenario::says("done"));
    let done = env
        .oo(["start", "--json"].iter().chain(args).copied())
        .run();
    done.expect_code(0);
    done.json()["run_id"].as_str().unwrap().to_owned()
}

#[track_caller]
fn listed(env: &TestEnv, args: &[&str]) -> Value {
    let done = env.oo(["runs", "--json"].iter().chain(args).copied()).run();
    done.expect_code(0);
    done.json()
}

fn ids(listing: &Value) -> Vec<&str> {
    let runs = listing["runs"].as_array().unwrap();
    runs.iter()
        .map(|run| run["run_id"].as_str().unwrap())
        .collect()
}

#[test]
fn no_runs_are_no_fault() {
    let env = TestEnv::new();
    let listing = listed(&env, &[]);
    assert_eq!(
        listing,
        json!({"schema": "oo/runs/v1", "runs": [], "broken": [], "total": 0})
    );
    let done = env.oo(["runs"]).run();
    done.expect_code(0);
    assert_eq!(done.stdout, "");
    assert!(!env.state().exists(), "looking makes nothing");
}

#[test]
fn the_newest_come_first_and_few_when_asked() {
    let env = TestEnv::new();
    let first = play(&env, &["first of all\nand more \x1b[31mred"]);
    let second = play(&env, &["--name=nightly", "second"]);
    let listing = listed(&env, &[]);
    assert_eq!(ids(&listing), [second.as_str(), &first]);
    let run = &listing["runs"][0];
    assert_eq!(
        (
            &run["name"],
            &run["state"],
            &run["class"],
            &run["exit_code"]
        ),
        (
            &json!("nightly"),
            &json!("ended"),
            &json!("completed"),
            &json!(0)
        )
    );
    assert_eq!(run["cwd"], env.work().display().to_string());
    // The names and values are those of the result.
    let result = env.oo(["show", &second, "--json"]).run().json();
    for (name, value) in run.as_object().unwrap() {
        assert!(name == "name" || value == &result[name], "{name}: {value}");
    }
    let listing = listed(&env, &["--limit=1"]);
    assert_eq!(
        (ids(&listing), &listing["total"]),
        (vec![second.as_str()], &json!(2))
    );

    let done = env.oo(["runs"]).run();
    done.expect_code(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", done.stdout);
    assert!(lines[0].starts_with("RUN "), "{}", lines[0]);
    assert!(lines[1].starts_with(&second[28..]) && lines[1].contains("nightly"));
    assert!(
        lines[2].contains("first of all and more [31mred"),
        "{}",
        lines[2]
    );
    assert!(!done.stdout.contains('\x1b'));
    let done = env.oo(["runs", "-n", "1"]).run();
    assert!(
        done.stderr.contains("1 older ones are not shown"),
        "{}",
        done.stderr
    );
    env.oo(["runs", "-n", "0"]).run().expect_code(2);
}

#[test]
fn a_broken_folder_is_named_and_the_rest_is_served() {
    let env = TestEnv::new();
    let good = play(&env, &["good"]);
    let torn = play(&env, &["torn"]);
    let path = env.run_folder(&torn).join("result.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    // Cut off before its spec was there, and a file where a folder should be.
    let empty = Uuid::now_v7().to_string();
    fs::create_dir(env.run_folder(&empty)).unwrap();
    let file = Uuid::now_v7().to_string();
    fs::write(env.run_folder(&file), "").unwrap();
    // What is no id is not oo's.
    fs::create_dir(env.state().join("runs/backup")).unwrap();

    let listing = listed(&env, &[]);
    assert_eq!(ids(&listing), [good.as_str()]);
    let broken = listing["broken"].as_array().unwrap();
    let named: Vec<&str> = broken
        .iter()
        .map(|b| b["run_id"].as_str().unwrap())
        .collect();
    assert_eq!(named, [file.as_str(), &empty, &torn]);
    for one in broken {
        let run = one["run_id"].as_str().unwrap();
        assert_eq!(one["path"], env.run_folder(run).display().to_string());
        assert!(one["reason"].as_str().unwrap().contains(run), "{one}");
    }
    let done = env.oo(["runs"]).run();
    done.expect_code(0);
    assert_eq!(done.stdout.lines().count(), 2);
    assert_eq!(
        done.stderr.matches("cannot be shown").count(),
        3,
        "{}",
        done.stderr
    );

    // Asked for the run itself, the damage is the answer.
    for args in [&["show", torn.as_str()][..], &["show", &torn, "--json"]] {
        let done = env.oo(args.iter().copied()).run();
        done.expect_code(1);
        assert!(
            done.stderr.contains(&path.display().to_string()),
            "{}",
            done.stderr
        );
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text[..text.len() / 2]);
}

#[test]
fn a_folder_of_runs_that_cannot_be_read() {
    let env = TestEnv::new();
    fs::create_dir_all(env.state()).unwrap();
    fs::write(env.state().join("runs"), "").unwrap();
    for args in [&["runs"][..], &["runs", "--json"], &["show", "abcd"]] {
        let done = env.oo(args.iter().copied()).run();
        done.expect_code(1);
        assert!(done.stderr.contains("runs"), "{}", done.stderr);
    }
    let done = env.oo(["runs", "--json"]).run();
    assert_eq!(done.json()["schema"], "oo/error/v1");
    let none = env.oo(["runs"]).without_var("HOME").run();
    none.expect_code(1);
    assert!(none.stderr.contains("OO_STATE_DIR"), "{}", none.stderr);
}

#[test]
fn what_a_newer_oo_wrote_is_read_and_left_alone() {
    let env = TestEnv::new();
    let run = play(&env, &["from the future"]);
    let path = env.run_folder(&run).join("result.json");
    let mut result: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    result["schema"] = json!("oo/result/v2");
    result["oo_version"] = json!("9.0.0");
    result["class"] = json!("triumphant");
    result["message"] = json!("it went well");
    result["glory"] = json!([1, 2]);
    let text = format!("{result:#}\n");
    fs::write(&path, &text).unwrap();
    assert_eq!(listed(&env, &[])["runs"][0]["class"], "triumphant");
    let done = env.oo(["show", &run, "--json"]).run();
    done.expect_code(0);
    assert_eq!(done.stdout, text);
    let done = env.oo(["show", &run]).run();
    done.expect_code(0);
    assert!(done.stdout.contains("it went well"), "{}", done.stdout);
    assert!(
        done.stdout.contains("cannot read its class"),
        "{}",
        done.stdout
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn runs_that_are_not_shown_are_not_read() {
    let env = TestEnv::new();
    let old = play(&env, &["old"]);
    let new = play(&env, &["new"]);
    // To open a pipe waits for its writer: whoever reads it is held up.
    for file in ["result.json", "events.jsonl"] {
        let path = env.run_folder(&old).join(file);
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let listing = listed(&env, &["-n1"]);
    assert_eq!(ids(&listing), [new.as_str()]);
}

#[test]
fn a_thousand_runs_are_listed_soon() {
    let env = TestEnv::new();
    let model = env.run_folder(&play(&env, &["one"]));
    for _ in 0..1_000 {
        let id = Uuid::now_v7().to_string();
        let folder = env.run_folder(&id);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let mut result: Value =
            serde_json::from_slice(&fs::read(model.join("result.json")).unwrap()).unwrap();
        result["run_id"] = json!(id);
        fs::write(folder.join("result.json"), result.to_string()).unwrap();
        fs::copy(model.join("spec.json"), folder.join("spec.json")).unwrap();
    }
    let began = Instant::now();
    assert_eq!(ids(&listed(&env, &["--all"])).len(), 1_001);
    assert!(began.elapsed() < Duration::from_secs(20));
}
