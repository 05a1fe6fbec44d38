//! One event of 64 MiB: the supervisor reads it, and does not need more than four times as much.
//!
//! A shell plays claude: it prints one line and ends. Such a line is the result of a tool, or
//! the answer itself, which the supervisor also has to keep, to record and to print.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::claude_under_test::Chosen;
use super::memory;
use super::table::{Gauge, Table};
use crate::world::env::TestEnv;

const MIB: usize = 64;

const TOOL_RESULT: (&str, &str) = (
    r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":""#,
    r#""}]}}"#,
);
const ANSWER: (&str, &str) = (
    r#"{"type":"result","subtype":"success","is_error":false,"num_turns":1,"terminal_reason":"completed","result":""#,
    r#""}"#,
);
const SMALL: &str = r#"{"type":"result","subtype":"success","is_error":false,"num_turns":1,"terminal_reason":"completed","result":"ok"}"#;

/// Against the limit of the design.
pub(crate) fn in_the_supervisor(chosen: &Chosen, table: &mut Table) {
    let env = chosen.world(Duration::ZERO);
    let cases = [
        (
            "a tool's result of 64 MiB: the supervisor's peak",
            TOOL_RESULT,
            SMALL,
        ),
        ("an answer of 64 MiB: the supervisor's peak", ANSWER, ""),
    ];
    for (name, (head, tail), then) in cases {
        let program = shell_claude(&env, (head, tail), then);
        let start = ["start", "x", "--no-doorman", "--claude", &program];
        let watched = memory::watch(env.oo(start).spawn());
        let expected = if then.is_empty() { MIB << 20 } else { 2 };
        assert_eq!(watched.stdout.trim_end().len(), expected, "{name}");
        table.gauge(&Gauge {
            name,
            value: watched.peak,
            limit: 4.0 * 64.0,
            unit: "MiB",
        });
    }
}

fn shell_claude(env: &TestEnv, (head, tail): (&str, &str), then: &str) -> String {
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\nprintf '%s' '{head}'\n\
         head -c {MIB}M /dev/zero | tr '\\0' x\nprintf '%s\\n' '{tail}' '{then}'\n"
    );
    let path = env.file("shell-claude", script);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("the file is ours");
    path.display().to_string()
}
