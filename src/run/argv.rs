//! The command line of claude.
//!
//! The prompt is never on it. Every option is `--flag=value`: claude's list options are variadic
//! and would swallow what follows, and a value that begins with a dash would be taken for a flag.

use std::path::Path;

use super::spec::{DoormanMode, LaunchSpec};

/// The arguments for a run, without the program's name. `mcp` is the doorman's configuration.
#[must_use]
pub fn arguments(spec: &LaunchSpec, mcp: &Path) -> Vec<String> {
    let options = &spec.options;
    let mut argv: Vec<String> = ["-p", "--output-format=stream-json", "--verbose"]
        .iter()
        .map(|flag| (*flag).to_owned())
        .collect();
    if spec.hold.is_some() {
        argv.push("--input-format=stream-json".to_owned());
    }
    if let Some(resumed) = spec.resumes {
        argv.push(format!("--resume={resumed}"));
        if spec.is_fork() {
            // Only with this may the id of a resumed session be chosen.
            argv.push("--fork-session".to_owned());
        }
    }
    if spec.resumes.is_none() || spec.is_fork() {
        argv.push(format!("--session-id={}", spec.session_id));
    }
    if spec.doorman == DoormanMode::Injected {
        argv.push(format!("--mcp-config={}", mcp.display()));
    }
    let mut add = |flag: &str, value: Option<String>| {
        if let Some(value) = value {
            argv.push(format!("{flag}={value}"));
        }
    };
    for config in &options.mcp_config {
        add("--mcp-config", Some(config.clone()));
    }
    add("--name", options.name.clone());
    add("--model", options.model.clone());
    add(
        "--max-turns",
        options.max_turns.map(|turns| turns.to_string()),
    );
    add(
        "--max-budget-usd",
        options.budget_usd.map(|dollars| dollars.to_string()),
    );
    add("--tools", list(&options.tools));
    add("--allowedTools", list(&options.allowed_tools));
    add("--disallowedTools", list(&options.disallowed_tools));
    add("--permission-mode", options.permission_mode.clone());
    add("--settings", options.settings.clone());
    for folder in &options.add_dir {
        add("--add-dir", Some(folder.clone()));
    }
    add("--system-prompt-file", options.system_prompt_file.clone());
    add(
        "--append-system-prompt-file",
        options.append_system_prompt_file.clone(),
    );
    if spec.doorman == DoormanMode::Injected {
        argv.push("--strict-mcp-config".to_owned());
    }
    if spec.resumes.is_some() && asks_for_a_system_prompt(spec) {
        // Or claude would go on with the recorded one, and say nothing.
        argv.push(format!("{SNAPSHOT}=off"));
    }
    argv.extend(options.extra.iter().cloned());
    argv
}

/// The option that tells a resumed session whether its recorded system prompt holds.
const SNAPSHOT: &str = "--system-prompt-snapshot";

/// Whether a system prompt was asked for, and nobody said what becomes of the recorded one.
fn asks_for_a_system_prompt(spec: &LaunchSpec) -> bool {
    let options = &spec.options;
    let named = |names: &[&str]| {
        let is_named = |word: &String| {
            let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
            names.contains(&name)
        };
        options.extra.iter().any(is_named)
    };
    let asked = options.system_prompt_file.is_some()
        || options.append_system_prompt_file.is_some()
        || named(&[
            "--system-prompt",
            "--system-prompt-file",
            "--append-system-prompt",
            "--append-system-prompt-file",
        ]);
    asked && !named(&[SNAPSHOT])
}

fn list(values: &[String]) -> Option<String> {
    (!values.is_empty()).then(|| values.join(","))
}

/// An argument as records show it: inline JSON can hold secrets, so only its keys are kept.
#[must_use]
pub fn shown(argument: &str) -> String {
    let (flag, value) = match argument.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => (format!("{flag}="), value),
        _ => (String::new(), argument),
    };
    match serde_json::from_str(value) {
        Ok(serde_json::Value::Object(object)) => {
            let keys: Vec<&str> = object.keys().map(String::as_str).collect();
            format!("{flag}{{{}}}", keys.join(","))
        }
        Ok(serde_json::Value::Array(items)) => format!("{flag}[{} items]", items.len()),
        _ if value.trim_start().starts_with('{') => format!("{flag}{{…}}"),
        _ => argument.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_json_is_shown_by_its_keys() {
        for (argument, expected) in [
            (
                "--settings={\"env\":{\"TOKEN\":\"s3cret\"},\"model\":\"x\"}",
                "--settings={env,model}",
            ),
            ("{\"mcpServers\":{\"a\":{}}}", "{mcpServers}"),
            ("--settings={\"env\": s3cret", "--settings={…}"),
            (
                "--settings=/etc/settings.json",
                "--settings=/etc/settings.json",
            ),
            ("--model=haiku", "--model=haiku"),
            ("--betas=[\"a\",\"b\"]", "--betas=[2 items]"),
        ] {
            assert_eq!(shown(argument), expected);
        }
    }
}
