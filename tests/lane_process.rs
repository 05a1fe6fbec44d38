//! What claude refuses, and how it stands among other processes: its registry row, its door, its
//! MCP children; on the stand-in and on the real one.

use std::time::Duration;

use serde_json::json;

use crate::support::env::{PATIENCE, TestEnv};
use crate::support::lanes::on_each_claude;
use crate::support::mcp;
use crate::support::rows;
use crate::support::scenario::{Reply, Scenario};

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
    let mut run = env.claude([""; 0]).stdin("Hi").spawn();
    let pid = run.pid();
    let row = run.until_some(PATIENCE, "a busy registry row", || {
        rows::registered(&env.home(), pid).filter(|row| row["status"] == "busy")
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
