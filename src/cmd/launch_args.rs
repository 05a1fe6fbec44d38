//! The options of every verb that launches a claude, and how they become a launch spec.
//!
//! What can be known to fail is refused here, before anything exists.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::hold_arg::HoldArg;
use super::{Context, extra_args};
use crate::error::{Error, Kind, Result};
use crate::exit::Verb;
use crate::platform::clock;
use crate::run::claude_program;
use crate::run::prompt::PromptSource;
use crate::run::spec::{self, ClaudeOptions, DoormanMode, LaunchSpec, Parent};
use crate::run::watchdog::Limits;
use crate::session::ancestry;

/// The options.
#[derive(Debug, clap::Args)]
pub struct LaunchArgs {
    /// Whether the session stays open.
    #[command(flatten)]
    pub hold: HoldArg,

    /// Name the session, for people and for other verbs
    #[arg(long, value_name = "NAME")]
    pub name: Option<OsString>,

    /// Work in this folder [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// The model
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Stop after this many turns of the model
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_turns: Option<u32>,

    /// Stop when this much is spent, in dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub budget: Option<f64>,

    /// The tools that the model has; an empty list for none
    #[arg(long, value_name = "LIST")]
    pub tools: Vec<String>,

    /// Tools that need no permission
    #[arg(long, value_name = "LIST")]
    pub allowed_tools: Vec<String>,

    /// Tools that are denied
    #[arg(long, value_name = "LIST")]
    pub disallowed_tools: Vec<String>,

    /// claude's permission mode
    #[arg(long, value_name = "MODE")]
    pub permission_mode: Option<String>,

    /// Settings: a file, or inline JSON
    #[arg(long, value_name = "FILE|JSON")]
    pub settings: Option<String>,

    /// A further folder that tools may work in
    #[arg(long, value_name = "DIR")]
    pub add_dir: Vec<PathBuf>,

    /// Replace the system prompt by this file's text
    #[arg(long, value_name = "FILE")]
    pub system_prompt_file: Option<PathBuf>,

    /// Add this file's text to the system prompt
    #[arg(long, value_name = "FILE")]
    pub append_system_prompt_file: Option<PathBuf>,

    /// End the run after this long; 0s for never
    #[arg(long, value_name = "DUR", value_parser = limit, help_heading = "Clocks")]
    pub timeout: Option<Limit>,

    /// End the run when the model is silent for this long [default: 10m]
    #[arg(long, value_name = "DUR", value_parser = limit, help_heading = "Clocks")]
    pub idle_timeout: Option<Limit>,

    /// End the run when claude writes nothing at all for this long [default: 2m]
    #[arg(long, value_name = "DUR", value_parser = limit, help_heading = "Clocks")]
    pub first_output: Option<Limit>,

    /// End the run when one tool call takes this long [default: 30m]
    #[arg(long, value_name = "DUR", value_parser = limit, help_heading = "Clocks")]
    pub tool_timeout: Option<Limit>,

    /// End the run when background tasks go on for this long after the last result [default: 10m]
    #[arg(long, value_name = "DUR", value_parser = limit, help_heading = "Clocks")]
    pub background_timeout: Option<Limit>,

    /// How long claude may take to exit after its last result [default: 15s]
    #[arg(long, value_name = "DUR", value_parser = limit, help_heading = "Clocks")]
    pub drain: Option<Limit>,

    /// How long each step of ending a run may take: interrupt, terminate, kill [default: 5s]
    #[arg(long, value_name = "DUR", value_parser = humantime::parse_duration, help_heading = "Clocks")]
    pub grace: Option<Duration>,

    /// Pass a variable on to claude, or set it; CLAUDE* ones pass only so
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = "Environment")]
    pub env: Vec<OsString>,

    /// Take a variable away from claude
    #[arg(long, value_name = "NAME", help_heading = "Environment")]
    pub drop_env: Vec<String>,

    /// Run without a doorman: nobody can send the session a line
    #[arg(long, conflicts_with = "user_mcp", help_heading = "MCP")]
    pub no_doorman: bool,

    /// Use the user's own MCP configuration, which may have a doorman of its own
    #[arg(long, help_heading = "MCP")]
    pub user_mcp: bool,

    /// Further MCP servers: a file, or inline JSON
    #[arg(long, value_name = "FILE|JSON", help_heading = "MCP")]
    pub mcp_config: Vec<String>,

    /// The session that starts this one [default: the one this command runs in]
    #[arg(long, value_name = "SESSION")]
    pub parent: Option<Uuid>,

    /// The claude to run [default: $OO_CLAUDE, PATH, the usual places]
    #[arg(long, value_name = "PATH")]
    pub claude: Option<PathBuf>,

    /// Handed to claude as they are; what oo itself decides (session, formats, prompt) is refused
    #[arg(last = true, value_name = "ARGS")]
    pub extra: Vec<String>,
}

