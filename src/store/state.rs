//! Every path of the state folder, and the check that it is private.
//!
//! The names are a contract (`docs/contracts/state-folder.md`); nothing else in oo spells one.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::error::{Error, Kind, Result};
use crate::platform::environment::Environment;

/// The state folder: `$OO_STATE_DIR`, else `$XDG_STATE_HOME/oo`, else `~/.local/state/oo`.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
    inbox: PathBuf,
}

/// The files of one run.
#[derive(Clone, Debug)]
pub struct RunFiles {
    root: PathBuf,
}

impl StateDir {
    /// Where the state folder lies by this environment; nothing is created or checked.
    ///
    /// `OO_STATE_DIR` and `OO_INBOX_DIR` may be relative to the working folder; a relative
    /// `XDG_STATE_HOME` is ignored, as its specification asks.
    ///
    /// # Errors
    /// Refused when neither `OO_STATE_DIR`, `XDG_STATE_HOME` nor `HOME` says where.
    pub fn locate(environment: &Environment) -> Result<Self> {
        let named = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        let absolute = |value: OsString| {
            std::path::absolute(&value)
                .map_err(|e| Error::io("resolve", Path::new(&value), e).with_kind(Kind::Refused))
        };
        let root = if let Some(value) = named("OO_STATE_DIR") {
            absolute(value)?
        } else if let Some(value) =
            named("XDG_STATE_HOME").filter(|value| Path::new(value).is_absolute())
        {
            PathBuf::from(value).join("oo")
        } else if let Some(value) = named("HOME") {
            absolute(value)?.join(".local/state/oo")
        } else {
            return Err(Error::refused("cannot tell where the state folder is")
                .hint("set OO_STATE_DIR or HOME"));
        };
        let inbox = match named("OO_INBOX_DIR") {
            Some(value) => absolute(value)?,
            None => root.join("inbox"),
        };
        Ok(Self { root, inbox })
    }

    /// Creates what is missing and checks that the folders are ours alone.
    ///
    /// # Errors
    /// Refused when a folder cannot be made or written, belongs to someone else, or lets others in.
    pub fn prepare(&self) -> Result<()> {
        for folder in [
            self.root.clone(),
            self.runs(),
            self.inbox.clone(),
            self.locks(),
        ] {
            private_folder(&folder)?;
        }
        Ok(())
    }

    /// What keeps `folder` from being used, if anything; see [`StateDir::prepare`].
    ///
    /// # Errors
    /// Refused, as in [`StateDir::prepare`]; not found when it is not there.
    pub fn check(folder: &Path) -> Result<()> {
        check_private(folder)
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of inboxes.
    #[must_use]
    pub fn inbox(&self) -> &Path {
        &self.inbox
    }

    /// The folder of runs.
    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// The folder of session locks.
    #[must_use]
    pub fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    /// The lock of a session: one run for each session at any time.
    #[must_use]
    pub fn session_lock(&self, session: &str) -> PathBuf {
        self.locks().join(format!("{session}.lock"))
    }

    /// The ledger of lineage.
    #[must_use]
    pub fn lineage(&self) -> PathBuf {
        self.root.join("lineage.jsonl")
    }

    /// The ledger of receipts.
    #[must_use]
    pub fn receipts(&self) -> PathBuf {
        self.root.join("receipts.jsonl")
    }

    /// The files of a run; nothing is created.
    #[must_use]
    pub fn run(&self, id: Uuid) -> RunFiles {
        RunFiles {
            root: self.runs().join(id.to_string()),
        }
    }

    /// The ids of all runs, oldest first (run ids are UUIDv7). Names that are no id are passed by.
    ///
    /// # Errors
    /// When the folder is there and cannot be read.
    pub fn run_ids(&self) -> Result<Vec<Uuid>> {
        let folder = self.runs();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("list", &folder, e).with_kind(Kind::NotFound)),
        };
        let mut ids: Vec<Uuid> = entries
            .filter_map(|entry| Uuid::try_parse(entry.ok()?.file_name().to_str()?).ok())
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }
}

impl RunFiles {
    /// Creates the run's folder, which must not be there yet.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(&self) -> Result<()> {
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&self.root)
            .map_err(|e| Error::io("create the run folder", &self.root, e))
    }

    /// Takes the folder away again: a start that was refused leaves nothing half-written.
    pub fn discard(&self) {
        // Best effort by nature: the refusal that led here is what the caller reports.
        let _ = fs::remove_dir_all(&self.root);
    }

    /// The run's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The launch spec.
    #[must_use]
    pub fn spec(&self) -> PathBuf {
        self.root.join("spec.json")
    }

    /// The prompt, byte for byte.
    #[must_use]
    pub fn prompt(&self) -> PathBuf {
        self.root.join("prompt")
    }

    /// The MCP configuration that names the doorman.
    #[must_use]
    pub fn mcp(&self) -> PathBuf {
        self.root.join("mcp.json")
    }

    /// What is known of the processes of the run.
    #[must_use]
    pub fn process(&self) -> PathBuf {
        self.root.join("process.json")
    }

    /// claude's stdout.
    #[must_use]
    pub fn events(&self) -> PathBuf {
        self.root.join("events.jsonl")
    }

    /// claude's stderr.
    #[must_use]
    pub fn stderr(&self) -> PathBuf {
        self.root.join("stderr.log")
    }

    /// The result of every turn of a held session, one a line.
    #[must_use]
    pub fn results(&self) -> PathBuf {
        self.root.join("results.jsonl")
    }

    /// The result.
    #[must_use]
    pub fn result(&self) -> PathBuf {
        self.root.join("result.json")
    }

    /// The lock that the supervisor holds for its whole life.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
}

/// Makes a folder (and its parents) 0700 if it is missing, then checks it.
fn private_folder(folder: &Path) -> Result<()> {
    match check_private(folder) {
        Err(error) if error.kind() == Kind::NotFound => {}
        checked => return checked,
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|e| {
            Error::io("create the state folder", folder, e)
                .with_kind(Kind::Refused)
                .hint("set OO_STATE_DIR to a folder that you can write")
        })?;
    check_private(folder)
}

fn check_private(folder: &Path) -> Result<()> {
    let meta = match fs::metadata(folder) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Error::io("find the state folder", folder, e).with_kind(Kind::NotFound));
        }
        Err(e) => {
            return Err(Error::io("read the state folder", folder, e)
                .with_kind(Kind::Refused)
                .hint("set OO_STATE_DIR to a folder of your own"));
        }
    };
    let shown = folder.display();
    if !meta.is_dir() {
        return Err(
            Error::refused(format!("the state folder {shown} is not a folder"))
                .hint("set OO_STATE_DIR to a folder of your own"),
        );
    }
    let me = nix::unistd::geteuid().as_raw();
    if meta.uid() != me {
        return Err(Error::refused(format!(
            "the state folder {shown} belongs to user {}, not to you ({me})",
            meta.uid()
        ))
        .hint("set OO_STATE_DIR to a folder of your own"));
    }
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Error::refused(format!(
            "the state folder {shown} is open to others (mode {mode:04o})"
        ))
        .hint(format!(
            "run `chmod 700 {shown}`, or set OO_STATE_DIR to a folder of your own"
        )));
    }
    nix::unistd::access(
        folder,
        nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK,
    )
    .map_err(|errno| {
        Error::io("write to the state folder", folder, errno.into())
            .with_kind(Kind::Refused)
            .hint("set OO_STATE_DIR to a folder that you can write")
    })
}
