//! What has broken for others, played by the stand-in: what oo says of each.
//!
//! The references are to public reports; `fake-claude/README.md` lists how each is played.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::TestEnv;
use crate::support::process::Finished;
use crate::support::scenario::{Reply, Scenario, Tool};

const BYPASS: &str = "--permission-mode=bypassPermissions";

fn played(script: &Scenario) -> (TestEnv, Finished) {
    let env = TestEnv::with(&Claude::Fake, script);
    let done = env.oo(["start", BYPASS, "--json", "x"]).run();
    (env, done)
}

fn says(quirks: Value) -> Scenario {
    Scenario::says("the answer").quirks(quirks)
}

#[track_caller]
fn assert_completes(script: &Scenario) -> Value {
    let (_env, done) = played(script);
    done.expect_code(0);
    let result = done.json();
    assert_eq!(
        (&result["class"], &result["cause"]),
        (&json!("completed"), &Value::Null)
    );
    result
}

#[track_caller]
fn assert_fails(script: &Scenario, cause: &str) -> Value {
    let (env, done) = played(script);
    done.expect_code(4);
    let result = done.json();
    assert_eq!(
        (&result["class"], &result["cause"]),
        (&json!("failed"), &json!(cause)),
        "{result:#}"
    );
    assert_eq!(result["result"], Value::Null);
    // pdd#2030: nothing that claude said of a failure is published as an answer.
    env.script(script);
    let plain = env.oo(["start", BYPASS, "x"]).run();
    plain.expect_code(4);
    assert_eq!(plain.stdout, "");
    result
}

#[test]
fn exit_codes_that_deceive() {
    // paperclip#1114: a good answer with exit 1.
    let result = assert_completes(&says(json!({"exit_code": 1})));
    assert!(
        result["note"]
            .as_str()
            .unwrap()
            .contains("exited with code 1"),
        "{result:#}"
    );
    // cc#79500, edda#700: an API error as success, with exit 0.
    let refused = Scenario::new([Reply::error(400).forever()]).quirks(json!({"exit_code": 0}));
    assert_fails(&refused, "invalid-request");
    // cc#95217, cc#29543: exit 0 and not a byte.
    let silent = says(json!({"at": {"launch": [{"exit": 0}]}}));
    let result = assert_fails(&silent, "no-output");
    assert!(result["hint"].as_str().unwrap().contains("logged in"));
    // cc#1920, cc#8126: exit 0, rows, no result; the text is kept apart.
    let result = assert_fails(&says(json!({"no_result": true})), "no-result");
    assert_eq!(result["partial_result"], "the answer");
    // cc#29096: killed in the middle of its work.
    let killed = Scenario::new([Reply::bash("echo x"), Reply::text("y")])
        .quirks(json!({"at": {"tool_use": [{"signal": "KILL"}]}}));
    assert_fails(&killed, "signal");
    // cc#77112: stdout ends in the middle of a row.
    let result = assert_fails(&says(json!({"stdout_cut_bytes": 700})), "no-result");
    assert_eq!(result["unparsed_rows"], 1);
}

#[test]
fn credentials_and_money() {
    assert_fails(&says(json!({"not_logged_in": true})), "auth");
    let shouts =
        json!({"at": {"start": [{"raw": "Invalid API key · Please run /login\n"}, {"exit": 0}]}});
    let result = assert_fails(&says(shouts), "no-result");
    assert_eq!(result["unparsed_rows"], 1);
    assert_fails(&Scenario::new([Reply::error(402).forever()]), "billing");
    assert_fails(&Scenario::new([Reply::error(403).forever()]), "auth");
    assert_fails(
        &Scenario::says("x").quirks(json!({"dead_api": true})),
        "api",
    );
}

