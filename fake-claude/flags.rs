//! The command line, by the rules of the real program's parser.
//!
//! A variadic option swallows every following word that does not begin with a dash; an option
//! with a required value takes the next word whatever it is; one with an optional value takes it
//! unless it begins with a dash. An unknown option is an error.

/// How many words an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    None,
    One,
    Maybe,
    Many,
}

/// All options, as their help lists them; the last four are not in the help.
const OPTIONS: &[&str] = &[
    "--add-dir <directories...>",
    "--agent <agent>",
    "--agents <json-or-file>",
    "--allow-dangerously-skip-permissions",
    "--allowedTools, --allowed-tools <tools...>",
    "--append-system-prompt <prompt>",
    "--autocompact <auto|tokens>",
    "--ax-screen-reader",
    "--bg, --background",
    "--bare",
    "--betas <betas...>",
    "--brief",
    "--chrome",
    "--cloud [description|session_id|url]",
    "-c, --continue",
    "--dangerously-skip-permissions",
    "-d, --debug [filter]",
    "--debug-file <path>",
    "--desktop",
    "--disable-slash-commands",
    "--disallowedTools, --disallowed-tools <tools...>",
    "--effort <level>",
    "--environment <environment_id>",
    "--exclude-dynamic-system-prompt-sections",
    "--fallback-model <model>",
    "--file <specs...>",
    "--fork-session",
    "--forward-subagent-text",
    "--from-pr [value]",
    "-h, --help",
    "--ide",
    "--include-hook-events",
    "--include-partial-messages",
    "--input-format <format>",
    "--json-schema <schema>",
    "--max-budget-usd <amount>",
    "--mcp-config <configs...>",
    "--model <model>",
    "-n, --name <name>",
    "--no-chrome",
    "--no-session-persistence",
    "--output-format <format>",
    "--permission-mode <mode>",
    "--permission-prompts <target>",
    "--plugin-dir <path>",
    "--plugin-url <url>",
    "-p, --print",
    "--prompt-suggestions [value]",
    "--remote-control [name]",
    "--remote-control-session-name-prefix <prefix>",
    "--replay-user-messages",
    "--restricted",
    "-r, --resume [value]",
    "--safe-mode",
    "--session-id <uuid>",
    "--setting-sources <sources>",
    "--settings <file-or-json>",
    "--strict-mcp-config",
    "--system-prompt <prompt>",
    "--system-prompt-snapshot <on|off>",
    "--teleport [session]",
    "--tmux",
    "--tools <tools...>",
    "--verbose",
    "-v, --version",
    "-w, --worktree [name]",
    "--max-turns <turns>",
    "--append-system-prompt-file <file>",
    "--system-prompt-file <file>",
    "--permission-prompt-tool <tool>",
];

/// Options with a closed set of values, in the order the error names them.
const CHOICES: &[(&str, &[&str])] = &[
    ("--input-format", &["text", "stream-json"]),
    ("--output-format", &["text", "json", "stream-json"]),
    (
        "--permission-mode",
        &[
            "acceptEdits",
            "auto",
            "bypassPermissions",
            "manual",
            "dontAsk",
            "plan",
        ],
    ),
    ("--permission-prompts", &["host", "none"]),
    ("--system-prompt-snapshot", &["on", "off"]),
    (
        "--prompt-suggestions",
        &["true", "false", "1", "0", "yes", "no", "on", "off"],
    ),
];

/// The parsed command line.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// Options in the order given: the long name as listed, and the value if it took one.
    given: Vec<(String, Option<String>)>,
    pub(crate) prompt: Option<String>,
}

impl Flags {
    /// Whether an option was given; `name` is its long form.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| given == name)
    }

    /// The last value of an option.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.given
            .iter()
            .rev()
            .find(|(given, _)| given == name)?
            .1
            .as_deref()
    }

    /// All values of an option.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        self.given
            .iter()
            .filter(|(g, _)| g == name)
            .filter_map(|(_, v)| v.as_deref())
            .collect()
    }

    /// Parses the words after the program's name; the error is what goes to stderr.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut i = 0;
        while i < words.len() {
            let word = &words[i];
            i += 1;
            if word == "--" {
                flags.prompt = flags.prompt.or_else(|| words.get(i).cloned());
                break;
            }
            if !word.starts_with('-') || word == "-" {
                flags.prompt.get_or_insert_with(|| word.clone());
                continue;
            }
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value)),
                _ => (word.as_str(), None),
            };
            let spec = find(name).ok_or_else(|| format!("error: unknown option '{name}'"))?;
            let (long, takes) = (long_name(spec), takes(spec));
            let missing = || format!("error: option '{spec}' argument missing");
            let mut values = Vec::new();
            match (takes, inline) {
                (Takes::None, Some(_)) => return Err(format!("error: unknown option '{word}'")),
                (_, Some(value)) => values.push(value.to_owned()),
                (Takes::None, None) => {}
                (Takes::One, None) => {
                    values.push(words.get(i).ok_or_else(missing)?.clone());
                    i += 1;
                }
                (Takes::Maybe, None) => {
                    if let Some(next) = words.get(i).filter(|w| !w.starts_with('-')) {
                        values.push(next.clone());
                        i += 1;
                    }
                }
                (Takes::Many, None) => {
                    values.push(words.get(i).ok_or_else(missing)?.clone());
                    i += 1;
                    while let Some(next) = words.get(i).filter(|w| !w.starts_with('-')) {
                        values.push(next.clone());
                        i += 1;
                    }
                }
            }
            for value in &values {
                check_value(spec, long, value)?;
            }
            if values.is_empty() {
                flags.given.push((long.to_owned(), None));
            }
            flags
                .given
                .extend(values.into_iter().map(|v| (long.to_owned(), Some(v))));
        }
        Ok(flags)
    }

    /// The words of `--allowedTools` and the like, split at commas outside parentheses.
    pub(crate) fn tool_rules(&self, name: &str) -> Vec<String> {
        let mut rules = Vec::new();
        for value in self.values(name) {
            let (mut depth, mut rule) = (0_u32, String::new());
            for c in value.chars() {
                match c {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if (c == ',' || c == ' ') && depth == 0 {
                    rules.push(std::mem::take(&mut rule));
                } else {
                    rule.push(c);
                }
            }
            rules.push(rule);
        }
        rules.retain(|rule| !rule.is_empty());
        rules
    }
}

