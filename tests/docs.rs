//! The generated documents are those that the code makes, and the written ones name every field.
//!
//! `OO_UPDATE_DOCS=1 cargo test --test integration docs` writes the generated ones anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use oo::exit::{Cause, Class, SendClass, table};
use serde_json::{Value, json};

use crate::support::env::TestEnv;

const UPDATE: &str = "OO_UPDATE_DOCS=1 cargo test --test integration docs";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(name)
}

/// Holds a committed document to what the code makes.
#[track_caller]
fn holds(name: &str, made: &str) {
    let path = path(name);
    if std::env::var_os("OO_UPDATE_DOCS").is_some_and(|value| value == "1") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, made).unwrap();
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    if committed != made {
        let differs = committed
            .lines()
            .zip(made.lines())
            .find(|(old, new)| old != new);
        panic!("docs/{name} is not what the code makes; run\n    {UPDATE}\nfirst: {differs:?}");
    }
}

#[test]
fn cli_reference() {
    let options = clap_markdown::MarkdownOptions::new()
        .title("Command line".to_owned())
        .show_footer(false);
    let made = clap_markdown::help_markdown_command_custom(&oo::cli::command(), &options);
    let lines: Vec<&str> = made.lines().map(str::trim_end).collect();
    let head = format!("<!-- Generated: {UPDATE} -->\n\n");
    holds(
        "cli-reference.md",
        &format!("{head}{}\n", lines.join("\n").trim_end()),
    );
}

#[test]
fn manual() {
    let env = TestEnv::new();
    let done = env.oo(["man"]).run();
    done.expect_code(0);
    holds("man/oo.1", &done.stdout);
}

#[test]
fn exit_codes() {
    holds("exit-codes.md", &exit_codes_text().unwrap());
}

fn exit_codes_text() -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "<!-- Generated: {UPDATE} -->\n\n# Exit codes, classes and causes\n"
    )?;
    writeln!(
        out,
        "Scripts may rely on these: numbers and names are never changed. Causes are an open set; \
         readers must expect new ones.\n\n## By verb\n"
    )?;
    writeln!(out, "| verb | exit codes |\n| --- | --- |")?;
    for row in table::all() {
        let codes: Vec<String> = row
            .codes
            .iter()
            .map(|(code, meaning)| format!("{code} {meaning}"))
            .collect();
        writeln!(out, "| {} | {} |", row.verb, codes.join(" · "))?;
    }
    let heading = "| class | exit code | meaning |\n| --- | --- | --- |";
    writeln!(out, "\n## Classes of a run\n\n{heading}")?;
    for class in Class::ALL {
        let (name, code) = (class.name(), class.exit_code());
        writeln!(out, "| `{name}` | {code} | {} |", class.meaning())?;
    }
    writeln!(out, "\n## Classes of a line (`send`)\n\n{heading}")?;
    for class in SendClass::ALL {
        let (name, code) = (class.name(), class.exit_code());
        writeln!(out, "| `{name}` | {code} | {} |", class.meaning())?;
    }
    writeln!(
        out,
        "\n## Causes\n\n| cause | what happened | what to do |\n| --- | --- | --- |"
    )?;
    for cause in Cause::ALL {
        writeln!(
            out,
            "| `{}` | {} | {} |",
            cause.name(),
            cause.sentence(),
            cause.hint()
        )?;
    }
    Ok(out)
}

#[test]
fn every_verb_has_its_exit_codes() {
    let verbs: BTreeSet<String> = oo::cli::command()
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    let rows = table::all();
    let listed: BTreeSet<String> = rows
        .iter()
        .filter(|row| row.verb != "any")
        .map(|row| row.verb.to_owned())
        .collect();
    assert_eq!(verbs, listed);
    for row in rows {
        assert!(row.codes.is_sorted_by_key(|(code, _)| code), "{}", row.verb);
    }
}

