//! The process as a whole: what was asked of it, what it has said, what it must clean up.
//!
//! Everything here is either fixed at start or behind a lock of its own. Locks are leaves: no
//! code takes one while it holds another.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::cost::Ledger;
use crate::flags::Flags;
use crate::hub::{Hub, lock};
use crate::ids;
use crate::mcp::Mcp;
use crate::quirks::{Point, Quirks};
use crate::record::Record;
use crate::registry::Registry;
use crate::row::{Row, row};
use crate::script::{Replies, Reply, ToolCall};
use crate::transcript::Log;

/// `--output-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
    Stream,
}

/// Counters for `subagent_stats`.
#[derive(Debug, Default, Clone)]
pub(crate) struct AgentStats {
    pub(crate) spawned: u32,
    pub(crate) background: u32,
    pub(crate) foreground: u32,
    pub(crate) unset: u32,
    pub(crate) started_in_background: u32,
    pub(crate) completed: u32,
    pub(crate) failed: u32,
    pub(crate) killed_by_system: u32,
    pub(crate) by_type: BTreeMap<String, u32>,
}

pub(crate) struct Session {
    pub(crate) flags: Flags,
    pub(crate) quirks: Quirks,
    pub(crate) version: String,
    /// Fields and rows that 2.1.308 does not have.
    pub(crate) newer: bool,
    pub(crate) model: String,
    /// As the init row shows it.
    pub(crate) mode: String,
    pub(crate) format: Format,
    pub(crate) cwd: String,
    pub(crate) config: PathBuf,
    pub(crate) token: String,
    pub(crate) socket: String,
    pub(crate) resumed: bool,
    pub(crate) started: Instant,
    pub(crate) hub: Hub,
    pub(crate) record: Record,
    pub(crate) registry: Registry,
    pub(crate) log: Mutex<Log>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) replies: Mutex<Replies>,
    pub(crate) subagents: Mutex<BTreeMap<String, Vec<Reply>>>,
    pub(crate) stats: Mutex<AgentStats>,
    pub(crate) mcp: Mcp,
    /// Sessions of running commands, to be killed at the end.
    pub(crate) running: Mutex<Vec<u32>>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    id: Mutex<String>,
    written: Mutex<usize>,
    passed: Mutex<BTreeMap<Point, u32>>,
    tools_used: Mutex<Vec<String>>,
}

/// What [`Session::new`] is made of.
pub(crate) struct Parts {
    pub(crate) flags: Flags,
    pub(crate) quirks: Quirks,
    pub(crate) version: String,
    pub(crate) model: String,
    pub(crate) mode: String,
    pub(crate) format: Format,
    pub(crate) cwd: String,
    pub(crate) config: PathBuf,
    pub(crate) token: String,
    pub(crate) socket: String,
    pub(crate) resumed: bool,
    pub(crate) id: String,
    pub(crate) record: Record,
    pub(crate) registry: Registry,
    pub(crate) log: Log,
    pub(crate) ledger: Ledger,
    pub(crate) replies: Vec<Reply>,
    pub(crate) subagents: BTreeMap<String, Vec<Reply>>,
    pub(crate) mcp: Mcp,
}

