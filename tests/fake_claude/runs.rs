//! Runs that come to an end by themselves.

use std::fs;

use serde_json::{Value, json};

use super::{Done, World, kind, play};

const BYPASS: &str = "--permission-mode=bypassPermissions";

#[test]
fn without_a_script_it_says_ok() {
    let world = World::new();
    let mut command = world.command("{}", &[]);
    command.env_remove("FAKE_CLAUDE_SCRIPT");
    let done = world.start(command, Some(b"hi")).wait();
    done.expect(0);
    assert_eq!(done.results()[0]["result"], "ok");
}

#[test]
fn what_it_does_not_know_ends_it_with_70() {
    for script in [
        r#"{"replies":[{"txt":"x"}]}"#,
        r#"{"replies":[]}"#,
        r#"{"replies":[{"tools":[{"name":"Read","input":{}}]}]}"#,
        r#"{"replies":[{"tools":[{"name":"Agent","input":{"description":"d","prompt":"p"}}]}]}"#,
    ] {
        let world = World::new();
        let done = world.run(script, &[BYPASS]);
        done.expect(70);
        assert!(done.stderr.contains("fake-claude: "), "{}", done.stderr);
        let sessions = fs::read_dir(world.path(".claude/sessions"));
        assert_eq!(sessions.map_or(0, Iterator::count), 0, "{script}");
    }
}