#[test]
fn a_limit_is_told_with_its_reset() {
    let limited = Scenario::new([Reply::error(429).retry_after(3600).forever()]).quirks(json!({
        "at": {"init": [{"line": {"type": "rate_limit_event", "rate_limit_info":
            {"status": "rejected", "resetsAt": 1_796_076_000}}}]}
    }));
    let result = assert_fails(&limited, "rate-limit");
    assert_eq!(result["limit_resets_at"], "2026-11-30T22:00:00Z");
    assert!(
        result["hint"]
            .as_str()
            .unwrap()
            .contains("2026-11-30T22:00:00Z")
    );
}

#[test]
fn lines_that_are_no_rows() {
    // claude-agent-sdk-python#98, git-ai#2268, cc#26498: a debug line, bad bytes, an unknown row.
    let result = assert_completes(&says(json!({"at": {"init": [
        {"raw": "[DEBUG] something\n"},
        {"hex": "7bfffe7d0a"},
        {"raw": "\n"},
        {"line": {"type": "from_the_future", "payload": {"deep": [1, 2, {"x": null}]}}},
        {"line": {"type": "result_of_another_kind"}},
        {"raw": "{\"type\":\"assistant\",\"message\":{\"content\":7}}\n"},
        {"raw": "{\"type\":\"system\",\"subtype\":\"init\",\"mcp_servers\":null}\n"},
    ]}, "mcp_status": {}})));
    assert_eq!(result["unparsed_rows"], 2, "{result:#}");
    assert_eq!(result["result"], "the answer");
    // One bad byte within a text spoils that character alone.
    let bad_text = "7b2274797065223a22617373697374616e74222c226d657373616765223a7b226964223a226d222c22636f6e74656e74223a5b7b2274797065223a2274657874222c2274657874223a22ff6f6b227d5d7d7d0a";
    let quirks =
        json!({"at": {"reply": [{"hex": bad_text}]}, "result_patch": [{"set": {"result": ""}}]});
    let result = assert_completes(&says(quirks));
    assert_eq!(result["result"], "\u{fffd}ok");
}

#[test]
fn an_init_row_without_servers_is_no_doorman() {
    // An answer that is whole before the stop would stand: this one takes its time.
    let script = Scenario::new([Reply::text("late").after(Duration::from_secs(20))])
        .quirks(json!({"mcp_status": {"oo": "absent"}}));
    let result = assert_fails(&script, "doorman");
    assert!(
        result["message"]
            .as_str()
            .unwrap()
            .contains("does not list"),
        "{result:#}"
    );
}

#[test]
fn a_line_of_many_mebibytes() {
    let result = assert_completes(&says(json!({"at": {"init": [{"big_line_mib": 16}]}})));
    assert_eq!(result["result"], "the answer");
}

#[test]
fn an_empty_result_though_the_model_answered() {
    let result = assert_completes(&says(json!({"result_patch": [{"set": {"result": ""}}]})));
    assert_eq!(result["result"], "the answer");
    assert!(result["note"].as_str().unwrap().contains("last message"));
}

