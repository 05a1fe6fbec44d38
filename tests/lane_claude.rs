//! What claude does in a plain run, on the stand-in and on the real one.
//!
//! These tests run claude itself, without oo. They hold both to what oo relies on, so that the
//! stand-in cannot drift from the real one, nor a new build from the old ones unnoticed.

use serde_json::json;

use crate::support::claude::Claude;
use crate::support::env::TestEnv;
use crate::support::lanes::on_each_claude;
use crate::support::rows::{self, Row};
use crate::support::scenario::{Reply, Scenario, Tool};

/// What a scripted answer costs at the prices of the tests' model.
const ONE_REPLY: f64 = 0.000_125;
/// The tools of these tests are allowed by this.
const ALLOWED: &str = "--permission-mode=bypassPermissions";

#[track_caller]
fn assert_cost(row: &Row, replies: f64) {
    let cost = row["total_cost_usd"]
        .as_f64()
        .expect("a result row has its cost");
    assert!(
        (cost - ONE_REPLY * replies).abs() < 1e-9,
        "{cost} is not {replies} × {ONE_REPLY}"
    );
}

on_each_claude!(one_answer, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("hello"));
    let session = uuid::Uuid::new_v4().to_string();
    let done = env
        .claude([format!("--session-id={session}")])
        .stdin("Hi")
        .run();
    done.expect_code(0);
    let rows = done.rows();
    assert_eq!(
        rows::described(&rows),
        ["system/init", "assistant[text]", "result/success"]
    );

    let init = rows::only(&rows, "system/init");
    assert_eq!(init.text("session_id"), session);
    assert_eq!(init.text("cwd"), env.work().display().to_string());
    assert_eq!(init.text("model"), crate::support::claude::MODEL);
    assert_eq!(init.text("permissionMode"), "default");
    assert_eq!(init.text("apiKeySource"), "ANTHROPIC_API_KEY");
    assert_eq!(init["mcp_servers"], json!([]));
    assert!(
        init["tools"]
            .as_array()
            .is_some_and(|tools| tools.contains(&json!("Bash")))
    );
    assert!(
        init["messaging_socket_path"].is_string(),
        "the door is named"
    );
    if let Claude::Real(version) = &claude {
        assert_eq!(init.text("claude_code_version"), version.as_str());
    }

    let result = rows::only(&rows, "result");
    assert_eq!(result.text("session_id"), session);
    assert_eq!(result.text("result"), "hello");
    assert_eq!(result["is_error"], false);
    assert_eq!(result["num_turns"], 1);
    assert_eq!(result.text("terminal_reason"), "completed");
    assert_eq!(result.text("stop_reason"), "end_turn");
    assert_eq!(result["result_index"], 0);
    assert_eq!(result["permission_denials"], json!([]));
    assert_eq!(result["usage"]["input_tokens"], 100);
    assert_eq!(result["usage"]["output_tokens"], 5);
    assert_cost(result, 1.0);

    let transcript = rows::transcript(&env.home(), &session);
    let user = rows::only(&transcript, "user");
    assert_eq!(user.text("sessionId"), session);
    assert_eq!(user.text("entrypoint"), "sdk-cli");
    assert_eq!(user.text("cwd"), env.work().display().to_string());
    assert_eq!(rows::all(&transcript, "assistant").len(), 1);
    let cost = rows::only(&transcript, "cost-state");
    assert_eq!(cost["totalCostUSD"], result["total_cost_usd"]);
    assert!(
        rows::registered(&env.home(), done.pid).is_none(),
        "a clean exit leaves no row"
    );
});

on_each_claude!(one_command, |claude| {
    let env = TestEnv::with(
        &claude,
        &Scenario::new([
            Reply::bash("echo from-the-shell").saying("I look"),
            Reply::text("done"),
        ]),
    );
    let done = env.claude([ALLOWED]).stdin("Look").run();
    done.expect_code(0);
    let rows = done.rows();
    assert_eq!(
        rows::described(&rows),
        [
            "system/init",
            "assistant[text]",
            "assistant[tool_use]",
            "user[tool_result]",
            "assistant[text]",
            "result/success"
        ]
    );
    assert_eq!(
        rows[3]["message"]["content"][0]["content"],
        "from-the-shell"
    );
    let result = rows::only(&rows, "result");
    assert_eq!(result["num_turns"], 2);
    assert_cost(result, 2.0);
});

on_each_claude!(a_command_that_is_not_allowed, |claude| {
    let env = TestEnv::with(
        &claude,
        &Scenario::new([Reply::bash("touch denied"), Reply::text("I could not")]),
    );
    let done = env
        .claude(["--permission-mode=default"])
        .stdin("Write")
        .run();
    done.expect_code(0);
    let result = rows::only(&done.rows(), "result").clone();
    assert_eq!(result["is_error"], false);
    let denials = result["permission_denials"]
        .as_array()
        .expect("the denials are a list");
    assert_eq!(denials.len(), 1);
    assert_eq!(denials[0]["tool_name"], "Bash");
    assert!(denials[0]["tool_use_id"].is_string());
    assert!(
        !env.work().join("denied").exists(),
        "a denied command is not run"
    );
});

