//! `oo resume`: one turn into a session that sleeps, in its own folder, at its own price.

use std::fs;

use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::PATIENCE;
use crate::support::lanes::on_each_claude;
use crate::support::rows;
use crate::support::scenario::{Reply, Scenario};
use crate::support::sleeping::Sleeping;

on_each_claude!(it_answers_in_its_own_folder, |claude| {
    let slept = Sleeping::new(&claude);
    let env = &slept.env;
    env.script(&Scenario::says("two"));
    let elsewhere = env.home();
    let done = env
        .oo(["resume", &slept.session, "and now?"])
        .folder(elsewhere)
        .run();
    done.expect_code(0);
    assert_eq!(done.stdout, "two\n");
    let shown = env.oo(["show", &slept.session, "--json"]).run().json();
    assert_eq!(shown["class"], "delivered-resume");
    assert_eq!(shown["verb"], "resume");
    assert_eq!(shown["exit_code"], 0);
    assert_eq!(shown["cwd"], env.work().to_str().unwrap());
    for id in ["session_id", "requested_session_id"] {
        assert_eq!(shown[id], slept.session, "{id}");
    }
    assert_ne!(shown["run_id"], slept.first["run_id"], "the newest run");
    assert_eq!(shown["transcript"], slept.first["transcript"]);
    let argv = shown["argv"].to_string();
    assert!(
        argv.contains(&format!("--resume={}", slept.session)),
        "{argv}"
    );
    assert!(!argv.contains("--session-id"), "{argv}");
    // Both turns are in one conversation.
    let said: Vec<String> = rows::transcript(&env.home(), &slept.session)
        .iter()
        .filter(|row| row.is("assistant"))
        .map(|row| row.0["message"]["content"][0]["text"].to_string())
        .collect();
    assert_eq!(said, ["\"one\"", "\"two\""]);
    let listed = env.oo(["runs", "--json"]).run().json();
    assert_eq!(listed["runs"][0]["class"], "delivered-resume");
    // Nobody is its parent for that.
    assert_eq!(shown["lineage"], Value::Null);
    assert!(!env.state().join("lineage.jsonl").exists());
});

on_each_claude!(each_turn_costs_what_it_costs, |claude| {
    let slept = Sleeping::new(&claude);
    let mut costs = Vec::new();
    let mut totals = vec![slept.first["total_cost_usd"].as_f64().unwrap()];
    for _ in 0..3 {
        let done = slept.resume(Reply::text("again").usage(100, 5), &[]);
        done.expect_code(0);
        let result = done.json();
        costs.push(result["cost_usd"].as_f64().unwrap());
        totals.push(result["total_cost_usd"].as_f64().unwrap());
    }
    assert!(costs[0] > 0.0);
    assert_eq!(costs, [costs[0]; 3]);
    assert!(totals.is_sorted_by(|a, b| a < b), "{totals:?}");
});

on_each_claude!(a_fork_is_a_session_of_its_own, |claude| {
    let slept = Sleeping::new(&claude);
    let env = &slept.env;
    let before = slept.bytes();
    let done = slept.resume(Reply::text("two"), &["--fork", "--name=side"]);
    done.expect_code(0);
    let result = done.json();
    let fork = result["session_id"].as_str().unwrap();
    assert_ne!(fork, slept.session);
    assert_eq!(result["requested_session_id"], fork);
    assert_eq!(result["class"], "delivered-resume");
    assert_eq!(result["note"], Value::Null);
    assert_eq!(
        result["lineage"],
        json!({"child": fork, "parent": slept.session, "by": "dispatcher"})
    );
    let ledger = fs::read_to_string(env.state().join("lineage.jsonl")).unwrap();
    let link: Value = serde_json::from_str(&ledger).unwrap();
    assert_eq!(
        (&link["child"], &link["parent"]),
        (&json!(fork), &json!(slept.session))
    );
    assert_eq!(slept.bytes(), before, "the parent stays as it was");
    // It begins with what was said, and pays for its own turn alone.
    let cost = result["cost_usd"].as_f64().unwrap();
    assert!(
        cost < result["total_cost_usd"].as_f64().unwrap(),
        "{result:#}"
    );
    // The fork can be gone on with in its turn.
    env.script(&Scenario::says("three"));
    let done = env.oo(["resume", "side", "more", "--json"]).run();
    done.expect_code(0);
    assert_eq!(done.json()["session_id"], fork);
});