#[test]
fn several_results() {
    // hive-mind#1109, claude-code-action#1533: all are kept, the deciding one is named.
    let script = |quirks| {
        Scenario::new([
            Reply::tool(Tool::background("true")),
            Reply::text("first"),
            Reply::text("second"),
        ])
        .quirks(quirks)
    };
    for quirks in [json!({}), json!({"hold_results": true})] {
        let result = assert_completes(&script(quirks));
        let results = result["results"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        assert_eq!(
            (&results[0]["text"], &results[1]["text"]),
            (&json!("first"), &json!("second"))
        );
        assert_eq!(
            (&result["deciding_index"], &result["result"]),
            (&json!(1), &json!("second"))
        );
        // The rows repeat the session's running total: it is not summed.
        assert_eq!(result["cost_usd"], results[1]["total_cost_usd"]);
    }
}

#[test]
fn sub_agents_killed_at_the_end_are_no_success() {
    let script = Scenario::new([
        Reply::tool(Tool::background("tail -f /dev/null")),
        Reply::text("all done"),
    ])
    .quirks(json!({"kill_tasks_at_result": true}));
    let result = assert_fails(&script, "unfinished-background");
    assert_eq!(
        result["background"].as_array().unwrap().len(),
        1,
        "{result:#}"
    );
    assert_eq!(result["partial_result"], "all done");
}

#[test]
fn denied_tools_are_counted_and_said() {
    let script = Scenario::new([Reply::bash("echo x"), Reply::text("I could not")])
        .quirks(json!({"deny": ["Bash"]}));
    let (_env, done) = played(&script);
    done.expect_code(0);
    let result = done.json();
    assert_eq!(
        result["permission_denials"].as_array().unwrap().len(),
        1,
        "{result:#}"
    );
    assert!(
        result["note"]
            .as_str()
            .unwrap()
            .contains("1 tool call was denied")
    );
    assert!(done.stderr.contains("denied"), "{}", done.stderr);
}

#[test]
fn another_session_than_the_one_asked_for_is_told() {
    let other = "99999999-2222-4333-8444-555555555555";
    let result = assert_completes(&says(json!({"report_session_id": other})));
    assert_eq!(result["session_id"], other);
    assert_ne!(result["requested_session_id"], other);
    assert!(result["note"].as_str().unwrap().contains(other));
}

#[test]
fn the_last_rows_before_an_exit_are_read() {
    // cc#31613: rows that come late, right before the end.
    let quirks = json!({"at": {"before_result": [{"sleep_ms": 700}]}});
    assert_completes(&says(quirks));
}

#[test]
fn a_transcript_that_is_torn_or_missing() {
    let torn = json!({"at": {"reply": [{"transcript": "{\"type\":\"user\",\"mess"}]}});
    assert_completes(&says(torn));
    let result = assert_completes(&says(json!({"no_transcript": true})));
    assert_eq!(result["transcript"], Value::Null);
}

#[test]
fn what_claude_says_on_stderr_is_shown_and_kept() {
    let script = says(json!({"at": {"init": [{"stderr": "[warn] something\n"}]}}));
    let (env, done) = played(&script);
    done.expect_code(0);
    assert!(
        done.stderr.contains("claude: [warn] something"),
        "{}",
        done.stderr
    );
    assert_eq!(done.json()["stderr_tail"], "[warn] something\n");
    env.script(&script);
    let quiet = env.oo(["start", "--quiet", "x"]).run();
    quiet.expect_code(0);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn an_old_claude_is_a_warning() {
    let env = TestEnv::with(&Claude::Fake, &Scenario::says("x"));
    let script = json!({"version": "2.1.200", "replies": [{"text": "old"}]});
    let file = env.file("old.json", script.to_string());
    let done = env
        .oo(["start", "--json", "x"])
        .var("FAKE_CLAUDE_SCRIPT", file)
        .run();
    done.expect_code(0);
    assert!(
        done.stderr.contains("2.1.200") && done.stderr.contains("2.1.308"),
        "{}",
        done.stderr
    );
    assert_eq!(done.json()["claude"]["version"], "2.1.200");
}

#[test]
fn thirty_starts_at_once_have_thirty_results() {
    let env = TestEnv::with(&Claude::Fake, &Scenario::says("each its own"));
    let running: Vec<_> = (0..30)
        .map(|n| {
            env.oo(["start".to_owned(), "--json".to_owned(), format!("job {n}")])
                .spawn()
        })
        .collect();
    let mut sessions = std::collections::BTreeSet::new();
    for run in running {
        let done = run.wait(Duration::from_secs(120));
        done.expect_code(0);
        sessions.insert(done.json()["session_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(sessions.len(), 30);
    let receipts = fs::read_to_string(env.state().join("receipts.jsonl")).unwrap();
    assert_eq!(receipts.lines().count(), 30);
    for line in receipts.lines() {
        serde_json::from_str::<Value>(line).expect("no writer tears another's line");
    }
}