impl Session {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            newer: parts.version != "2.1.308",
            flags: parts.flags,
            quirks: parts.quirks,
            version: parts.version,
            model: parts.model,
            mode: parts.mode,
            format: parts.format,
            cwd: parts.cwd,
            config: parts.config,
            token: parts.token,
            socket: parts.socket,
            resumed: parts.resumed,
            started: Instant::now(),
            hub: Hub::default(),
            record: parts.record,
            registry: parts.registry,
            log: Mutex::new(parts.log),
            ledger: Mutex::new(parts.ledger),
            replies: Mutex::new(Replies::new(parts.replies)),
            subagents: Mutex::new(parts.subagents),
            stats: Mutex::default(),
            mcp: parts.mcp,
            running: Mutex::default(),
            threads: Mutex::default(),
            id: Mutex::new(parts.id),
            written: Mutex::default(),
            passed: Mutex::default(),
            tools_used: Mutex::default(),
        }
    }

    /// The session's id.
    pub(crate) fn id(&self) -> String {
        lock(&self.id).clone()
    }

    /// The id that rows on stdout carry.
    pub(crate) fn shown_id(&self) -> String {
        self.quirks
            .report_session_id
            .clone()
            .unwrap_or_else(|| self.id())
    }

    /// The process turns to another session: registry, door and rows follow.
    pub(crate) fn switch(&self, to: &str) {
        to.clone_into(&mut lock(&self.id));
        self.registry.switch(to);
        let project = self.config.join("projects").join(ids::encode(&self.cwd));
        let mut log = Log::new(
            project.join(format!("{to}.jsonl")),
            !self.quirks.no_transcript,
        );
        log.open();
        *lock(&self.log) = log;
    }

    pub(crate) fn bypass(&self) -> bool {
        self.mode == "bypassPermissions"
    }

    /// A row on stdout, in the streaming format.
    pub(crate) fn say(&self, row: &Row) {
        if self.format == Format::Stream {
            self.print(format!("{}\n", row.line()).as_bytes());
        }
    }

    /// Bytes on stdout, whatever the format.
    pub(crate) fn print(&self, bytes: &[u8]) {
        let mut written = lock(&self.written);
        let room = self
            .quirks
            .stdout_cut_bytes
            .map_or(usize::MAX, |cut| cut - (*written).min(cut));
        let bytes = &bytes[..bytes.len().min(room)];
        *written += bytes.len();
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(bytes);
        let _ = stdout.flush();
    }

    /// A row outside the conversation, in the transcript.
    pub(crate) fn note(&self, row: &Row) {
        lock(&self.log).plain(row);
    }

    /// A row of the conversation, in the transcript.
    pub(crate) fn log(&self, uuid: &str, body: &Row) {
        let tail = self.tail();
        lock(&self.log).chained(uuid, body, &tail);
    }

    /// The fields at the end of every row of the conversation.
    pub(crate) fn tail(&self) -> Row {
        row! {
            "userType": "external",
            "entrypoint": "sdk-cli",
            "cwd": self.cwd,
            "sessionId": self.id(),
            "version": self.version,
            "gitBranch": "HEAD",
        }
    }

    /// All tools that were called so far, if some of these calls are the first of their tool.
    pub(crate) fn new_tools(&self, calls: &[ToolCall]) -> Vec<String> {
        let mut used = lock(&self.tools_used);
        let before = used.len();
        for call in calls {
            if !used.contains(&call.name) {
                used.push(call.name.clone());
            }
        }
        if used.len() > before {
            used.clone()
        } else {
            Vec::new()
        }
    }

    /// Counts a passing of a point, from 1.
    pub(crate) fn passing(&self, point: Point) -> u32 {
        let mut passed = lock(&self.passed);
        let n = passed.entry(point).or_insert(0);
        *n += 1;
        *n
    }

    /// Where background tasks write: `/tmp/claude-<uid>/<folder>/<session>`.
    pub(crate) fn scratch(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/claude-{}", nix::unistd::getuid()))
            .join(ids::encode(&self.cwd))
            .join(self.id())
    }

    /// The environment that claude adds for its children.
    pub(crate) fn child_env(&self) -> Vec<(String, String)> {
        let mut env = vec![
            (
                "NoDefaultCurrentDirectoryInExePath".to_owned(),
                "1".to_owned(),
            ),
            ("COREPACK_ENABLE_AUTO_PIN".to_owned(), "0".to_owned()),
            ("CLAUDECODE".to_owned(), "1".to_owned()),
            ("CLAUDE_CODE_ENTRYPOINT".to_owned(), "sdk-cli".to_owned()),
            (
                "CLAUDE_CODE_MESSAGING_SOCKET".to_owned(),
                self.socket.clone(),
            ),
            ("CLAUDE_CODE_MESSAGING_TOKEN".to_owned(), self.token.clone()),
            ("CLAUDE_CODE_SESSION_ID".to_owned(), self.id()),
        ];
        if self.newer {
            let notes = self.scratch().join("started").display().to_string();
            env.push(("CLAUDE_CODE_CHILD_NOTES_DIR".to_owned(), notes));
        }
        env
    }

    /// `claude-code_2-1-332_<who>`
    pub(crate) fn agent_name(&self, who: &str) -> String {
        format!("claude-code_{}_{who}", self.version.replace('.', "-"))
    }
}
