//! Lines that reach a session which is under way, end to end: `oo send`, inbox, doorman, door,
//! transcript, result.

use std::fs;

use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::lanes::on_each_claude;
use crate::support::process::{Running, until};
use crate::support::scenario::{Reply, Scenario};
use crate::support::steered::{STORM, Steered, acks, inbox_file, seen_in_transcript};

const BYPASS: &str = "--permission-mode=bypassPermissions";
/// In the default mode a tool needs a permission that nobody is there to give.
const DEFAULT: [&str; 1] = ["--allowed-tools=Bash"];

on_each_claude!(a_line_from_outside_is_steered_in_bypass_mode, |claude| {
    is_steered(&claude, &[BYPASS]);
});

on_each_claude!(a_line_from_outside_is_steered_in_default_mode, |claude| {
    is_steered(&claude, &DEFAULT);
});

fn is_steered(claude: &Claude, args: &[&str]) {
    let steered = Steered::start(claude, args, Value::Null);
    let accepted = steered.send(&[
        "look at the retry path",
        "--until=accepted",
        "--min-interval=0s",
    ]);
    accepted.expect_code(0);
    assert_eq!(accepted.json()["state"], "accepted");
    let sending = steered.sending(&["--from=alice", "also the tests", "--priority=next"]);
    until(PATIENCE, "the second line is accepted", || {
        let accepted = |ack: &&Value| ack["state"] == "accepted";
        steered.acks().iter().filter(accepted).count() == 2
    });
    let doorman = fs::read(steered.inbox_file("inbox.heartbeat")).unwrap();
    let doorman: Value = serde_json::from_slice(&doorman).unwrap();
    steered.open_gate();
    let sent = sending.wait(PATIENCE);
    sent.expect_code(0);
    let sent = sent.json();
    assert_eq!(
        (&sent["class"], &sent["state"], &sent["from"]),
        (&json!("delivered-steer"), &json!("seen"), &json!("alice")),
        "{sent:#}"
    );
    let session = steered.session.clone();
    let (env, result) = steered.end();
    assert_eq!(
        (&result["doorman_delivered"], &result["doorman_pending"]),
        (&json!(2), &json!(0))
    );
    let note = result["note"].as_str().unwrap();
    assert!(
        note.contains("may have shaped the answer") && note.contains("alice"),
        "{note}"
    );
    // The transcript has our id, and the process that brought the line.
    let rows = crate::support::rows::transcript(&env.home(), &session);
    let origin = rows
        .iter()
        .map(|row| &row.0["attachment"]["origin"])
        .find(|origin| origin["msg_id"] == sent["msg_id"])
        .expect("the line is in the context");
    assert_eq!(origin["verifiedPeerPid"], doorman["pid"], "{origin}");
    if !claude.is_fake() {
        let requests = env.requests();
        let last = requests.last().unwrap().body.to_string();
        for text in [
            "look at the retry path",
            "also the tests",
            sent["msg_id"].as_str().unwrap(),
        ] {
            assert!(last.contains(text), "the model never got {text:?}");
        }
    }
}

on_each_claude!(the_same_text_twice_is_seen_twice, |claude| {
    let steered = Steered::start(&claude, &[BYPASS], Value::Null);
    for _ in 0..2 {
        let sent = steered.send(&[
            "again",
            "--from=bob",
            "--min-interval=0s",
            "--until=accepted",
        ]);
        sent.expect_code(0);
    }
    let session = steered.session.clone();
    let (env, result) = steered.end();
    assert_eq!(result["doorman_delivered"], 2, "{result:#}");
    assert_eq!(seen_in_transcript(&env, &session).len(), 2);
});

on_each_claude!(
    without_a_tag_the_second_is_never_called_delivered_too_early,
    |claude| {
        let steered = Steered::start(&claude, &[BYPASS], Value::Null);
        let send = |wait: &str| {
            let args = [
                "again",
                "--from=bob",
                "--no-tag",
                "--min-interval=0s",
                "--until=accepted",
                wait,
            ];
            steered.send(&args)
        };
        send("--wait=30s").expect_code(0);
        // claude's guard drops the same text for half a minute, in silence.
        let second = send("--wait=4s");
        second.expect_code(5);
        let told = second.json();
        assert_eq!(
            (&told["class"], &told["state"]),
            (&json!("timeout"), &json!("offered")),
            "{told:#}"
        );
        let session = steered.session.clone();
        let (env, result) = steered.end();
        let seen = seen_in_transcript(&env, &session).len();
        assert_eq!(
            (
                result["doorman_delivered"].as_u64(),
                result["doorman_pending"].as_u64()
            ),
            (Some(seen as u64), Some(2 - seen as u64)),
            "{result:#}"
        );
    }
);

