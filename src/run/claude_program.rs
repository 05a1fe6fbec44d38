//! Finding claude: `--claude`, `OO_CLAUDE`, PATH, then the usual install places.
//!
//! Links are resolved at every start, since an updater moves them; the name under which it was
//! found stays `argv[0]`, because some version managers look at it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::spec::ClaudeProgram;
use crate::error::{Error, Kind, Result};
use crate::platform::environment::Environment;

/// The oldest version whose behaviour was measured.
pub const FLOOR: [u64; 3] = [2, 1, 308];

/// Where installers put claude, below HOME.
const BELOW_HOME: [&str; 6] = [
    ".local/bin/claude",
    ".claude/local/claude",
    ".npm-global/bin/claude",
    ".bun/bin/claude",
    ".volta/bin/claude",
    "bin/claude",
];

/// And elsewhere.
const ELSEWHERE: [&str; 3] = [
    "/usr/local/bin/claude",
    "/usr/bin/claude",
    "/opt/claude/bin/claude",
];

/// Finds it.
///
/// # Errors
/// Refused when there is none, or what was named is not there or not executable.
pub fn find(named: Option<&Path>, environment: &Environment) -> Result<ClaudeProgram> {
    if let Some(path) = named {
        return named_program(path, "--claude", environment);
    }
    if let Some(value) = environment
        .get("OO_CLAUDE")
        .filter(|value| !value.is_empty())
    {
        return named_program(Path::new(&value), "OO_CLAUDE", environment);
    }
    let usual = places(environment);
    match on_path(OsStr::new("claude"), environment)
        .or_else(|| usual.iter().find(|path| is_executable(path)).cloned())
    {
        Some(path) => resolve(path),
        None => Err(
            Error::refused("there is no claude on PATH nor in the usual places")
                .hint("install Claude Code, or name the program with --claude PATH or OO_CLAUDE"),
        ),
    }
}

/// The places that are searched after PATH, in their order.
#[must_use]
pub fn places(environment: &Environment) -> Vec<PathBuf> {
    let home = environment.get("HOME").map(PathBuf::from);
    let below = home
        .iter()
        .flat_map(|home| BELOW_HOME.iter().map(|place| home.join(place)));
    below.chain(ELSEWHERE.iter().map(PathBuf::from)).collect()
}

/// The numbers of a version such as `2.1.308`, for comparison.
#[must_use]
pub fn version_numbers(version: &str) -> Option<[u64; 3]> {
    let plain = version.split(['-', '+', ' ']).next()?;
    let mut numbers = plain.split('.').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// A warning about a version older than [`FLOOR`].
#[must_use]
pub fn too_old(version: &str) -> Option<String> {
    let numbers = version_numbers(version)?;
    let [major, minor, patch] = FLOOR;
    (numbers < FLOOR).then(|| {
        format!(
            "claude {version} is older than {major}.{minor}.{patch}, the oldest that oo is tested \
             with; results may be wrong"
        )
    })
}

fn named_program(path: &Path, by: &str, environment: &Environment) -> Result<ClaudeProgram> {
    let found = if path.components().count() == 1 && !path.is_absolute() && !path.exists() {
        on_path(path.as_os_str(), environment).ok_or_else(|| {
            Error::refused(format!("{by}: there is no {} on PATH", path.display()))
        })?
    } else {
        std::path::absolute(path).map_err(|e| Error::io("resolve", path, e))?
    };
    resolve(found).map_err(|error| error.hint(format!("check {by}")))
}

fn resolve(name: PathBuf) -> Result<ClaudeProgram> {
    let path = fs::canonicalize(&name)
        .map_err(|e| Error::io("find claude at", &name, e).with_kind(Kind::Refused))?;
    let shown = path.display();
    let meta =
        fs::metadata(&path).map_err(|e| Error::io("read", &path, e).with_kind(Kind::Refused))?;
    if !meta.is_file() {
        return Err(Error::refused(format!("claude at {shown} is not a file")));
    }
    if !is_executable(&path) {
        return Err(Error::refused(format!(
            "claude at {shown} is not executable"
        )));
    }
    let version = version_beside(&path);
    Ok(ClaudeProgram {
        name,
        path,
        version,
    })
}

fn on_path(name: &OsStr, environment: &Environment) -> Option<PathBuf> {
    let path = environment.get("PATH")?;
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|candidate| is_executable(candidate))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// The version that the install tells without being run (running it costs as much as a start):
/// the native installer names the file for it, npm has a package.json.
fn version_beside(path: &Path) -> Option<String> {
    if let Some(name) = path.file_name().and_then(OsStr::to_str)
        && version_numbers(name).is_some()
    {
        return Some(name.to_owned());
    }
    #[derive(serde::Deserialize)]
    struct Package {
        name: String,
        version: String,
    }
    path.ancestors().skip(1).take(2).find_map(|folder| {
        let package: Package =
            serde_json::from_slice(&fs::read(folder.join("package.json")).ok()?).ok()?;
        package
            .name
            .starts_with("@anthropic-ai/claude-code")
            .then_some(package.version)
    })
}
