//! The shape of what claude prints and writes: the stand-in beside the real one.
//!
//! Each scenario is played by both in one test. The order of the rows has to be the same, and
//! every field that oo reads and the real one has must be there in the stand-in with the same
//! type. Both are run inside the walls.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::claude::Claude;
use crate::support::env::{PATIENCE, TestEnv};
use crate::support::lanes::on_real_claude;
use crate::support::mcp;
use crate::support::rows::{self, Row};
use crate::support::scenario::{Reply, Scenario, Tool};

const ALLOWED: &str = "--permission-mode=bypassPermissions";

/// The fields that oo reads, by the kind of row.
const READ: &[(&str, &[&str])] = &[
    (
        "system/init",
        &[
            "session_id",
            "cwd",
            "tools",
            "mcp_servers",
            "model",
            "permissionMode",
            "apiKeySource",
            "claude_code_version",
            "messaging_socket_path",
        ],
    ),
    (
        "assistant",
        &[
            "message",
            "parent_tool_use_id",
            "session_id",
            "uuid",
            "error",
        ],
    ),
    (
        "user",
        &["message", "parent_tool_use_id", "session_id", "uuid"],
    ),
    (
        "result",
        &[
            "subtype",
            "is_error",
            "result",
            "errors",
            "num_turns",
            "duration_ms",
            "duration_api_ms",
            "stop_reason",
            "terminal_reason",
            "api_error_status",
            "total_cost_usd",
            "usage",
            "modelUsage",
            "model_usage_since_last_result",
            "permission_denials",
            "session_id",
            "uuid",
            "result_index",
            "origin",
        ],
    ),
    (
        "system/api_retry",
        &[
            "attempt",
            "max_retries",
            "retry_delay_ms",
            "error_status",
            "error",
            "session_id",
        ],
    ),
    (
        "system/task_started",
        &[
            "task_id",
            "tool_use_id",
            "description",
            "is_backgrounded",
            "task_type",
            "session_id",
        ],
    ),
    (
        "system/permission_denied",
        &["tool_name", "tool_use_id", "message", "session_id"],
    ),
    ("system/task_updated", &["task_id", "patch", "session_id"]),
    (
        "system/task_notification",
        &["task_id", "tool_use_id", "status", "summary", "session_id"],
    ),
    ("system/background_tasks_changed", &["tasks", "session_id"]),
    ("cost-state", &["sessionId", "totalCostUSD", "modelUsage"]),
];

/// The kinds of transcript rows that oo reads.
const TRANSCRIPT: &[&str] = &["user", "assistant", "queue-operation", "cost-state"];

/// What one claude made of a scenario.
struct Shape {
    stdout: Vec<String>,
    transcript: Vec<String>,
    fields: BTreeMap<String, BTreeMap<String, &'static str>>,
    code: Option<i32>,
}

fn shape(claude: &Claude, scenario: &Scenario, args: &[&str]) -> Shape {
    let env = TestEnv::with(claude, scenario);
    let done = env.claude(args.iter().copied()).stdin("Hi").run();
    let rows = done.rows();
    let session = rows
        .iter()
        .find_map(|row| row["session_id"].as_str())
        .expect("a session id");
    let transcript: Vec<Row> = rows::transcript(&env.home(), session)
        .into_iter()
        .filter(|row| TRANSCRIPT.contains(&row.kind().as_str()))
        .collect();
    let mut fields: BTreeMap<String, BTreeMap<String, &'static str>> = BTreeMap::new();
    for row in rows.iter().chain(&transcript) {
        // A number in stdout and a row of the transcript may share a kind: their fields differ.
        if transcript.contains(row) && row.kind() != "cost-state" {
            continue;
        }
        fields.entry(row.kind()).or_default().extend(row.types());
    }
    Shape {
        stdout: settled(rows::described(&rows)),
        transcript: transcript.iter().map(described_in_transcript).collect(),
        fields,
        code: done.code,
    }
}

/// The order without what depends on the machine's speed: how often progress is told, and how a
/// rider's rows lie between those of the main conversation.
fn settled(rows: Vec<String>) -> Vec<String> {
    let rows = rows
        .into_iter()
        .filter(|kind| kind != "system/task_progress");
    let (riders, main): (Vec<String>, Vec<String>) =
        rows.partition(|kind| kind.starts_with("rider"));
    main.into_iter().chain(riders).collect()
}

fn described_in_transcript(row: &Row) -> String {
    match row["operation"].as_str() {
        Some(operation) => format!("{}:{operation}", row.kind()),
        None => row.described(),
    }
}

/// The stand-in with the scenario, as this real claude would play it.
fn beside(real: &Claude, scenario: &Scenario) -> Scenario {
    let Claude::Real(version) = real else {
        panic!("a real claude is compared")
    };
    scenario.clone().of_version(version)
}

#[track_caller]
fn assert_same_shape(real: &Claude, scenario: &Scenario) {
    assert_same_shape_with(real, scenario, &[ALLOWED]);
}

