//! The registry of live sessions: `<config>/sessions/<pid>.json`, one row for each claude process.
//!
//! - claude does not write a row in one step: a reader may see it half-written, so garbage is
//!   read again for a short while before it is called garbage.
//! - SIGKILL leaves a row behind, and a pid is used again: a row counts only while it is
//!   [`Row::live`].
//! - The key files that lie beside the rows are never opened.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use uuid::Uuid;

use crate::error::{Error, Kind, Result};
use crate::platform::host;
use crate::platform::process::{self, Identity};
use crate::store;

/// A row has a few hundred bytes; what is much longer is none.
const LONGEST: u64 = 256 * 1024;

/// How often a row that does not parse is read again, and how long to wait before each.
const READ_AGAIN: (u32, Duration) = (5, Duration::from_millis(2));

/// What one claude process says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The session that the process has now; it changes on `/clear`.
    pub session_id: Uuid,
    /// The process.
    pub process: Identity,
    /// `linux:<machine-id>:pid:[<inode>]`: where the pid means something.
    pub pid_domain: Option<String>,
    /// The folder the session works in.
    pub cwd: Option<PathBuf>,
    /// The session's name, chosen or derived.
    pub name: Option<String>,
    /// `idle`, `busy`, …; a new row has none for some milliseconds.
    pub status: Option<String>,
    /// The socket it listens on for lines.
    pub socket: Option<PathBuf>,
}

/// A file among the rows that is no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Every row of a registry.
#[derive(Debug, Default)]
pub struct Listing {
    /// The rows, live or not, by pid.
    pub rows: Vec<Row>,
    /// The files that are no rows.
    pub bad: Vec<BadRow>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    pid: i32,
    session_id: Uuid,
    #[serde(default, deserialize_with = "text_or_nothing")]
    proc_start: Option<String>,
    #[serde(default, deserialize_with = "text_or_nothing")]
    pid_domain: Option<String>,
    #[serde(default, deserialize_with = "text_or_nothing")]
    cwd: Option<String>,
    #[serde(default, deserialize_with = "text_or_nothing")]
    name: Option<String>,
    #[serde(default, deserialize_with = "text_or_nothing")]
    status: Option<String>,
    #[serde(default, deserialize_with = "text_or_nothing")]
    messaging_socket_path: Option<String>,
}

/// A field that is not worth a row: a text, a number as text, or nothing.
fn text_or_nothing<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    })
}

impl Row {
    /// Parses the content of a row file.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let fields: Fields = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        Ok(Self {
            session_id: fields.session_id,
            process: Identity {
                pid: fields.pid,
                proc_start: fields.proc_start.unwrap_or_default(),
            },
            pid_domain: fields.pid_domain,
            cwd: fields.cwd.map(PathBuf::from),
            name: fields.name,
            status: fields.status,
            socket: fields.messaging_socket_path.map(PathBuf::from),
        })
    }

    /// Whether the process that wrote the row still runs: its pid lives, its start time is equal,
    /// and the row is from this machine and this pid namespace.
    #[must_use]
    pub fn live(&self) -> bool {
        self.process.lives()
            && self.pid_domain.as_deref().is_some_and(|domain| {
                process::pid_namespace(self.process.pid)
                    .is_some_and(|inode| same_domain(domain, host::machine_id().as_deref(), inode))
            })
    }
}

/// Whether a domain is the one of this machine and this namespace. Where the machine has no id,
/// the namespace alone decides.
fn same_domain(domain: &str, machine: Option<&str>, namespace: u64) -> bool {
    let Some(rest) = domain.strip_prefix("linux:") else {
        return false;
    };
    let Some((theirs, theirs_namespace)) = rest.split_once(":pid:") else {
        return false;
    };
    theirs_namespace == format!("[{namespace}]")
        && machine.is_none_or(|ours| theirs.is_empty() || ours == theirs)
}

/// The row of one process, if there is one.
///
/// # Errors
/// When the file is there and stays unreadable or garbage.
pub fn read(config: &Path, pid: i32) -> std::result::Result<Option<Row>, BadRow> {
    read_patiently(config, pid, || std::thread::sleep(READ_AGAIN.1))
}

fn read_patiently(
    config: &Path,
    pid: i32,
    mut pause: impl FnMut(),
) -> std::result::Result<Option<Row>, BadRow> {
    let mut found = read_once(config, pid);
    for _ in 0..READ_AGAIN.0 {
        if found.is_ok() {
            break;
        }
        pause();
        found = read_once(config, pid);
    }
    found
}

