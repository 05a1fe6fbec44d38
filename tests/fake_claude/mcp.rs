//! MCP children: the handshake, their environment, and how they are ended.

use std::fs;

use serde_json::{Value, json};

use super::{Done, World};

/// A server in shell: it writes down its lines and the signals it gets.
pub(super) const SERVER: &str = r#"
echo start >> "$LOG"; echo $$ $PPID > "$LOG.pid"; env > "$LOG.env"; ls -l /proc/$$/fd/ > "$LOG.fds"
[ "$EXIT" ] && exit 1
trap 'echo INT >> "$LOG"; [ "$ON_INT" ] && exit 0' INT
trap 'echo TERM >> "$LOG"; [ "$ON_TERM" ] && exit 0' TERM
while true; do
  IFS= read -r line || { [ $? -gt 128 ] && continue; break; }
  echo "$line" >> "$LOG"
  case $line in
    *server/discover*) echo '{"jsonrpc":"2.0","id":"server-discover-probe-1","error":{"code":-32601,"message":"no"}}';;
    *'"initialize"'*) [ "$SLOW" ] && continue
      echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}';;
    *tools/list*) echo '{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"ping"}]}}';;
    *tools/call*) echo '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"pong"}]}}';;
  esac
done
"#;

struct Served {
    done: Done,
    log: Vec<String>,
    env: String,
    fds: String,
}

impl Served {
    fn status(&self) -> Value {
        self.done.rows()[0]["mcp_servers"][0]["status"].clone()
    }

    fn count(&self, line: &str) -> usize {
        self.log.iter().filter(|l| *l == line).count()
    }
}

fn serve(env: &[(&str, &str)], replies: &Value, timeout: Option<&str>) -> Served {
    let world = World::new();
    let log = world.path("server.log");
    let mut server = json!({"LOG": log});
    for (name, value) in env {
        server[name] = json!(value);
    }
    let config = json!({"mcpServers":{"s":
        {"command":"/bin/bash","args":["-c", SERVER],"env":server}}});
    let flags = [
        format!("--mcp-config={config}"),
        "--strict-mcp-config".to_owned(),
        "--permission-mode=bypassPermissions".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut command = world.command(&json!({"replies":replies}).to_string(), &flags);
    if let Some(ms) = timeout {
        command.env("MCP_TIMEOUT", ms);
    }
    let done = world.start(command, Some(b"hi")).wait();
    done.expect(0);
    let read =
        |more: &str| fs::read_to_string(format!("{}{more}", log.display())).unwrap_or_default();
    let log = read("").lines().map(str::to_owned).collect();
    Served {
        done,
        log,
        env: read(".env"),
        fds: read(".fds"),
    }
}

fn answer() -> Value {
    json!([{"text":"a"}])
}

#[test]
fn the_handshake_and_the_ladder() {
    let served = serve(&[("ON_TERM", "1")], &answer(), None);
    assert_eq!(served.status(), "connected");
    let methods: Vec<String> = served.log[1..5]
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["method"].to_string())
        .collect();
    assert_eq!(
        methods,
        [
            "\"server/discover\"",
            "\"initialize\"",
            "\"notifications/initialized\"",
            "\"tools/list\""
        ]
    );
    assert_eq!(served.log[5..], ["INT", "TERM"]);
    for name in [
        "AI_AGENT=claude-code_2-1-332_harness",
        "CLAUDE_PROJECT_DIR=",
        "CLAUDECODE=1",
        "CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS=",
        "CLAUDE_CODE_MESSAGING_SOCKET=/tmp/cc-socks/",
    ] {
        assert!(
            served.env.contains(name),
            "{name} is missing:\n{}",
            served.env
        );
    }
    assert_eq!(served.fds.matches("socket:").count(), 3, "{}", served.fds);
}

#[test]
fn a_server_that_heeds_nothing_is_killed() {
    let served = serve(&[], &answer(), None);
    assert_eq!(served.log[5..], ["INT", "TERM"]);
}

#[test]
fn a_server_that_exits_at_once_is_started_twice() {
    let served = serve(&[("EXIT", "1")], &answer(), None);
    assert_eq!(served.count("start"), 2);
    assert_eq!(served.status(), "failed");
}

#[test]
fn a_slow_server_fails_and_is_left_alone_until_the_end() {
    let served = serve(&[("SLOW", "1"), ("ON_INT", "1")], &answer(), Some("300"));
    assert_eq!(served.status(), "failed");
    assert_eq!(served.count("start"), 1);
    assert_eq!(served.count("INT"), 1);
}

