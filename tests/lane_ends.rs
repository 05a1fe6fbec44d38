//! How claude ends when it is told to, on the stand-in and on the real one: signals, and the
//! interrupt of a held-open session.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::lanes::on_each_claude;
use crate::support::process::{Running, until};
use crate::support::rows::{self, Row};
use crate::support::scenario::{Reply, Scenario};

const ALLOWED: &str = "--permission-mode=bypassPermissions";

/// A command that says that it runs, and goes on. Claude refuses a plain long `sleep`.
fn at_work(env: &TestEnv) -> Reply {
    let flag = env.work().join("at-work");
    Reply::bash(&format!(
        "touch '{}'; exec tail -f /dev/null",
        flag.display()
    ))
}

fn until_at_work(env: &TestEnv, run: &mut Running) {
    let flag = env.work().join("at-work");
    run.until(PATIENCE, "the command to run", || flag.exists());
}

/// A run with a command at work, and then a signal.
fn signalled(claude: &Claude, signal: Signal) -> (TestEnv, Running) {
    let env = TestEnv::with(claude, &Scenario::says("replaced"));
    env.script(&Scenario::new([at_work(&env), Reply::text("never said")]));
    let mut run = env.claude([ALLOWED]).stdin("Work").spawn();
    until_at_work(&env, &mut run);
    run.signal(signal);
    (env, run)
}

/// After SIGINT claude writes a result row and leaves with 0, and under load it leaves before
/// the row is out: so the row is a gift. What it says, when it comes, is fixed.
#[track_caller]
fn assert_interrupted(claude: &Claude, rows: &[Row], reason: &str) {
    let results = rows::all(rows, "result");
    assert!(results.len() <= 1, "{:?}", rows::described(rows));
    assert!(
        results.len() == 1 || !claude.is_fake(),
        "the stand-in is never in such a hurry"
    );
    for result in results {
        assert_eq!(result.text("subtype"), "error_during_execution");
        assert_eq!(result["is_error"], true);
        assert_eq!(result.text("terminal_reason"), reason);
        assert!(
            result["errors"]
                .as_array()
                .is_some_and(|errors| errors.len() == 1)
        );
        assert!(result["result"].is_null());
    }
}

on_each_claude!(sigint_in_a_tool, |claude| {
    let (env, run) = signalled(&claude, Signal::SIGINT);
    let pid = run.pid();
    let done = run.wait(PATIENCE);
    done.expect_code(0);
    let rows = done.rows();
    let before: Vec<String> = rows::described(&rows)
        .into_iter()
        .filter(|kind| !kind.starts_with("result"))
        .collect();
    assert_eq!(
        before,
        [
            "system/init",
            "assistant[tool_use]",
            "user[tool_result]",
            "user[text]"
        ]
    );
    assert_interrupted(&claude, &rows, "aborted_tools");
    assert!(rows::registered(&env.home(), pid).is_none());
    let transcript = rows::transcript(&env.home(), rows[0].text("session_id"));
    assert_eq!(rows::all(&transcript, "cost-state").len(), 1);
    until(PATIENCE, "the command to end with claude", || {
        env.alive().is_empty()
    });
});

on_each_claude!(sigint_in_an_answer, |claude| {
    let slow = Reply::text("never said").after(Duration::from_secs(30));
    let env = TestEnv::with(&claude, &Scenario::new([slow]));
    let mut run = env.claude([ALLOWED]).stdin("Think").spawn();
    run.until_rows("system/init", 1, PATIENCE);
    // The real one asks the API a moment after its first row: earlier it is another case.
    if !claude.is_fake() {
        run.until(PATIENCE, "the request to the API", || {
            env.requests()
                .iter()
                .any(|request| request.answer == "reply 0")
        });
    }
    run.signal(Signal::SIGINT);
    let done = run.wait(PATIENCE);
    done.expect_code(0);
    assert_interrupted(&claude, &done.rows(), "aborted_streaming");
});

on_each_claude!(sigterm_in_a_tool, |claude| {
    let (env, run) = signalled(&claude, Signal::SIGTERM);
    let pid = run.pid();
    let done = run.wait(PATIENCE);
    done.expect_code(143);
    let rows = done.rows();
    assert!(
        rows::all(&rows, "result").is_empty(),
        "no result: {:?}",
        rows::described(&rows)
    );
    assert!(rows::registered(&env.home(), pid).is_none());
    let session = rows::only(&rows, "system/init")
        .text("session_id")
        .to_owned();
    assert_eq!(
        rows::all(&rows::transcript(&env.home(), &session), "cost-state").len(),
        1
    );
    until(PATIENCE, "the command to end with claude", || {
        env.alive().is_empty()
    });
});

on_each_claude!(sighup_in_a_tool, |claude| {
    let (env, run) = signalled(&claude, Signal::SIGHUP);
    let done = run.wait(PATIENCE);
    done.expect_code(129);
    assert!(rows::all(&done.rows(), "result").is_empty());
    until(PATIENCE, "the command to end with claude", || {
        env.alive().is_empty()
    });
});

