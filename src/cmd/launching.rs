//! From a prepared run to an exit code: what every launching verb shares.

use std::path::Path;

use uuid::Uuid;

use super::Context;
use crate::error::{Error, Kind, Result};
use crate::exit::{Cause, Class, Verb};
use crate::platform::environment::Environment;
use crate::platform::{host, runtime};
use crate::run::child_env::{self, ChildEnvironment};
use crate::run::holders::Holder;
use crate::run::launch::{self, Prepared};
use crate::run::result::{ResultDocument, State};
use crate::run::spec::LaunchSpec;
use crate::run::supervise::{self, Supervised, Surroundings};
use crate::session::{self, ancestry};
use crate::store::{Lock, Receipt, StateDir};
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

/// Why nothing was spawned.
#[derive(Debug)]
pub struct NotBegun {
    /// What is said.
    pub error: Box<Error>,
    /// What it amounts to.
    pub class: Class,
    /// Why, where there is a word for it.
    pub cause: Option<Cause>,
    /// The session that was asked for, once it is known.
    pub session: Option<Uuid>,
    /// Who has that session.
    pub holder: Option<Box<Holder>>,
}

impl From<Error> for NotBegun {
    fn from(error: Error) -> Self {
        Self {
            error: Box::new(error),
            class: Class::Refused,
            cause: None,
            session: None,
            holder: None,
        }
    }
}

impl NotBegun {
    fn document(&self, verb: Verb) -> ResultDocument {
        ResultDocument {
            class: Some(self.class),
            cause: self.cause,
            exit_code: Some(self.class.exit_code()),
            requested_session_id: self.session,
            holder: self.holder.as_deref().cloned(),
            ..ResultDocument::refused(verb, &self.error)
        }
    }

    /// The receipt of what was not done to a session.
    fn record(&self, verb: Verb, environment: &Environment) -> Result<()> {
        let state = StateDir::locate(environment)?;
        let Some(session) = self
            .session
            .filter(|_| StateDir::check(state.root()).is_ok())
        else {
            return Ok(());
        };
        Receipt {
            class: Some(self.class.name()),
            session_id: Some(session.to_string()),
            from: asker(environment),
            exit_code: Some(self.class.exit_code()),
            ..Receipt::new(verb, host::caller())
        }
        .record(&state)
    }
}

/// Makes a run ready; see [`launch::prepare`].
///
/// # Errors
/// As [`launch::prepare`], and when the child's environment cannot be made.
pub fn prepare(
    spec: LaunchSpec,
    prompt: &[u8],
    context: &Context,
    session_lock: Option<Lock>,
) -> Result<Prepared> {
    let environment = child_environment(&spec, context)?;
    launch::prepare(
        &StateDir::locate(&context.environment)?,
        spec,
        prompt,
        environment,
        session_lock,
    )
}

/// The environment that a run's claude gets.
///
/// # Errors
/// When a variable cannot be kept or passed on.
pub fn child_environment(spec: &LaunchSpec, context: &Context) -> Result<ChildEnvironment> {
    child_env::child_environment(
        &context.environment,
        &spec.env,
        &spec.drop_env,
        &context.inherited,
    )
}

/// Runs what `prepare` makes ready, and shows it; the exit code.
pub fn run(
    verb: Verb,
    output: Output,
    context: &Context,
    prepare: impl FnOnce() -> std::result::Result<Prepared, NotBegun>,
) -> u8 {
    let console = Console {
        quiet: output.quiet,
    };
    let mut begun = None;
    let supervised = prepare().and_then(|prepared| {
        begun = Some((prepared.spec.run_id, prepared.spec.session_id));
        let supervised = supervise(prepared, output, console, &context.environment);
        supervised.map_err(NotBegun::from)
    });
    match supervised {
        Ok((supervised, followed)) => show(&supervised, followed, output, console),
        Err(refusal) => {
            let mut document = refusal.document(verb);
            if let Err(error) = refusal.record(verb, &context.environment) {
                console.error(&error);
            }
            let error = refusal.error;
            if error.kind() == Kind::Failed {
                // It was spawned and is out of sight; what it writes is in its folder.
                document.state = State::Unsupervised;
                let class = Class::Failed.of(verb);
                document.class = Some(class);
                document.exit_code = Some(class.exit_code());
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
    let runtime = runtime::on_this_thread().map_err(|e| {
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
    if let Err(error) = receipt(&supervised.document, environment).record(&state) {
        console.error(&error);
    }
    Ok((supervised, followed))
}

/// The session in which this was called.
fn asker(environment: &Environment) -> Option<String> {
    ancestry::calling_session(environment).map(|row| row.session_id.to_string())
}

/// The receipt of a run that is over.
fn receipt(document: &ResultDocument, environment: &Environment) -> Receipt {
    let parent = document.lineage.as_ref().map(|lineage| lineage.parent);
    let from = match document.verb {
        // A session that is gone on with may have been started by another one, or by nobody.
        Verb::Resume => asker(environment),
        _ => parent.map(|parent| parent.to_string()),
    };
    Receipt {
        class: document.class.map(Class::name),
        session_id: document.session_id.clone(),
        run_id: document.run_id,
        from,
        exit_code: document.exit_code,
        ..Receipt::new(document.verb, host::caller())
    }
}

/// Shows how it ended. What cannot be shown or saved is a failure of its own: a caller that gets
/// 0 has the answer.
fn show(supervised: &Supervised, followed: Result<()>, output: Output, console: Console) -> u8 {
    let document = &supervised.document;
    let completed = document.class.is_some_and(Class::is_answer);
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
    match (error.kind(), document.exit_code) {
        (Kind::Usage, _) | (_, None) => error.kind().exit_code(),
        (_, Some(code)) => code,
    }
}