/// Variables that are set, or passed on (no value).
type Added = BTreeMap<String, Option<String>>;

/// A limit of a clock; `0s` turns the clock off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<Duration>);

fn limit(text: &str) -> std::result::Result<Limit, humantime::DurationError> {
    let duration = humantime::parse_duration(text)?;
    Ok(Limit((!duration.is_zero()).then_some(duration)))
}

fn dollars(text: &str) -> std::result::Result<f64, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(amount) if amount.is_finite() && amount > 0.0 => Ok(amount),
        _ => Err("an amount of dollars above 0 is wanted, such as 2.50".to_owned()),
    }
}

impl LaunchArgs {
    /// The launch spec of a new session in this folder.
    ///
    /// # Errors
    /// Refused when claude or a file is not there, or a value cannot be recorded.
    pub fn spec(&self, verb: Verb, cwd: PathBuf, context: &Context) -> Result<LaunchSpec> {
        let environment = &context.environment;
        extra_args::check(&self.extra)?;
        let (env, drop_env) = self.variables()?;
        Ok(LaunchSpec {
            schema: spec::SCHEMA.to_owned(),
            run_id: Uuid::now_v7(),
            verb,
            session_id: Uuid::new_v4(),
            resumes: None,
            claude: claude_program::find(self.claude.as_deref(), environment)?,
            cwd,
            options: self.options()?,
            doorman: if self.no_doorman {
                DoormanMode::None
            } else if self.user_mcp {
                DoormanMode::UserMcp
            } else {
                DoormanMode::Injected
            },
            env,
            drop_env,
            limits: self.limits(),
            hold: self.hold.hold(),
            parent: match self.parent {
                Some(session_id) => Some(Parent {
                    session_id,
                    named: true,
                }),
                None => ancestry::calling_session(environment).map(|row| Parent {
                    session_id: row.session_id,
                    named: false,
                }),
            },
            cost_before_usd: 0.0,
            created_at: clock::now(),
            oo_version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    fn options(&self) -> Result<ClaudeOptions> {
        let name = match &self.name {
            Some(name) => Some(text(name, "--name")?),
            None => None,
        };
        if let Some(name) = &name
            && (name.trim().is_empty() || name.contains(char::is_control))
        {
            return Err(
                Error::refused("--name is empty or holds control characters")
                    .hint("give a name that a person can read and type"),
            );
        }
        let file =
            |path: &Option<PathBuf>, flag| path.as_deref().map(|p| readable(p, flag)).transpose();
        Ok(ClaudeOptions {
            name,
            model: self.model.clone(),
            max_turns: self.max_turns,
            budget_usd: self.budget,
            tools: self.tools.clone(),
            allowed_tools: self.allowed_tools.clone(),
            disallowed_tools: self.disallowed_tools.clone(),
            permission_mode: self.permission_mode.clone(),
            settings: self
                .settings
                .as_deref()
                .map(|value| json_or_file(value, "--settings"))
                .transpose()?,
            add_dir: self
                .add_dir
                .iter()
                .map(|path| path_text(&existing_folder(path, "--add-dir")?, "--add-dir"))
                .collect::<Result<_>>()?,
            system_prompt_file: file(&self.system_prompt_file, "--system-prompt-file")?,
            append_system_prompt_file: file(
                &self.append_system_prompt_file,
                "--append-system-prompt-file",
            )?,
            mcp_config: self
                .mcp_config
                .iter()
                .map(|value| json_or_file(value, "--mcp-config"))
                .collect::<Result<_>>()?,
            extra: self.extra.clone(),
        })
    }

    fn limits(&self) -> Limits {
        let usual = Limits::default();
        let or = |given: Option<Limit>, usual| given.map_or(usual, |limit| limit.0);
        Limits {
            first_output: or(self.first_output, usual.first_output),
            idle: or(self.idle_timeout, usual.idle),
            tool: or(self.tool_timeout, usual.tool),
            background: or(self.background_timeout, usual.background),
            drain: or(self.drain, usual.drain),
            wall: or(self.timeout, usual.wall),
            grace: self.grace.unwrap_or(usual.grace),
        }
    }

    fn variables(&self) -> Result<(Added, Vec<String>)> {
        let mut add = BTreeMap::new();
        for given in &self.env {
            let given = text(given, "--env")?;
            let (name, value) = match given.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (given, None),
            };
            variable_name(&name, "--env")?;
            if self.drop_env.contains(&name) {
                return Err(Error::usage(format!(
                    "--env {name} and --drop-env {name} exclude each other"
                )));
            }
            add.insert(name, value);
        }
        for name in &self.drop_env {
            variable_name(name, "--drop-env")?;
        }
        // claude gives up on background agents after ten minutes, by a variable that does not
        // pass; a longer clock of ours has to move it.
        if let Some(Limit(background)) = self.background_timeout {
            let millis = background.map_or(MAX_CEILING_MS, |limit| limit.as_millis());
            add.entry("CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS".to_owned())
                .or_insert_with(|| Some(millis.min(MAX_CEILING_MS).to_string()));
        }
        Ok((add, self.drop_env.clone()))
    }
}

/// The most that a timer of claude's takes, in milliseconds: about 24 days.
const MAX_CEILING_MS: u128 = i32::MAX as u128;

/// Where the prompt comes from, of the two ways to give one.
///
/// # Errors
/// Refused when it is not UTF-8.
pub fn prompt_source(given: Option<&OsStr>, file: Option<&Path>) -> Result<PromptSource> {
    match (given, file) {
        (_, Some(path)) if path == Path::new("-") => Ok(PromptSource::Stdin),
        (_, Some(path)) => Ok(PromptSource::File(path.to_owned())),
        (Some(given), None) if given == "-" => Ok(PromptSource::Stdin),
        (Some(given), None) => Ok(PromptSource::Given(text(given, "the prompt")?)),
        (None, None) => Err(Error::usage("no prompt is given")),
    }
}

fn text(value: &OsStr, what: &str) -> Result<String> {
    value.to_str().map(str::to_owned).ok_or_else(|| {
        Error::refused(format!("{what} is not UTF-8: {}", value.display()))
            .hint("what is recorded has to be UTF-8; inherited variables pass as they are")
    })
}

fn variable_name(name: &str, flag: &str) -> Result<()> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(Error::refused(format!(
            "{flag}: {name:?} is no name of a variable"
        )));
    }
    Ok(())
}

