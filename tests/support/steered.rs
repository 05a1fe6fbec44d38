//! A session that is under way and waits: to send lines to, and to let go on.
//!
//! Its first tool call ends when the test opens the gate, and not before; so lines meet a turn
//! that is under way for sure.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::claude::Claude;
use super::env::{PATIENCE, TestEnv};
use super::process::{Finished, Running, until_some};
use super::rows;
use super::scenario::{Reply, Scenario};

/// A session under way.
pub(crate) struct Steered {
    pub(crate) env: TestEnv,
    pub(crate) oo: Running,
    pub(crate) session: String,
}

/// The reply that waits for the gate.
fn at_the_gate(gate: &str) -> Reply {
    Reply::bash(&format!("while [ ! -e {gate} ]; do sleep 0.02; done"))
}

impl Steered {
    /// Starts a session that waits in a tool, and whose doorman is at its post.
    pub(crate) fn start(claude: &Claude, args: &[&str], quirks: Value) -> Self {
        Self::with(claude, args, quirks, [Reply::text("done")])
    }

    /// The same; after the gate the model says `rest`.
    pub(crate) fn with(
        claude: &Claude,
        args: &[&str],
        quirks: Value,
        rest: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let env = TestEnv::with(claude, &Scenario::default());
        let gate = env.work().join("gate");
        let replies = std::iter::once(at_the_gate(gate.to_str().unwrap())).chain(rest);
        env.script(&Scenario::new(replies).quirks(quirks));
        let mut all = vec!["start", "--json", "begin"];
        all.extend(args);
        let mut oo = env.oo(all).spawn();
        let session = oo.until_some(PATIENCE, "a doorman at its post", || {
            let beat = heartbeats(&env).into_iter().next()?;
            (beat["state"] == "following").then(|| beat["session_id"].as_str().unwrap().to_owned())
        });
        let steered = Self { env, oo, session };
        steered.until_row("the tool is running", |text| text.contains("gate"));
        steered
    }

    /// Waits until the session's transcript holds something.
    pub(crate) fn until_row(&self, what: &str, holds: impl Fn(&str) -> bool) {
        until_some(PATIENCE, what, || {
            let path = rows::transcript_path(&self.env.home(), &self.session)?;
            let text = fs::read_to_string(path).ok()?;
            text.lines()
                .any(|row| row.contains("\"assistant\"") && holds(row))
                .then_some(())
        });
    }

    /// `oo send` to the session.
    pub(crate) fn send(&self, args: &[&str]) -> Finished {
        self.sending(args).wait(PATIENCE)
    }

    /// The same, without waiting for its end.
    pub(crate) fn sending(&self, args: &[&str]) -> Running {
        let mut all = vec!["send", &self.session, "--json"];
        all.extend(args);
        self.env.oo(all).spawn()
    }

    /// Lets the tool end.
    pub(crate) fn open_gate(&self) {
        fs::write(self.env.work().join("gate"), "").unwrap();
    }

    /// Lets the tool end, and the run: its result.
    pub(crate) fn end(self) -> (TestEnv, Value) {
        self.open_gate();
        let done = self.oo.wait(PATIENCE);
        done.expect_code(0);
        let result = done.json();
        (self.env, result)
    }

    /// A file of the session's inbox.
    pub(crate) fn inbox_file(&self, ending: &str) -> PathBuf {
        inbox_file(&self.env, &self.session, ending)
    }

    /// Every ack so far.
    pub(crate) fn acks(&self) -> Vec<Value> {
        acks(&self.env, &self.session)
    }

    /// Ends the doorman as nothing else does.
    pub(crate) fn kill_doorman(&self) {
        kill_doorman(&self.inbox_file("inbox.heartbeat"));
    }
}

/// Ends the doorman that gave this sign of life, as nothing else does.
pub(crate) fn kill_doorman(heartbeat: &Path) {
    let beat = fs::read(heartbeat).unwrap();
    let beat: Value = serde_json::from_slice(&beat).unwrap();
    let pid = i32::try_from(beat["pid"].as_i64().unwrap()).unwrap();
    // It may have ended by itself.
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

/// A file of a session's inbox.
pub(crate) fn inbox_file(env: &TestEnv, session: &str, ending: &str) -> PathBuf {
    env.state()
        .join("inbox")
        .join(format!("{session}.{ending}"))
}

/// Every ack of a session so far.
pub(crate) fn acks(env: &TestEnv, session: &str) -> Vec<Value> {
    let text = fs::read_to_string(inbox_file(env, session, "inbox.acks")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

/// The texts that the session's transcript shows in the model's context, by the ids of their
/// messages in the order of their rows; merged lines are told by their tags.
pub(crate) fn seen_in_transcript(env: &TestEnv, session: &str) -> Vec<String> {
    let path = rows::transcript_path(&env.home(), session).expect("there is a transcript");
    let text = fs::read_to_string(path).unwrap();
    let mut ids = Vec::new();
    for line in text.lines() {
        let Ok(row) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let (origin, said) = match row["type"].as_str() {
            Some("attachment") => (&row["attachment"]["origin"], &row["attachment"]["prompt"]),
            Some("user") => (&row["origin"], &row["message"]["content"]),
            _ => continue,
        };
        let Some(first) = origin["msg_id"].as_str() else {
            continue;
        };
        let said = said.to_string();
        let tags: Vec<&str> = said
            .match_indices(", msg ")
            .filter_map(|(at, mark)| said.get(at + mark.len()..at + mark.len() + 36))
            .collect();
        match tags[..] {
            [] => ids.push(first.to_owned()),
            _ => ids.extend(tags.into_iter().map(str::to_owned)),
        }
    }
    ids
}

fn heartbeats(env: &TestEnv) -> Vec<Value> {
    let Ok(folder) = fs::read_dir(env.state().join("inbox")) else {
        return Vec::new();
    };
    folder
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "heartbeat"))
        .filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
        .collect()
}

/// How long a storm may take on a loaded machine.
pub(crate) const STORM: Duration = Duration::from_secs(240);
