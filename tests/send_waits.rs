//! `oo send` while it waits: doormen that come and go, signals, files that are replaced.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::send::{AT_ONCE, SEEN, is, send};
use crate::support::env::TestEnv;
use crate::support::post::Session;
use crate::support::process::{Running, until, until_some};

const SOON: Duration = Duration::from_secs(60);

/// A line on its way, with a minute to arrive.
fn sending(env: &TestEnv, session: &Session) -> Running {
    let id = session.id.to_string();
    env.oo(["send", &id, "look here", "--json", "--wait=60s"])
        .spawn()
}

#[test]
fn a_doorman_that_comes_up_is_waited_for() {
    let env = TestEnv::new();
    let session = Session::live(&env, None);
    session.beat(std::process::id(), "starting", 0);
    let id = session.id.to_string();
    let sending = env
        .oo(["send", &id, "look here", "--json", "--wait=60s"])
        .spawn();
    until(SOON, "the line", || session.lines().len() == 1);
    let _doorman = session.doorman(SEEN);
    is(&sending.wait(SOON), "delivered-steer", 0, Some("seen"));

    // One that never does is no doorman.
    let slow = Session::live(&env, None);
    slow.beat(std::process::id(), "starting", 0);
    let document = is(
        &send(&env, &slow, &["--wait=300ms"]),
        "queued-no-doorman",
        3,
        Some("queued"),
    );
    let message = document["message"].as_str().unwrap();
    assert!(message.contains("had not come up after 300ms"), "{message}");
}

#[test]
fn a_doorman_that_goes_ends_the_wait() {
    // What the doorman's going looks like, and what it leaves.
    for (what, class) in [
        ("farewell", "queued-no-doorman"),
        ("death", "queued-no-doorman"),
        ("the session's end", "queued-offline"),
        ("another session", "queued-offline"),
    ] {
        let env = TestEnv::new();
        let mut session = Session::live(&env, None);
        let mut keeper = env.program("/bin/cat").held_stdin().spawn();
        session.beat(keeper.pid(), "following", 0);
        let sending = sending(&env, &session);
        let line = until_some(SOON, "the line", || session.lines().pop());
        session.ack(&line, "delivered-steer", "offered");
        if what == "death" {
            keeper.signal(Signal::SIGKILL);
        } else {
            if what == "another session" {
                session.switch(uuid::Uuid::new_v4());
            }
            if what == "the session's end" {
                session.leave();
            }
            session.beat(keeper.pid(), "stopped", 0);
            keeper.close_stdin();
        }
        let done = sending.wait(SOON);
        is(&done, class, 3, Some("offered"));
        assert!(done.took < AT_ONCE, "{what}: {:?}", done.took);
        assert!(done.stderr.contains("stays in"), "{what}: {}", done.stderr);
    }
}

#[test]
fn a_line_that_is_queued_again_is_not_delivered() {
    let env = TestEnv::new();
    let mut session = Session::live(&env, None);
    let mut keeper = env.program("/bin/cat").held_stdin().spawn();
    session.beat(keeper.pid(), "following", 0);
    let sending = sending(&env, &session);
    let line = until_some(SOON, "the line", || session.lines().pop());
    session.ack(&line, "delivered-steer", "accepted");
    session.ack(&line, "delivered-steer", "queued");
    session.leave();
    keeper.close_stdin();
    is(&sending.wait(SOON), "queued-offline", 3, Some("queued"));
}

#[test]
fn what_the_doorman_said_last_counts_more_than_that_it_left() {
    let env = TestEnv::new();
    let mut session = Session::live(&env, None);
    let mut keeper = env.program("/bin/cat").held_stdin().spawn();
    session.beat(keeper.pid(), "following", 0);
    let sending = sending(&env, &session);
    let line = until_some(SOON, "the line", || session.lines().pop());
    // Its end wakes the sender; the ack is there by then.
    session.ack(&line, "delivered-start", "seen");
    keeper.close_stdin();
    session.leave();
    is(&sending.wait(SOON), "delivered-start", 0, Some("seen"));
}

#[test]
fn a_signal_is_answered_with_where_the_line_is() {
    let env = TestEnv::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let session = Session::live(&env, None);
        session.beat(std::process::id(), "following", 0);
        let id = session.id.to_string();
        let sending = env
            .oo(["send", &id, "look here", "--json", "--wait=60s"])
            .spawn();
        until(SOON, "the line", || session.lines().len() == 1);
        sending.signal(signal);
        let document = is(&sending.wait(SOON), "timeout", 5, Some("queued"));
        let message = document["message"].as_str().unwrap();
        assert!(message.contains(signal.as_str()), "{message}");
        assert!(
            document["hint"]
                .as_str()
                .unwrap()
                .contains("do not send it again")
        );
    }
}

#[test]
fn an_inbox_that_is_replaced_while_the_line_waits() {
    for kept in [true, false] {
        let env = TestEnv::new();
        let session = Session::live(&env, None);
        session.beat(std::process::id(), "following", 0);
        let id = session.id.to_string();
        let sending = env
            .oo(["send", &id, "look here", "--json", "--wait=60s"])
            .spawn();
        let line = until_some(SOON, "the line", || session.lines().pop());
        let beside = session.file("beside");
        fs::write(
            &beside,
            if kept {
                [&line.bytes[..], b"\n"].concat()
            } else {
                Vec::new()
            },
        )
        .unwrap();
        fs::rename(beside, session.file("inbox")).unwrap();
        if !kept {
            let document = is(&sending.wait(SOON), "refused", 1, Some("queued"));
            assert!(
                document["message"]
                    .as_str()
                    .unwrap()
                    .contains("not in it any more")
            );
            continue;
        }
        // The sender finds the line in the new file by itself; then its acks count.
        let now = session.lines().pop().unwrap();
        assert_ne!(now.inode, line.inode);
        let mut sending = sending;
        until(SOON, "the end", || {
            session.ack(&now, "delivered-steer", "seen");
            sending.has_ended()
        });
        let document = is(&sending.wait(SOON), "delivered-steer", 0, Some("seen"));
        assert_eq!(document["inode"], now.inode);
    }
}
