//! The arguments after `--`, which go to claude as they are: which of them contradict oo's own.
//!
//! oo chooses the session, both formats and where the prompt comes from, and reads what claude
//! writes by them. An argument that changes one of these would not do what its writer wants: it
//! would make a run that oo cannot see, or a claude that refuses to begin. What only changes how
//! claude works passes, and so does every option that is not known here.

use crate::error::{Error, Result};

/// What oo itself decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// In which form claude reads and writes, and that it runs headless.
    Form,
    /// Which session it is, and where it runs.
    Session,
    /// What the model is asked.
    Prompt,
    /// That there is a run at all: claude would say something of itself and leave.
    Run,
}

/// The long options that contradict, with what they decide.
const LONG: [(&str, Own); 15] = [
    ("--print", Own::Form),
    ("--input-format", Own::Form),
    ("--output-format", Own::Form),
    ("--session-id", Own::Session),
    ("--resume", Own::Session),
    ("--continue", Own::Session),
    ("--fork-session", Own::Session),
    ("--from-pr", Own::Session),
    ("--teleport", Own::Session),
    ("--cloud", Own::Session),
    ("--background", Own::Session),
    ("--bg", Own::Session),
    ("--tmux", Own::Session),
    ("--help", Own::Run),
    ("--version", Own::Run),
];

/// The short ones. claude's parser takes several in one word (`-pc`) and a value in the same word
/// (`-rID`), so the first letter tells.
const SHORT: [(char, Own); 5] = [
    ('p', Own::Form),
    ('r', Own::Session),
    ('c', Own::Session),
    ('h', Own::Run),
    ('v', Own::Run),
];

/// The options that take the next word whatever it is, so that it is no option even if it looks
/// like one. Those that take several words take no further one that begins with a dash.
const TAKES_A_VALUE: [&str; 35] = [
    "--add-dir",
    "--agent",
    "--agents",
    "--allowedTools",
    "--allowed-tools",
    "--append-system-prompt",
    "--append-system-prompt-file",
    "--autocompact",
    "--betas",
    "--debug-file",
    "--disallowedTools",
    "--disallowed-tools",
    "--effort",
    "--environment",
    "--fallback-model",
    "--file",
    "--json-schema",
    "--max-budget-usd",
    "--max-turns",
    "--mcp-config",
    "--model",
    "--name",
    "-n",
    "--permission-mode",
    "--permission-prompt-tool",
    "--permission-prompts",
    "--plugin-dir",
    "--plugin-url",
    "--remote-control-session-name-prefix",
    "--setting-sources",
    "--settings",
    "--system-prompt",
    "--system-prompt-file",
    "--system-prompt-snapshot",
    "--tools",
];

/// Passes the arguments that contradict nothing.
///
/// # Errors
/// A usage error that names the first one that does.
pub fn check(extra: &[String]) -> Result<()> {
    let mut words = extra.iter();
    let mut first = true;
    while let Some(word) = words.next() {
        // A word that is no option is a prompt or a command, unless an option before it takes it;
        // that is certain of the first word only.
        let own = option(word).or_else(|| {
            let no_option = !word.starts_with('-') || word == "-";
            (word == "--" || (first && no_option)).then_some(Own::Prompt)
        });
        if let Some(own) = own {
            return Err(contradiction(word, own));
        }
        if TAKES_A_VALUE.contains(&word.as_str()) {
            words.next();
        }
        first = false;
    }
    Ok(())
}

/// What an option decides of oo's own.
fn option(word: &str) -> Option<Own> {
    if word.starts_with("--") {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        let (_, own) = LONG.iter().find(|(long, _)| *long == name)?;
        return Some(*own);
    }
    let letter = word.strip_prefix('-')?.chars().next()?;
    let (_, own) = SHORT.iter().find(|(short, _)| *short == letter)?;
    Some(*own)
}

fn contradiction(word: &str, own: Own) -> Error {
    // A value may be a text of any length, or a secret.
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    let (what, hint) = match own {
        Own::Form => (
            "oo itself chooses how claude reads and writes",
            "leave it out: --json and --follow choose what oo prints, --hold keeps stdin open",
        ),
        Own::Session => (
            "oo itself chooses the session",
            "leave it out: `oo start` begins a session, `oo resume` goes on with one, and with --fork in a new one",
        ),
        Own::Prompt => (
            "the prompt does not go after the `--`",
            "put the prompt before it, or in a file for --prompt-file",
        ),
        Own::Run => (
            "claude would answer it and run nothing",
            "run claude itself for that",
        ),
    };
    Error::usage(format!("{name:?} cannot be handed to claude: {what}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn checked(line: &str) -> Result<()> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        check(&words)
    }

    #[test]
    fn what_contradicts_is_refused_by_its_name() {
        for (line, name, what) in [
            ("--input-format=text", "--input-format", "reads and writes"),
            ("--input-format stream-json", "--input-format", "reads"),
            (
                "--output-format=json",
                "--output-format",
                "reads and writes",
            ),
            (
                "--output-format text",
                "--output-format",
                "reads and writes",
            ),
            ("-p", "-p", "reads and writes"),
            ("--print", "--print", "reads and writes"),
            ("--effort high -p", "-p", "reads and writes"),
            ("-pc", "-pc", "reads and writes"),
            ("--session-id=x", "--session-id", "the session"),
            ("--session-id x", "--session-id", "the session"),
            ("--resume", "--resume", "the session"),
            ("--resume=x", "--resume", "the session"),
            ("-r", "-r", "the session"),
            ("-rabc", "-rabc", "the session"),
            ("--continue", "--continue", "the session"),
            ("-c", "-c", "the session"),
            ("--fork-session", "--fork-session", "the session"),
            ("--from-pr 7", "--from-pr", "the session"),
            ("--teleport", "--teleport", "the session"),
            ("--cloud", "--cloud", "the session"),
            ("--bg", "--bg", "the session"),
            ("--background", "--background", "the session"),
            ("--tmux", "--tmux", "the session"),
            ("--help", "--help", "run nothing"),
            ("-h", "-h", "run nothing"),
            ("--version", "--version", "run nothing"),
            ("-v", "-v", "run nothing"),
            ("fix it", "fix", "the prompt"),
            ("mcp list", "mcp", "the prompt"),
            ("-", "-", "the prompt"),
            ("--effort high -- fix", "--", "the prompt"),
            // The values of an option end at the next one.
            ("--add-dir a b --resume", "--resume", "the session"),
            ("--model=haiku --continue", "--continue", "the session"),
            ("--system-prompt --resume --resume", "--resume", "session"),
        ] {
            let error = checked(line).expect_err(line);
            assert_eq!(error.kind(), Kind::Usage, "{line}");
            let said = error.to_string();
            assert!(said.starts_with(&format!("{name:?} cannot")), "{said}");
            assert!(said.contains(what), "{line}: {said}");
            assert!(error.hint_text().is_some(), "{line}");
        }
    }

    #[test]
    fn what_contradicts_nothing_passes() {
        for line in [
            "",
            "--effort high",
            "--effort=high --verbose",
            "--model -p",
            "--append-system-prompt --resume",
            "--append-system-prompt=--resume",
            "--add-dir a b c",
            "--allowedTools Bash(git *) Edit",
            "--from-the-future maybe",
            "--resume-later",
            "--dangerously-skip-permissions --replay-user-messages",
            "-d api",
            "-w tree",
            "-n -p",
            "--worktree",
            "--json-schema {\"-p\":1}",
            "---",
        ] {
            assert!(checked(line).is_ok(), "{line:?}");
        }
    }
}
