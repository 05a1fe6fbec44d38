//! `oo start` from a prompt to a result, on the stand-in and on both real builds.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::env::TestEnv;
use crate::support::lanes::on_each_claude;
use crate::support::process::{environment_of, until_some};
use crate::support::rows;
use crate::support::scenario::{Reply, Scenario, Tool};

const BYPASS: &str = "--permission-mode=bypassPermissions";

/// A command that ends when a file appears, so that a test decides how long a tool takes.
fn until_file(name: &str) -> String {
    format!("until [ -e {name} ]; do /bin/sleep 0.05; done; echo over")
}

on_each_claude!(a_run_from_prompt_to_result, |claude| {
    // Not at once: the doorman is to be seen at its post.
    let script = Scenario::new([Reply::text("42 it is").after(Duration::from_millis(300))]);
    let env = TestEnv::with(&claude, &script);
    let done = env.oo(["start", "--json", "the answer?"]).run();
    done.expect_code(0);
    let result = done.json();
    assert_eq!(result["schema"], "oo/result/v1");
    assert_eq!(result["class"], "completed");
    assert_eq!(result["cause"], Value::Null);
    assert_eq!(result["result"], "42 it is");
    assert_eq!(result["num_turns"], 1);
    assert_eq!(result["results"].as_array().unwrap().len(), 1);
    assert_eq!(result["exit"], json!({"code": 0, "signal": null}));
    // A fresh session: what it cost in all is what this run cost.
    assert!(result["cost_usd"].as_f64().unwrap() > 0.0);
    assert_eq!(result["cost_usd"], result["total_cost_usd"]);
    assert_eq!(result["auth_source"], "ANTHROPIC_API_KEY");

    // The session is the one that oo chose, and claude says so itself.
    let session = result["session_id"].as_str().unwrap();
    assert_eq!(result["requested_session_id"], session);
    let transcript = rows::transcript(&env.home(), session);
    let entry = transcript.iter().find_map(|row| row.0.get("entrypoint"));
    assert_eq!(entry.and_then(Value::as_str), Some("sdk-cli"));
    let path = rows::transcript_path(&env.home(), session).unwrap();
    assert_eq!(result["transcript"], path.display().to_string());

    // The doorman came with it and was alive.
    assert_eq!(result["doorman"], "injected");
    let servers = result["mcp_servers"].as_array().unwrap();
    assert_eq!(servers.len(), 1);
    assert_eq!(
        (&servers[0]["name"], &servers[0]["status"]),
        (&json!("oo"), &json!("connected"))
    );
    let beat = &result["doorman_heartbeat"];
    assert_eq!(beat["session_id"], session);
    assert_eq!(beat["peer_pid"], result["claude"]["pid"]);
    assert_eq!(beat["state"], "following");
    assert_ne!(beat["pid"], result["claude"]["pid"]);
    assert_eq!(
        (&result["doorman_delivered"], &result["doorman_pending"]),
        (&json!(0), &json!(0))
    );

    // What stdout said is what is kept.
    let run = result["run_id"].as_str().unwrap();
    let folder = env.run_folder(run);
    let kept: Value =
        serde_json::from_slice(&fs::read(folder.join("result.json")).unwrap()).unwrap();
    assert_eq!(kept, result);
    assert_eq!(fs::read(folder.join("prompt")).unwrap(), b"the answer?");
    let receipts = fs::read_to_string(env.state().join("receipts.jsonl")).unwrap();
    let receipt: Value = serde_json::from_str(receipts.lines().next_back().unwrap()).unwrap();
    assert_eq!(
        (&receipt["verb"], &receipt["class"]),
        (&json!("start"), &json!("completed"))
    );
    assert_eq!(receipt["run_id"], run);
    assert!(!receipts.contains("the answer?") && !receipts.contains("42 it is"));
});

