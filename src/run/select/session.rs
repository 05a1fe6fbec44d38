//! Finding the session that a person means: by its id, its name, or one of its runs.
//!
//! What is known of sessions, in this order: live rows of the registry, runs, inboxes, and, when
//! none of these fits, the names of the transcripts. A name that fits more than one session is
//! refused with the candidates: a line in the wrong session cannot be taken back.

use std::path::Path;

use uuid::Uuid;

use super::{SHORTEST, id_fits, too_many};
use crate::error::{Error, Result};
use crate::inbox::Inbox;
use crate::run::brief::Brief;
use crate::run::presence::Presence;
use crate::session::{names, registry, transcript};
use crate::store::StateDir;

/// Something by which a session may be meant.
#[derive(Clone, Debug)]
struct Candidate {
    session: Uuid,
    run: Option<Uuid>,
    name: Option<String>,
    live: bool,
    what: String,
}

/// The session that `name` means: the id of a session or of one of its runs, a unique prefix or
/// suffix of one with four or more characters, or a registered name, or a unique part of one with
/// four or more characters. `config` is claude's configuration folder.
///
/// Of several sessions with one name the live one is meant.
///
/// # Errors
/// Not found when nothing fits; refused, with the candidates, when more than one session does.
pub fn session(state: &StateDir, config: Option<&Path>, name: &str) -> Result<Uuid> {
    let name = name.trim();
    if let Ok(id) = Uuid::try_parse(name) {
        return exactly(state, config, id);
    }
    let known = known(state, config)?;
    let find = Find {
        state,
        config,
        name,
        known: &known,
    };
    find.by_id_or_name()?
        .map_or_else(|| find.by_transcript(), Ok)
}

fn exactly(state: &StateDir, config: Option<&Path>, id: Uuid) -> Result<Uuid> {
    let has_row = |config| -> Result<bool> {
        let rows = registry::list(config)?.rows;
        Ok(rows.iter().any(|row| row.session_id == id && row.live()))
    };
    if Inbox::of(state, id).exists() || config.map(has_row).transpose()? == Some(true) {
        return Ok(id);
    }
    if let Some(run) = Brief::of(state, id) {
        return Ok(run.session_id);
    }
    let in_runs = Brief::all(state)?.any(|run| run.session_id == id);
    if in_runs || config.is_some_and(|config| transcript::find(config, id, None).is_some()) {
        return Ok(id);
    }
    Err(Error::not_found(format!("no session {id} is known here"))
        .hint("check the id; `oo runs` lists the sessions that oo started"))
}

/// What is known but for transcripts, live rows first, then runs from the newest on.
fn known(state: &StateDir, config: Option<&Path>) -> Result<Vec<Candidate>> {
    let mut known = Vec::new();
    let rows = match config {
        Some(config) => registry::list(config)?.rows,
        None => Vec::new(),
    };
    for row in rows.into_iter().filter(registry::Row::live) {
        let place = row
            .cwd
            .as_deref()
            .map(|cwd| format!(", in {}", cwd.display()));
        known.push(Candidate {
            session: row.session_id,
            run: None,
            what: format!(
                "live{}{}",
                quoted(row.name.as_deref()),
                place.unwrap_or_default()
            ),
            name: row.name,
            live: true,
        });
    }
    for run in Brief::all(state)? {
        let id = run.run_id.to_string();
        known.push(Candidate {
            session: run.session_id,
            run: Some(run.run_id),
            name: run.name().map(str::to_owned),
            live: false,
            what: format!("run {}{}", &id[id.len() - 8..], quoted(run.name())),
        });
    }
    for session in Inbox::sessions(state)? {
        known.push(Candidate {
            session,
            run: None,
            name: None,
            live: false,
            what: "it has an inbox".to_owned(),
        });
    }
    Ok(known)
}

fn quoted(name: Option<&str>) -> String {
    name.map(|name| format!(", {name:?}")).unwrap_or_default()
}

/// A search for one name.
struct Find<'a> {
    state: &'a StateDir,
    config: Option<&'a Path>,
    name: &'a str,
    known: &'a [Candidate],
}

impl Find<'_> {
    /// A whole name and a part of an id may be the same word: then neither is guessed.
    fn by_id_or_name(&self) -> Result<Option<Uuid>> {
        let by_id = self.sessions(|candidate| {
            let run = candidate.run.is_some_and(|run| id_fits(run, self.name));
            run || id_fits(candidate.session, self.name)
        });
        let lower = self.name.to_lowercase();
        let mut found = self.named(|name| name == self.name)?;
        for session in by_id {
            if !found.contains(&session) {
                found.push(session);
            }
        }
        if found.is_empty() {
            found = self.named(|name| name.to_lowercase() == lower)?;
        }
        if found.is_empty() && self.name.chars().count() >= SHORTEST {
            found = self.named(|name| name.to_lowercase().contains(&lower))?;
        }
        self.the_one(&found)
    }

    fn by_transcript(&self) -> Result<Uuid> {
        let lower = self.name.to_ascii_lowercase();
        let fits = |id: &str| id.starts_with(&lower) || id.ends_with(&lower);
        let found: Vec<Uuid> = match self.config {
            Some(config) if lower.len() >= SHORTEST => {
                names::with_transcript(config, fits).into_iter().collect()
            }
            _ => Vec::new(),
        };
        self.the_one(&found)?.ok_or_else(|| {
            let shown = self.name;
            Error::not_found(format!("no session, run or name {shown:?} is known here")).hint(
                "`oo runs` lists what oo started; four characters of an id or a name are enough",
            )
        })
    }

    /// The sessions with a name that fits: the live ones among them, if there are any.
    fn named(&self, fits: impl Fn(&str) -> bool) -> Result<Vec<Uuid>> {
        let named = |candidate: &Candidate| candidate.name.as_deref().is_some_and(&fits);
        let all = self.sessions(named);
        if all.len() < 2 {
            return Ok(all);
        }
        let mut live = Vec::new();
        for session in &all {
            let row = self
                .known
                .iter()
                .any(|row| row.live && row.session == *session);
            if row || Presence::of(self.state, None, *session)?.is_live() {
                live.push(*session);
            }
        }
        Ok(if live.is_empty() { all } else { live })
    }

    /// The sessions of the candidates that fit, each once.
    fn sessions(&self, fits: impl Fn(&Candidate) -> bool) -> Vec<Uuid> {
        let mut found = Vec::new();
        for candidate in self.known.iter().filter(|candidate| fits(candidate)) {
            if !found.contains(&candidate.session) {
                found.push(candidate.session);
            }
        }
        found
    }

    fn the_one(&self, found: &[Uuid]) -> Result<Option<Uuid>> {
        match found {
            [] => Ok(None),
            [one] => Ok(Some(*one)),
            many => {
                let shown = many.iter().map(|session| {
                    let what = self.known.iter().find(|known| known.session == *session);
                    let what = what.map_or("it has a transcript", |known| known.what.as_str());
                    format!("{session} ({what})")
                });
                Err(too_many(self.name, shown.collect()).with_kind(crate::error::Kind::Refused))
            }
        }
    }
}
