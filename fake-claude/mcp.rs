//! MCP servers: children over socket pairs, with the measured handshake and the measured end.
//!
//! Invariants: nothing is said before every server is connected or has failed; a server that
//! exits at once is started twice; at the end each gets INT, 100 ms later TERM, 400 ms later KILL.
//! A server that dies later stays dead, unless the script wants otherwise.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::hub::lock;
use crate::rpc::Peer;
use crate::session::Session;

/// How long claude waits for a server, without MCP_TIMEOUT.
const PATIENCE: Duration = Duration::from_millis(27_300);

/// How often in a row a server may fail to come up when it is started again.
const MOST_FAILURES: u32 = 50;

/// One configured server.
struct Spec {
    command: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

struct Server {
    name: String,
    spec: Spec,
    /// What claude adds to its environment, as at the first start.
    env: OnceLock<Vec<(String, String)>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    child: Option<Child>,
    peer: Option<Arc<Peer>>,
    connected: bool,
    tools: Vec<String>,
}

#[derive(Default)]
pub(crate) struct Mcp {
    servers: Vec<Arc<Server>>,
    interrupted: Mutex<Option<Instant>>,
}

impl Mcp {
    /// Reads the values of `--mcp-config`; the error is what goes to stderr.
    pub(crate) fn parse(values: &[&str], cwd: &Path) -> Result<Self, String> {
        let wrong = |what: String| format!("Error: Invalid MCP configuration:\n{what}");
        let mut servers: Vec<Arc<Server>> = Vec::new();
        for value in values {
            let inline = serde_json::from_str::<Value>(value)
                .ok()
                .filter(Value::is_object);
            let from_file = inline.is_none();
            let config = match inline {
                Some(config) => config,
                None => {
                    let path = cwd.join(value);
                    let text = std::fs::read_to_string(&path).map_err(|_| {
                        wrong(format!("MCP config file not found: {}", path.display()))
                    })?;
                    serde_json::from_str(&text).map_err(|_| {
                        wrong(format!("MCP config is not valid JSON: {}", path.display()))
                    })?
                }
            };
            let Some(entries) = config.get("mcpServers").and_then(Value::as_object) else {
                if from_file {
                    continue;
                }
                let what = "mcpServers: Invalid input: expected record, received undefined";
                return Err(wrong(what.to_owned()));
            };
            for (name, entry) in entries {
                // An entry that is no server is passed by in silence.
                if let Some(spec) = spec(entry) {
                    servers.retain(|known| &known.name != name);
                    servers.push(Arc::new(Server {
                        name: name.clone(),
                        spec,
                        env: OnceLock::new(),
                        state: Mutex::default(),
                    }));
                }
            }
        }
        Ok(Self {
            servers,
            interrupted: Mutex::default(),
        })
    }

    /// Starts all servers and waits for each to connect or fail, unless a signal comes.
    pub(crate) fn start(s: &Arc<Session>) {
        let patience = std::env::var("MCP_TIMEOUT")
            .ok()
            .and_then(|ms| ms.parse().ok());
        let deadline = Instant::now() + patience.map_or(PATIENCE, Duration::from_millis);
        let mut waiting = s.mcp.servers.len();
        let (tx, rx) = std::sync::mpsc::channel();
        for server in &s.mcp.servers {
            let (s, server, tx) = (Arc::clone(s), Arc::clone(server), tx.clone());
            std::thread::spawn(move || {
                connect(&s, &server, deadline);
                let _ = tx.send(());
                s.hub.tell(|_| ());
                if s.quirks.restart_servers {
                    keep(&s, &server);
                }
            });
        }
        s.hub.wait(None, |state| {
            waiting -= rx.try_iter().count();
            (waiting == 0 || state.stop.is_some()).then_some(())
        });
    }

    /// Name and status of each server, with the script's corrections.
    pub(crate) fn statuses(&self, instead: &BTreeMap<String, String>) -> Vec<(String, String)> {
        self.servers
            .iter()
            .map(|server| {
                let connected = lock(&server.state).connected;
                let status = if connected { "connected" } else { "failed" };
                let status = instead.get(&server.name).map_or(status, String::as_str);
                (server.name.clone(), status.to_owned())
            })
            .filter(|(_, status)| status != "absent")
            .collect()
    }

    /// `mcp__<server>__<tool>` for each tool.
    pub(crate) fn tool_names(&self) -> Vec<String> {
        self.servers
            .iter()
            .flat_map(|server| {
                let tools = lock(&server.state).tools.clone();
                tools
                    .into_iter()
                    .map(|tool| format!("mcp__{}__{tool}", server.name))
            })
            .collect()
    }

    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tool_names().iter().any(|tool| tool == name)
    }

    /// Calls a tool; the answer's content.
    pub(crate) fn call(&self, name: &str, input: &Value) -> Value {
        for server in &self.servers {
            let prefix = format!("mcp__{}__", server.name);
            let peer = lock(&server.state).peer.clone();
            if let (Some(tool), Some(peer)) = (name.strip_prefix(&prefix), peer) {
                let params = serde_json::json!({ "name": tool, "arguments": input });
                let answer = peer.request("tools/call", &params, Instant::now() + PATIENCE);
                return answer.map_or(Value::Null, |a| a["content"].clone());
            }
        }
        Value::Null
    }

    /// The first step of the end.
    pub(crate) fn interrupt(&self) {
        let mut interrupted = lock(&self.interrupted);
        if interrupted.is_none() {
            *interrupted = Some(Instant::now());
            self.signal(Signal::SIGINT);
        }
    }

