//! A private world for one test: a scratch home, a cleared environment, one scripted claude.
//!
//! Invariants: nothing of the developer's environment or home is seen inside; every program
//! started here, and all that descends from it, carries the marker of [`sweep`] and is ended
//! when the world is dropped; a test that fails prints everything: each program's command line,
//! output and end, the files of the state folder, and the requests to the API.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

use super::claude::{Claude, MODEL, Wired};
use super::mock::Recorded;
use super::process::{Finished, Running, Streams, excerpt};
use super::scenario::Scenario;
use super::{netns, sweep};

/// How long a program may run unless the test says otherwise. Generous: machines are shared.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The world of one test.
pub(crate) struct TestEnv {
    scratch: TempDir,
    marker: String,
    wired: Wired,
    variables: BTreeMap<OsString, OsString>,
    started: RefCell<Vec<(String, Streams)>>,
}

impl TestEnv {
    /// A world with the stand-in, whose model says one word.
    pub(crate) fn new() -> Self {
        Self::with(&Claude::Fake, &Scenario::says("hello"))
    }

    /// A world with this claude, whose model says this.
    pub(crate) fn with(claude: &Claude, scenario: &Scenario) -> Self {
        let scratch = tempfile::Builder::new()
            .prefix("oo-test-")
            .tempdir()
            .expect("a scratch folder");
        for folder in ["home", "work", "out", "tmp"] {
            fs::create_dir(scratch.path().join(folder)).expect("the scratch folder takes folders");
        }
        let own = Uuid::new_v4();
        // Inside the walls the outer test's marker comes first, so that it can sweep after us.
        let marker = netns::inside().map_or(own.to_string(), |outer| format!("{outer}.{own}"));
        let wired = Wired::new(claude, scenario, &scratch.path().join("claude"));
        let mut env = Self {
            scratch,
            marker,
            wired,
            variables: BTreeMap::new(),
            started: RefCell::default(),
        };
        env.set("HOME", env.home());
        // Claude puts its door and its tools' files there.
        env.set("TMPDIR", env.root().join("tmp"));
        env.set("PATH", "/usr/local/bin:/usr/bin:/bin");
        env.set("LANG", "C.UTF-8");
        env.set("TERM", "dumb");
        env.set(sweep::MARKER, env.marker.clone());
        for (name, value) in env.wired.variables() {
            env.set(name, value);
        }
        env
    }

