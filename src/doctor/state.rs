//! Is the state folder there, ours, and closed to others, with everything in it?

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::{Finding, Outcome, Surroundings};
use crate::error::{Error, Kind};
use crate::store::StateDir;

pub(super) fn check(surroundings: &Surroundings<'_>) -> Outcome {
    let state = match &surroundings.state {
        Ok(state) => state,
        Err(error) => return Outcome::Found(vec![Finding::error(error, "set OO_STATE_DIR")]),
    };
    let root = state.root();
    let mut findings = Vec::new();
    let mut seen = 0;
    match StateDir::check(root) {
        Ok(()) => {}
        Err(error) if error.kind() == Kind::NotFound => {
            return Outcome::Well(format!(
                "there is no state folder yet; the first start makes {}",
                root.display()
            ));
        }
        Err(error) => findings.push(Finding::error(&error, "set OO_STATE_DIR").at(root)),
    }
    walk(root, &mut findings, &mut seen);
    let inbox = state.inbox();
    if !inbox.starts_with(root) {
        match StateDir::check(inbox) {
            Ok(()) => walk(inbox, &mut findings, &mut seen),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => findings.push(Finding::error(&error, "set OO_INBOX_DIR").at(inbox)),
        }
    }
    findings.sort_by(|one, other| one.path.cmp(&other.path));
    Outcome::of(findings, || {
        format!("{} is yours alone, with {seen} files in it", root.display())
    })
}

/// Looks at everything below `folder`; links are not followed.
fn walk(folder: &Path, findings: &mut Vec<Finding>, seen: &mut usize) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) => {
            let error = Error::io("list", folder, e);
            findings.push(Finding::error(&error, "check its owner and mode").at(folder));
            return;
        }
    };
    let me = nix::unistd::geteuid().as_raw();
    for entry in entries.flatten() {
        let path = entry.path();
        let meta = match fs::symlink_metadata(&path) {
            Ok(meta) => meta,
            // A run may end, and a file be replaced, while we look.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => {
                let error = Error::io("read", &path, e);
                findings.push(Finding::error(&error, "check its owner and mode").at(&path));
                continue;
            }
        };
        if meta.is_symlink() {
            continue;
        }
        let shown = path.display();
        let mode = meta.permissions().mode() & 0o7777;
        if meta.uid() != me {
            findings.push(
                Finding::new(
                    format!("{shown} belongs to user {}, not to you ({me})", meta.uid()),
                    "find out who put it there, and take it out of the state folder",
                )
                .at(&path),
            );
        } else if mode & 0o077 != 0 {
            findings.push(
                Finding::new(
                    format!("{shown} is open to others (mode {mode:04o})"),
                    format!("run `chmod go= {shown}`"),
                )
                .at(&path),
            );
        }
        if meta.is_dir() {
            walk(&path, findings, seen);
        } else {
            *seen += 1;
        }
    }
}