    /// The rest of the end: waits for each server, with the ladder.
    pub(crate) fn stop(&self) {
        self.interrupt();
        let began = lock(&self.interrupted).unwrap_or_else(Instant::now);
        let mut steps = [(100, Signal::SIGTERM), (500, Signal::SIGKILL)]
            .into_iter()
            .peekable();
        while self.alive() {
            let due = |(after, _): &(u64, Signal)| began.elapsed() >= Duration::from_millis(*after);
            if let Some((_, signal)) = steps.next_if(due) {
                self.signal(signal);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn alive(&self) -> bool {
        self.servers.iter().any(|server| {
            let mut state = lock(&server.state);
            state
                .child
                .as_mut()
                .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
        })
    }

    fn signal(&self, signal: Signal) {
        for server in &self.servers {
            let mut state = lock(&server.state);
            let pid = state
                .child
                .as_mut()
                .and_then(|child| matches!(child.try_wait(), Ok(None)).then(|| child.id()));
            if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
    }
}

fn spec(entry: &Value) -> Option<Spec> {
    let kind = entry.get("type").and_then(Value::as_str).unwrap_or("stdio");
    if kind != "stdio" {
        return None;
    }
    let strings = |key: &str| -> Option<Vec<String>> {
        match entry.get(key) {
            None => Some(Vec::new()),
            Some(list) => list
                .as_array()?
                .iter()
                .map(|v| v.as_str().map(str::to_owned))
                .collect(),
        }
    };
    let env = match entry.get("env") {
        None => BTreeMap::new(),
        Some(env) => env
            .as_object()?
            .iter()
            .map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
            .collect::<Option<_>>()?,
    };
    Some(Spec {
        command: entry.get("command")?.as_str()?.to_owned(),
        args: strings("args")?,
        env,
    })
}

/// Starts a connected server again whenever it dies, until the end.
fn keep(s: &Session, server: &Server) {
    let mut peer = {
        let state = lock(&server.state);
        state.peer.clone().filter(|_| state.connected)
    };
    let mut failures = 0;
    while let Some(old) = peer.take() {
        old.wait_closed();
        if lock(&s.mcp.interrupted).is_some() {
            return;
        }
        let child = lock(&server.state).child.take();
        if let Some(mut child) = child {
            // It may have closed its stdout and live on.
            let _ = child.kill();
            let _ = child.wait();
        }
        // Under this lock, so that none is started that the end does not know of.
        let ending = lock(&s.mcp.interrupted);
        if ending.is_none() {
            peer = launch(s, server);
        }
        drop(ending);
        let Some(new) = &peer else { return };
        // One that was killed while it shook hands is started again; one that never comes up is
        // given up on in the end.
        failures = match greet(s, server, new, Instant::now() + PATIENCE) {
            true => 0,
            false => failures + 1,
        };
        if failures > MOST_FAILURES {
            return;
        }
    }
}

fn connect(s: &Session, server: &Server, deadline: Instant) {
    for _ in 0..2 {
        let Some(peer) = launch(s, server) else {
            return;
        };
        if greet(s, server, &peer, deadline) {
            return;
        }
        let ending = lock(&s.mcp.interrupted).is_some();
        if ending || Instant::now() >= deadline || !peer.closed() {
            return;
        }
        // It has exited: once more.
        let child = lock(&server.state).child.take();
        if let Some(mut child) = child {
            let _ = child.wait();
        }
    }
}

/// Starts a server's process.
fn launch(s: &Session, server: &Server) -> Option<Arc<Peer>> {
    let (child, peer) = spawn(s, server).ok()?;
    let peer = Arc::new(peer);
    let mut state = lock(&server.state);
    state.child = Some(child);
    state.peer = Some(Arc::clone(&peer));
    Some(peer)
}

/// The handshake; whether the server is connected.
fn greet(s: &Session, server: &Server, peer: &Peer, deadline: Instant) -> bool {
    let tools = peer.handshake(&s.version, deadline);
    let mut state = lock(&server.state);
    state.connected = tools.is_some();
    state.tools = tools.unwrap_or_default();
    state.connected
}

/// What claude adds to a server's environment.
fn added_env(s: &Session) -> Vec<(String, String)> {
    let mut env = s.child_env();
    env.push(("AI_AGENT".to_owned(), s.agent_name("harness")));
    env.push(("CLAUDE_PROJECT_DIR".to_owned(), s.cwd.clone()));
    if s.newer {
        env.push(("CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS".to_owned(), s.id()));
    }
    env
}

fn spawn(s: &Session, server: &Server) -> std::io::Result<(Child, Peer)> {
    let spec = &server.spec;
    let (stdin, theirs_in) = UnixStream::pair()?;
    let (stdout, theirs_out) = UnixStream::pair()?;
    let (stderr, theirs_err) = UnixStream::pair()?;
    let stdio = |stream: UnixStream| Stdio::from(OwnedFd::from(stream));
    let mut command = Command::new(&spec.command);
    command
        .args(&spec.args)
        .envs(server.env.get_or_init(|| added_env(s)).iter().cloned())
        .current_dir(&s.cwd)
        .stdin(stdio(theirs_in))
        .stdout(stdio(theirs_out))
        .stderr(stdio(theirs_err));
    let child = command.envs(&spec.env).spawn()?;
    Ok((child, Peer::new(stdin, stdout, stderr)))
}