on_each_claude!(sigkill_in_a_tool, |claude| {
    let (env, run) = signalled(&claude, Signal::SIGKILL);
    let pid = run.pid();
    let done = run.wait(PATIENCE);
    assert_eq!(done.signal, Some(9));
    let rows = rows::complete(&done.stdout);
    assert!(rows::all(&rows, "result").is_empty());
    assert!(
        rows::registered(&env.home(), pid).is_some(),
        "the registry row stays"
    );
    let session = rows::only(&rows, "system/init")
        .text("session_id")
        .to_owned();
    assert!(rows::all(&rows::transcript(&env.home(), &session), "cost-state").is_empty());
    // It is in a session of its own. A process has no environment while it turns into another
    // program, so one look could miss it; one that is dead never comes back.
    until(PATIENCE, "the command to be seen to live on", || {
        !env.alive().is_empty()
    });
});

fn line(uuid: &str, text: &str) -> String {
    json!({
        "type": "user",
        "message": { "role": "user", "content": text },
        "uuid": uuid,
        "priority": "next",
    })
    .to_string()
}

fn states(rows: &[Row], uuid: &str) -> Vec<String> {
    rows::all(rows, "command_lifecycle")
        .into_iter()
        .filter(|row| row["command_uuid"] == uuid)
        .map(|row| row.text("state").to_owned())
        .collect()
}

const HELD: [&str; 3] = [
    ALLOWED,
    "--input-format=stream-json",
    "--replay-user-messages",
];

on_each_claude!(two_turns_of_a_held_session, |claude| {
    let script = Scenario::new([Reply::text("one"), Reply::text("two")]);
    let env = TestEnv::with(&claude, &script);
    let mut run = env.claude(HELD).held_stdin().spawn();
    let ids: Vec<String> = (0..2).map(|_| uuid::Uuid::new_v4().to_string()).collect();
    run.say(&line(&ids[0], "first"));
    run.until_rows("result", 1, PATIENCE);
    let pid = run.pid();
    run.until_some(PATIENCE, "an idle registry row", || {
        rows::registered(&env.home(), pid).filter(|row| row["status"] == "idle")
    });
    run.say(&line(&ids[1], "second"));
    run.until_rows("result", 2, PATIENCE);
    run.close_stdin();
    let done = run.wait(PATIENCE);
    done.expect_code(0);
    let rows = done.rows();
    for id in &ids {
        assert_eq!(states(&rows, id), ["queued", "started", "completed"]);
    }
    let replayed: Vec<&Row> = rows.iter().filter(|row| row["isReplay"] == true).collect();
    assert_eq!(replayed.len(), 2);
    assert_eq!(replayed[1].text("uuid"), ids[1]);
    assert_eq!(
        rows::all(&rows, "system/init").len(),
        2,
        "every turn has its own"
    );
    let results = rows::all(&rows, "result");
    assert_eq!(
        (results[0].text("result"), results[1].text("result")),
        ("one", "two")
    );
    assert_eq!(
        (&results[0]["result_index"], &results[1]["result_index"]),
        (&json!(0), &json!(1))
    );
});

on_each_claude!(the_interrupt_of_a_held_session, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("replaced"));
    env.script(&Scenario::new([at_work(&env), Reply::text("after")]));
    let mut run = env.claude(HELD).held_stdin().spawn();
    let ids: Vec<String> = (0..2).map(|_| uuid::Uuid::new_v4().to_string()).collect();
    run.say(&line(&ids[0], "work"));
    until_at_work(&env, &mut run);
    let interrupt = json!({
        "type": "control_request",
        "request_id": "r1",
        "request": { "subtype": "interrupt" },
    });
    run.say(&interrupt.to_string());
    run.until_rows("result", 1, PATIENCE);
    run.say(&line(&ids[1], "and now"));
    run.until_rows("result", 2, PATIENCE);
    run.close_stdin();
    let done = run.wait(PATIENCE);
    done.expect_code(0);
    let rows = done.rows();
    let answer = &rows::only(&rows, "control_response")["response"];
    assert_eq!(
        (&answer["subtype"], &answer["request_id"]),
        (&json!("success"), &json!("r1"))
    );
    let results = rows::all(&rows, "result");
    assert_eq!(results[0].text("subtype"), "error_during_execution");
    assert_eq!(results[0].text("terminal_reason"), "aborted_tools");
    assert_eq!(results[1].text("result"), "after");
    assert_eq!(states(&rows, &ids[0]), ["queued", "started", "cancelled"]);
    assert_eq!(states(&rows, &ids[1]), ["queued", "started", "completed"]);
});

on_each_claude!(a_held_session_without_a_line, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("never"));
    let mut run = env.claude(HELD).held_stdin().spawn();
    run.close_stdin();
    let done = run.wait(PATIENCE);
    done.expect_code(0);
    assert_eq!(done.stdout, "");
});
