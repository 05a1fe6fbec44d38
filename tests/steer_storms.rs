//! Lines of many senders at once, with a doorman that is left alone and with one that is killed all
//! the time: all seen, once, in the order of each sender.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::scenario::Reply;
use crate::support::steered::{STORM, Steered, inbox_file, kill_doorman, seen_in_transcript};

const BYPASS: &str = "--permission-mode=bypassPermissions";

/// Lines of five senders as fast as they can be sent, while the doorman is killed again and again.
#[test]
fn a_storm_of_five_senders_arrives_whole_though_the_doorman_is_killed() {
    storm(200, true);
}

#[test]
fn a_storm_of_five_senders_arrives_whole() {
    storm(200, false);
}

fn storm(count: usize, killing: bool) {
    // Tool after tool, so that the queue empties: fifty lines wait at most. They are short once
    // the storm is over.
    let rounds = (0..1500).map(|_| Reply::bash("[ -e over ] || sleep 0.1"));
    let steered = Steered::with(
        &Claude::Fake,
        &[BYPASS],
        json!({ "restart_servers": true }),
        rounds.chain([Reply::text("done")]),
    );
    steered.open_gate();
    let senders = ["ann", "bob", "cid", "dee", "eve"];
    let mut sending = Vec::new();
    let mut kills = 0;
    for number in 0..count {
        let from = format!("--from={}", senders[number % senders.len()]);
        let text = format!("line {number}");
        sending.push(steered.sending(&[&from, "--min-interval=0s", "--wait=0s", &text]));
        // Not more processes at once than a machine can start.
        if sending.len() == 10 {
            for one in sending.drain(..) {
                let done = one.wait(PATIENCE);
                assert!([0, 3, 5].contains(&done.code.unwrap()), "{}", done.stderr);
            }
            if killing {
                steered.kill_doorman();
                kills += 1;
            }
        }
    }
    let mut steered = steered;
    let acks = inbox_file(&steered.env, &steered.session, "inbox.acks");
    steered.oo.until(STORM, "every line is seen", || {
        if killing && kills < 60 {
            kill_doorman(&acks.with_extension("heartbeat"));
            kills += 1;
            std::thread::sleep(Duration::from_millis(150));
        }
        let text = fs::read_to_string(&acks).unwrap_or_default();
        text.matches("\"state\":\"seen\"").count() >= count
    });
    fs::write(steered.env.work().join("over"), "").unwrap();
    let session = steered.session.clone();
    let (env, result) = steered.end();
    assert_eq!(result["doorman_delivered"], count, "{result:#}");
    assert_eq!(result["doorman_pending"], 0);
    let seen = seen_in_transcript(&env, &session);
    in_order_once(&env, &session, &seen);
    assert_eq!(seen.len(), count);
}

/// Every line of the inbox was seen once, each sender's in the order of the file.
fn in_order_once(env: &TestEnv, session: &str, seen: &[String]) {
    let lines = fs::read_to_string(inbox_file(env, session, "inbox")).unwrap();
    let mut by_sender: HashMap<String, Vec<String>> = HashMap::new();
    let mut sender_of: HashMap<String, String> = HashMap::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (id, from) = (
            line["msg_id"].as_str().unwrap(),
            line["from"].as_str().unwrap(),
        );
        by_sender
            .entry(from.to_owned())
            .or_default()
            .push(id.to_owned());
        sender_of.insert(id.to_owned(), from.to_owned());
    }
    let mut seen_by_sender: HashMap<String, Vec<String>> = HashMap::new();
    for id in seen {
        let from = sender_of[id].clone();
        seen_by_sender.entry(from).or_default().push(id.clone());
    }
    assert_eq!(seen_by_sender, by_sender);
}
