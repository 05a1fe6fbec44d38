//! Finding the run that a person means: by its id, a prefix or suffix of it, or its session; and
//! the [`session()`] that a person means.

mod session;

use uuid::Uuid;

use super::spec::LaunchSpec;
use crate::error::{Error, Result};
use crate::store::{self, StateDir};

pub use session::session;

/// The shortest fragment of an id that names something.
pub const SHORTEST: usize = 4;

/// The run that `name` means: a run id, a unique prefix or suffix of one with four or more
/// characters, or else a session's id or name, of which it is the newest run.
///
/// # Errors
/// Not found when nothing or more than one thing fits; the candidates are named.
pub fn run(state: &StateDir, name: &str) -> Result<Uuid> {
    let name = name.trim();
    let ids = state.run_ids()?;
    let fits = |id: &Uuid| {
        let plain = id.to_string().replace('-', "");
        plain.eq_ignore_ascii_case(name) || id_fits(*id, name)
    };
    let found: Vec<Uuid> = ids.iter().copied().filter(fits).collect();
    match found[..] {
        [id] => return Ok(id),
        [] => {}
        _ => return Err(ambiguous(name, &found)),
    }
    by_session(state, &ids, name)
}

/// The newest run of the session that `name` means.
fn by_session(state: &StateDir, ids: &[Uuid], name: &str) -> Result<Uuid> {
    let mut sessions: Vec<(Uuid, Uuid)> = Vec::new();
    for id in ids.iter().rev() {
        // A run whose spec cannot be read has no session that could be meant.
        let Ok(spec) = store::read_json::<LaunchSpec>(&state.run(*id).spec()) else {
            continue;
        };
        let named = spec.options.name.as_deref() == Some(name);
        let by_id = id_fits(spec.session_id, name);
        if (named || by_id) && !sessions.iter().any(|(known, _)| *known == spec.session_id) {
            sessions.push((spec.session_id, *id));
        }
    }
    match sessions[..] {
        [(_, run)] => Ok(run),
        [] => Err(
            Error::not_found(format!("there is no run or session {name:?}"))
                .hint("`oo runs` lists what there is; four characters of an id are enough"),
        ),
        _ => {
            let all: Vec<Uuid> = sessions.iter().map(|(session, _)| *session).collect();
            Err(ambiguous(name, &all))
        }
    }
}

fn ambiguous(name: &str, candidates: &[Uuid]) -> Error {
    too_many(name, candidates.iter().map(Uuid::to_string).collect())
}

/// More than one thing fits: they are named.
fn too_many(name: &str, candidates: Vec<String>) -> Error {
    const MOST: usize = 10;
    let count = candidates.len();
    let shown: Vec<String> = candidates.into_iter().take(MOST).collect();
    let more = count.saturating_sub(MOST);
    let tail = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    Error::not_found(format!("{name:?} fits {count}: {}{tail}", shown.join(", ")))
        .hint("give more characters")
}

/// Whether `fragment` is a prefix or suffix of an id, and long enough to mean it; hyphens as in
/// the id.
fn id_fits(id: Uuid, fragment: &str) -> bool {
    let text = id.to_string();
    let wanted = fragment.to_ascii_lowercase();
    wanted.len() >= SHORTEST && (text.starts_with(&wanted) || text.ends_with(&wanted))
}