/// Every name in a document, at any depth.
fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                names(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[track_caller]
fn tells(document: &str, value: &Value) {
    let text = fs::read_to_string(path(document)).unwrap();
    let mut found = BTreeSet::new();
    names(value, &mut found);
    assert!(!found.is_empty());
    for name in found {
        assert!(
            text.contains(&format!("`{name}`")),
            "docs/{document} does not tell of {name}"
        );
    }
}

#[test]
fn every_field_of_a_result_is_told() {
    use oo::exit::Verb;
    use oo::inbox::Heartbeat;
    use oo::run::held::HoldEntry;
    use oo::run::holders::{Holder, HolderKind};
    use oo::run::result::{ClaudeEntry, LineageEntry, ResultDocument, ResultEntry, State};
    use oo::run::row::{McpServer, ResultRow, Retry};
    use oo::run::verdict::Exit;

    let id = "77c69075-1c8e-4953-abac-a26fead0cc6d";
    let heartbeat: Heartbeat = serde_json::from_value(json!({
        "session_id": id, "pid": 1, "proc_start": "1", "state": "following",
        "at": "2026-11-30T12:00:00Z",
    }))
    .unwrap();
    let server: McpServer = serde_json::from_value(json!({ "name": "oo" })).unwrap();
    let retry: Retry = serde_json::from_value(json!({})).unwrap();
    let task =
        json!({ "task_id": "t", "task_type": null, "description": null, "status": "running" });
    let document = ResultDocument {
        results: vec![ResultEntry::of(0, &ResultRow::default())],
        doorman_heartbeat: serde_json::to_value(heartbeat).ok(),
        mcp_servers: vec![server],
        retries: vec![retry],
        background: vec![serde_json::from_value(task).unwrap()],
        lineage: Some(LineageEntry {
            child: id.parse().unwrap(),
            parent: id.parse().unwrap(),
            by: oo::session::lineage::By::Dispatcher,
        }),
        claude: Some(ClaudeEntry {
            path: String::new(),
            version: None,
            pid: None,
        }),
        exit: Some(Exit::default()),
        holder: Some(Holder {
            kind: HolderKind::Run,
            pid: None,
            since: None,
            run_id: None,
            ends_with: None,
        }),
        hold: Some(HoldEntry {
            idle_ms: None,
            waiting: false,
        }),
        permission_denials: vec![json!({"tool_name": "", "tool_use_id": "", "tool_input": {}})],
        ..ResultDocument::blank(Verb::Start, State::Ended)
    };
    tells(
        "contracts/result-v1.md",
        &serde_json::to_value(document).unwrap(),
    );
}

#[test]
fn every_field_of_the_other_documents_is_told() {
    let env = TestEnv::new();
    env.oo(["start", "--quiet", "hello"]).run().expect_code(0);
    let run = only_run(&env);
    for args in [
        &["runs"][..],
        &["doctor"],
        &["version"],
        &["man"],
        &["show", "nothing"],
    ] {
        let done = env.oo(args.iter().chain(&["--json"]).copied()).run();
        tells("contracts/result-v1.md", &done.json());
    }
    let sent = env.oo(["send", &run, "hello", "--json"]).run();
    tells("contracts/send-v1.md", &sent.json());
    let process = fs::read(env.run_folder(&run).join("process.json")).unwrap();
    tells(
        "contracts/state-folder.md",
        &serde_json::from_slice(&process).unwrap(),
    );
    let text = fs::read_to_string(env.state().join("receipts.jsonl")).unwrap();
    for receipt in text.lines() {
        tells(
            "contracts/state-folder.md",
            &serde_json::from_str(receipt).unwrap(),
        );
    }
    let mut files: Vec<String> = fs::read_dir(env.run_folder(&run))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort_unstable();
    let text = fs::read_to_string(path("contracts/state-folder.md")).unwrap();
    for file in files {
        assert!(
            text.contains(&format!("`{file}`")),
            "nothing is told of {file}"
        );
    }
}

/// The id of the one run that there is.
#[track_caller]
pub(crate) fn only_run(env: &TestEnv) -> String {
    let listed = env.oo(["runs", "--json"]).run().json();
    let runs = listed["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1, "{listed}");
    runs[0]["run_id"].as_str().unwrap().to_owned()
}
