//! What the process found when it started, written down for tests to assert on.
//!
//! `FAKE_CLAUDE_RECORD` names a folder; the file there is `<pid>.json`. It is written when stdin
//! has been read (and once before, without stdin), replaced atomically.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Mutex;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::hub::lock;

/// The record of one process.
pub(crate) struct Record {
    folder: Option<PathBuf>,
    body: Mutex<Value>,
    stdin: Mutex<(u64, Sha256)>,
}

/// The open descriptors and what they lead to.
fn descriptors() -> BTreeMap<String, String> {
    let mut open = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return open;
    };
    for entry in entries.flatten() {
        if let Ok(target) = std::fs::read_link(entry.path()) {
            let target = target.to_string_lossy().into_owned();
            // The folder that is being read is ours.
            if !(target.starts_with("/proc/") && target.ends_with("/fd")) {
                open.insert(entry.file_name().to_string_lossy().into_owned(), target);
            }
        }
    }
    open
}

impl Record {
    /// Looks around; to be called before anything is opened.
    pub(crate) fn take() -> Self {
        let folder = std::env::var_os("FAKE_CLAUDE_RECORD").map(PathBuf::from);
        let mut body = Value::Null;
        if folder.is_some() {
            let argv: Vec<String> = std::env::args_os()
                .map(|a| String::from_utf8_lossy(a.as_bytes()).into())
                .collect();
            let env: BTreeMap<String, String> = std::env::vars_os()
                .map(|(k, v)| (k.to_string_lossy().into(), v.to_string_lossy().into()))
                .collect();
            body = json!({
                "pid": std::process::id(),
                "argv": argv,
                "env": env,
                "fds": descriptors(),
                "cwd": std::env::current_dir().ok(),
                "exe": std::fs::read_link("/proc/self/exe").ok(),
                "pgid": nix::unistd::getpgrp().as_raw(),
                "sid": nix::unistd::getsid(None).map(nix::unistd::Pid::as_raw).ok(),
                "ppid": nix::unistd::getppid().as_raw(),
                "stdin": Value::Null,
            });
        }
        let record = Self {
            folder,
            body: Mutex::new(body),
            stdin: Mutex::new((0, Sha256::new())),
        };
        record.write();
        record
    }

    /// Counts bytes of stdin.
    pub(crate) fn read(&self, bytes: &[u8]) {
        let mut stdin = lock(&self.stdin);
        stdin.0 += bytes.len() as u64;
        stdin.1.update(bytes);
    }

    /// stdin is at its end.
    pub(crate) fn read_all(&self) {
        if self.folder.is_none() {
            return;
        }
        {
            let stdin = lock(&self.stdin);
            let hash = stdin.1.clone().finalize();
            let hash: String = hash.iter().map(|b| format!("{b:02x}")).collect();
            lock(&self.body)["stdin"] = json!({ "bytes": stdin.0, "sha256": hash });
        }
        self.write();
    }

    fn write(&self) {
        let Some(folder) = &self.folder else { return };
        let path = folder.join(format!("{}.json", std::process::id()));
        let beside = folder.join(format!(".{}.tmp", std::process::id()));
        let text = lock(&self.body).to_string();
        if let Err(error) =
            std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &path))
        {
            crate::strict(&format!(
                "cannot write the record {}: {error}",
                path.display()
            ));
        }
    }
}