#[test]
fn the_doorman_of_the_shortest_run_left_its_sign_of_life() {
    for _ in 0..12 {
        let env = TestEnv::new();
        let result = env.oo(["start", "--json", "x"]).run().json();
        let beat = &result["doorman_heartbeat"];
        assert_eq!(beat["peer_pid"], result["claude"]["pid"], "{result:#}");
        assert_eq!(beat["session_id"], result["session_id"]);
    }
}

on_each_claude!(stdout_is_the_answer_alone, |claude| {
    let env = TestEnv::with(&claude, &Scenario::says("line one\nline two"));
    let done = env.oo(["start", "say it"]).run();
    done.expect_code(0);
    assert_eq!(done.stdout, "line one\nline two\n");
    assert_eq!(done.stderr, "");
});

on_each_claude!(a_prompt_arrives_as_it_is, |claude| {
    let prompt = "- $HOME %h `id` \"quoted\" 'single'\n--flag=x\n\tünïcode \u{1f980}\r\nend";
    let env = TestEnv::with(&claude, &Scenario::says("ok"));
    let file = env.file("prompt.md", prompt);
    for (args, stdin) in [
        (
            vec![
                "start".to_owned(),
                "--prompt-file".to_owned(),
                file.display().to_string(),
            ],
            None,
        ),
        (vec!["start".to_owned(), "-".to_owned()], Some(prompt)),
    ] {
        env.script(&Scenario::says("ok"));
        let start = env.oo(args);
        let start = match stdin {
            Some(text) => start.stdin(text),
            None => start,
        };
        start.run().expect_code(0);
    }
    for folder in fs::read_dir(env.state().join("runs")).unwrap() {
        let kept = fs::read_to_string(folder.unwrap().path().join("prompt")).unwrap();
        assert_eq!(kept, prompt);
    }
    if !claude.is_fake() {
        // claude drops white space around a prompt, and nothing within it.
        let asked = env
            .requests()
            .iter()
            .filter(|request| {
                request.body.to_string().contains("1f980")
                    || request.body.to_string().contains('\u{1f980}')
            })
            .count();
        assert!(
            asked >= 2,
            "the model got the prompt: {:?}",
            env.requests().len()
        );
    }
});

on_each_claude!(tools_riders_and_background_tasks, |claude| {
    let script = Scenario::new([
        Reply::bash("echo one"),
        Reply::tool(Tool::agent("look there", [Reply::text("seen")])),
        Reply::text("first answer"),
        Reply::text("last answer"),
    ]);
    let env = TestEnv::with(&claude, &script);
    let done = env.oo(["start", BYPASS, "--json", "work"]).run();
    done.expect_code(0);
    let result = done.json();
    assert_eq!(result["class"], "completed");
    assert_eq!(
        result["results"].as_array().unwrap().len(),
        2,
        "one for each turn"
    );
    assert_eq!(result["deciding_index"], 1);
    assert_eq!(result["result"], "last answer");
    let tasks = result["background"].as_array().unwrap();
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    assert_eq!(tasks[0]["task_type"], "local_agent");
    assert_eq!(tasks[0]["status"], "completed");
});

on_each_claude!(the_api_fails_twice_and_then_works, |claude| {
    let script = Scenario::new([Reply::error(529).times(2), Reply::text("at last")]);
    let env = TestEnv::with(&claude, &script);
    let done = env.oo(["start", "--json", "try"]).run();
    done.expect_code(0);
    let result = done.json();
    assert_eq!(result["class"], "completed");
    let retries = result["retries"].as_array().unwrap();
    assert_eq!(retries.len(), 2);
    assert_eq!(
        (&retries[1]["attempt"], &retries[1]["error_status"]),
        (&json!(2), &json!(529))
    );
    // They are shown as they happen.
    assert_eq!(
        done.stderr.matches("HTTP 529").count(),
        2,
        "{}",
        done.stderr
    );
});