#[track_caller]
fn assert_same_shape_with(real: &Claude, scenario: &Scenario, args: &[&str]) {
    let scenario = beside(real, scenario);
    let (real, fake) = (
        shape(real, &scenario, args),
        shape(&Claude::Fake, &scenario, args),
    );
    assert_eq!(fake.code, real.code, "the exit code");
    assert_eq!(fake.stdout, real.stdout, "the rows on stdout");
    let mut drift = Vec::new();
    for (kind, names) in READ {
        let none = BTreeMap::new();
        let of = |shape: &'_ Shape, name: &str| {
            shape.fields.get(*kind).unwrap_or(&none).get(name).copied()
        };
        for name in *names {
            let (real, fake) = (of(&real, name), of(&fake, name));
            if real != fake {
                drift.push(format!("{kind}.{name}: real {real:?}, stand-in {fake:?}"));
            }
        }
    }
    assert!(
        drift.is_empty(),
        "the stand-in has drifted:\n{}",
        drift.join("\n")
    );
    assert_eq!(
        fake.transcript, real.transcript,
        "the rows of the transcript"
    );
}

on_real_claude!(an_answer, |claude| {
    assert_same_shape(&claude, &Scenario::says("hello"));
});

on_real_claude!(two_commands, |claude| {
    let scenario = Scenario::new([
        Reply::bash("true").saying("first"),
        Reply::bash("false"),
        Reply::text("done"),
    ]);
    assert_same_shape(&claude, &scenario);
});

on_real_claude!(a_rider_and_a_background_command, |claude| {
    let rider = Tool::agent(
        "look around, rider",
        // Long enough for the answer before it: the order of the rows is compared.
        [Reply::bash("sleep 2"), Reply::text("seen")],
    );
    let scenario = Scenario::new([
        Reply::tool(rider),
        Reply::text("on its way"),
        Reply::text("the rider is back"),
    ]);
    assert_same_shape(&claude, &scenario);
    let scenario = Scenario::new([
        Reply::tool(Tool::background("sleep 2")),
        Reply::text("it runs"),
        Reply::text("it ran"),
    ]);
    assert_same_shape(&claude, &scenario);
});

on_real_claude!(errors, |claude| {
    assert_same_shape(&claude, &Scenario::new([Reply::error(404)]));
    let scenario = Scenario::new([Reply::error(529).times(1), Reply::text("at last")]);
    assert_same_shape(&claude, &scenario);
});

on_real_claude!(a_denied_command, |claude| {
    let scenario = Scenario::new([Reply::bash("touch denied"), Reply::text("I could not")]);
    assert_same_shape_with(&claude, &scenario, &["--permission-mode=default"]);
});

on_real_claude!(limits, |claude| {
    let scenario = Scenario::new([Reply::bash("true"), Reply::text("never said")]);
    assert_same_shape_with(&claude, &scenario, &[ALLOWED, "--max-turns=1"]);
    assert_same_shape_with(&claude, &scenario, &[ALLOWED, "--max-budget-usd=0.0001"]);
});

/// The fields of a registry row that oo reads.
const REGISTERED: &[&str] = &[
    "pid",
    "sessionId",
    "cwd",
    "startedAt",
    "procStart",
    "version",
    "kind",
    "entrypoint",
    "pidDomain",
    "messagingSocketPath",
    "name",
    "status",
    "updatedAt",
];

fn registry_row(claude: &Claude, scenario: &Scenario) -> BTreeMap<String, &'static str> {
    let env = TestEnv::with(claude, scenario);
    let mut run = env.claude([ALLOWED]).stdin("Hi").spawn();
    let pid = run.pid();
    let row = run.until_some(PATIENCE, "a busy registry row", || {
        rows::registered(&env.home(), pid).filter(|row| row["status"] == "busy")
    });
    let mut types = row.types();
    types.retain(|name, _| REGISTERED.contains(&name.as_str()));
    types
}

on_real_claude!(a_registry_row, |claude| {
    let slow = Reply::text("late").after(Duration::from_secs(5));
    let scenario = beside(&claude, &Scenario::new([slow]));
    assert_eq!(
        registry_row(&Claude::Fake, &scenario),
        registry_row(&claude, &scenario)
    );
});

/// The names of the variables that an MCP server finds, without those that only tell the
/// stand-in or the real one what to do.
fn names_for_a_server(claude: &Claude, scenario: &Scenario) -> Vec<String> {
    let env = TestEnv::with(claude, scenario);
    let server = mcp::Server::new(&env);
    env.claude(server.args()).stdin("Hi").run().expect_code(0);
    let names = server.environment().into_keys();
    names
        .filter(|name| !name.starts_with("FAKE_") && name != "ANTHROPIC_BASE_URL")
        .collect()
}

on_real_claude!(the_environment_of_an_mcp_server, |claude| {
    let scenario = beside(&claude, &Scenario::says("hello"));
    assert_eq!(
        names_for_a_server(&Claude::Fake, &scenario),
        names_for_a_server(&claude, &scenario)
    );
});
