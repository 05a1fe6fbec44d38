//! A small MCP server for claude to start, which writes down how it was treated.
//!
//! A shell script, since claude needs a shell anyhow and a test should need no more. It logs
//! each line that it gets, its environment, its pid and its parent's, and the signals it is
//! sent; it offers no tools.
//!
//! Invariant: it answers as the protocol wants: an unknown method, `server/discover` before
//! all, with -32601.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::env::TestEnv;

/// The server's files.
pub(crate) struct Server {
    folder: PathBuf,
}

/// The name by which claude knows it.
pub(crate) const NAME: &str = "scribe";

const SCRIPT: &str = r#"
here=$1
echo "$$ $PPID" > "$here/pids"
env -0 > "$here/environ"
trap 'echo INT >> "$here/signals"' INT
trap 'echo TERM >> "$here/signals"; exit 0' TERM
while :; do
    # A signal cuts a read short: that is no end of the input.
    if ! IFS= read -r line; then
        if [ -s "$here/signals" ]; then continue; fi
        break
    fi
    printf '%s\n' "$line" >> "$here/lines"
    case $line in *'"id":'*) ;; *) continue ;; esac
    id=${line#*'"id":'}; id=${id%%[,\}]*}
    version=${line#*'"protocolVersion":"'}; version=${version%%'"'*}
    case $line in
        *'"method":"initialize"'*)
            answer='"result":{"protocolVersion":"'$version'","capabilities":{"tools":{}},"serverInfo":{"name":"scribe","version":"1"}}' ;;
        *'"method":"tools/list"'*) answer='"result":{"tools":[]}' ;;
        *'"method":"ping"'*) answer='"result":{}' ;;
        *) answer='"error":{"code":-32601,"message":"method not found"}' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$answer"
done
"#;

impl Server {
    pub(crate) fn new(env: &TestEnv) -> Self {
        let folder = env.root().join("scribe");
        fs::create_dir(&folder).expect("the scratch folder takes folders");
        let server = Self { folder };
        fs::write(server.file("server.sh"), SCRIPT).expect("the folder takes files");
        let config = json!({ "mcpServers": { NAME: {
            "command": "/bin/sh",
            "args": [server.file("server.sh"), &server.folder],
        } } });
        fs::write(server.file("mcp.json"), config.to_string()).expect("the folder takes files");
        server
    }

    /// The arguments that give it, and it alone, to claude.
    pub(crate) fn args(&self) -> Vec<String> {
        let config = self.file("mcp.json").display().to_string();
        vec![
            format!("--mcp-config={config}"),
            "--strict-mcp-config".to_owned(),
        ]
    }

    /// The pids of the server and of its parent.
    pub(crate) fn pids(&self) -> (u32, u32) {
        let text = fs::read_to_string(self.file("pids")).expect("the server was started");
        let mut pids = text
            .split_whitespace()
            .map(|pid| pid.parse().expect("a pid"));
        (
            pids.next().expect("two pids"),
            pids.next().expect("two pids"),
        )
    }

    /// The environment that it found.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let text = fs::read_to_string(self.file("environ")).expect("the server was started");
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// The messages that it got.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.file("lines")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON-RPC is JSON"))
            .collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
