//! Whose process is this? The law by which a doorman finds its session.
//!
//! The owner of a process is its nearest ancestor with a live registry row; failing that, its
//! nearest ancestor that runs a claude executable. The first is claude's own word about itself;
//! the second is what is left when there is no word. Variables name no session and no owner: a
//! child inherits them from whoever called, so they are not looked at.

use std::path::{Component, Path, PathBuf};

use uuid::Uuid;

use super::config_dir;
use super::registry::{self, Row};
use crate::platform::environment::Environment;
use crate::platform::process::{self, Identity};

/// Which executables are claude.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    given: Vec<PathBuf>,
}

/// The process that a descendant belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The process.
    pub process: Identity,
    /// Its session, if it can be told.
    pub session: Option<Uuid>,
    /// How it was found.
    pub known_by: KnownBy,
}

/// How an owner was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownBy {
    /// By its live registry row.
    Row(Box<Row>),
    /// By the file it runs; its session, if any, by its arguments.
    Executable,
}

/// An ancestor, as far as the law asks.
#[derive(Clone, Debug)]
struct Ancestor {
    process: Identity,
    row: Option<Row>,
    runs_claude: bool,
    session_argument: Option<Uuid>,
}

impl Programs {
    /// The usual names, and the file that `OO_CLAUDE` names.
    ///
    /// The launcher gives the doorman an `OO_CLAUDE` with the resolved path of the claude that it
    /// starts, whatever that file is called.
    #[must_use]
    pub fn known(environment: &Environment) -> Self {
        let mut programs = Self::default();
        if let Some(path) = environment.get("OO_CLAUDE").filter(|path| !path.is_empty()) {
            programs.add(Path::new(&path));
        }
        programs
    }

    /// Counts one more file as claude.
    pub fn add(&mut self, path: &Path) {
        // The kernel shows what a process runs with every link resolved.
        let resolved = std::fs::canonicalize(path);
        self.given
            .push(resolved.unwrap_or_else(|_| path.to_owned()));
    }

    /// Whether a process with this executable and these arguments (its own name first) is claude.
    #[must_use]
    pub fn runs_claude(&self, executable: &Path, arguments: &[String]) -> bool {
        let executable = without_deleted(executable);
        if self.is_claude(&executable) {
            return true;
        }
        // A script is run by its interpreter, and named by the first argument.
        let interpreter = matches!(file_name(&executable), Some("node" | "nodejs" | "bun"));
        interpreter
            && arguments
                .get(1)
                .is_some_and(|script| self.is_claude(Path::new(script)))
    }

    fn is_claude(&self, path: &Path) -> bool {
        self.given.iter().any(|given| given == path)
            || file_name(path) == Some("claude")
            || is_versioned(path)
            || is_npm_package(path)
    }
}

/// `…/claude/versions/<semver>`: where the native installer keeps its binaries.
fn is_versioned(path: &Path) -> bool {
    let mut names = path.components().rev().filter_map(plain);
    names.next().is_some_and(is_version)
        && names.next() == Some("versions")
        && names.next() == Some("claude")
}

/// `…/@anthropic-ai/claude-code*/…`: an npm package.
fn is_npm_package(path: &Path) -> bool {
    let mut names = path.components().filter_map(plain);
    names.any(|name| name == "@anthropic-ai")
        && names
            .next()
            .is_some_and(|name| name.starts_with("claude-code"))
}

fn is_version(name: &str) -> bool {
    let core = name.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    numbers.len() == 3
        && numbers
            .iter()
            .all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn plain<'a>(component: Component<'a>) -> Option<&'a str> {
    match component {
        Component::Normal(name) => name.to_str(),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            None
        }
    }
}

fn file_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// An updater may have removed the file under the running process.
fn without_deleted(path: &Path) -> PathBuf {
    let shown = path
        .to_str()
        .and_then(|text| text.strip_suffix(" (deleted)"));
    shown.map_or_else(|| path.to_owned(), PathBuf::from)
}

/// The session that claude's arguments name: `--session-id`, else `--resume` unless it forks.
/// As in claude, the last one counts, and `--` ends the options.
#[must_use]
pub fn session_argument(arguments: &[String]) -> Option<Uuid> {
    let mut session = None;
    let mut resumed = None;
    let mut forks = false;
    let mut rest = arguments.iter().skip(1).peekable();
    while let Some(argument) = rest.next() {
        let (flag, joined) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (argument.as_str(), None),
        };
        match flag {
            "--" => break,
            "--fork-session" => forks = true,
            "--session-id" | "--resume" | "-r" => {
                let value = joined.or_else(|| rest.peek().map(|next| next.as_str()));
                let id = value.and_then(|value| Uuid::try_parse(value).ok());
                if flag == "--session-id" {
                    session = id;
                } else {
                    resumed = id;
                }
            }
            _ => {}
        }
    }
    session.or_else(|| resumed.filter(|_| !forks))
}