on_each_claude!(
    a_burst_of_one_sender_beyond_the_guard_arrives_whole,
    |claude| {
        let steered = Steered::start(&claude, &[BYPASS], Value::Null);
        let count = 45;
        let sending: Vec<Running> = (0..count)
            .map(|number| {
                let text = format!("line {number:02}");
                let args = [
                    "--from=alice",
                    "--min-interval=0s",
                    "--wait=200s",
                    text.as_str(),
                ];
                let sending = steered.sending(&args);
                // In this order into the file.
                until(PATIENCE, "the line is in the inbox", || {
                    let lines = fs::read_to_string(steered.inbox_file("inbox")).unwrap();
                    lines.lines().count() == number + 1
                });
                sending
            })
            .collect();
        until(STORM, "every line is accepted", || {
            let accepted = |ack: &&Value| ack["state"] == "accepted";
            steered.acks().iter().filter(accepted).count() == count
        });
        steered.open_gate();
        let ids: Vec<String> = sending
            .into_iter()
            .map(|sending| {
                let done = sending.wait(STORM);
                done.expect_code(0);
                let sent = done.json();
                assert_eq!(sent["class"], "delivered-steer", "{sent:#}");
                sent["msg_id"].as_str().unwrap().to_owned()
            })
            .collect();
        let session = steered.session.clone();
        let (env, result) = steered.end();
        assert_eq!(result["doorman_delivered"], count, "{result:#}");
        assert_eq!(
            seen_in_transcript(&env, &session),
            ids,
            "all, once, in their order"
        );
    }
);

on_each_claude!(a_dead_doorman_leaves_the_lines_and_a_note, |claude| {
    let steered = Steered::start(&claude, &[BYPASS], Value::Null);
    steered
        .send(&["first", "--min-interval=0s", "--until=accepted"])
        .expect_code(0);
    steered.kill_doorman();
    let told = steered.send(&["second", "--min-interval=0s"]);
    told.expect_code(3);
    assert_eq!(told.json()["class"], "queued-no-doorman", "{}", told.json());
    let session = steered.session.clone();
    let (env, result) = steered.end();
    assert_eq!(result["class"], "completed");
    // The first was in claude's queue: it arrived, though nobody was there to see it.
    assert_eq!(
        (&result["doorman_delivered"], &result["doorman_pending"]),
        (&json!(1), &json!(1)),
        "{result:#}"
    );
    let note = result["note"].as_str().unwrap();
    assert!(
        note.contains("1 line waits") && note.contains("doorman died"),
        "{note}"
    );
    assert!(note.contains(&format!("oo resume {session}")), "{note}");
    let last = acks(&env, &session).pop().unwrap();
    assert_eq!(last["state"], "seen");
});

on_each_claude!(
    a_line_that_comes_too_late_waits_and_is_not_called_delivered,
    |claude| {
        let env = TestEnv::with(&claude, &Scenario::says("done"));
        let done = env.oo(["start", BYPASS, "--json", "x"]).run();
        done.expect_code(0);
        let session = done.json()["session_id"].as_str().unwrap().to_owned();
        let told = env.oo(["send", &session, "too late", "--json"]).run();
        told.expect_code(3);
        let told = told.json();
        assert_eq!(told["class"], "queued-offline", "{told:#}");
        assert_eq!(told["state"], "queued");
    }
);

#[test]
fn lines_that_claude_lost_are_queued_again() {
    let quirks = json!({ "lose_queue": true });
    let steered = Steered::start(&Claude::Fake, &[BYPASS], quirks);
    let sending = steered.sending(&["lost", "--priority=later", "--min-interval=0s"]);
    until(PATIENCE, "the line is accepted", || {
        steered.acks().iter().any(|ack| ack["state"] == "accepted")
    });
    let session = steered.session.clone();
    let (env, result) = steered.end();
    let told = sending.wait(PATIENCE);
    told.expect_code(3);
    assert_eq!(told.json()["class"], "queued-offline", "{}", told.json());
    assert_eq!(
        (&result["doorman_delivered"], &result["doorman_pending"]),
        (&json!(0), &json!(1)),
        "{result:#}"
    );
    let last = acks(&env, &session).pop().unwrap();
    assert_eq!(
        (&last["state"], &last["class"]),
        (&json!("queued"), &Value::Null)
    );
}