/// The help: the options, without their descriptions.
pub(crate) fn help() -> String {
    let mut text = "Usage: claude [options] [command] [prompt]\n\nOptions:\n".to_owned();
    for spec in &OPTIONS[..OPTIONS.len() - 4] {
        text.push_str("  ");
        text.push_str(spec);
        text.push('\n');
    }
    text
}

fn check_value(spec: &str, long: &str, value: &str) -> Result<(), String> {
    let choices = CHOICES
        .iter()
        .find(|(name, _)| *name == long)
        .map(|(_, choices)| *choices);
    if let Some(choices) = choices {
        // `default` is taken for a permission mode, though no list names it.
        let known = choices.contains(&value) || (long == "--permission-mode" && value == "default");
        if !known {
            return Err(format!(
                "error: option '{spec}' argument '{value}' is invalid. Allowed choices are {}.",
                choices.join(", ")
            ));
        }
    }
    if ["--max-turns", "--max-budget-usd"].contains(&long) && value.parse::<f64>().is_err() {
        return Err(format!(
            "error: option '{spec}' argument '{value}' is invalid. must be a number"
        ));
    }
    Ok(())
}

fn find(name: &str) -> Option<&'static str> {
    OPTIONS
        .iter()
        .copied()
        .find(|spec| names(spec).any(|n| n == name))
}

fn names(spec: &str) -> impl Iterator<Item = &str> {
    spec.split([',', ' ']).filter(|word| word.starts_with('-'))
}

/// The first long name of an option.
fn long_name(spec: &str) -> &str {
    names(spec)
        .find(|name| name.starts_with("--"))
        .unwrap_or(spec)
}

fn takes(spec: &str) -> Takes {
    if spec.ends_with("...>") {
        Takes::Many
    } else if spec.ends_with('>') {
        Takes::One
    } else if spec.ends_with(']') {
        Takes::Maybe
    } else {
        Takes::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<Flags, String> {
        Flags::parse(&line.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_variadic_option_eats_the_prompt() {
        let flags = parse(&["-p", "--allowedTools", "Bash", "my prompt"]).unwrap();
        assert_eq!(flags.prompt, None);
        assert_eq!(flags.values("--allowedTools"), ["Bash", "my prompt"]);
        let flags = parse(&["-p", "--allowedTools=Bash", "my prompt"]).unwrap();
        assert_eq!(flags.prompt.as_deref(), Some("my prompt"));
        assert!(flags.has("--print"));
    }

    #[test]
    fn a_value_is_taken_even_with_a_dash_but_not_an_optional_one() {
        let flags = parse(&["--model", "-x", "-r", "--verbose"]).unwrap();
        assert_eq!(flags.value("--model"), Some("-x"));
        assert_eq!(flags.value("--resume"), None);
        assert!(flags.has("--resume") && flags.has("--verbose"));
    }

    #[test]
    fn the_errors_are_the_measured_ones() {
        for (line, error) in [
            (vec!["--nope"], "error: unknown option '--nope'"),
            (
                vec!["--max-turns"],
                "error: option '--max-turns <turns>' argument missing",
            ),
            (
                vec!["--allowedTools"],
                "error: option '--allowedTools, --allowed-tools <tools...>' argument missing",
            ),
            (
                vec!["--input-format=xx"],
                "error: option '--input-format <format>' argument 'xx' is invalid. \
                 Allowed choices are text, stream-json.",
            ),
            (
                vec!["--max-turns=x"],
                "error: option '--max-turns <turns>' argument 'x' is invalid. must be a number",
            ),
        ] {
            assert_eq!(parse(&line).unwrap_err(), error);
        }
    }

    #[test]
    fn tool_rules_are_split_outside_parentheses() {
        let flags = parse(&["--allowedTools=Bash(git *), Edit", "--verbose"]).unwrap();
        assert_eq!(flags.tool_rules("--allowedTools"), ["Bash(git *)", "Edit"]);
    }
}