/// The owner of a process, by the law of this module.
#[must_use]
pub fn owner_of(pid: i32, config: Option<&Path>, programs: &Programs) -> Option<Owner> {
    choose(&ancestors(pid, config, programs))
}

/// Whether a process runs a claude executable.
#[must_use]
pub fn runs_claude(pid: i32, programs: &Programs) -> bool {
    process::executable(pid).is_some_and(|executable| {
        programs.runs_claude(&executable, &process::arguments(pid).unwrap_or_default())
    })
}

/// The session in which this process was called: the row of its nearest ancestor that has a live
/// one. What `oo start` records as the parent of the session that it starts.
#[must_use]
pub fn calling_session(environment: &Environment) -> Option<Row> {
    let config = config_dir(environment)?;
    process::ancestors(nix::unistd::getpid().as_raw())
        .find_map(|stat| registry::live_row(&config, stat.pid))
}

/// The ancestors, nearest first, up to the first with a live row: the law asks for no more.
fn ancestors(pid: i32, config: Option<&Path>, programs: &Programs) -> Vec<Ancestor> {
    let mut found = Vec::new();
    for stat in process::ancestors(pid) {
        let process = Identity {
            pid: stat.pid,
            proc_start: stat.start,
        };
        if let Some(row) = config.and_then(|config| registry::live_row(config, stat.pid)) {
            found.push(Ancestor {
                process,
                row: Some(row),
                runs_claude: false,
                session_argument: None,
            });
            break;
        }
        let arguments = process::arguments(stat.pid).unwrap_or_default();
        found.push(Ancestor {
            process,
            row: None,
            runs_claude: process::executable(stat.pid)
                .is_some_and(|executable| programs.runs_claude(&executable, &arguments)),
            session_argument: session_argument(&arguments),
        });
    }
    found
}

fn choose(ancestors: &[Ancestor]) -> Option<Owner> {
    let by_row = ancestors.iter().find_map(|ancestor| {
        let row = ancestor.row.as_ref()?;
        Some(Owner {
            process: ancestor.process.clone(),
            session: Some(row.session_id),
            known_by: KnownBy::Row(Box::new(row.clone())),
        })
    });
    by_row.or_else(|| {
        let ancestor = ancestors.iter().find(|ancestor| ancestor.runs_claude)?;
        Some(Owner {
            process: ancestor.process.clone(),
            session: ancestor.session_argument,
            known_by: KnownBy::Executable,
        })
    })
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write the files that claude writes"
)]
mod tests {
    use super::super::registry::tests::row_of;
    use super::*;

    const A: &str = "77c69075-1c8e-4953-abac-a26fead0cc6d";
    const B: &str = "46e9f1c6-44d2-44d5-aef6-afd63e114744";