#[test]
fn a_plain_run_has_the_captured_rows() {
    let done = play(r#"{"replies":[{"text":"hello"}]}"#, &[]);
    done.expect(0);
    assert_eq!(done.kinds(), ["system/init", "assistant", "result/success"]);
    let text = done.text();
    let result = text.lines().last().unwrap();
    assert!(result.starts_with(r#"{"duration_api_ms":"#), "{result}");
    let kinds: Vec<_> = done.log().iter().map(kind).collect();
    assert_eq!(
        kinds,
        [
            "queue-operation/enqueue",
            "queue-operation/dequeue",
            "user",
            "attachment/environment",
            "attachment/model",
            "attachment/deferred_tools_delta",
            "attachment/agent_listing_delta",
            "attachment/skill_listing",
            "attachment/total_tokens_reminder",
            "atis-latch",
            "attachment/session_context",
            "attachment/date",
            "attachment/remote_session_change",
            "attachment/prompt_snapshot",
            "last-prompt",
            "atis-latch",
            "api-request-shape",
            "api-request-blob",
            "api-request",
            "assistant",
            "cost-state"
        ]
    );
    let chained: Vec<Value> = done
        .log()
        .into_iter()
        .filter(|row| row.get("parentUuid").is_some())
        .collect();
    for pair in chained.windows(2) {
        assert_eq!(pair[1]["parentUuid"], pair[0]["uuid"]);
    }
}

#[test]
fn a_command_runs_in_a_session_of_its_own_with_claudes_environment() {
    let script = json!({"replies":[
        {"tools":[{"name":"Bash","input":{"command":
            "ps -o pid=,pgid=,sid= -p $$; env | sort"}}]},
        {"text":"x"}]});
    let done = play(&script.to_string(), &[BYPASS]);
    done.expect(0);
    let rows = done.rows();
    let said = rows[2]["tool_use_result"]["stdout"].as_str().unwrap();
    let ids: Vec<_> = said.lines().next().unwrap().split_whitespace().collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2], "{ids:?}");
    for name in [
        "AI_AGENT=claude-code_2-1-332_agent",
        "CLAUDECODE=1",
        "CLAUDE_CODE_CHILD_SESSION=1",
        "CLAUDE_CODE_ENTRYPOINT=sdk-cli",
        "CLAUDE_CODE_MESSAGING_SOCKET=/tmp/cc-socks/",
        "CLAUDE_CODE_MESSAGING_TOKEN=",
        "CLAUDE_CODE_SESSION_ID=",
        "CLAUDE_PID=",
    ] {
        assert!(said.contains(name), "{name} is missing:\n{said}");
    }
}

#[test]
fn a_background_command_brings_a_second_turn_and_result() {
    let script = json!({"replies":[
        {"tools":[{"name":"Bash","input":{"command":"sleep 0.2","run_in_background":true}}]},
        {"text":"first"},{"text":"second"}]});
    let done = play(&script.to_string(), &[BYPASS]);
    done.expect(0);
    assert_eq!(
        done.kinds(),
        [
            "system/init",
            "assistant",
            "system/background_tasks_changed",
            "system/task_started",
            "user",
            "assistant",
            "result/success",
            "system/task_updated",
            "system/task_notification",
            "system/background_tasks_changed",
            "system/init",
            "assistant",
            "result/success"
        ]
    );
    let costs: Vec<_> = done
        .results()
        .iter()
        .map(|r| r["total_cost_usd"].clone())
        .collect();
    assert_eq!(costs, [json!(0.000_25), json!(0.000_375)]);
}

#[test]
fn a_sub_agent_holds_the_result_back() {
    let script = json!({"replies":[
        {"tools":[{"name":"Agent","input":{"description":"a rider","prompt":"p"},
            "replies":[{"tools":[{"name":"Bash","input":{"command":"sleep 0.2"}}]},
                       {"text":"sub done"}]}]},
        {"text":"first"},{"text":"second"}]});
    let world = World::new();
    let done = world.run(&script.to_string(), &[BYPASS]);
    done.expect(0);
    let kinds = done.kinds();
    assert_eq!(
        kinds[kinds.len() - 2..],
        ["result/success", "result/success"]
    );
    let results = done.results();
    assert_eq!(results[0]["total_cost_usd"], results[1]["total_cost_usd"]);
    assert_eq!(results[1]["origin"]["kind"], "task-notification");
    let owned = done
        .rows()
        .into_iter()
        .filter(|r| r["parent_tool_use_id"].is_string());
    assert_eq!(owned.count(), 3);
    let session = results[0]["session_id"].as_str().unwrap();
    let projects = fs::read_dir(world.path(".claude/projects")).unwrap();
    let project = projects.flatten().next().unwrap().path();
    let files: Vec<_> = fs::read_dir(project.join(session).join("subagents"))
        .unwrap()
        .flatten()
        .map(|f| f.file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(files.len(), 2, "{files:?}");
}

fn costs(done: &Done) -> Value {
    done.expect(0);
    done.results().last().unwrap()["total_cost_usd"].clone()
}

#[test]
fn the_cost_runs_on_over_resumes() {
    let world = World::new();
    let id = "11111111-2222-4333-8444-555555555555";
    let script = r#"{"replies":[{"text":"a"}]}"#;
    assert_eq!(
        costs(&world.run(script, &[&format!("--session-id={id}")])),
        json!(0.000_125)
    );
    let resume = format!("--resume={id}");
    assert_eq!(costs(&world.run(script, &[&resume])), json!(0.000_25));
    let done = world.run(script, &[&resume]);
    assert_eq!(costs(&done), json!(0.000_375));
    let states: Vec<_> = done
        .log()
        .iter()
        .filter(|row| row["type"] == "cost-state")
        .map(|row| row["totalCostUSD"].clone())
        .collect();
    assert_eq!(
        states,
        [json!(0.000_125), json!(0.000_25), json!(0.000_375)]
    );
    let done = world.run(script, &[&format!("--session-id={id}")]);
    done.expect(1);
    assert_eq!(
        done.stderr.trim(),
        format!("Error: Session ID {id} is already in use.")
    );
    let fork = world.run(script, &[&resume, "--fork-session"]);
    assert_eq!(costs(&fork), json!(0.000_5));
}

#[test]
fn errors_of_the_api_have_their_rows_and_exit_codes() {
    let done = play(
        r#"{"replies":[{"status":529,"repeat":2},{"text":"ok"}]}"#,
        &[],
    );
    done.expect(0);
    let retries: Vec<_> = done
        .rows()
        .into_iter()
        .filter(|r| r["subtype"] == "api_retry")
        .collect();
    assert_eq!(retries.len(), 2);
    assert_eq!(retries[1]["error"], "overloaded");
    assert_eq!(retries[1]["max_retries"], 10);
    for (status, class, reason) in [
        (400, "unknown", "api_error"),
        (402, "unknown", "api_error"),
        (403, "authentication_failed", "api_error"),
        (404, "model_not_found", "api_error"),
        (413, "invalid_request", "image_error"),
    ] {
        let done = play(&format!(r#"{{"replies":[{{"status":{status}}}]}}"#), &[]);
        done.expect(1);
        assert_eq!(done.rows()[1]["error"], class, "{status}");
        let result = &done.results()[0];
        assert_eq!(result["terminal_reason"], reason, "{status}");
        assert_eq!(result["subtype"], "success");
        assert_eq!(result["is_error"], true);
        assert_eq!(result["api_error_status"], status);
    }
    let long = play(r#"{"replies":[{"status":429,"retry_after":3600}]}"#, &[]);
    assert_eq!(
        long.expect(1).kinds(),
        ["system/init", "assistant", "result/success"]
    );
}

#[test]
fn limits_end_a_run() {
    let loops = r#"{"replies":[{"tools":[{"name":"Bash","input":{"command":"echo x"}}]}]}"#;
    let done = play(loops, &["--max-turns=1", "--allowedTools=Bash"]);
    let result = &done.expect(1).results()[0];
    assert_eq!(result["subtype"], "error_max_turns");
    assert_eq!(result["num_turns"], 2);
    let done = play(loops, &["--max-budget-usd=0.0001", "--allowedTools=Bash"]);
    let result = &done.expect(1).results()[0];
    assert_eq!(result["subtype"], "error_max_budget_usd");
    assert!(
        !done.kinds().contains(&"user".to_owned()),
        "the tool was run"
    );
}

#[test]
fn the_record_says_how_it_was_started() {
    let world = World::new();
    let done = world.run(r#"{"replies":[{"text":"a"}]}"#, &["--strict-mcp-config"]);
    done.expect(0);
    let file = world.path("record").join(format!("{}.json", done.pid));
    let record: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert!(
        record["argv"]
            .as_array()
            .unwrap()
            .contains(&json!("--strict-mcp-config"))
    );
    assert_eq!(record["env"]["ANTHROPIC_API_KEY"], "a key");
    // What else is open was handed down by whoever runs the tests.
    let fds = record["fds"].as_object().unwrap();
    assert!(fds["0"].as_str().unwrap().starts_with("pipe:"), "{fds:?}");
    assert_eq!(fds["1"], json!(world.path("stdout")));
    assert_eq!(fds["2"], json!(world.path("stderr")));
    assert_eq!(record["stdin"]["bytes"], 2);
    assert_eq!(
        record["stdin"]["sha256"],
        "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"
    );
}

#[test]
fn refusals_say_what_the_real_one_says() {
    let refused = |flags: &[&str], stdin: &[u8]| {
        let world = World::new();
        let command = world.command(r#"{"replies":[]}"#, flags);
        let done = world.start(command, Some(stdin)).wait();
        done.expect(1);
        (done.text(), done.stderr.trim().to_owned())
    };
    let nothing = "Error: Input must be provided either through stdin or as a prompt argument \
                   when using --print";
    assert_eq!(refused(&[], b"").1, nothing);
    assert!(
        refused(&["--allowedTools", "Bash", "my prompt"], b"")
            .1
            .ends_with(nothing)
    );
    assert!(
        refused(&[], b" \n")
            .1
            .starts_with("Error: Input contained only whitespace.")
    );
    assert_eq!(
        refused(&["--nope"], b"x").1,
        "error: unknown option '--nope'"
    );
    assert_eq!(
        refused(&["--session-id=foo"], b"x").1,
        "Error: Invalid session ID. Must be a valid UUID."
    );
    assert!(
        refused(&["--mcp-config=missing.json"], b"x")
            .1
            .starts_with("Error: Invalid MCP configuration:\nMCP config file not found: ")
    );
    let big = vec![b'a'; 10 * 1024 * 1024 + 1];
    assert!(
        refused(&[], &big)
            .1
            .contains("piped stdin input exceeds 10MB")
    );
    let (stdout, stderr) = refused(&["--resume=00000000-0000-4000-8000-000000000000"], b"x");
    assert!(stderr.starts_with("No conversation found with session ID: "));
    let row: Value = serde_json::from_str(stdout.trim()).unwrap();
    assert_eq!(row["subtype"], "error_during_execution");
    assert_eq!(row["errors"][0], json!(stderr));
}

#[test]
fn a_named_session_is_resumed_by_its_name() {
    let world = World::new();
    let script = r#"{"replies":[{"text":"a"}]}"#;
    let first = world.run(script, &["--name=my run"]);
    first.expect(0);
    let again = world.run(script, &["--resume=my run"]);
    again.expect(0);
    assert_eq!(
        again.results()[0]["session_id"],
        first.results()[0]["session_id"]
    );
    world.run(script, &["--name=my run"]).expect(0);
    let third = world.run(script, &["--resume=my run"]);
    third.expect(1);
    assert!(
        third
            .stderr
            .starts_with("Error: --resume \"my run\" matches 2 sessions.")
    );
}