    /// Sets a variable for everything started from now on.
    pub(crate) fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.variables.insert(name.into(), value.into());
    }

    /// Unsets one.
    pub(crate) fn unset(&mut self, name: impl AsRef<OsStr>) {
        self.variables.remove(name.as_ref());
    }

    /// Sets what the model says from now on: to be called again before each further run.
    pub(crate) fn script(&self, scenario: &Scenario) {
        self.wired.script(scenario);
    }

    /// The claude with its scenario.
    pub(crate) fn wired(&self) -> &Wired {
        &self.wired
    }

    /// The requests that reached the API: none with the stand-in, which has no API.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.wired.requests()
    }

    /// What the stand-in wrote down of each of its processes, in the order of their pids:
    /// `argv`, `env`, `fds`, `cwd`, `stdin`, …
    pub(crate) fn recorded_starts(&self) -> Vec<Value> {
        assert!(
            self.wired.claude().is_fake(),
            "a real claude writes no record"
        );
        let files = files_below(&self.wired.record());
        let records = files
            .iter()
            .filter(|path| path.extension() == Some(OsStr::new("json")));
        records
            .map(|path| fs::read(path).expect("a record is readable"))
            .map(|text| serde_json::from_slice(&text).expect("a record is JSON"))
            .collect()
    }

    /// The scratch folder that holds all the others.
    pub(crate) fn root(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// The working folder.
    pub(crate) fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    /// oo's state folder, which it has to find by itself.
    pub(crate) fn state(&self) -> PathBuf {
        self.home().join(".local/state/oo")
    }

    /// The folder of a run.
    pub(crate) fn run_folder(&self, run: &str) -> PathBuf {
        self.state().join("runs").join(run)
    }

    /// Writes a file into the working folder.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        fs::write(&path, content).expect("the working folder takes files");
        path
    }

    /// `oo` with these arguments.
    pub(crate) fn oo<A: Into<OsString>>(&self, args: impl IntoIterator<Item = A>) -> Start<'_> {
        self.program(env!("CARGO_BIN_EXE_oo")).args(args)
    }

    /// Claude itself as oo starts it, with these arguments more. The prompt goes to stdin.
    pub(crate) fn claude<A: Into<OsString>>(&self, args: impl IntoIterator<Item = A>) -> Start<'_> {
        let common = ["-p", "--output-format=stream-json", "--verbose"];
        self.program(self.wired.claude().path())
            .args(common)
            .args([format!("--model={MODEL}")])
            .args(args)
    }

    /// Any program.
    pub(crate) fn program(&self, program: impl Into<OsString>) -> Start<'_> {
        Start {
            env: self,
            program: program.into(),
            args: Vec::new(),
            variables: self.variables.clone(),
            folder: self.work(),
            input: Input::Nothing,
        }
    }

    /// The pids of what was started here and still lives.
    pub(crate) fn alive(&self) -> Vec<i32> {
        sweep::owned(&self.marker)
    }

    fn streams(&self, shown: String) -> Streams {
        let mut started = self.started.borrow_mut();
        let at = |what: &str| {
            self.root()
                .join("out")
                .join(format!("{}.{what}", started.len()))
        };
        let streams = || Streams {
            stdout: at("stdout"),
            stderr: at("stderr"),
        };
        let (kept, given) = (streams(), streams());
        started.push((shown, kept));
        given
    }

    fn print_everything(&self) {
        for (shown, streams) in self.started.borrow().iter() {
            eprintln!("==== {shown}");
            for (what, path) in [("stdout", &streams.stdout), ("stderr", &streams.stderr)] {
                print_file(what, path, 12_000);
            }
        }
        for root in [self.state(), self.wired.record()] {
            for path in files_below(&root) {
                let name = path
                    .strip_prefix(self.root())
                    .unwrap_or(&path)
                    .display()
                    .to_string();
                print_file(&name, &path, 8_000);
            }
        }
        for request in self.requests() {
            let messages = request.body["messages"].as_array().map_or(0, Vec::len);
            eprintln!(
                "-- request {} agent {:?}, {messages} messages: {}",
                request.path, request.agent, request.answer
            );
        }
        for fault in self.wired.faults() {
            eprintln!("-- against the scenario: {fault}");
        }
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_everything();
        }
        sweep::sweep(&self.marker);
        let faults = self.wired.faults();
        if !faults.is_empty() && !std::thread::panicking() {
            self.print_everything();
            panic!("the scenario was too short: {faults:?}");
        }
    }
}

/// What a program finds on its standard input.
enum Input {
    Nothing,
    Text(Vec<u8>),
    Held,
}

/// A program about to be started.
#[must_use]
pub(crate) struct Start<'e> {
    env: &'e TestEnv,
    program: OsString,
    args: Vec<OsString>,
    variables: BTreeMap<OsString, OsString>,
    folder: PathBuf,
    input: Input,
}

impl Start<'_> {
    pub(crate) fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// One variable more, for this program.
    pub(crate) fn var(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    pub(crate) fn without_var(mut self, name: impl AsRef<OsStr>) -> Self {
        self.variables.remove(name.as_ref());
        self
    }

    pub(crate) fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = folder.into();
        self
    }

    /// Standard input is a file with this text.
    pub(crate) fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.input = Input::Text(text.into());
        self
    }

    /// Standard input is a pipe that stays open: see [`Running::say`].
    pub(crate) fn held_stdin(mut self) -> Self {
        self.input = Input::Held;
        self
    }

    /// Starts it and does not wait.
    pub(crate) fn spawn(self) -> Running {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(&self.variables)
            .current_dir(&self.folder);
        let streams = self.env.streams(format!("{command:?}"));
        let stdin = match self.input {
            Input::Nothing => Stdio::null(),
            Input::Held => Stdio::piped(),
            Input::Text(text) => {
                let path = streams.stdout.with_extension("stdin");
                fs::write(&path, text).expect("the scratch folder takes files");
                fs::File::open(path).expect("it was just written").into()
            }
        };
        Running::start(command, stdin, streams)
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn run(self) -> Finished {
        self.run_within(PATIENCE)
    }

    /// Runs it to its end, which has to come within the time.
    #[track_caller]
    pub(crate) fn run_within(self, limit: Duration) -> Finished {
        self.spawn().wait(limit)
    }
}

fn print_file(name: &str, path: &Path, limit: usize) {
    let bytes = fs::read(path).unwrap_or_default();
    if !bytes.is_empty() {
        eprintln!(
            "-- {name}\n{}",
            excerpt(&String::from_utf8_lossy(&bytes), limit)
        );
    }
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    found
}
