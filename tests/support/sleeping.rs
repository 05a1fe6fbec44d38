//! A session that sleeps: one that a run began and ended, to be gone on with.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::claude::Claude;
use super::env::{PATIENCE, TestEnv};
use super::process::{Finished, Running, until_some};
use super::rows;
use super::scenario::{Reply, Scenario};

/// A world with a session that sleeps.
pub(crate) struct Sleeping {
    pub(crate) env: TestEnv,
    pub(crate) session: String,
    /// The result of the run that began it.
    pub(crate) first: Value,
}

impl Sleeping {
    pub(crate) fn new(claude: &Claude) -> Self {
        Self::with(claude, &[])
    }

    /// Begun with these arguments more.
    #[track_caller]
    pub(crate) fn with(claude: &Claude, args: &[&str]) -> Self {
        let env = TestEnv::with(claude, &Scenario::says("one"));
        let mut all = vec!["start", "--json", "first"];
        all.extend(args);
        let done = env.oo(all).run();
        done.expect_code(0);
        let first = done.json();
        let session = first["session_id"].as_str().unwrap().to_owned();
        Self {
            env,
            session,
            first,
        }
    }

    /// The session's next turn says this.
    #[track_caller]
    pub(crate) fn resume(&self, reply: Reply, args: &[&str]) -> Finished {
        self.env.script(&Scenario::new([reply]));
        self.resuming(args).wait(PATIENCE)
    }

    /// Resumes it, and does not wait; the scenario is as it was.
    pub(crate) fn resuming(&self, args: &[&str]) -> Running {
        let mut all = vec!["resume", &self.session, "go on", "--json"];
        all.extend(args);
        self.env.oo(all).spawn()
    }

    pub(crate) fn transcript(&self) -> PathBuf {
        rows::transcript_path(&self.env.home(), &self.session).expect("there is a transcript")
    }

    /// The transcript, byte for byte.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(self.transcript()).expect("a transcript is readable")
    }

    /// The same once nothing more comes: claude writes its rows in batches, some time after the
    /// fact, so a look right after one proves nothing.
    #[track_caller]
    pub(crate) fn settled(&self) -> Vec<u8> {
        settled(&self.transcript())
    }

    /// The newest run that has no result yet, once its claude has a tool at work.
    #[track_caller]
    pub(crate) fn until_at_work(&self, oo: &mut Running) -> (String, i32) {
        let runs = self.env.state().join("runs");
        oo.until_some(PATIENCE, "a turn with a tool at work", || {
            let run = fs::read_dir(&runs)
                .ok()?
                .flatten()
                .map(|entry| entry.path())
                .max()?;
            let events = fs::read_to_string(run.join("events.jsonl")).ok()?;
            let process = fs::read(run.join("process.json")).ok()?;
            let process: Value = serde_json::from_slice(&process).ok()?;
            let pid = i32::try_from(process["claude"]["pid"].as_i64()?).ok()?;
            let id = run.file_name()?.to_str()?.to_owned();
            (events.contains("tool_use") && !run.join("result.json").exists()).then_some((id, pid))
        })
    }
}

/// The bytes of a file that a live program writes, once they stay as they are.
#[track_caller]
pub(crate) fn settled(path: &Path) -> Vec<u8> {
    const STAYS: Duration = Duration::from_millis(700);
    let mut seen = (Vec::new(), Instant::now());
    until_some(PATIENCE, "a file that stays as it is", || {
        let bytes = fs::read(path).expect("the file is readable");
        if bytes != seen.0 {
            seen = (bytes, Instant::now());
        }
        (seen.1.elapsed() >= STAYS).then(|| seen.0.clone())
    })
}
