//! `claude mcp list`: the health check that starts every configured server.
//!
//! Invariants: no registry row and no door; the servers are given a session id that belongs to no
//! session, and whatever socket variables the caller had; they are ended like any other.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::rpc::Peer;

/// Starts the servers of `~/.claude.json` and of `.mcp.json`, one after the other.
pub(crate) fn run(version: &str) {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let session = crate::ids::uuid();
    let mut found = false;
    println!("Checking MCP server health…\n");
    for file in [home.join(".claude.json"), PathBuf::from(".mcp.json")] {
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        let config: Value = serde_json::from_str(&text).unwrap_or_default();
        for (name, entry) in config["mcpServers"].as_object().into_iter().flatten() {
            found = true;
            let words: Vec<&str> = std::iter::once(&entry["command"])
                .chain(entry["args"].as_array().into_iter().flatten())
                .filter_map(Value::as_str)
                .collect();
            let connected = check(&words, &entry["env"], version, &session).unwrap_or(false);
            let verdict = if connected {
                "✔ Connected"
            } else {
                "✘ Failed to connect"
            };
            println!("{name}: {} - {verdict}", words.join(" "));
        }
    }
    if !found {
        println!("No MCP servers configured.");
    }
}

/// Whether a server answers.
fn check(words: &[&str], env: &Value, version: &str, session: &str) -> std::io::Result<bool> {
    let Some((program, args)) = words.split_first() else {
        return Ok(false);
    };
    let (stdin, theirs_in) = UnixStream::pair()?;
    let (stdout, theirs_out) = UnixStream::pair()?;
    let (stderr, theirs_err) = UnixStream::pair()?;
    let stdio = |stream: UnixStream| Stdio::from(OwnedFd::from(stream));
    let fields = env.as_object().into_iter().flatten();
    let mut child = Command::new(program)
        .args(args)
        .env(
            "AI_AGENT",
            format!("claude-code_{}_harness", version.replace('.', "-")),
        )
        .env("CLAUDECODE", "1")
        .env("CLAUDE_CODE_ENTRYPOINT", "sdk-cli")
        .env("CLAUDE_CODE_SESSION_ID", session)
        .env("CLAUDE_PROJECT_DIR", std::env::current_dir()?)
        .envs(fields.filter_map(|(name, value)| Some((name, value.as_str()?))))
        .stdin(stdio(theirs_in))
        .stdout(stdio(theirs_out))
        .stderr(stdio(theirs_err))
        .spawn()?;
    let peer = Peer::new(stdin, stdout, stderr);
    let connected = peer.handshake(version, Instant::now() + Duration::from_secs(30));
    let pid = i32::try_from(child.id()).map(Pid::from_raw);
    for (signal, grace) in [
        (Signal::SIGINT, 100),
        (Signal::SIGTERM, 400),
        (Signal::SIGKILL, 5000),
    ] {
        if let Ok(pid) = pid {
            let _ = kill(pid, signal);
        }
        let deadline = Instant::now() + Duration::from_millis(grace);
        while Instant::now() < deadline {
            if child.try_wait()?.is_some() {
                return Ok(connected.is_some());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(connected.is_some())
}
