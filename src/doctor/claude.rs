//! Is there a claude, does it run, is it new enough, and do the running ones still have their file?

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Finding, Outcome, Surroundings};
use crate::platform::process;
use crate::run::claude_program::{self, FLOOR};
use crate::run::claude_version;
use crate::session::registry;

pub(super) fn check(surroundings: &Surroundings<'_>) -> Outcome {
    let mut findings = useless(surroundings);
    let well = match found(surroundings) {
        Ok(well) => well,
        Err(finding) => {
            // The one that does not serve comes first, then what stands in its way.
            findings.insert(0, finding);
            String::new()
        }
    };
    findings.extend(deleted(surroundings));
    Outcome::of(findings, || well)
}

fn found(surroundings: &Surroundings<'_>) -> Result<String, Finding> {
    let environment = surroundings.environment;
    let install = "install Claude Code, or name the program with OO_CLAUDE";
    let claude = claude_program::find(surroundings.claude.as_deref(), environment)
        .map_err(|error| Finding::error(&error, install))?;
    let version = claude_version::said(&claude, environment).map_err(|error| {
        Finding::error(
            &error,
            "run it by hand; if it fails there too, install it again",
        )
        .at(&claude.path)
    })?;
    if let Some(warning) = claude_program::too_old(&version) {
        let [major, minor, patch] = FLOOR;
        let hint = format!("install claude {major}.{minor}.{patch} or newer");
        let message = format!("{warning}: {}", claude.path.display());
        return Err(Finding::new(message, hint).at(&claude.path));
    }
    Ok(format!("claude {version} at {}", claude.path.display()))
}

/// What is called claude on PATH and in the usual places, and is none.
fn useless(surroundings: &Surroundings<'_>) -> Vec<Finding> {
    let environment = surroundings.environment;
    let path = environment.get("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let mut places: Vec<PathBuf> = on_path.map(|folder| folder.join("claude")).collect();
    places.extend(claude_program::places(environment));
    let mut seen: Vec<PathBuf> = Vec::new();
    places.retain(|place| {
        let new = !seen.contains(place);
        seen.push(place.clone());
        new
    });
    places.iter().filter_map(|place| fault(place)).collect()
}

fn fault(place: &Path) -> Option<Finding> {
    let shown = place.display();
    if let Ok(target) = fs::read_link(place)
        && !place.exists()
    {
        let target = target.display();
        return Some(
            Finding::new(
                format!("the link {shown} points to {target}, which is gone"),
                "an updater may have removed it: install Claude Code again, or remove the link",
            )
            .at(place),
        );
    }
    let meta = fs::metadata(place).ok().filter(fs::Metadata::is_file)?;
    (meta.permissions().mode() & 0o111 == 0).then(|| {
        Finding::new(
            format!("{shown} is not executable"),
            format!("run `chmod +x {shown}`, or remove it"),
        )
        .at(place)
    })
}

/// Live sessions whose program was deleted under them: they cannot start their own helpers.
fn deleted(surroundings: &Surroundings<'_>) -> Vec<Finding> {
    let rows = surroundings
        .config
        .as_deref()
        .and_then(|config| registry::list(config).ok())
        .map(|listing| listing.rows)
        .unwrap_or_default();
    let gone = |pid| {
        let file = process::executable(pid)?;
        let gone = file.to_str()?.ends_with(" (deleted)");
        gone.then_some(file)
    };
    rows.iter()
        .filter(|row| row.live())
        .filter_map(|row| {
            let (pid, file) = (row.process.pid, gone(row.process.pid)?);
            Some(Finding::new(
                format!(
                    "session {}, pid {pid}, runs a program that was deleted: {}",
                    row.session_id,
                    file.display()
                ),
                "end that session and resume it with the claude that is there now",
            ))
        })
        .collect()
}