fn read_once(config: &Path, pid: i32) -> std::result::Result<Option<Row>, BadRow> {
    let path = path(config, pid);
    let reason = match read_file(&path) {
        Ok(Some(bytes)) => match Row::parse(&bytes) {
            Ok(row) if row.process.pid == pid => return Ok(Some(row)),
            Ok(row) => format!("it names another process: {}", row.process.pid),
            Err(reason) => reason,
        },
        Ok(None) => return Ok(None),
        Err(error) => error.to_string(),
    };
    Err(BadRow { path, reason })
}

/// The row of one process, if it is live.
#[must_use]
pub fn live_row(config: &Path, pid: i32) -> Option<Row> {
    read(config, pid).ok().flatten().filter(Row::live)
}

/// Every row of a registry; an absent folder has none. Stale rows are listed too: see
/// [`Row::live`].
///
/// # Errors
/// When the folder is there and cannot be read.
pub fn list(config: &Path) -> Result<Listing> {
    let folder = folder(config);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
        Err(e) => return Err(Error::io("list", &folder, e).with_kind(Kind::NotFound)),
    };
    let mut pids: Vec<i32> = entries
        .filter_map(|entry| pid_of(entry.ok()?.file_name().to_str()?))
        .collect();
    let mut listing = Listing::default();
    // All that is garbage is read again together, so that many bad rows cost no more than one.
    for round in 0..=READ_AGAIN.0 {
        if round > 0 {
            std::thread::sleep(READ_AGAIN.1);
        }
        listing.bad.clear();
        pids.retain(|pid| match read_once(config, *pid) {
            Ok(row) => {
                // Nothing: it left between the look at the folder and the look at the row.
                listing.rows.extend(row);
                false
            }
            Err(bad) => {
                listing.bad.push(bad);
                true
            }
        });
        if pids.is_empty() {
            break;
        }
    }
    listing.rows.sort_unstable_by_key(|row| row.process.pid);
    listing.bad.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(listing)
}

/// Where the row of one process lies, if it has one.
#[must_use]
pub fn path(config: &Path, pid: i32) -> PathBuf {
    folder(config).join(format!("{pid}.json"))
}

fn folder(config: &Path) -> PathBuf {
    config.join("sessions")
}

/// The pid in the name of a row file; other names, key files among them, are none of ours.
fn pid_of(name: &str) -> Option<i32> {
    let digits = name.strip_suffix(".json")?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match store::regular(path) {
        Ok(file) => file.take(LONGEST).read_to_end(&mut bytes)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    Ok(Some(bytes))
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write the files that claude writes"
)]
pub(super) mod tests {
    use super::*;

    const CAPTURED: &str = r#"{"pid":4827,"sessionId":"77c69075-1c8e-4953-abac-a26fead0cc6d","cwd":"/home/u/work","startedAt":1796072281039,"procStart":"36024","version":"2.1.332","peerProtocol":1,"peerFeatures":["notify_idle"],"kind":"interactive","entrypoint":"sdk-cli","pidDomain":"linux:3d1219c7c4c5404aaa1f6d2a48adfda4:pid:[4026531836]","asksForConvertedSkills":null,"messagingSocketPath":"/tmp/cc-socks/4827.sock","name":"work-f8","nameSource":"derived","nameSince":1796072281039,"status":"idle","updatedAt":1796072281651,"statusUpdatedAt":1796072281651}"#;

    fn own_row() -> String {
        row_of(nix::unistd::getpid().as_raw())
    }

    /// The row that a live process would write.
    pub(in super::super) fn row_of(pid: i32) -> String {
        let own = Identity::of(pid).unwrap();
        format!(
            r#"{{"pid":{},"sessionId":"77c69075-1c8e-4953-abac-a26fead0cc6d","procStart":"{}","pidDomain":"linux:{}:pid:[{}]"}}"#,
            own.pid,
            own.proc_start,
            host::machine_id().unwrap_or_default(),
            process::pid_namespace(own.pid).unwrap(),
        )
    }

