//! `oo runs`: the runs there are.

use std::path::Path;
use std::time::Duration;

use super::Context;
use super::asking::{self, Format};
use crate::error::Result;
use crate::platform::clock;
use crate::run::listing::{self, Listing, RunRow};
use crate::session;
use crate::store::StateDir;
use crate::ui::{Column, Kind, Table, when};

/// How much of a name or a prompt is shown, in characters.
const WORDS_SHOWN: usize = 60;

/// List runs, the newest first.
///
/// A run is named by the last eight characters of its id; `oo show` takes those. A run that goes
/// on is `running`; `unsupervised` is one whose supervisor died while its claude still runs. A run
/// folder that cannot be read is named on stderr, and the others are listed all the same.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {
    /// List this many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,

    /// List all of them
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,

    /// How to print.
    #[command(flatten)]
    pub format: Format,
}

/// Runs it; the exit code.
#[must_use]
pub fn run(args: Args, context: &Context) -> u8 {
    asking::end(args.format, list(args, context))
}

fn list(args: Args, context: &Context) -> Result<u8> {
    let state = StateDir::locate(&context.environment)?;
    let config = session::config_dir(&context.environment);
    let limit = (!args.all).then(|| usize::try_from(args.limit).unwrap_or(usize::MAX));
    let listing =
        listing::newest(&state, limit, config.as_deref()).map_err(asking::not_readable)?;
    let console = asking::console();
    let printed = if args.format.json {
        console.document(&listing)
    } else if listing.runs.is_empty() {
        Ok(())
    } else {
        let home = context.environment.get("HOME");
        let table = table(&listing, home.as_deref().map(Path::new));
        console.answer(&table.text(console.width()))
    };
    for broken in &listing.broken {
        console.note(&format!(
            "run {} cannot be shown: {}",
            broken.path.display(),
            broken.reason
        ));
    }
    if !args.format.json {
        let older = listing.total - listing.runs.len() - listing.broken.len();
        if listing.total == 0 {
            console.note("there are no runs yet");
        } else if older > 0 {
            console.note(&format!(
                "{older} older ones are not shown; --all shows them"
            ));
        }
    }
    printed.map(|()| 0)
}

fn table(listing: &Listing, home: Option<&Path>) -> Table {
    let column = |heading, kind| Column { heading, kind };
    let mut table = Table::new(&[
        column("RUN", Kind::Word),
        column("WHEN", Kind::Word),
        column("STATE", Kind::Word),
        column("TOOK", Kind::Number),
        column("COST", Kind::Number),
        column("WHAT", Kind::Text),
        column("CWD", Kind::Text),
    ]);
    for run in &listing.runs {
        let id = run.run_id.to_string();
        let cells = [
            id[id.len() - 8..].to_owned(),
            run.started_at
                .map(|at| when::ago(at, clock::now()))
                .unwrap_or_default(),
            state(run),
            took(run).map(when::took).unwrap_or_default(),
            run.cost_usd.map(when::dollars).unwrap_or_default(),
            what(run),
            folder(run.cwd.as_deref().unwrap_or_default(), home),
        ];
        table.row(cells.iter().map(String::as_str));
    }
    table
}

fn state(run: &RunRow) -> String {
    match (&run.class, &run.cause) {
        (Some(class), Some(cause)) => format!("{class} ({cause})"),
        (Some(class), None) => class.clone(),
        (None, _) => match run.hold {
            Some(hold) if hold.waiting => format!("{} (held, idle)", run.state),
            Some(_) => format!("{} (held)", run.state),
            None => run.state.clone(),
        },
    }
}

/// How long it took, or has taken so far.
fn took(run: &RunRow) -> Option<Duration> {
    match (run.duration_ms, run.ended_at) {
        (Some(millis), _) => Some(Duration::from_millis(millis)),
        (None, None) if run.class.is_none() => run.started_at.map(clock::age),
        (None, _) => None,
    }
}

fn what(run: &RunRow) -> String {
    let words = run.name.as_deref().or(run.prompt.as_deref());
    let words = words.unwrap_or_default();
    match words.char_indices().nth(WORDS_SHOWN) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words.to_owned(),
    }
}

/// The folder, with `~` for the home.
fn folder(cwd: &str, home: Option<&Path>) -> String {
    let below = home.and_then(|home| Path::new(cwd).strip_prefix(home).ok());
    match below {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => cwd.to_owned(),
    }
}
