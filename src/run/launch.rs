//! The one launch path, up to the spawn: everything that must exist before claude does.
//!
//! Locks, run folder, prompt, inbox and ledger entry are there first; if any of them cannot be
//! made, nothing was spawned and the run folder is taken away again.
//!
//! Of all this only `process.json`, which comes next, has to be on disk before claude runs. What
//! is new here is synced while claude starts: [`Prepared::sync`].

use std::fs::File;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use super::child_env::ChildEnvironment;
use super::spec::{DoormanMode, LaunchSpec};
use super::{argv, kinship, mcp_config};
use crate::error::{Error, Kind, Result};
use crate::inbox::{Created, Inbox};
use crate::platform::descriptors;
use crate::platform::spawn::SpawnPlan;
use crate::store::{self, Lock, LockError, RunFiles, StateDir};

/// How many descriptors a supervisor takes, and some more.
const DESCRIPTORS: usize = 32;

/// A run that is ready to be spawned. It holds the locks of the run and of the session.
#[derive(Debug)]
pub struct Prepared {
    /// What is to be run.
    pub spec: LaunchSpec,
    /// Its files.
    pub files: RunFiles,
    /// The environment of the child.
    pub environment: ChildEnvironment,
    streams: Streams,
    birth: Birth,
    _locks: [Lock; 2],
}

#[derive(Debug)]
struct Streams {
    prompt: File,
    events: File,
    stderr: File,
}

/// Makes a run ready. `session_lock` is the session's, when the caller has it already.
///
/// # Errors
/// Refused when the state folder cannot be used or the session is in use; nothing is left behind.
pub fn prepare(
    state: &StateDir,
    spec: LaunchSpec,
    prompt: &[u8],
    environment: ChildEnvironment,
    session_lock: Option<Lock>,
) -> Result<Prepared> {
    // Asked before anything is made: some of what needs them later cannot say so.
    descriptors::room_for(DESCRIPTORS).map_err(|e| {
        Error::refused(format!(
            "there is no room for {DESCRIPTORS} open files: {e}"
        ))
        .hint("raise the limit: see `ulimit -n`")
    })?;
    state.prepare()?;
    let session_lock = match session_lock {
        Some(lock) => lock,
        None => take_or_refuse(&state.session_lock(&spec.session_id.to_string()), "session")?,
    };
    let files = state.run(spec.run_id);
    files
        .create()
        .map_err(|error| error.with_kind(Kind::Refused))?;
    let mut birth = Birth {
        files: files.clone(),
        inbox: Inbox::of(state, spec.session_id),
        created: Created::Existing,
    };
    let mut fill = || -> Result<(Lock, Streams)> {
        let run_lock = take_or_refuse(&files.lock(), "run")?;
        let streams = write_files(state, &files, &spec, prompt)?;
        birth.created = birth.inbox.create()?;
        kinship::record(state, &spec)?;
        Ok((run_lock, streams))
    };
    match fill() {
        Ok((run_lock, streams)) => Ok(Prepared {
            spec,
            files,
            environment,
            streams,
            birth,
            _locks: [session_lock, run_lock],
        }),
        Err(error) => {
            birth.undo();
            Err(error.with_kind(Kind::Refused))
        }
    }
}

/// What a run that never came to be would leave behind.
#[derive(Debug)]
struct Birth {
    files: RunFiles,
    inbox: Inbox,
    created: Created,
}

impl Birth {
    fn undo(&self) {
        self.files.discard();
        if self.created == Created::New {
            self.inbox.discard();
        }
    }
}

