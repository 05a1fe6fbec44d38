//! From the command line to a session: checks in the real program's order, and its messages.

use std::path::{Path, PathBuf};

use crate::cost::Ledger;
use crate::flags::Flags;
use crate::mcp::Mcp;
use crate::quirks::LostSession;
use crate::record::Record;
use crate::registry::{Facts, Registry};
use crate::script::Script;
use crate::session::{Format, Parts, Session};
use crate::transcript::{self, Log, Past};
use crate::{ids, result};

/// What ends the process before a session exists.
pub(crate) enum Refusal {
    /// A line on stderr, code 1.
    Error(String),
    /// `--resume` of a session that is not there.
    Lost {
        session: String,
        error: String,
        how: LostSession,
    },
}

fn refuse<T>(text: &str) -> Result<T, Refusal> {
    Err(Refusal::Error(text.to_owned()))
}

/// Which session the process is for.
struct Target {
    id: String,
    /// The transcript to go on with.
    from: Option<PathBuf>,
    resumed: bool,
}

/// `~/.claude`, or where CLAUDE_CONFIG_DIR puts it.
fn config_folder() -> PathBuf {
    match std::env::var_os("CLAUDE_CONFIG_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => {
            PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into())).join(".claude")
        }
    }
}

fn check_flags(flags: &Flags, mode: &str) -> Result<Format, Refusal> {
    let format = match flags.value("--output-format") {
        Some("json") => Format::Json,
        Some("stream-json") => Format::Stream,
        _ => Format::Text,
    };
    let streaming = flags.value("--input-format") == Some("stream-json");
    if streaming && format != Format::Stream {
        return refuse("Error: --input-format=stream-json requires output-format=stream-json.");
    }
    if flags.has("--replay-user-messages") && !(streaming && format == Format::Stream) {
        return refuse(
            "Error: --replay-user-messages requires both --input-format=stream-json and \
             --output-format=stream-json.",
        );
    }
    if format == Format::Stream && !flags.has("--verbose") {
        return refuse("Error: When using --print, --output-format=stream-json requires --verbose");
    }
    let id = flags.value("--session-id");
    if id.is_some_and(|id| uuid::Uuid::try_parse(id).is_err()) {
        return refuse("Error: Invalid session ID. Must be a valid UUID.");
    }
    let resumes = flags.has("--resume") || flags.has("--continue");
    if id.is_some() && resumes && !flags.has("--fork-session") {
        return refuse(
            "Error: --session-id with --continue or --resume also needs --fork-session.",
        );
    }
    let sandboxed =
        std::env::var("IS_SANDBOX").is_ok_and(|v| !["", "0", "false"].contains(&v.as_str()));
    if mode == "bypassPermissions" && nix::unistd::getuid().is_root() && !sandboxed {
        return refuse(
            "--dangerously-skip-permissions cannot be used with root/sudo privileges for security \
             reasons",
        );
    }
    Ok(format)
}

fn check_files(flags: &Flags) -> Result<(), Refusal> {
    if let Some(value) = flags.value("--settings") {
        let json = serde_json::from_str::<serde_json::Value>(value).is_ok_and(|v| v.is_object());
        if !json && !Path::new(value).is_file() {
            let path = std::env::current_dir().unwrap_or_default().join(value);
            return refuse(&format!(
                "Error: Settings file not found: {}",
                path.display()
            ));
        }
    }
    for (name, what) in [
        ("--append-system-prompt-file", "Append system prompt"),
        ("--system-prompt-file", "System prompt"),
    ] {
        if let Some(path) = flags.value(name).filter(|path| !Path::new(path).is_file()) {
            return refuse(&format!("Error: {what} file not found: {path}"));
        }
    }
    Ok(())
}

fn mode(flags: &Flags) -> String {
    if flags.has("--dangerously-skip-permissions") {
        return "bypassPermissions".to_owned();
    }
    match flags.value("--permission-mode") {
        None | Some("manual") => "default".to_owned(),
        Some(mode) => mode.to_owned(),
    }
}

fn target(
    flags: &Flags,
    config: &Path,
    project: &str,
    how: LostSession,
) -> Result<Target, Refusal> {
    let wanted = flags.value("--session-id").map(str::to_owned);
    let resumed = if flags.has("--continue") {
        match transcript::newest(config, project) {
            Some(id) => Some(id),
            None => return refuse("No conversation found to continue"),
        }
    } else {
        flags.value("--resume").map(str::to_owned)
    };
    let Some(mut old) = resumed else {
        if flags.has("--resume") {
            return refuse("Error: --resume requires a valid session ID when using --print");
        }
        let id = wanted.unwrap_or_else(ids::uuid);
        if transcript::find(config, &id).is_some() {
            return refuse(&format!("Error: Session ID {id} is already in use."));
        }
        return Ok(Target {
            id,
            from: None,
            resumed: false,
        });
    };
    if uuid::Uuid::try_parse(&old).is_err() {
        old = by_title(config, &old).map_err(|error| Refusal::Lost {
            session: ids::uuid(),
            error,
            how,
        })?;
    }
    let Some(path) = transcript::find(config, &old) else {
        let error = format!("No conversation found with session ID: {old}");
        return Err(Refusal::Lost {
            session: old,
            error,
            how,
        });
    };
    let fork = flags.has("--fork-session");
    let id = if fork {
        wanted.unwrap_or_else(ids::uuid)
    } else {
        old
    };
    Ok(Target {
        id,
        from: Some(path),
        resumed: true,
    })
}

