//! `oo resume` against `claude -p --resume`, and against a transcript of 1 GiB.
//!
//! Both sides resume one session, in turn: its transcript grows by one turn each time, for both.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::claude_under_test::Chosen;
use super::pair::Pair;
use super::table::{Gauge, Table};
use super::wall_time::{PROMPT, noop_flags};
use crate::world::claude::MODEL;
use crate::world::env::TestEnv;
use crate::world::process::Finished;
use crate::world::scenario::{Reply, Scenario};

/// A `claude -p --resume` that has to start a server too.
pub(crate) fn with_doorman(chosen: &Chosen, table: &mut Table) {
    let env = chosen.world(Duration::ZERO);
    let flags = noop_flags(&env);
    let begun = env.oo(["start", PROMPT, "--json", "--model", MODEL]).run();
    begun.expect_code(0);
    let session = begun.json()["session_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    table.compare(Pair {
        name: "`oo resume`",
        against: "`claude -p --resume` with a compiled MCP server that does nothing",
        ours: &mut || oo(&env, chosen, &session).took,
        theirs: &mut || claude(&env, chosen, &session, &flags).took,
        limit: 1.05,
    });
}

fn oo(env: &TestEnv, chosen: &Chosen, session: &str) -> Finished {
    chosen.says_hello_again(env);
    let finished = env.oo(["resume", session, PROMPT, "--model", MODEL]).run();
    finished.expect_code(0);
    assert_eq!(finished.stdout.trim(), "hello");
    finished
}

fn claude(env: &TestEnv, chosen: &Chosen, session: &str, flags: &[String]) -> Finished {
    chosen.says_hello_again(env);
    let resume = format!("--resume={session}");
    let finished = env.claude([resume]).args(flags).stdin(PROMPT).run();
    finished.expect_code(0);
    finished
}

/// How long until it is known that a session cannot be gone on with, when its transcript has 1 GiB
/// and all of its ends is looked through.
pub(crate) fn of_a_gibibyte(_: &Chosen, table: &mut Table) {
    const SIZE: u64 = 1 << 30;
    let env = TestEnv::with(
        &crate::world::claude::Claude::Fake,
        &Scenario::new([Reply::text("hello")]),
    );
    let project = env.home().join(".claude/projects/-x");
    fs::create_dir_all(&project).expect("the scratch folder takes folders");
    // Rows at its ends and its folder gone; and nothing in it at all.
    for (name, rows, code) in [
        ("`oo resume`, 1 GiB, its folder gone", true, 1),
        ("`oo resume`, 1 GiB without a row", false, 4),
    ] {
        let session = Uuid::new_v4().to_string();
        let path = project.join(format!("{session}.jsonl"));
        let mut file = File::create(path).expect("a transcript");
        if rows {
            let row = json!({ "type": "user", "cwd": env.home().join("gone") });
            writeln!(file, "{row}").expect("the file takes a row");
        }
        file.seek(SeekFrom::Start(SIZE)).expect("a hole");
        let tail: &[u8] = if rows { b"\n{\"type\":\"x\"}\n" } else { b"\n" };
        file.write_all(tail).expect("an end");
        let mut took: Vec<Duration> = (0..5)
            .map(|_| {
                let done = env.oo(["resume", &session, PROMPT, "--json"]).run();
                done.expect_code(code);
                let document: Value = done.json();
                assert_eq!(document["state"], "refused");
                done.took
            })
            .collect();
        took.sort_unstable();
        table.gauge(&Gauge {
            name,
            value: took[2].as_secs_f64() * 1e3,
            limit: 1000.0,
            unit: "ms",
        });
    }
}
