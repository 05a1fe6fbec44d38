//! What claude does when the API refuses or a limit is reached, on the stand-in and on the real
//! one.

use std::time::Duration;

use serde_json::json;

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::lanes::on_each_claude;
use crate::support::process::Finished;
use crate::support::rows;
use crate::support::scenario::{Reply, Scenario};

const ALLOWED: &str = "--permission-mode=bypassPermissions";

fn ask(claude: &Claude, reply: Reply, tries: Option<&str>) -> Finished {
    let env = TestEnv::with(claude, &Scenario::new([reply]));
    let start = env.claude([ALLOWED]).stdin("Hi");
    match tries {
        Some(tries) => start.var("CLAUDE_CODE_MAX_RETRIES", tries).run(),
        None => start.run(),
    }
}

/// A turn that the API ended: "success" by name, an error by every other field.
#[track_caller]
fn assert_api_error(done: &Finished, status: u16, kind: &str) {
    done.expect_code(1);
    let rows = done.rows();
    let result = rows::only(&rows, "result");
    assert_eq!(result.text("subtype"), "success");
    assert_eq!(result["is_error"], true);
    assert_eq!(result["api_error_status"], status);
    assert_eq!(result.text("terminal_reason"), "api_error");
    assert_eq!(result["num_turns"], 1);
    assert_eq!(result["total_cost_usd"], 0);
    let said = rows::only(&rows, "assistant");
    assert_eq!(said.text("error"), kind);
    assert_eq!(said["message"]["model"], "<synthetic>");
}

on_each_claude!(status_400, |claude| {
    let done = ask(&claude, Reply::error(400), None);
    assert_api_error(&done, 400, "unknown");
    let said = rows::only(&done.rows(), "result").text("result").to_owned();
    assert!(
        said.contains("mock says 400"),
        "the error's own words: {said}"
    );
    assert!(rows::all(&done.rows(), "system/api_retry").is_empty());
});

on_each_claude!(status_403, |claude| {
    let done = ask(&claude, Reply::error(403), None);
    assert_api_error(&done, 403, "authentication_failed");
    assert!(rows::all(&done.rows(), "system/api_retry").is_empty());
});

on_each_claude!(status_404, |claude| {
    let done = ask(&claude, Reply::error(404), None);
    assert_api_error(&done, 404, "model_not_found");
    assert!(rows::all(&done.rows(), "system/api_retry").is_empty());
});

on_each_claude!(status_429_until_the_tries_are_used_up, |claude| {
    let done = ask(&claude, Reply::error(429).forever(), Some("2"));
    assert_api_error(&done, 429, "rate_limit");
    let rows = done.rows();
    let tries = rows::all(&rows, "system/api_retry");
    assert_eq!(tries.len(), 2);
    for (index, row) in tries.iter().enumerate() {
        assert_eq!(row["attempt"], index + 1);
        assert_eq!(row["max_retries"], 2);
        assert_eq!(row["error_status"], 429);
        assert_eq!(row.text("error"), "rate_limit");
        assert!(
            row["retry_delay_ms"]
                .as_f64()
                .is_some_and(|delay| delay > 0.0)
        );
    }
});

on_each_claude!(status_429_with_a_long_wait, |claude| {
    let done = ask(&claude, Reply::error(429).forever().retry_after(3600), None);
    assert_api_error(&done, 429, "rate_limit");
    assert!(
        rows::all(&done.rows(), "system/api_retry").is_empty(),
        "it gives up at once"
    );
});

on_each_claude!(status_529_twice_and_then_an_answer, |claude| {
    let script = Scenario::new([Reply::error(529).times(2), Reply::text("at last")]);
    let env = TestEnv::with(&claude, &script);
    let done = env.claude([ALLOWED]).stdin("Hi").run();
    done.expect_code(0);
    let rows = done.rows();
    assert_eq!(
        rows::described(&rows),
        [
            "system/init",
            "system/api_retry",
            "system/api_retry",
            "assistant[text]",
            "result/success"
        ]
    );
    assert_eq!(rows[2].text("error"), "overloaded");
    assert_eq!(rows[2]["error_status"], 529);
    let result = rows::only(&rows, "result");
    assert_eq!(result["is_error"], false);
    assert_eq!(result.text("result"), "at last");
});

// To its end this takes a real claude three minutes: what oo has to do is stop it.
on_each_claude!(status_401_is_tried_again, |claude| {
    let env = TestEnv::with(&claude, &Scenario::new([Reply::error(401).forever()]));
    let mut run = env.claude([ALLOWED]).stdin("Hi").spawn();
    let tries = run.until_rows("system/api_retry", 2, PATIENCE);
    for row in &tries {
        assert_eq!(row["error_status"], 401);
        assert_eq!(row.text("error"), "authentication_failed");
        assert_eq!(row["max_retries"], 10);
    }
    run.signal(nix::sys::signal::Signal::SIGKILL);
    let done = run.wait(PATIENCE);
    assert_eq!(done.signal, Some(9));
    assert!(rows::all(&rows::complete(&done.stdout), "result").is_empty());
});

on_each_claude!(the_turns_are_used_up, |claude| {
    let script = Scenario::new([Reply::bash("true"), Reply::text("never said")]);
    let env = TestEnv::with(&claude, &script);
    let done = env.claude([ALLOWED, "--max-turns=1"]).stdin("Hi").run();
    done.expect_code(1);
    let rows = done.rows();
    let result = rows::only(&rows, "result");
    assert_eq!(result.text("subtype"), "error_max_turns");
    assert_eq!(result["is_error"], true);
    assert_eq!(result.text("terminal_reason"), "max_turns");
    assert_eq!(
        result["errors"],
        json!(["Reached maximum number of turns (1)"])
    );
    assert_eq!(result["num_turns"], 2);
    assert!(result["result"].is_null(), "there is no answer");
    assert_eq!(
        rows[rows.len() - 2].described(),
        "user[tool_result]",
        "the tool was run"
    );
});

on_each_claude!(the_budget_is_used_up, |claude| {
    let script = Scenario::new([Reply::bash("touch ran"), Reply::text("never said")]);
    let env = TestEnv::with(&claude, &script);
    let done = env
        .claude([ALLOWED, "--max-budget-usd=0.0001"])
        .stdin("Hi")
        .run();
    done.expect_code(1);
    let rows = done.rows();
    let result = rows::only(&rows, "result");
    assert_eq!(result.text("subtype"), "error_max_budget_usd");
    assert_eq!(result["is_error"], true);
    assert_eq!(result.text("terminal_reason"), "budget_exhausted");
    assert_eq!(
        result["errors"],
        json!(["Reached maximum budget ($0.0001)"])
    );
    assert!(
        rows::all(&rows, "user").is_empty(),
        "the tool's answer is not there"
    );
});

on_each_claude!(an_answer_that_takes_its_time, |claude| {
    let delay = Duration::from_millis(1_500);
    let env = TestEnv::with(&claude, &Scenario::new([Reply::text("late").after(delay)]));
    let done = env.claude([ALLOWED]).stdin("Hi").run();
    done.expect_code(0);
    assert!(done.took >= delay, "it came after {:?}", done.took);
    assert_eq!(rows::only(&done.rows(), "result").text("result"), "late");
});