/// The folder to work in: the one that is named, else the current one.
///
/// # Errors
/// Refused when it is not there, or cannot be entered.
pub fn folder(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => existing_folder(path, "--cwd")?,
        None => {
            let current = std::env::current_dir()
                .map_err(|e| Error::io("find the current folder", Path::new("."), e))
                .map_err(|error| error.with_kind(Kind::Refused).hint("name one with --cwd"))?;
            existing_folder(&current, "the current folder")?
        }
    };
    path_text(&path, "the folder to work in")?;
    Ok(path)
}

fn existing_folder(path: &Path, what: &str) -> Result<PathBuf> {
    let resolved = std::fs::canonicalize(path).map_err(|e| {
        Error::io(&format!("find {what}"), path, e)
            .with_kind(Kind::Refused)
            .hint("name a folder that exists")
    })?;
    if !resolved.is_dir() {
        return Err(Error::refused(format!(
            "{what} {} is not a folder",
            path.display()
        )));
    }
    nix::unistd::access(&resolved, nix::unistd::AccessFlags::X_OK).map_err(|errno| {
        Error::io(&format!("enter {what}"), path, errno.into()).with_kind(Kind::Refused)
    })?;
    Ok(resolved)
}

/// A file that can be read, as an absolute path: claude works in another folder.
fn readable(path: &Path, flag: &str) -> Result<String> {
    let open = |path: &Path| File::open(path).and_then(|file| file.metadata());
    let meta = open(path).map_err(|e| {
        Error::io(&format!("read {flag}"), path, e)
            .with_kind(Kind::Refused)
            .hint(format!("check {flag}"))
    })?;
    if meta.is_dir() {
        return Err(Error::refused(format!(
            "{flag} {} is a folder",
            path.display()
        )));
    }
    let absolute = std::path::absolute(path).map_err(|e| Error::io("resolve", path, e))?;
    path_text(&absolute, flag)
}

fn json_or_file(value: &str, flag: &str) -> Result<String> {
    if !value.trim_start().starts_with('{') {
        return readable(Path::new(value), flag);
    }
    match serde_json::from_str::<serde::de::IgnoredAny>(value) {
        Ok(_) => Ok(value.to_owned()),
        // Its text may hold secrets: only the place is told.
        Err(e) => Err(Error::refused(format!(
            "{flag} is not valid JSON at line {}, column {}",
            e.line(),
            e.column()
        ))),
    }
}

fn path_text(path: &Path, what: &str) -> Result<String> {
    text(path.as_os_str(), what)
}
