//! A run, for a person: what became of it, what it took, where its files are, and its answer.
//!
//! Everything here came from a document that claude and its tools had a hand in, so every line is
//! made safe, terminal or not: who wants the exact bytes asks for JSON.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::table::one_line;
use super::{clean, when};
use crate::run::held::HoldEntry;
use crate::run::result::{ResultDocument, State};

/// The summary of a run, as text.
#[must_use]
pub fn summary(run: &ResultDocument, name: Option<&str>, now: Timestamp) -> String {
    let mut lines = Lines::default();
    judgement(&mut lines, run);
    place(&mut lines, run, name);
    effort(&mut lines, run, now);
    troubles(&mut lines, run);
    files(&mut lines, run);
    let mut text = lines.text;
    if run.hold.is_some() && run.class.is_none() {
        answers_so_far(&mut text, run);
        return text;
    }
    match (&run.result, &run.partial_result) {
        (Some(answer), _) => answer_of(&mut text, "answer", answer),
        (None, Some(words)) => {
            let heading = match run.state {
                State::Running | State::Unsupervised => "what the model said so far",
                State::Ended | State::Refused => {
                    "the model's last words, which are no answer: the run did not complete"
                }
            };
            answer_of(&mut text, heading, words);
        }
        (None, None) => {}
    }
    text
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn add(&mut self, name: &str, value: impl AsRef<str>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{name:<11} {}", one_line(value.as_ref()));
    }

    fn some(&mut self, name: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
}

fn answer_of(text: &mut String, heading: &str, words: &str) {
    let _ = write!(text, "\n--- {heading}\n{}", clean(words.trim_end()));
}

/// The answers of a held session that is still open, the newest last.
fn answers_so_far(text: &mut String, run: &ResultDocument) {
    const MOST: usize = 10;
    let earlier = run.results.len().saturating_sub(MOST);
    if earlier > 0 {
        let _ = writeln!(text, "\n--- {earlier} earlier answers are in results.jsonl");
    }
    for entry in &run.results[earlier..] {
        let words = entry.text.as_ref().or(entry.errors.first());
        let failed = entry.is_error == Some(true);
        let what = if failed { "failed turn" } else { "answer" };
        let words = words.map_or("", String::as_str);
        answer_of(text, &format!("{what} {}", entry.index + 1), words);
        text.push('\n');
    }
}

fn judgement(lines: &mut Lines, run: &ResultDocument) {
    lines.some("run", run.run_id.map(|id| id.to_string()));
    let class = match (run.class, run.cause) {
        (Some(class), Some(cause)) => format!("{} ({})", class.name(), cause.name()),
        (Some(class), None) => class.name().to_owned(),
        (None, _) if run.state == State::Unsupervised => {
            "unsupervised: its supervisor is gone, and claude still runs".to_owned()
        }
        (None, _) => run.state.name().to_owned(),
    };
    lines.add("class", class);
    lines.some("held", run.hold.map(|hold| held(hold, run)));
    lines.some("message", run.message.as_ref());
    lines.some("hint", run.hint.as_ref());
    lines.some("note", run.note.as_ref());
}

fn held(hold: HoldEntry, run: &ResultDocument) -> String {
    let turns = match run.results.len() {
        1 => "1 turn".to_owned(),
        count => format!("{count} turns"),
    };
    let limit = match hold.idle_ms {
        Some(millis) => {
            let idle = humantime::format_duration(Duration::from_millis(millis));
            format!("closes after {idle} idle")
        }
        None => "does not close by itself".to_owned(),
    };
    match (run.state, hold.waiting) {
        (State::Running, true) => format!("idle, waiting for lines; {turns} so far; {limit}"),
        (State::Running, false) => format!("at work; {turns} so far; {limit}"),
        (State::Unsupervised, _) => format!("closed with its supervisor; {turns} so far"),
        (State::Ended | State::Refused, _) => format!("{turns}, each in results.jsonl"),
    }
}

fn place(lines: &mut Lines, run: &ResultDocument, name: Option<&str>) {
    let session = run.session_id.as_ref().map(|id| match name {
        Some(name) => format!("{id} ({name})"),
        None => id.clone(),
    });
    lines.some("session", session);
    lines.some(
        "started by",
        run.lineage
            .as_ref()
            .map(|lineage| format!("session {}", lineage.parent)),
    );
    lines.some("cwd", run.cwd.as_ref());
    let claude = run.claude.as_ref().map(|claude| {
        let version = claude.version.as_deref().unwrap_or("of unknown version");
        let pid = claude.pid.map(|pid| format!(", pid {pid}"));
        format!("{version}, {}{}", claude.path, pid.unwrap_or_default())
    });
    lines.some("claude", claude);
    lines.some("credentials", run.auth_source.as_ref());
}

fn effort(lines: &mut Lines, run: &ResultDocument, now: Timestamp) {
    lines.some("turns", run.num_turns.map(|turns| turns.to_string()));
    let cost = run.cost_usd.map(|cost| match run.total_cost_usd {
        Some(total) if (total - cost).abs() > f64::EPSILON => format!(
            "{} (the session so far: {})",
            when::dollars(cost),
            when::dollars(total)
        ),
        Some(_) | None => when::dollars(cost),
    });
    lines.some("cost", cost);
    if let Some(started) = run.started_at {
        let began = format!("began {} ({started})", when::ago(started, now));
        let took = match run.duration_ms {
            Some(millis) => when::took(Duration::from_millis(millis)),
            None => {
                let since = Duration::try_from(now.duration_since(started)).unwrap_or_default();
                format!("{} so far", when::took(since))
            }
        };
        lines.add("took", format!("{took}, {began}"));
    }
}

fn troubles(lines: &mut Lines, run: &ResultDocument) {
    if !run.permission_denials.is_empty() {
        let tools = counted(run.permission_denials.iter().map(|denial| {
            let name = denial.get("tool_name").and_then(Value::as_str);
            name.unwrap_or("a tool").to_owned()
        }));
        lines.add("denied", tools);
    }
    if !run.retries.is_empty() {
        let why = counted(run.retries.iter().map(|retry| {
            let status = retry.error_status.map(|status| format!("HTTP {status}"));
            let words = [status, retry.error.clone()];
            let words: Vec<String> = words.into_iter().flatten().collect();
            if words.is_empty() {
                "no answer".to_owned()
            } else {
                words.join(" ")
            }
        }));
        lines.add("retries", why);
    }
    for task in &run.background {
        let what = task.description.as_ref().unwrap_or(&task.task_id);
        lines.add("background", format!("{}: {what}", task.status));
    }
    for server in &run.mcp_servers {
        if server.status != "connected" {
            lines.add("mcp server", format!("{}: {}", server.name, server.status));
        }
    }
    let doorman = run.doorman.and_then(|mode| {
        let mode = serde_json::to_value(mode).ok()?;
        let mode = mode.as_str()?.to_owned();
        if mode == "none" {
            return Some(mode);
        }
        let sign = run.doorman_heartbeat.as_ref();
        let sign = sign.and_then(|sign| sign.get("state")?.as_str());
        Some(format!(
            "{mode}, {}; {} lines delivered, {} wait",
            sign.map_or("no sign of life".to_owned(), |state| format!(
                "last seen {state}"
            )),
            run.doorman_delivered.unwrap_or_default(),
            run.doorman_pending.unwrap_or_default(),
        ))
    });
    lines.some("doorman", doorman);
}

fn files(lines: &mut Lines, run: &ResultDocument) {
    let folder = run
        .events
        .as_deref()
        .and_then(|events| Path::new(events).parent())
        .map(|folder| folder.display().to_string());
    lines.some("files", folder);
    lines.some("transcript", run.transcript.as_ref());
}

/// Each with how often it comes: `Bash ×2, Write`.
fn counted(all: impl Iterator<Item = String>) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for one in all {
        match counts.iter_mut().find(|(known, _)| *known == one) {
            Some((_, count)) => *count += 1,
            None => counts.push((one, 1)),
        }
    }
    let shown: Vec<String> = counts
        .into_iter()
        .map(|(what, count)| match count {
            1 => what,
            _ => format!("{what} ×{count}"),
        })
        .collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::exit::{Cause, Class, Verb};
    use crate::run::result::ResultEntry;
    use crate::run::row::ResultRow;

    #[test]
    fn what_failed_is_told_whole_and_harmless() {
        let mut run = ResultDocument::blank(Verb::Start, State::Ended);
        run.class = Some(Class::Failed);
        run.cause = Some(Cause::MaxTurns);
        run.message = Some("too many\nturns\x1b[2J".to_owned());
        run.partial_result = Some("so far\x1b[31m".to_owned());
        run.permission_denials = vec![
            json!({"tool_name": "Bash"}),
            json!({"tool_name": "Bash"}),
            json!({"tool_name": "Write"}),
        ];
        run.cost_usd = Some(0.5);
        run.total_cost_usd = Some(1.5);
        run.duration_ms = Some(63_000);
        run.started_at = Some("2026-11-30T12:00:00Z".parse().unwrap());
        let text = summary(
            &run,
            Some("nightly"),
            "2026-11-30T13:00:00Z".parse().unwrap(),
        );
        assert_eq!(
            text,
            "class       failed (max-turns)\n\
             message     too many turns[2J\n\
             cost        $0.5000 (the session so far: $1.50)\n\
             took        1m 3s, began 1 h ago (2026-11-30T12:00:00Z)\n\
             denied      Bash ×2, Write\n\
             \n--- the model's last words, which are no answer: the run did not complete\n\
             so far[31m"
        );
    }

    #[test]
    fn a_session_that_is_held_shows_its_answers_so_far() {
        let mut run = ResultDocument::blank(Verb::Start, State::Running);
        let row = |text: &str| ResultRow {
            text: Some(text.to_owned()),
            ..ResultRow::default()
        };
        run.results = (0..12)
            .map(|index| ResultEntry::of(index, &row(&format!("the answer {index}\x1b"))))
            .collect();
        run.results[11].is_error = Some(true);
        for (state, waiting, idle_ms, said) in [
            (
                State::Running,
                true,
                Some(600_000),
                "idle, waiting for lines; 12 turns so far; closes after 10m idle",
            ),
            (
                State::Running,
                false,
                None,
                "at work; 12 turns so far; does not close by itself",
            ),
            (
                State::Unsupervised,
                false,
                None,
                "closed with its supervisor; 12 turns so far",
            ),
        ] {
            run.state = state;
            run.hold = Some(HoldEntry { idle_ms, waiting });
            let text = summary(&run, None, Timestamp::UNIX_EPOCH);
            assert!(text.contains(&format!("\nheld        {said}\n")), "{text}");
            assert!(
                text.contains("--- 2 earlier answers are in results.jsonl"),
                "{text}"
            );
            assert!(text.contains("--- answer 3\nthe answer 2\n"), "{text}");
            assert!(
                text.ends_with("--- failed turn 12\nthe answer 11\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_run_that_goes_on_has_no_class() {
        let mut run = ResultDocument::blank(Verb::Start, State::Unsupervised);
        run.started_at = Some("2026-11-30T12:00:00Z".parse().unwrap());
        let text = summary(&run, None, "2026-11-30T12:01:00Z".parse().unwrap());
        assert!(text.starts_with("class       unsupervised: "), "{text}");
        assert!(text.contains("1m 0s so far"), "{text}");
    }
}
