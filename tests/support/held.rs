//! A session that is held open, and what a test does with it from outside.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::env::{PATIENCE, TestEnv};
use super::process::{Running, until, until_some};
use super::rows;
use super::scenario::Reply;

/// A command that ends when a file appears, so that a test decides how long a tool takes.
pub(crate) fn until_file(name: &str) -> Reply {
    Reply::bash(&format!(
        "until [ -e {name} ]; do /bin/sleep 0.05; done; echo over"
    ))
}

/// A held session, and what a test does with it from outside.
pub(crate) struct Held<'e> {
    env: &'e TestEnv,
    pub(crate) oo: Running,
    pub(crate) run: String,
    pub(crate) claude: u32,
    pub(crate) session: String,
}

impl<'e> Held<'e> {
    /// Starts one and waits until its claude is on record. Any tool may run in it, and any process
    /// of the user may send it a line.
    #[track_caller]
    pub(crate) fn start(env: &'e TestEnv, args: &[&str]) -> Self {
        let mut all = vec!["start", "--allowed-tools=Bash", "first"];
        all.extend(args);
        let mut oo = env.oo(all).spawn();
        let runs = env.state().join("runs");
        let (run, claude) = oo.until_some(PATIENCE, "a run on record", || {
            let run = fs::read_dir(&runs).ok()?.next()?.ok()?.file_name();
            let process = fs::read(runs.join(&run).join("process.json")).ok()?;
            let process: Value = serde_json::from_slice(&process).unwrap();
            let pid = process["claude"]["pid"].as_u64().unwrap();
            Some((run.into_string().unwrap(), u32::try_from(pid).unwrap()))
        });
        let spec = fs::read(runs.join(&run).join("spec.json")).unwrap();
        let spec: Value = serde_json::from_slice(&spec).unwrap();
        let session = spec["session_id"].as_str().unwrap().to_owned();
        Self {
            env,
            oo,
            run,
            claude,
            session,
        }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.env.run_folder(&self.run)
    }

    /// The whole lines of `results.jsonl`.
    pub(crate) fn results(&self) -> Vec<Value> {
        results(&self.folder())
    }

    /// Waits for the results of so many turns.
    #[track_caller]
    pub(crate) fn until_results(&mut self, count: usize) -> Vec<Value> {
        let folder = self.folder();
        self.oo
            .until_some(PATIENCE, &format!("{count} results"), || {
                let found = results(&folder);
                (found.len() >= count).then_some(found)
            })
    }

    /// Waits until a tool is at work.
    #[track_caller]
    pub(crate) fn until_at_work(&mut self) {
        let events = self.folder().join("events.jsonl");
        let before = self.results().len();
        self.oo.until(PATIENCE, "a tool at work", || {
            let text = fs::read_to_string(&events).unwrap_or_default();
            let newest = text.split("\"type\":\"result\"").nth(before);
            newest.is_some_and(|rows| rows.contains("tool_use"))
        });
    }

    /// Waits until claude says of itself that it is idle.
    #[track_caller]
    pub(crate) fn until_idle(&self) {
        until(PATIENCE, "an idle registry row", || {
            rows::registered(&self.env.home(), self.claude)
                .is_some_and(|row| row["status"] == "idle")
        });
    }

    /// Sends a line through the door, as any process of the user may; its id.
    #[track_caller]
    pub(crate) fn send(&self, text: &str, priority: &str) -> String {
        let row = until_some(PATIENCE, "a registry row", || {
            rows::registered(&self.env.home(), self.claude)
        });
        let path = row["messagingSocketPath"].as_str().unwrap().to_owned();
        // claude shows the id again only when it is a UUID (measured: 2.1.308 and 2.1.332).
        let id = uuid::Uuid::new_v4().to_string();
        let frame = json!({
            "msgV": 1,
            "msg_id": id,
            "type": "user",
            "message": { "role": "user", "content": text },
            "priority": priority,
            "from": "a test",
            "session_id": self.session,
        });
        let mut door = UnixStream::connect(path).expect("the door is open");
        door.write_all(format!("{frame}\n").as_bytes())
            .expect("the door takes a line");
        id
    }

    #[track_caller]
    pub(crate) fn shown(&self) -> Value {
        shown(self.env, &self.run)
    }
}

/// The whole lines of a run's `results.jsonl`.
pub(crate) fn results(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("results.jsonl")).unwrap_or_default();
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What `oo show` says of a run.
#[track_caller]
pub(crate) fn shown(env: &TestEnv, run: &str) -> Value {
    let done = env.oo(["show", run, "--json"]).run();
    done.expect_code(0);
    done.json()
}