on_each_claude!(a_held_session_that_is_idle_is_started_by_a_line, |claude| {
    let env = TestEnv::with(
        &claude,
        &Scenario::new([
            Reply::text("first"),
            Reply::text("second"),
            Reply::text("third"),
        ]),
    );
    let mut oo = env
        .oo(["start", BYPASS, "--json", "--hold", "begin"])
        .spawn();
    let session = oo.until_some(PATIENCE, "the session is idle", || {
        let listed = env.oo(["runs", "--json"]).run().json();
        let run = listed["runs"].as_array()?.first()?.clone();
        let idle = run["hold"]["waiting"] == true;
        idle.then(|| run["session_id"].as_str().unwrap().to_owned())
    });
    for (text, turns) in [("go on", 2), ("and on", 3)] {
        let sent = env
            .oo(["send", &session, text, "--json", "--min-interval=0s"])
            .run();
        sent.expect_code(0);
        let sent = sent.json();
        assert_eq!(sent["class"], "delivered-start", "{sent:#}");
        oo.until(PATIENCE, "the turn has its result", || {
            let shown = env.oo(["show", &session, "--json"]).run().json();
            shown["results"]
                .as_array()
                .is_some_and(|results| results.len() == turns)
        });
    }
    oo.signal(nix::sys::signal::Signal::SIGTERM);
    let done = oo.wait(PATIENCE);
    let result = done.json();
    assert_eq!(result["class"], "completed", "{result:#}");
    assert_eq!(result["result"], "third");
    assert_eq!(result["doorman_delivered"], 2);
    assert_eq!(result["results"].as_array().unwrap().len(), 3);
});

on_each_claude!(
    lines_that_wait_together_all_arrive_though_claude_merges_them,
    |claude| {
        let env = TestEnv::with(&claude, &Scenario::default());
        let gate = env.work().join("gate");
        let wait = format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display());
        env.script(&Scenario::new([
            Reply::bash(&wait),
            Reply::text("first"),
            Reply::text("second"),
            Reply::text("third"),
            Reply::text("fourth"),
        ]));
        let mut oo = env.oo(["start", BYPASS, "--json", "begin"]).spawn();
        let session = oo.until_some(PATIENCE, "the tool runs", || {
            let listed = env.oo(["runs", "--json"]).run().json();
            let run = listed["runs"].as_array()?.first()?.clone();
            let session = run["session_id"].as_str()?.to_owned();
            let path = crate::support::rows::transcript_path(&env.home(), &session)?;
            let text = fs::read_to_string(path).ok()?;
            text.contains("tool_use").then_some(session)
        });
        // Later: they wait for the end of the turn, and begin one together.
        for number in 0..4 {
            let text = format!("line {number}");
            let from = if number == 2 {
                "--from=bob"
            } else {
                "--from=alice"
            };
            let args = [
                "send",
                &session,
                &text,
                from,
                "--priority=later",
                "--until=accepted",
                "--min-interval=0s",
            ];
            env.oo(args).run().expect_code(0);
        }
        fs::write(gate, "").unwrap();
        let done = oo.wait(PATIENCE);
        done.expect_code(0);
        let result = done.json();
        assert_eq!(result["doorman_delivered"], 4, "{result:#}");
        assert_eq!(result["doorman_pending"], 0);
        let seen = acks(&env, &session);
        let seen: Vec<&Value> = seen.iter().filter(|ack| ack["state"] == "seen").collect();
        assert_eq!(seen.len(), 4);
        assert!(
            seen.iter().all(|ack| ack["class"] == "delivered-start"),
            "{seen:#?}"
        );
    }
);

#[test]
fn a_doorman_goes_along_when_the_session_is_switched() {
    let other = "11111111-2222-4333-8444-555555555555";
    let replies = ["first", "second"].map(Reply::text);
    let quirks = json!({ "switch_session": { "after_turn": 1, "to": other } });
    let env = TestEnv::with(&Claude::Fake, &Scenario::new(replies).quirks(quirks));
    let mut oo = env
        .oo(["start", BYPASS, "--json", "--hold", "begin"])
        .spawn();
    let state = |session: &str| {
        let path = inbox_file(&env, session, "inbox.heartbeat");
        let beat: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        Some(beat["state"].as_str()?.to_owned())
    };
    oo.until(PATIENCE, "the doorman has gone along", || {
        state(other).as_deref() == Some("following")
    });
    let listed = env.oo(["runs", "--json"]).run().json();
    let before = listed["runs"][0]["session_id"].as_str().unwrap();
    assert_eq!(state(before).as_deref(), Some("switched"));
    let sent = env.oo(["send", other, "over here", "--json"]).run();
    sent.expect_code(0);
    assert_eq!(sent.json()["class"], "delivered-start");
    let told = env.oo(["send", before, "too late", "--json"]).run();
    told.expect_code(3);
    oo.signal(nix::sys::signal::Signal::SIGTERM);
    oo.wait(PATIENCE);
    assert_eq!(seen_in_transcript(&env, other).len(), 1);
}
