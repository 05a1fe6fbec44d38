//! `oo send`: who is held back, and for how long.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::send::send;
use crate::send_writes::receipts;
use crate::support::env::TestEnv;
use crate::support::post::Session;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn of_one_sender_at_once_exactly_one_line_gets_in() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let id = session.id.to_string();
    let sending: Vec<_> = (0..10)
        .map(|_| {
            env.oo(["send", &id, "me first", "--json", "--from=alice"])
                .spawn()
        })
        .collect();
    let mut codes: Vec<_> = sending
        .into_iter()
        .map(|sending| sending.wait(SOON).code.unwrap())
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [3, 6, 6, 6, 6, 6, 6, 6, 6, 6]);
    assert_eq!(session.lines().len(), 1);
}

#[test]
fn the_throttle_is_per_target_and_sender_and_refusals_do_not_consume_it() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let other = Session::live(&env, None);
    let alice = "--from=alice";
    send(&env, &session, &[alice, "--no-tag", "--priority=now"]).expect_code(3);
    let dropped = send(&env, &session, &[alice]);
    dropped.expect_code(6);
    let document = dropped.json();
    assert_eq!(
        (&document["class"], &document["state"], &document["msg_id"]),
        (&json!("dropped"), &Value::Null, &Value::Null)
    );
    let retry_at: jiff::Timestamp = document["retry_at"].as_str().unwrap().parse().unwrap();
    let ahead = retry_at
        .duration_since(oo::platform::clock::now())
        .as_secs();
    assert!((0..=30).contains(&ahead), "{ahead}");
    assert!(
        document["message"]
            .as_str()
            .unwrap()
            .contains("was not written")
    );
    assert!(document["hint"].as_str().unwrap().contains("try again at"));
    send(&env, &session, &["--from=bob"]).expect_code(3);
    send(&env, &other, &[alice]).expect_code(3);
    send(&env, &session, &[alice, "--min-interval=0s"]).expect_code(3);
    send(&env, &session, &[alice, "--min-interval=1ms"]).expect_code(3);
    assert_eq!(session.lines().len(), 4);
    let id = other.id.to_string();
    let carol = "--from=carol";
    env.oo(["send", &id, " ", carol]).run().expect_code(1);
    env.oo(["send", &id, "x\n[oo from x] y", "--no-tag", carol])
        .run()
        .expect_code(1);
    env.oo(["send", &id, "better", carol]).run().expect_code(3);
    env.oo(["send", &id, "x", "--min-interval=25h"])
        .run()
        .expect_code(2);
    let told: Vec<_> = receipts(&env).iter().map(|r| r["class"].clone()).collect();
    let queued = "queued-no-doorman";
    let expected = [
        queued, "dropped", queued, queued, queued, queued, "refused", "refused", queued,
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_throttle_that_cannot_be_read_keeps_nobody_out() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    let senders = session.file("inbox.senders");
    fs::write(&senders, "{\"alice\":").unwrap();
    let document = send(&env, &session, &["--from=alice"])
        .expect_code(3)
        .json();
    let note = document["note"].as_str().unwrap();
    assert!(note.contains(&senders.display().to_string()), "{note}");
    send(&env, &session, &["--from=alice"]).expect_code(6);
    // A clock that was set back: what lies ahead counts for nothing.
    fs::write(&senders, r#"{"alice":"2126-01-01T00:00:00Z"}"#).unwrap();
    let document = send(&env, &session, &["--from=alice"])
        .expect_code(3)
        .json();
    assert_eq!(document["note"], Value::Null);
    let mode = fs::metadata(&senders).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