    fn uuid(text: &str) -> Uuid {
        Uuid::try_parse(text).unwrap()
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn ancestor(pid: i32, row: Option<&str>, claude: Option<Option<&str>>) -> Ancestor {
        let process = Identity {
            pid,
            proc_start: "1".to_owned(),
        };
        Ancestor {
            row: row.map(|session| Row {
                session_id: uuid(session),
                process: process.clone(),
                pid_domain: None,
                cwd: None,
                name: None,
                status: None,
                socket: None,
            }),
            process,
            runs_claude: claude.is_some(),
            session_argument: claude.flatten().map(uuid),
        }
    }

    #[test]
    fn what_runs_claude() {
        let mut programs = Programs::default();
        programs.add(Path::new("/build/fake-claude"));
        let table = [
            ("/usr/bin/claude", "claude -p", true),
            ("/usr/bin/claude (deleted)", "claude -p", true),
            (
                "/home/u/.local/share/claude/versions/2.1.332",
                "claude",
                true,
            ),
            (
                "/home/u/.local/share/claude/versions/2.1.332-rc.1",
                "claude",
                true,
            ),
            (
                "/home/u/.local/share/claude/versions/2.1.332 (deleted)",
                "claude",
                true,
            ),
            (
                "/home/u/.local/share/claude/versions/latest",
                "claude",
                false,
            ),
            (
                "/home/u/.local/share/other/versions/2.1.332",
                "claude",
                false,
            ),
            (
                "/lib/node_modules/@anthropic-ai/claude-code-linux-x64/run",
                "run",
                true,
            ),
            ("/lib/node_modules/@anthropic-ai/sdk/run", "run", false),
            (
                "/usr/bin/node",
                "node /lib/node_modules/@anthropic-ai/claude-code/cli.js",
                true,
            ),
            ("/usr/bin/node", "node /usr/bin/claude -p", true),
            ("/usr/bin/node", "node server.js claude", false),
            ("/usr/bin/vim", "vim /usr/bin/claude", false),
            ("/build/fake-claude", "fake-claude -p", true),
            ("/elsewhere/fake-claude", "fake-claude -p", false),
            ("/usr/bin/bash", "claude", false),
            ("/usr/bin/oo", "oo resume claude", false),
        ];
        for (executable, arguments, expected) in table {
            assert_eq!(
                programs.runs_claude(Path::new(executable), &words(arguments)),
                expected,
                "{executable} {arguments}"
            );
        }
    }

    #[test]
    fn which_session_arguments_name() {
        let table = [
            (format!("claude -p --session-id {A}"), Some(A)),
            (format!("claude -p --session-id={A}"), Some(A)),
            (format!("claude --resume={A} -p"), Some(A)),
            (format!("claude -r {A} -p"), Some(A)),
            (format!("claude --resume {A} --fork-session"), None),
            (
                format!("claude --resume {A} --fork-session --session-id={B}"),
                Some(B),
            ),
            (format!("claude --session-id {A} --session-id {B}"), Some(B)),
            ("claude --resume some-title".to_owned(), None),
            ("claude --resume".to_owned(), None),
            (format!("claude -p -- --session-id={A}"), None),
            (format!("claude -p {A}"), None),
            ("claude mcp list".to_owned(), None),
            (String::new(), None),
        ];
        for (line, expected) in table {
            assert_eq!(
                session_argument(&words(&line)),
                expected.map(uuid),
                "{line}"
            );
        }
    }

    #[test]
    fn the_nearest_row_outranks_a_nearer_executable() {
        // pid, row, claude executable with its argument: nearest first.
        type Expected = Option<(i32, Option<&'static str>)>;
        let table: [(Vec<Ancestor>, Expected); 6] = [
            (vec![], None),
            (vec![ancestor(5, None, None)], None),
            (
                vec![ancestor(5, Some(A), None), ancestor(4, Some(B), None)],
                Some((5, Some(A))),
            ),
            // `claude mcp list` inside a session: the session owns it.
            (
                vec![ancestor(5, None, Some(None)), ancestor(3, Some(B), None)],
                Some((3, Some(B))),
            ),
            (
                vec![ancestor(5, None, None), ancestor(4, None, Some(Some(A)))],
                Some((4, Some(A))),
            ),
            (
                vec![
                    ancestor(5, None, Some(None)),
                    ancestor(4, None, Some(Some(A))),
                ],
                Some((5, None)),
            ),
        ];
        for (ancestors, expected) in table {
            let found = choose(&ancestors).map(|owner| (owner.process.pid, owner.session));
            assert_eq!(
                found,
                expected.map(|(pid, session)| (pid, session.map(uuid))),
                "{ancestors:?}"
            );
        }
    }

    #[test]
    fn the_rows_of_real_processes() {
        let home = tempfile::tempdir().unwrap();
        let environment: Environment = [("HOME".into(), home.path().as_os_str().to_owned())]
            .into_iter()
            .collect();
        assert_eq!(calling_session(&environment), None);
        let folder = home.path().join(".claude/sessions");
        std::fs::create_dir_all(&folder).unwrap();
        let parent = nix::unistd::getppid().as_raw();
        std::fs::write(folder.join(format!("{parent}.json")), row_of(parent)).unwrap();
        let caller = calling_session(&environment).unwrap();
        assert_eq!((caller.process.pid, caller.session_id), (parent, uuid(A)));
        let own = nix::unistd::getpid().as_raw();
        let config = config_dir(&environment);
        let owner = owner_of(own, config.as_deref(), &Programs::default()).unwrap();
        assert_eq!((owner.process.pid, owner.session), (parent, Some(uuid(A))));
        // A row that SIGKILL left behind, under a pid that is used again.
        let stale = row_of(parent).replace("\"procStart\":\"", "\"procStart\":\"9");
        std::fs::write(folder.join(format!("{parent}.json")), stale).unwrap();
        assert_eq!(calling_session(&environment), None);
    }
}