#[test]
fn a_tool_of_a_server_is_called() {
    let replies = json!([{"tools":[{"name":"mcp__s__ping","input":{}}]},{"text":"x"}]);
    let served = serve(&[("ON_INT", "1")], &replies, None);
    let rows = served.done.rows();
    assert!(
        rows[0]["tools"]
            .as_array()
            .unwrap()
            .contains(&json!("mcp__s__ping"))
    );
    assert_eq!(
        rows[2]["message"]["content"][0]["content"][0]["text"],
        "pong"
    );
}

#[test]
fn a_server_that_is_killed_comes_back_only_when_the_script_says_so() {
    for restart in [false, true] {
        let world = World::new();
        let log = world.path("server.log");
        let config = json!({"mcpServers":{"s":{"command":"/bin/bash","args":["-c", SERVER],
            "env":{"LOG":log,"ON_INT":"1"}}}});
        let flag = format!("--mcp-config={config}");
        let go = world.path("go");
        let wait = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
        let script = json!({"replies":[{"tools":[{"name":"Bash","input":{"command":wait}}]},
            {"text":"x"}],"quirks":{"restart_servers":restart}});
        let flags = [&flag, "--permission-mode=bypassPermissions"];
        let command = world.command(&script.to_string(), &flags);
        let mut run = world.start(command, Some(b"hi"));
        run.until_said("\"tool_use\"", 1);
        let read =
            |more: &str| fs::read_to_string(format!("{}{more}", log.display())).unwrap_or_default();
        let before = (read(".pid"), read(".env"));
        let pid = before.0.split(' ').next().unwrap().parse().unwrap();
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        if restart {
            run.until("a second handshake", |_| {
                read("").matches("tools/list").count() == 2
            });
            let parent = |ids: &str| ids.split_whitespace().nth(1).map(str::to_owned);
            assert_ne!(read(".pid"), before.0);
            assert_eq!(parent(&read(".pid")), parent(&before.0));
            assert_eq!(read(".env"), before.1);
        } else {
            run.until("its death", |_| {
                fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |s| s.contains(") Z"))
            });
        }
        fs::write(&go, "").unwrap();
        run.wait().expect(0);
        let log = read("");
        assert_eq!(log.matches("start").count(), 1 + usize::from(restart));
        assert_eq!(log.matches("INT").count(), usize::from(restart));
    }
}

#[test]
fn the_init_row_waits_for_the_servers() {
    let world = World::new();
    let started = world.path("started");
    let server = format!("touch {}; exec tail -f /dev/null", started.display());
    let config = json!({"mcpServers":{"s":{"command":"/bin/bash","args":["-c",server]}}});
    let flag = format!("--mcp-config={config}");
    let command = world.command(r#"{"replies":[{"text":"a"}]}"#, &[&flag]);
    let mut run = world.start(command, Some(b"hi"));
    run.until("the server", |_| started.exists());
    assert_eq!(run.stdout(), b"", "a row before the server answered");
    run.signal(nix::sys::signal::Signal::SIGINT);
    run.wait().expect(0);
}

#[test]
fn the_health_check_starts_the_servers_without_a_session() {
    let world = World::new();
    let log = world.path("server.log");
    let server = json!({"command":"/bin/bash","args":["-c",SERVER],
        "env":{"LOG":log,"ON_INT":"1"}});
    let config = json!({"mcpServers":{"s":server,"gone":{"command":"/nonexistent"}}});
    fs::write(world.path(".claude.json"), config.to_string()).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fake-claude"));
    command
        .args(["mcp", "list"])
        .env_clear()
        .env("HOME", world.path(""))
        .env("PATH", "/usr/bin:/bin")
        .env("CLAUDE_CODE_MESSAGING_SOCKET", "/tmp/of-another-session")
        .current_dir(world.path("work"));
    let done = world.start(command, Some(b"")).wait();
    done.expect(0);
    assert!(done.text().contains("Connected") && done.text().contains("Failed to connect"));
    let env = fs::read_to_string(format!("{}.env", log.display())).unwrap();
    assert!(
        env.contains("CLAUDE_CODE_MESSAGING_SOCKET=/tmp/of-another-session"),
        "{env}"
    );
    assert!(!world.path(".claude/sessions").exists());
}
