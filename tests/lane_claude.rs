//! What claude does in a plain run, on the stand-in and on the real one.
//!
//! These tests run claude itself, without oo. They hold both to what oo relies on, so that the
//! stand-in cannot drift from the real one, nor a new build from the old ones unnoticed.

use std::time::Duration;

use serde_json::json;

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::lanes::on_each_claude;
use crate::support::mcp;
use crate::support::process::until_some;
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
            Reply::tool(Tool::background("sleep 1; echo late")),
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

on_each_claude!(an_id_in_use, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("one"));
    let id = format!("--session-id={}", uuid::Uuid::new_v4());
    env.claude([id.clone()]).stdin("first").run().expect_code(0);
    let done = env.claude([id]).stdin("again").run();
    done.expect_code(1);
    assert_eq!(done.stdout, "");
    assert!(
        done.stderr.contains("is already in use."),
        "{}",
        done.stderr
    );
});

on_each_claude!(an_unknown_session, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("never"));
    let session = uuid::Uuid::new_v4().to_string();
    let done = env
        .claude([format!("--resume={session}")])
        .stdin("go on")
        .run();
    done.expect_code(1);
    let rows = done.rows();
    assert_eq!(rows::described(&rows), ["result/error_during_execution"]);
    let said = format!("No conversation found with session ID: {session}");
    assert_eq!(rows[0]["errors"], json!([said]));
    assert_eq!(rows[0]["is_error"], true);
    assert_eq!(rows[0]["num_turns"], 0);
    assert_eq!(rows[0].text("session_id"), session);
    assert!(rows[0]["terminal_reason"].is_null());
    assert!(done.stderr.contains(&said), "{}", done.stderr);
});

on_each_claude!(an_unknown_flag, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("never"));
    let done = env.claude(["--no-such-flag"]).stdin("Hi").run();
    done.expect_code(1);
    assert_eq!(done.stdout, "");
    assert!(
        done.stderr.contains("unknown option '--no-such-flag'"),
        "{}",
        done.stderr
    );
});

on_each_claude!(an_empty_prompt, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("never"));
    let done = env.claude([""; 0]).stdin("").run();
    done.expect_code(1);
    assert_eq!(done.stdout, "");
    assert!(
        done.stderr.contains("Input must be provided"),
        "{}",
        done.stderr
    );
});

on_each_claude!(the_registry_row, |claude| {
    let slow = Reply::text("late").after(Duration::from_secs(2));
    let env = TestEnv::with(&claude, &Scenario::new([slow]));
    let run = env.claude([""; 0]).stdin("Hi").spawn();
    let row = until_some(PATIENCE, "a busy registry row", || {
        rows::registered(&env.home(), run.pid()).filter(|row| row["status"] == "busy")
    });
    assert_eq!(row["pid"], run.pid());
    assert_eq!(row.text("cwd"), env.work().display().to_string());
    assert_eq!(row.text("entrypoint"), "sdk-cli");
    assert!(row["startedAt"].is_u64());
    assert!(row.text("pidDomain").starts_with("linux:"));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", run.pid())).expect("it lives");
    let after_name = stat.rsplit_once(')').expect("a stat line").1;
    assert_eq!(
        after_name.split_whitespace().nth(19),
        Some(row.text("procStart"))
    );
    let door = std::path::PathBuf::from(row.text("messagingSocketPath"));
    assert!(door.exists(), "the door is there: {}", door.display());
    let done = run.wait(PATIENCE);
    done.expect_code(0);
    assert_eq!(
        rows::only(&done.rows(), "system/init")["messaging_socket_path"],
        json!(door)
    );
    assert_eq!(
        rows::only(&done.rows(), "result").text("session_id"),
        row.text("sessionId")
    );
    assert!(!door.exists(), "and goes with claude");
});

on_each_claude!(an_mcp_child, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("hello"));
    let server = mcp::Server::new(&env);
    let done = env
        .claude(server.args())
        .var("PLANTED", "yes")
        .stdin("Hi")
        .run();
    done.expect_code(0);
    let rows = done.rows();
    let init = rows::only(&rows, "system/init");
    assert_eq!(
        init["mcp_servers"],
        json!([{ "name": mcp::NAME, "status": "connected", "source": "dynamic" }])
    );

    let messages = server.messages();
    let methods: Vec<&str> = messages
        .iter()
        .filter_map(|message| message["method"].as_str())
        .collect();
    assert_eq!(
        methods[..4],
        [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/list"
        ]
    );
    assert_eq!(messages[1]["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(
        server.pids().1,
        done.pid,
        "the server is claude's own child"
    );

    let environment = server.environment();
    let value = |name: &str| environment.get(name).map(String::as_str);
    assert_eq!(value("PLANTED"), Some("yes"), "claude's own environment");
    assert_eq!(value("CLAUDECODE"), Some("1"));
    assert_eq!(value("CLAUDE_CODE_ENTRYPOINT"), Some("sdk-cli"));
    assert_eq!(value("CLAUDE_CODE_SESSION_ID"), init["session_id"].as_str());
    assert_eq!(
        value("CLAUDE_CODE_MESSAGING_SOCKET"),
        init["messaging_socket_path"].as_str()
    );
    assert_eq!(value("CLAUDE_PROJECT_DIR"), env.work().to_str());
    for name in ["CLAUDE_CODE_MESSAGING_TOKEN", "AI_AGENT"] {
        assert!(environment.contains_key(name), "{name} is missing");
    }
});

on_each_claude!(an_mcp_server_that_is_not_there, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("hello"));
    let config = json!({ "mcpServers": { "gone": { "command": "/no/such/server" } } });
    let config = env.file("mcp.json", config.to_string());
    let config = format!("--mcp-config={}", config.display());
    let done = env
        .claude([config.as_str(), "--strict-mcp-config"])
        .stdin("Hi")
        .run();
    done.expect_code(0);
    let rows = done.rows();
    let servers = &rows::only(&rows, "system/init")["mcp_servers"];
    assert_eq!(
        *servers,
        json!([{ "name": "gone", "status": "failed", "source": "dynamic" }])
    );
});