on_each_claude!(a_rider, |claude| {
    let rider = Tool::agent(
        "count the files, rider",
        [Reply::bash("true"), Reply::text("seven")],
    );
    let env = TestEnv::with(
        &claude,
        &Scenario::new([
            Reply::tool(rider),
            Reply::text("it is on its way"),
            Reply::text("the rider says seven"),
        ]),
    );
    let done = env.claude([ALLOWED]).stdin("Send a rider").run();
    done.expect_code(0);
    let rows = done.rows();
    let results = rows::all(&rows, "result");
    assert_eq!(results.len(), 2, "one for each turn");
    assert_eq!(results[0].text("result"), "it is on its way");
    assert_eq!(results[1].text("result"), "the rider says seven");
    assert_eq!(results[1]["result_index"], 1);
    assert_eq!(
        results[0]["total_cost_usd"], results[1]["total_cost_usd"],
        "a running total"
    );
    assert_cost(results[1], 5.0);
    assert_eq!(rows::all(&rows, "system/init").len(), 2);

    let started = rows::only(&rows, "system/task_started");
    assert_eq!(started["is_backgrounded"], true);
    assert_eq!(started.text("task_type"), "local_agent");
    let ended = rows::only(&rows, "system/task_notification");
    assert_eq!(ended.text("status"), "completed");
    assert_eq!(ended.text("task_id"), started.text("task_id"));
    let live: Vec<usize> = rows::all(&rows, "system/background_tasks_changed")
        .iter()
        .filter_map(|row| Some(row["tasks"].as_array()?.len()))
        .collect();
    assert_eq!(live, [1, 0], "the whole live set each time");
    let call = started.text("tool_use_id");
    let riders: Vec<&Row> = rows
        .iter()
        .filter(|row| row["parent_tool_use_id"] == call)
        .collect();
    assert!(
        riders
            .iter()
            .any(|row| row.described() == "rider assistant[tool_use]")
    );
    assert!(
        riders
            .iter()
            .any(|row| row.described() == "rider user[tool_result]")
    );

    let session = results[0].text("session_id");
    let path = rows::transcript_path(&env.home(), session).expect("a transcript");
    let folder = path.with_extension("").join("subagents");
    let agent = folder.join(format!("agent-{}.jsonl", started.text("task_id")));
    assert!(
        agent.exists(),
        "a rider has a transcript of its own: {}",
        agent.display()
    );
    let meta = std::fs::read(agent.with_extension("meta.json")).expect("and a description");
    let meta: serde_json::Value = serde_json::from_slice(&meta).expect("which is JSON");
    assert_eq!(meta["agentType"], "general-purpose");
    assert_eq!(meta["toolUseId"], call);
});

on_each_claude!(a_command_in_the_background, |claude| {
    let env = TestEnv::with(
        &claude,
        &Scenario::new([
            Reply::tool(Tool::background("sleep 2; echo late")),
            Reply::text("it runs"),
            Reply::text("it ran"),
        ]),
    );
    let done = env.claude([ALLOWED]).stdin("Go").run();
    done.expect_code(0);
    let rows = done.rows();
    let order: Vec<String> = rows::described(&rows)
        .into_iter()
        .filter(|kind| !kind.starts_with("assistant") && !kind.starts_with("user"))
        .collect();
    assert_eq!(
        order,
        [
            "system/init",
            "system/background_tasks_changed",
            "system/task_started",
            "result/success",
            "system/task_updated",
            "system/task_notification",
            "system/background_tasks_changed",
            "system/init",
            "result/success"
        ]
    );
    let started = rows::only(&rows, "system/task_started");
    assert_eq!(started.text("task_type"), "local_bash");
    assert_eq!(started["is_backgrounded"], true);
    let results = rows::all(&rows, "result");
    assert_eq!(
        (results[0].text("result"), results[1].text("result")),
        ("it runs", "it ran")
    );
    assert_cost(results[0], 2.0);
    assert_cost(results[1], 3.0);
});

on_each_claude!(a_session_goes_on, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("one"));
    let session = uuid::Uuid::new_v4().to_string();
    env.claude([format!("--session-id={session}")])
        .stdin("first")
        .run()
        .expect_code(0);
    env.script(&Scenario::says("two"));
    let done = env
        .claude([format!("--resume={session}")])
        .stdin("second")
        .run();
    done.expect_code(0);
    let result = rows::only(&done.rows(), "result").clone();
    assert_eq!(result.text("session_id"), session);
    assert_eq!(result.text("result"), "two");
    assert_eq!(result["num_turns"], 1);
    assert_cost(&result, 2.0);
    let totals: Vec<f64> = rows::all(&rows::transcript(&env.home(), &session), "cost-state")
        .iter()
        .filter_map(|row| row["totalCostUSD"].as_f64())
        .collect();
    assert_eq!(totals.len(), 2, "one for each process");
    assert!(
        (totals[1] - 2.0 * totals[0]).abs() < 1e-9,
        "the total of the session: {totals:?}"
    );
});
