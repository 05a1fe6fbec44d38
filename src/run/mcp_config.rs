//! The MCP configuration that brings the doorman into a session.

use std::path::Path;

use serde_json::json;

use crate::error::{Error, Result};
use crate::platform::host;
use crate::store::StateDir;

/// The doorman's name among the MCP servers of a session.
pub const SERVER: &str = "oo";

/// The document: one server, this very program, with where its state folder lies and which program
/// is the claude that starts it, whatever the session's own environment says.
///
/// # Errors
/// When this program's path is not known or not UTF-8.
pub fn document(state: &StateDir, claude: &Path) -> Result<Vec<u8>> {
    let program = host::own_program()?;
    let config = json!({
        "mcpServers": {
            SERVER: {
                "type": "stdio",
                "command": utf8(&program)?,
                "args": ["doorman", "--mcp"],
                "env": {
                    "OO_STATE_DIR": utf8(state.root())?,
                    "OO_INBOX_DIR": utf8(state.inbox())?,
                    "OO_CLAUDE": utf8(claude)?,
                },
            },
        },
    });
    Ok(format!("{config:#}\n").into_bytes())
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::refused(format!("the path {} is not UTF-8", path.display()))
            .hint("an MCP configuration is JSON and cannot name it: move it, or use --no-doorman")
    })
}