/// The one session of this name.
fn by_title(config: &Path, title: &str) -> Result<String, String> {
    let found = transcript::find_by_title(config, title);
    match found.as_slice() {
        [] => Err(format!(
            "Error: --resume requires a valid session ID or session title when used with --print. \
             Usage: claude -p --resume <session-id|title>. Provided value \"{title}\" is not a UUID \
             and does not match any session title."
        )),
        [(id, _)] => Ok(id.clone()),
        many => {
            let mut error = format!(
                "Error: --resume \"{title}\" matches {} sessions. Pass one of these session IDs to \
                 disambiguate:",
                many.len()
            );
            for (id, changed) in many {
                error += &format!("\n  {id}  (modified {})", ids::stamp(*changed));
            }
            Err(error)
        }
    }
}

/// The transcript to write, and what it holds already.
fn open_log(config: &Path, project: &str, target: &Target, enabled: bool) -> (Log, Past) {
    let own = config
        .join("projects")
        .join(project)
        .join(format!("{}.jsonl", target.id));
    let Some(from) = &target.from else {
        return (Log::new(own, enabled), Past::default());
    };
    let past = transcript::read(from);
    let forked = from.file_stem().is_some_and(|stem| *stem != *target.id);
    let path = if forked { own } else { from.clone() };
    if forked {
        let old = from
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(from)
            .unwrap_or_default()
            .replace(&old, &target.id);
        if let Some(folder) = path.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        let _ = std::fs::write(&path, text);
    }
    let mut log = Log::new(path, enabled);
    log.set_leaf(past.leaf.clone());
    log.open();
    (log, past)
}

/// Makes the session.
pub(crate) fn session(flags: Flags, script: Script, record: Record) -> Result<Session, Refusal> {
    let mode = mode(&flags);
    let format = check_flags(&flags, &mode)?;
    check_files(&flags)?;
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let mcp = Mcp::parse(&flags.values("--mcp-config"), &cwd).map_err(Refusal::Error)?;
    let config = config_folder();
    let cwd = cwd.display().to_string();
    let project = ids::encode(&cwd);
    let target = target(&flags, &config, &project, script.quirks.lost_session)?;
    let enabled = !script.quirks.no_transcript && !flags.has("--no-session-persistence");
    let (log, past) = open_log(&config, &project, &target, enabled);
    let mut ledger = Ledger::default();
    ledger.start_ms = ids::now_ms();
    if let Some(row) = &past.cost {
        ledger.carry(row);
    }
    crate::turn::TURNS.store(past.turns, std::sync::atomic::Ordering::Relaxed);
    let version = script.version.unwrap_or_else(|| "2.1.332".to_owned());
    let socket = format!("/tmp/cc-socks/{}.sock", std::process::id());
    let token = ids::hex(32);
    let facts = Facts {
        cwd: cwd.clone(),
        newer: version != "2.1.308",
        version: version.clone(),
        socket: socket.clone(),
        token: token.clone(),
        name: flags.value("--name").map(str::to_owned),
    };
    Ok(Session::new(Parts {
        model: flags
            .value("--model")
            .unwrap_or("claude-haiku-4-5")
            .to_owned(),
        registry: Registry::new(&config, &target.id, facts),
        flags,
        quirks: script.quirks,
        version,
        mode,
        format,
        cwd,
        config,
        token,
        socket,
        resumed: target.resumed,
        id: target.id,
        record,
        log,
        ledger,
        replies: script.replies,
        subagents: script.subagents,
        mcp,
    }))
}

/// Says why there is no session; the exit code.
pub(crate) fn say(refusal: &Refusal, format: Option<&str>) -> u8 {
    match refusal {
        Refusal::Error(text) => eprintln!("{text}"),
        Refusal::Lost {
            session,
            error,
            how,
        } => {
            let stream = matches!(format, Some("stream-json" | "json"));
            if *how == LostSession::Hang {
                loop {
                    std::thread::park();
                }
            }
            if stream && *how != LostSession::Stderr {
                println!("{}", result::lost_session(session, error).line());
            }
            if *how != LostSession::Row {
                eprintln!("{error}");
            }
        }
    }
    1
}
