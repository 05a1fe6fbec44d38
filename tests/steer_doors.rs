//! Doors that are gone, refuse, hang, or are somebody else's.

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::process::{until, until_some};
use crate::support::rows;
use crate::support::scenario::{Reply, Scenario};
use crate::support::steered::{Steered, acks, seen_in_transcript};

const BYPASS: &str = "--permission-mode=bypassPermissions";

/// The socket of the claude that is on record for the only run.
fn door_of(env: &TestEnv) -> String {
    until_some(PATIENCE, "a door", || {
        let listed = env.oo(["runs", "--json"]).run().json();
        let run = listed["runs"][0]["run_id"].as_str()?.to_owned();
        let process = fs::read(env.run_folder(&run).join("process.json")).ok()?;
        let process: Value = serde_json::from_slice(&process).ok()?;
        let pid = u32::try_from(process["claude"]["pid"].as_u64()?).ok()?;
        let row = rows::registered(&env.home(), pid)?;
        Some(row.text("messagingSocketPath").to_owned())
    })
}

#[test]
fn a_door_that_closes_and_hangs_costs_time_and_no_line() {
    let quirks = json!({ "door_close": 1, "door_hang": 1 });
    let steered = Steered::start(&Claude::Fake, &[BYPASS], quirks);
    steered
        .send(&["in the end", "--until=accepted", "--wait=40s"])
        .expect_code(0);
    let (_env, result) = steered.end();
    assert_eq!(result["doorman_delivered"], 1, "{result:#}");
}

#[test]
fn a_door_that_nobody_opens_leaves_the_line_and_says_why() {
    for quirk in ["door_refuse", "no_door"] {
        let steered = Steered::start(&Claude::Fake, &[BYPASS], json!({ quirk: true }));
        let told = steered.send(&["nobody hears", "--wait=1s"]);
        told.expect_code(5);
        let told = told.json();
        assert_eq!(
            (&told["class"], &told["state"]),
            (&json!("timeout"), &json!("queued")),
            "{told:#}"
        );
        let (_env, result) = steered.end();
        assert_eq!(
            (&result["doorman_delivered"], &result["doorman_pending"]),
            (&json!(0), &json!(1)),
            "{quirk}: {result:#}"
        );
    }
}

#[test]
fn a_stranger_in_the_place_of_the_door_gets_nothing() {
    let steered = Steered::start(&Claude::Fake, &[BYPASS], Value::Null);
    let door = door_of(&steered.env);
    fs::remove_file(&door).unwrap();
    let stranger = UnixListener::bind(&door).unwrap();
    let told = steered.send(&["not for you", "--wait=2s"]);
    told.expect_code(5);
    assert_eq!(told.json()["state"], "queued");
    stranger.set_nonblocking(true).unwrap();
    let mut got = String::new();
    while let Ok((mut stream, _)) = stranger.accept() {
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        stream.read_to_string(&mut got).unwrap();
    }
    assert_eq!(got, "");
    fs::remove_file(&door).unwrap();
    let (_env, result) = steered.end();
    assert_eq!(result["doorman_pending"], 1, "{result:#}");
}

#[test]
fn a_door_that_the_environment_names_counts_only_when_it_is_the_owners() {
    // The door of another session, named by a variable that leaked.
    let other = Steered::start(&Claude::Fake, &[BYPASS], Value::Null);
    let leaked = door_of(&other.env);
    let env = TestEnv::with(&Claude::Fake, &Scenario::default());
    let gate = env.work().join("gate");
    let wait = format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    env.script(&Scenario::new([Reply::bash(&wait), Reply::text("done")]));
    let servers = json!({ "mcpServers": { "oo": {
        "command": env!("CARGO_BIN_EXE_oo"),
        "args": ["doorman", "--mcp"],
        "env": {
            "CLAUDE_CODE_MESSAGING_SOCKET": leaked,
            "OO_CLAUDE": Claude::Fake.path(),
        },
    }}})
    .to_string();
    let args = [
        "start",
        BYPASS,
        "--json",
        "--user-mcp",
        "--mcp-config",
        &servers,
        "x",
    ];
    let mut oo = env.oo(args).spawn();
    let session = oo.until_some(PATIENCE, "the tool runs", || {
        let listed = env.oo(["runs", "--json"]).run().json();
        let session = listed["runs"][0]["session_id"].as_str()?.to_owned();
        let path = rows::transcript_path(&env.home(), &session)?;
        let text = fs::read_to_string(path).ok()?;
        text.contains("tool_use").then_some(session)
    });
    env.oo(["send", &session, "for this one", "--until=accepted"])
        .run()
        .expect_code(0);
    fs::write(gate, "").unwrap();
    oo.wait(PATIENCE).expect_code(0);
    assert_eq!(seen_in_transcript(&env, &session).len(), 1);
    let elsewhere = other.session.clone();
    let (other, _) = other.end();
    assert_eq!(seen_in_transcript(&other, &elsewhere), Vec::<String>::new());
}

#[test]
fn an_inbox_that_becomes_none_is_told_and_loses_nothing() {
    let steered = Steered::start(&Claude::Fake, &[BYPASS], Value::Null);
    let inbox = steered.inbox_file("inbox");
    let kept = steered.env.work().join("kept");
    fs::rename(&inbox, &kept).unwrap();
    fs::create_dir(&inbox).unwrap();
    let told = steered.send(&["into a folder"]);
    told.expect_code(1);
    assert!(
        told.stderr.contains("not a regular file"),
        "{}",
        told.stderr
    );
    fs::remove_dir(&inbox).unwrap();
    fs::rename(&kept, &inbox).unwrap();
    // Replaced by a file with a plain line: another inode, read from its start.
    fs::remove_file(&inbox).unwrap();
    fs::write(&inbox, "plain\n").unwrap();
    until(PATIENCE, "the plain line is accepted", || {
        acks(&steered.env, &steered.session)
            .iter()
            .any(|ack| ack["state"] == "accepted")
    });
    let (_env, result) = steered.end();
    assert_eq!(result["doorman_delivered"], 1, "{result:#}");
}

/// Whoever looks at a pipe in the place of a file must not wait for its writer.
#[test]
fn a_pipe_in_the_place_of_a_file_makes_nobody_wait() {
    for ending in ["inbox.heartbeat", "inbox.acks"] {
        let steered = Steered::start(&Claude::Fake, &[BYPASS], Value::Null);
        let path = steered.inbox_file(ending);
        steered.kill_doorman();
        // There may be none yet.
        let _ = fs::remove_file(&path);
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
        nix::unistd::mkfifo(&path, mode).unwrap();
        let told = steered.send(&["past a pipe", "--wait=1s"]);
        assert!([1, 3].contains(&told.code.unwrap()), "{ending}: {told:?}");
        for args in [&["runs"][..], &["show", &steered.session], &["doctor"]] {
            let done = steered.env.oo(args.iter().copied()).run();
            assert!([0, 1].contains(&done.code.unwrap()), "{ending}: {done:?}");
        }
        let (_env, result) = steered.end();
        assert_eq!(result["class"], "completed", "{ending}: {result:#}");
        if ending == "inbox.acks" {
            assert_eq!(result["doorman_delivered"], Value::Null, "{result:#}");
            let note = result["note"].as_str().unwrap();
            assert!(note.contains("what became of lines is not known"), "{note}");
        }
    }
}