/// A failed run: no text on stdout, the class's exit code, the cause, a sentence and a next step.
#[track_caller]
fn assert_fails(env: &TestEnv, args: &[&str], cause: &str) -> Value {
    let mut all = vec!["start", "--json"];
    all.extend(args);
    let done = env.oo(all).run();
    done.expect_code(4);
    let result = done.json();
    assert_eq!(result["class"], "failed", "{result:#}");
    assert_eq!(result["cause"], cause, "{result:#}");
    assert_eq!(result["exit_code"], 4);
    assert_eq!(result["result"], Value::Null);
    assert!(
        done.stderr.contains(result["message"].as_str().unwrap()),
        "{}",
        done.stderr
    );
    assert!(
        done.stderr.contains(result["hint"].as_str().unwrap()),
        "{}",
        done.stderr
    );
    result
}

on_each_claude!(an_api_that_refuses_gets_its_cause, |claude| {
    for (status, cause) in [
        (400, "invalid-request"),
        (404, "model"),
        (429, "rate-limit"),
        (529, "overloaded"),
    ] {
        let env = TestEnv::with(&claude, &Scenario::new([Reply::error(status).forever()]));
        let args = ["--env=CLAUDE_CODE_MAX_RETRIES=1", "x"];
        let result = assert_fails(&env, &args, cause);
        // claude itself calls it a success.
        assert_eq!(result["subtype"], "success");
        assert_eq!(
            (&result["is_error"], &result["api_error_status"]),
            (&json!(true), &json!(status))
        );
        let plain = {
            env.script(&Scenario::new([Reply::error(status).forever()]));
            env.oo(["start", args[0], args[1]]).run()
        };
        plain.expect_code(4);
        assert_eq!(plain.stdout, "", "an error is not an answer");
    }
});

on_each_claude!(refused_credentials_end_the_run_early, |claude| {
    let env = TestEnv::with(&claude, &Scenario::new([Reply::error(401).forever()]));
    let result = assert_fails(&env, &["x"], "auth");
    let retries = result["retries"].as_array().unwrap();
    assert!((2..=3).contains(&retries.len()), "{retries:?}");
});

on_each_claude!(limits_of_turns_and_money_have_their_causes, |claude| {
    let loops = || Scenario::new((0..4).map(|_| Reply::bash("echo more")));
    let env = TestEnv::with(&claude, &loops());
    let result = assert_fails(&env, &[BYPASS, "--max-turns=1", "x"], "max-turns");
    assert_eq!(result["terminal_reason"], "max_turns");
    env.script(&loops());
    let result = assert_fails(&env, &[BYPASS, "--budget=0.0001", "x"], "budget");
    assert_eq!(result["terminal_reason"], "budget_exhausted");
});

on_each_claude!(
    the_environment_of_claude_and_doorman_is_the_rule,
    |claude| {
        let script = Scenario::new([Reply::bash(&until_file("go")), Reply::text("done")]);
        let env = TestEnv::with(&claude, &script);
        let mut start = env.oo(["start", BYPASS, "--json", "x"]);
        let planted = [
            ("CLAUDECODE", "planted"),
            ("CLAUDE_CODE_SESSION_ID", "planted"),
            ("CLAUDE_CODE_MESSAGING_SOCKET", "planted"),
            ("CLAUDE_CODE_MESSAGING_TOKEN", "planted"),
            ("CLAUDE_CODE_ENTRYPOINT", "planted"),
            ("CLAUDE_PROJECT_DIR", "planted"),
            ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "planted"),
            ("CLAUDE_SOMETHING_NEW", "planted"),
            ("CLAUDE", "planted"),
            ("AI_AGENT", "planted"),
            ("NOTIFY_SOCKET", "planted"),
            ("LISTEN_FDS", "planted"),
            ("WATCHDOG_USEC", "planted"),
            ("CREDENTIALS_DIRECTORY", "planted"),
        ];
        for (name, value) in planted {
            start = start.var(name, value);
        }
        let config = env.home().join(".claude");
        let running = start
            .var("CLAUDE_CONFIG_DIR", &config)
            .var("KEEP_ME", "kept")
            .spawn();
        let beat = until_some(Duration::from_secs(60), "a heartbeat", || heartbeat(&env));
        let claude_pid = u32::try_from(beat["peer_pid"].as_u64().unwrap()).unwrap();
        let doorman_pid = u32::try_from(beat["pid"].as_u64().unwrap()).unwrap();
        let of_claude = environment_of(claude_pid);
        let of_doorman = environment_of(doorman_pid);
        env.file("go", "");
        let done = running.wait(Duration::from_secs(60));
        done.expect_code(0);

        let names: Vec<&String> = of_claude
            .keys()
            .filter(|name| name.starts_with("CLAUDE") || *name == "AI_AGENT")
            .collect();
        assert_eq!(names, ["CLAUDE_CONFIG_DIR"]);
        for environment in [&of_claude, &of_doorman] {
            assert_eq!(environment.get("KEEP_ME").map(String::as_str), Some("kept"));
            for (name, value) in planted {
                assert_ne!(
                    environment.get(name).map(String::as_str),
                    Some(value),
                    "{name} leaked"
                );
            }
        }
        assert_eq!(done.json()["env_kept"], json!(["CLAUDE_CONFIG_DIR"]));
    }
);

