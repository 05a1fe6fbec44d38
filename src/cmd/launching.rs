//! From a prepared run to an exit code: what every launching verb shares.

use std::path::Path;

use super::Context;
use crate::error::{Error, Kind, Result};
use crate::exit::{Class, Verb};
use crate::platform::environment::Environment;
use crate::platform::host;
use crate::run::child_env;
use crate::run::launch::{self, Prepared};
use crate::run::result::{ResultDocument, State};
use crate::run::spec::LaunchSpec;
use crate::run::supervise::{self, Supervised, Surroundings};
use crate::session;
use crate::store::{Receipt, StateDir};
use crate::ui::{Console, RunView};

/// What a launching verb shows.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Output {
    /// Print the result document, as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Print the conversation as it happens; with --json its rows, and the result last
    #[arg(long, help_heading = "Output")]
    pub follow: bool,

    /// Say nothing on stderr but errors
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// Makes a run ready; see [`launch::prepare`].
///
/// # Errors
/// As [`launch::prepare`], and when the child's environment cannot be made.
pub fn prepare(spec: LaunchSpec, prompt: &[u8], context: &Context) -> Result<Prepared> {
    let environment = child_env::child_environment(
        &context.environment,
        &spec.env,
        &spec.drop_env,
        &context.inherited,
    )?;
    launch::prepare(
        &StateDir::locate(&context.environment)?,
        spec,
        prompt,
        environment,
    )
}

/// Runs what `prepare` makes ready, and shows it; the exit code.
pub fn run(
    verb: Verb,
    output: Output,
    context: &Context,
    prepare: impl FnOnce() -> Result<Prepared>,
) -> u8 {
    let console = Console {
        quiet: output.quiet,
    };
    let mut begun = None;
    let supervised = prepare().and_then(|prepared| {
        begun = Some((prepared.spec.run_id, prepared.spec.session_id));
        supervise(prepared, output, console, &context.environment)
    });
    match supervised {
        Ok((supervised, followed)) => show(&supervised, followed, output, console),
        Err(error) => {
            let mut document = ResultDocument::refused(verb, &error);
            if error.kind() == Kind::Failed {
                // It was spawned and is out of sight; what it writes is in its folder.
                document.state = State::Unsupervised;
                document.class = Some(Class::Failed);
                document.exit_code = Some(Class::Failed.exit_code());
                document.run_id = begun.map(|(run, _)| run);
                document.session_id = begun.map(|(_, session)| session.to_string());
            }
            refuse(&document, &error, output, console)
        }
    }
}

fn supervise(
    prepared: Prepared,
    output: Output,
    console: Console,
    environment: &Environment,
) -> Result<(Supervised, Result<()>)> {
    let state = StateDir::locate(environment)?;
    // The child's own environment says where its claude keeps things.
    // A relative one is relative to the folder that claude works in.
    let config = session::config_dir(&prepared.environment.variables)
        .map(|config| prepared.spec.cwd.join(config));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| {
            prepared.refuse(Error::io(
                "make a runtime for",
                Path::new("the supervisor"),
                e,
            ))
        })?;
    let mut view =
        RunView::new(console, output.follow, output.json).held(prepared.spec.hold.is_some());
    let surroundings = Surroundings {
        state: state.clone(),
        config,
    };
    let supervised = runtime.block_on(supervise::supervise(prepared, surroundings, &mut view))?;
    let followed = view.end();
    if let Err(error) = receipt(&supervised.document).record(&state) {
        console.error(&error);
    }
    Ok((supervised, followed))
}

/// The receipt of a run that is over.
fn receipt(document: &ResultDocument) -> Receipt {
    let parent = document.lineage.as_ref().map(|lineage| lineage.parent);
    Receipt {
        class: document.class.map(Class::name),
        session_id: document.session_id.clone(),
        run_id: document.run_id,
        from: parent.map(|parent| parent.to_string()),
        exit_code: document.exit_code,
        ..Receipt::new(document.verb, host::caller())
    }
}

/// Shows how it ended. What cannot be shown or saved is a failure of its own: a caller that gets
/// 0 has the answer.
fn show(supervised: &Supervised, followed: Result<()>, output: Output, console: Console) -> u8 {
    let document = &supervised.document;
    let completed = document.class == Some(Class::Completed);
    let printed = match (output.json, output.follow) {
        (true, true) => followed.and_then(|()| console.row(document)),
        (true, false) => console.document(document),
        // The conversation had the answer.
        (false, true) => followed,
        (false, false) if completed => {
            console.answer(document.result.as_deref().unwrap_or_default())
        }
        (false, false) => Ok(()),
    };
    if !completed {
        console.failure(
            document.message.as_deref().unwrap_or_default(),
            document.hint.as_deref(),
        );
    }
    if let Some(note) = &document.note {
        console.note(note);
    }
    let mut code = document.exit_code.unwrap_or(Class::Failed.exit_code());
    let place = document
        .run_id
        .map(|id| format!("the result is kept: oo show {id}"));
    if let Err(error) = printed {
        console.error(&error.hint(place.unwrap_or_default()));
        code = code.max(Class::Failed.exit_code());
    }
    if let Some(error) = &supervised.unsaved {
        console.error(error);
        code = code.max(Class::Failed.exit_code());
    }
    code
}

fn refuse(document: &ResultDocument, error: &Error, output: Output, console: Console) -> u8 {
    console.error(error);
    if output.json && error.kind() != Kind::Usage {
        let printed = if output.follow {
            console.row(document)
        } else {
            console.document(document)
        };
        if let Err(error) = printed {
            console.error(&error);
        }
    }
    error.kind().exit_code()
}