    #[test]
    fn a_captured_row() {
        let row = Row::parse(CAPTURED.as_bytes()).unwrap();
        assert_eq!(
            row.session_id.to_string(),
            "77c69075-1c8e-4953-abac-a26fead0cc6d"
        );
        assert_eq!(
            (row.process.pid, row.process.proc_start.as_str()),
            (4827, "36024")
        );
        assert_eq!(row.name.as_deref(), Some("work-f8"));
        assert_eq!(row.status.as_deref(), Some("idle"));
        assert_eq!(
            row.socket.as_deref(),
            Some(Path::new("/tmp/cc-socks/4827.sock"))
        );
        assert!(!row.live());
    }

    #[test]
    fn fields_that_changed_their_type_cost_only_themselves() {
        let row = Row::parse(
            br#"{"pid":1,"sessionId":"77c69075-1c8e-4953-abac-a26fead0cc6d","procStart":12,"name":{"a":1},"status":null}"#,
        )
        .unwrap();
        assert_eq!(row.process.proc_start, "12");
        assert_eq!((row.name, row.status), (None, None));
    }

    #[test]
    fn what_is_no_row() {
        for bytes in [
            "",
            "{",
            "[]",
            r#"{"pid":1}"#,
            r#"{"pid":1,"sessionId":"../../x"}"#,
        ] {
            assert!(Row::parse(bytes.as_bytes()).is_err(), "{bytes}");
        }
    }

    #[test]
    fn a_row_is_of_this_machine_and_namespace_or_stale() {
        let table = [
            ("linux:m:pid:[7]", Some("m"), 7, true),
            ("linux:m:pid:[7]", Some("n"), 7, false),
            ("linux:m:pid:[7]", Some("m"), 8, false),
            ("linux:m:pid:[7]", None, 7, true),
            ("linux::pid:[7]", Some("m"), 7, true),
            ("darwin:m:pid:[7]", Some("m"), 7, false),
            ("linux:m:pid:[77]", Some("m"), 7, false),
            ("", Some("m"), 7, false),
        ];
        for (domain, machine, namespace, same) in table {
            assert_eq!(same_domain(domain, machine, namespace), same, "{domain}");
        }
    }

    #[test]
    fn live_means_pid_start_and_domain() {
        let text = own_row();
        let row = Row::parse(text.as_bytes()).unwrap();
        assert!(row.live());
        let mut reused = row.clone();
        reused.process.proc_start = "1".to_owned();
        assert!(!reused.live());
        let mut elsewhere = row;
        elsewhere.pid_domain = None;
        assert!(!elsewhere.live());
    }

    #[test]
    fn a_list_names_bad_rows_and_never_looks_at_keys() {
        let config = tempfile::tempdir().unwrap();
        assert!(list(config.path()).unwrap().rows.is_empty());
        let folder = folder(config.path());
        fs::create_dir(&folder).unwrap();
        let own = std::process::id();
        fs::write(folder.join(format!("{own}.json")), own_row()).unwrap();
        fs::write(folder.join("4827.json"), CAPTURED).unwrap();
        fs::write(folder.join("4828.json"), CAPTURED).unwrap();
        fs::write(folder.join("4829.json"), "{\"pid\":").unwrap();
        fs::create_dir(folder.join("4830.json")).unwrap();
        fs::write(folder.join("4827.abc.key"), "secret").unwrap();
        let listing = list(config.path()).unwrap();
        assert_eq!(listing.rows.len(), 2);
        assert_eq!(listing.rows.iter().filter(|row| row.live()).count(), 1);
        let bad: Vec<_> = listing
            .bad
            .iter()
            .map(|bad| bad.path.file_name().unwrap())
            .collect();
        assert_eq!(bad, ["4828.json", "4829.json", "4830.json"]);
    }

    #[test]
    fn a_row_that_is_still_being_written_is_read_again() {
        let config = tempfile::tempdir().unwrap();
        let folder = folder(config.path());
        fs::create_dir(&folder).unwrap();
        let pid = nix::unistd::getpid().as_raw();
        let path = folder.join(format!("{pid}.json"));
        let row = own_row();
        let mut written = 0;
        fs::write(&path, "").unwrap();
        let found = read_patiently(config.path(), pid, || {
            written = (written + row.len() / 3 + 1).min(row.len());
            fs::write(&path, &row[..written]).unwrap();
        });
        assert!(found.unwrap().is_some());
        // What stays garbage is named in the end.
        fs::write(&path, "{").unwrap();
        let bad = read_patiently(config.path(), pid, || {}).unwrap_err();
        assert_eq!(bad.path, path);
    }
}