/// The one heartbeat of a test's state folder, once it is there.
pub(crate) fn heartbeat(env: &TestEnv) -> Option<Value> {
    let folder = fs::read_dir(env.state().join("inbox")).ok()?;
    folder
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.to_string_lossy().ends_with(".inbox.heartbeat"))
        .and_then(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
}

on_each_claude!(interrupted_by_ctrl_c, |claude| {
    let script = Scenario::new([Reply::bash(&until_file("never")), Reply::text("unreached")]);
    let env = TestEnv::with(&claude, &script);
    let mut running = env.oo(["start", BYPASS, "--json", "--follow", "x"]).spawn();
    running.until_rows("assistant", 1, Duration::from_secs(60));
    running.signal(nix::sys::signal::Signal::SIGINT);
    let done = running.wait(Duration::from_secs(30));
    done.expect_code(6);
    let rows = done.rows();
    let result = &rows.last().unwrap().0;
    assert_eq!(
        (&result["class"], &result["cause"]),
        (&json!("cancelled"), &json!("interrupted"))
    );
    assert!(result["message"].as_str().unwrap().contains("SIGINT"));
    assert_eq!(env.alive(), [] as [i32; 0], "nothing is left running");
});

on_each_claude!(lineage_is_written_at_birth, |claude| {
    let parent = "11111111-2222-4333-8444-555555555555";
    let env = TestEnv::with(&claude, &Scenario::says("ok"));
    let done = env.oo(["start", "--json", "--parent", parent, "x"]).run();
    done.expect_code(0);
    let result = done.json();
    assert_eq!(result["lineage"]["parent"], parent);
    assert_eq!(result["lineage"]["child"], result["session_id"]);
    let ledger = fs::read_to_string(env.state().join("lineage.jsonl")).unwrap();
    let line: Value = serde_json::from_str(ledger.trim()).unwrap();
    assert_eq!(
        (&line["parent"], &line["child"]),
        (&json!(parent), &result["session_id"])
    );
});

on_each_claude!(a_start_from_a_sessions_tool_has_it_as_parent, |claude| {
    // Both sessions play the same script; only the first finds the folder missing.
    let oo = env!("CARGO_BIN_EXE_oo");
    let inner = format!("{oo} start {BYPASS} --json 'the inner one' > inner.json");
    let command = format!("if mkdir once 2>/dev/null; then {inner}; fi");
    let script = Scenario::new([Reply::bash(&command), Reply::text("done")]);
    let env = TestEnv::with(&claude, &script);
    let start = env.oo(["start", BYPASS, "--json", "the outer one"]);
    let done = start.run();
    done.expect_code(0);
    let outer = done.json();
    let inner: Value =
        serde_json::from_slice(&fs::read(env.work().join("inner.json")).unwrap()).unwrap();
    assert_eq!(inner["lineage"]["parent"], outer["session_id"], "{inner:#}");
    assert_ne!(inner["session_id"], outer["session_id"]);
});