impl Prepared {
    /// Begins to put the prompt and the spec on disk, on a thread of its own: a slow disk must not
    /// keep the supervisor from looking at claude. Their names are there already: the folder was
    /// synced with `process.json`.
    ///
    /// # Errors
    /// When no thread can be had; from the thread, when one of the files cannot be synced.
    pub fn sync(&self) -> Result<JoinHandle<Result<()>>> {
        const STACK: usize = 64 * 1024;
        let paths = [self.files.prompt(), self.files.spec()];
        let sync = move || {
            for path in paths {
                File::open(&path)
                    .and_then(|file| file.sync_data())
                    .map_err(|e| Error::io("sync", &path, e))?;
            }
            Ok(())
        };
        std::thread::Builder::new()
            .name("sync".to_owned())
            .stack_size(STACK)
            .spawn(sync)
            .map_err(|e| Error::io("sync", self.files.root(), e))
    }

    /// Takes everything away again: nothing was spawned, for this reason.
    #[must_use]
    pub fn refuse(&self, error: Error) -> Error {
        self.birth.undo();
        error.with_kind(Kind::Refused)
    }

    /// The prompt, for being read once.
    ///
    /// # Errors
    /// When its descriptor cannot be had a second time.
    pub fn prompt(&self) -> Result<File> {
        self.again(&self.streams.prompt)
    }

    fn again(&self, file: &File) -> Result<File> {
        file.try_clone()
            .map_err(|e| Error::io("share a file of", self.files.root(), e))
    }

    /// What is to be executed, with this as its stdin.
    ///
    /// # Errors
    /// When the descriptors of the files cannot be had a second time.
    pub fn plan(&self, stdin: File) -> Result<SpawnPlan> {
        Ok(SpawnPlan {
            program: self.spec.claude.path.clone(),
            name: self.spec.claude.name.clone(),
            arguments: argv::arguments(&self.spec, &self.files.mcp())
                .into_iter()
                .map(Into::into)
                .collect(),
            environment: self.environment.variables.clone(),
            cwd: self.spec.cwd.clone(),
            stdin,
            stdout: self.again(&self.streams.events)?,
            stderr: self.again(&self.streams.stderr)?,
            pass: self.environment.descriptors.clone(),
        })
    }
}

fn write_files(
    state: &StateDir,
    files: &RunFiles,
    spec: &LaunchSpec,
    prompt: &[u8],
) -> Result<Streams> {
    if spec.doorman == DoormanMode::Injected {
        store::create_private(
            &files.mcp(),
            &mcp_config::document(state, &spec.claude.path)?,
        )?;
    }
    store::create_private(&files.prompt(), prompt)?;
    let spec_text = serde_json::to_vec_pretty(spec)
        .map_err(|e| Error::refused(format!("cannot encode {}: {e}", files.spec().display())))?;
    let streams = Streams {
        // Opened anew, for reading alone and from the start.
        prompt: File::open(files.prompt()).map_err(|e| Error::io("open", &files.prompt(), e))?,
        events: store::create_appending(&files.events())?,
        stderr: store::create_appending(&files.stderr())?,
    };
    if spec.hold.is_some() {
        store::create_appending(&files.results())?;
    }
    // Last of all: a folder with a spec is a run.
    store::create_private(&files.spec(), &spec_text)?;
    Ok(streams)
}

/// What came of asking for a lock.
#[derive(Debug)]
pub enum Taken {
    /// We have it.
    Ours(Lock),
    /// Somebody else has it.
    Held,
}

/// Takes a lock that a passer-by can hold for a moment.
///
/// # Errors
/// Refused when it cannot be used.
pub fn take(path: &Path) -> Result<Taken> {
    const TRIES: u32 = 20;
    for _ in 0..TRIES {
        match Lock::try_take(path) {
            Ok(lock) => return Ok(Taken::Ours(lock)),
            Err(LockError::Broken(error)) => return Err(error.with_kind(Kind::Refused)),
            Err(LockError::Held) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    Ok(Taken::Held)
}

fn take_or_refuse(path: &Path, what: &str) -> Result<Lock> {
    match take(path)? {
        Taken::Ours(lock) => Ok(lock),
        Taken::Held => Err(Error::refused(format!(
            "the {what} is in use: somebody holds {}",
            path.display()
        ))
        .hint("wait for its holder to leave")),
    }
}
