//! A stand-in for `claude -p`, driven by a script.
//!
//! It takes the real program's command line, behaves as the real one was measured to behave, and
//! answers from a script instead of an API. It is strict: what it does not know ends it with code
//! 70. README.md is the reference of scripts and quirks. It shares no code with the program it is
//! made to test.
#![allow(
    clippy::disallowed_methods,
    clippy::exit,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    reason = "a program of its own, beside the crate's layers: it owns its process, its \
              environment and its output"
)]

mod acts;
mod agents;
mod api;
mod bash;
mod cost;
mod door;
mod drive;
mod flags;
mod guard;
mod helper;
mod hub;
mod ids;
mod input;
mod list;
mod mcp;
mod opening;
mod problem;
mod quirks;
mod record;
mod registry;
mod result;
mod row;
mod rpc;
mod script;
mod session;
mod shutdown;
mod signals;
mod startup;
mod stream;
mod tasks;
mod tools;
mod transcript;
mod turn;
mod voice;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use flags::Flags;
use record::Record;
use script::Script;
use startup::Refusal;

/// The code of a script that cannot be played.
const UNPLAYABLE: i32 = 70;

/// What an unplayable script must not leave behind.
static LITTER: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Ends the process: the script, or its use, is wrong.
fn strict(text: &str) -> ! {
    eprintln!("fake-claude: {text}");
    for path in LITTER.get().into_iter().flatten() {
        let _ = std::fs::remove_file(path);
    }
    std::process::exit(UNPLAYABLE);
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|w| w.to_string_lossy().into_owned())
        .collect();
    if let Some(code) = helper::main(&words) {
        return code;
    }
    let record = Record::take();
    let script = match std::env::var_os("FAKE_CLAUDE_SCRIPT") {
        Some(path) => Script::load(&PathBuf::from(path)).unwrap_or_else(|e| strict(&e)),
        None => Script::plain(),
    };
    let flags = match Flags::parse(&words) {
        Ok(flags) => flags,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if flags.has("--version") {
        println!(
            "{} (Claude Code)",
            script.version.as_deref().unwrap_or("2.1.332")
        );
        return ExitCode::SUCCESS;
    }
    if flags.has("--help") {
        print!("{}", flags::help());
        return ExitCode::SUCCESS;
    }
    if words.first().map(String::as_str) == Some("mcp") {
        if words.get(1).map(String::as_str) != Some("list") {
            strict("of the mcp commands only `mcp list` is played");
        }
        list::run(script.version.as_deref().unwrap_or("2.1.332"));
        return ExitCode::SUCCESS;
    }
    if !flags.has("--print") {
        strict("only runs with -p are played");
    }
    ExitCode::from(play(flags, script, record))
}

/// Plays a run.
fn play(flags: Flags, script: Script, record: Record) -> u8 {
    let streaming = flags.value("--input-format") == Some("stream-json");
    let prompt = if streaming {
        None
    } else {
        match input::prompt(flags.prompt.as_deref(), &record) {
            Ok(prompt) => Some(prompt),
            Err(error) => {
                warn_about_eaten_prompt(&flags);
                return startup::say(&Refusal::Error(error), None);
            }
        }
    };
    let format = flags.value("--output-format").map(str::to_owned);
    let session = match startup::session(flags, script, record) {
        Ok(session) => Arc::new(session),
        Err(refusal) => return startup::say(&refusal, format.as_deref()),
    };
    let s = &session;
    acts::play(s, quirks::Point::Launch);
    signals::watch(s);
    let mut litter = s.registry.files().to_vec();
    litter.push(PathBuf::from(&s.socket));
    let _ = LITTER.set(litter);
    door::open(s);
    if !s.quirks.no_registry {
        s.registry.create();
        s.registry.status("idle");
    }
    opening::title(s);
    match prompt {
        Some(prompt) => {
            s.registry.status("busy");
            input::push(s, prompt, None, None);
        }
        None => {
            s.hub.tell(|state| state.input_open = true);
            input::follow(s);
        }
    }
    mcp::Mcp::start(s);
    drive::run(s)
}

/// The line about a prompt that a variadic option has swallowed.
fn warn_about_eaten_prompt(flags: &Flags) {
    for name in [
        "--add-dir",
        "--allowedTools",
        "--betas",
        "--disallowedTools",
        "--file",
        "--mcp-config",
        "--tools",
    ] {
        let values = flags.values(name);
        if let Some(last) = values.last().filter(|_| values.len() > 1) {
            eprintln!(
                "\"{last}\" was read as a value of {name}, not as a prompt · put a prompt before \
                 {name} or after --"
            );
        }
    }
}