on_each_claude!(a_system_prompt_that_is_given_counts, |claude| {
    let slept = Sleeping::new(&claude);
    let rules = slept
        .env
        .file("rules.txt", "Answer in rhymes, number 4711.");
    let rules = format!("--append-system-prompt-file={}", rules.display());
    let done = slept.resume(Reply::text("two"), &[&rules]);
    done.expect_code(0);
    let argv = done.json()["argv"].to_string();
    assert!(argv.contains("--system-prompt-snapshot=off"), "{argv}");
    if claude != Claude::Fake {
        let requests = slept.env.requests();
        let last = requests.iter().rfind(|request| request.answer == "reply 0");
        let system = last.unwrap().body["system"].to_string();
        assert!(system.contains("number 4711"), "{system:.2000}");
    }
    // What the caller says of it himself is left alone.
    let done = slept.resume(
        Reply::text("three"),
        &[&rules, "--", "--system-prompt-snapshot=on"],
    );
    done.expect_code(0);
    let argv = done.json()["argv"].to_string();
    assert!(!argv.contains("snapshot=off"), "{argv}");
});

on_each_claude!(it_can_stay_open, |claude| {
    let slept = Sleeping::new(&claude);
    let done = slept.resume(Reply::text("two"), &["--hold=0s"]);
    done.expect_code(0);
    let result = done.json();
    assert_eq!(result["class"], "delivered-resume");
    assert_eq!(result["results"][0]["text"], "two");
    assert_eq!(result["hold"]["idle_ms"], 0);
});

#[test]
fn an_empty_result_is_not_the_verdict_while_another_comes() {
    let slept = Sleeping::new(&Claude::Fake);
    let row = json!({
        "type": "result", "subtype": "success", "is_error": false, "num_turns": 0,
        "result": "", "total_cost_usd": 0,
    });
    let quirks = json!({ "at": { "start": [ { "line": row } ] } });
    slept.env.script(&Scenario::says("two").quirks(quirks));
    let done = slept.resuming(&[]).wait(PATIENCE);
    done.expect_code(0);
    let result = done.json();
    assert_eq!(result["results"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&result["result"], &result["deciding_index"]),
        (&json!("two"), &json!(1))
    );
}

#[test]
fn a_claude_that_strays_is_on_record() {
    let slept = Sleeping::new(&Claude::Fake);
    let other = "46e9f1c6-44d2-44d5-aef6-afd63e114744";
    let quirks = json!({ "report_session_id": other });
    slept.env.script(&Scenario::says("two").quirks(quirks));
    let done = slept.resuming(&[]).wait(PATIENCE);
    let result = done.json();
    assert_eq!(result["session_id"], other);
    assert_eq!(result["requested_session_id"], slept.session);
    let note = result["note"].as_str().unwrap();
    assert!(
        note.contains(&format!("claude worked in session {other}")),
        "{note}"
    );
    assert_eq!(
        result["lineage"],
        json!({"child": other, "parent": slept.session, "by": "dispatcher"})
    );
    let ledger = fs::read_to_string(slept.env.state().join("lineage.jsonl")).unwrap();
    assert!(ledger.contains(other), "{ledger}");
}

#[test]
fn failures_say_how_to_go_on_and_that_they_repeat() {
    let slept = Sleeping::new(&Claude::Fake);
    let go_on = format!("to go on: oo resume {}", slept.session);
    let overloaded = Reply::error(529).forever();
    for count in 1..=3 {
        let done = slept.resume(overloaded.clone(), &[]);
        done.expect_code(4);
        let result = done.json();
        assert_eq!(
            (&result["class"], &result["cause"]),
            (&json!("error"), &json!("overloaded"))
        );
        assert!(
            result["hint"]
                .as_str()
                .unwrap()
                .ends_with(&format!("{go_on} \"…\"")),
            "{result:#}"
        );
        let said = result["note"].as_str().unwrap_or_default();
        let expected =
            format!("{count} runs of this session in a row have failed with the cause overloaded");
        assert_eq!(said.contains(&expected), count > 1, "{count}: {said}");
    }
    // Another cause, or an answer, ends the row.
    slept.resume(Reply::error(400), &[]).expect_code(4);
    let done = slept.resume(overloaded, &[]);
    assert_eq!(done.json()["note"], Value::Null);
    let summary = slept.env.oo(["show", &slept.session]).run().stdout;
    assert!(summary.contains(&go_on), "{summary}");
}
