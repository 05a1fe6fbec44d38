//! How the session of a doorman is reached: its owner's row, its door, its transcript.
//!
//! Everything is looked up anew for each delivery, since the owner may switch to another session
//! under the same pid, and somebody else may take the place of its socket.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::door::{Door, Shut};
use crate::platform::environment::Environment;
use crate::platform::process::Identity;
use crate::session::registry::{self, Row};
use crate::session::{config_dir, transcript};

/// The way to one claude.
#[derive(Clone, Debug)]
pub struct Reach {
    peer: Identity,
    config: Option<PathBuf>,
    /// What claude told its child; nothing for a doorman that is none.
    told: Option<Told>,
}

/// The door as the environment names it.
#[derive(Clone, Debug)]
struct Told {
    socket: PathBuf,
    token: Option<String>,
}

/// A door that is open, and what to say first.
#[derive(Debug)]
pub struct Open {
    /// Where it is.
    socket: PathBuf,
    /// The connection.
    pub door: Door,
    /// The line with the token that the door may ask for; empty when there is none.
    pub greeting: Vec<u8>,
}

impl Reach {
    /// As a child of `peer`, which told it of its door by the environment.
    #[must_use]
    pub fn child(environment: &Environment, peer: Identity) -> Self {
        let named = |name| environment.get(name).filter(|value| !value.is_empty());
        let token = environment.get_text("CLAUDE_CODE_MESSAGING_TOKEN");
        let told = named("CLAUDE_CODE_MESSAGING_SOCKET").map(|socket| Told {
            socket: PathBuf::from(socket),
            token: token.map(str::to_owned),
        });
        Self {
            peer,
            config: config_dir(environment),
            told,
        }
    }

    /// From outside: by the owner's row alone.
    #[must_use]
    pub fn outside(environment: &Environment, peer: Identity) -> Self {
        Self {
            peer,
            config: config_dir(environment),
            told: None,
        }
    }

    /// To no claude at all: what its transcript says is all that is left of a session.
    #[must_use]
    pub fn nobody(config: Option<&Path>) -> Self {
        Self {
            peer: Identity {
                pid: 0,
                proc_start: String::new(),
            },
            config: config.map(Path::to_owned),
            told: None,
        }
    }

    /// The claude.
    #[must_use]
    pub const fn peer(&self) -> &Identity {
        &self.peer
    }

    /// The owner's live row.
    #[must_use]
    pub fn row(&self) -> Option<Row> {
        registry::live_row(self.config.as_deref()?, self.peer.pid)
            .filter(|row| row.process == self.peer)
    }

    /// Where that row lies, or would.
    #[must_use]
    pub fn row_path(&self) -> Option<PathBuf> {
        Some(registry::path(self.config.as_deref()?, self.peer.pid))
    }

    /// The transcript of `session`, if it is there.
    #[must_use]
    pub fn transcript(&self, session: Uuid, row: Option<&Row>) -> Option<PathBuf> {
        let cwd = row.and_then(|row| row.cwd.as_deref());
        transcript::find(self.config.as_deref()?, session, cwd)
    }

    /// Opens the door. The socket that the environment names counts only when the owner listens
    /// there: variables are inherited by whoever is started inside a session, and may be another
    /// session's. Otherwise it is the row's, and the owner has to listen there too.
    ///
    /// # Errors
    /// Why it cannot be used, as a sentence.
    pub fn door(&self, row: Option<&Row>) -> Result<Open, String> {
        let told = match &self.told {
            Some(told) => told.open(&self.peer),
            None => Err("the session has no door".to_owned()),
        };
        let open = match (told, row.and_then(|row| row.socket.as_deref())) {
            (Ok(open), _) => open,
            (Err(why), None) => return Err(why),
            (Err(_), Some(socket)) => Open {
                door: Door::connect(socket).map_err(|shut| shut.text(socket))?,
                socket: socket.to_owned(),
                greeting: Vec::new(),
            },
        };
        open.door
            .belongs_to(&self.peer)
            .map_err(|shut| shut.text(&open.socket))?;
        Ok(open)
    }
}

impl Told {
    /// Opens the door that the environment names, if it is the owner's.
    fn open(&self, owner: &Identity) -> Result<Open, String> {
        let open = || {
            let door = Door::connect(&self.socket)?;
            door.belongs_to(owner)?;
            Ok(door)
        };
        let door = open().map_err(|shut: Shut| shut.text(&self.socket))?;
        Ok(Open {
            door,
            socket: self.socket.clone(),
            greeting: greeting(self.token.as_deref()),
        })
    }
}

/// What the door may ask for first. On Linux it looks at credentials, and does without.
fn greeting(token: Option<&str>) -> Vec<u8> {
    let Some(token) = token else {
        return Vec::new();
    };
    let mut line = serde_json::json!({ "type": "auth", "token": token })
        .to_string()
        .into_bytes();
    line.push(b'\n');
    line
}
