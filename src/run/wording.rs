//! What became of a run, in words: one sentence, and what to do next.

use jiff::Timestamp;

use super::finish::{Known, STDERR_TAIL};
use super::observed::Observed;
use super::result::ResultDocument;
use super::row::ResultRow;
use super::stop::StopReason;
use super::verdict::{Ending, Verdict};
use crate::exit::{Cause, Class};

/// What happened, in one sentence.
pub(super) fn message(
    verdict: &Verdict,
    known: &Known<'_>,
    ending: &Ending,
    row: Option<&ResultRow>,
) -> String {
    let stop = known.record.and_then(|record| record.stop.as_ref());
    match (verdict.class, stop.map(|stop| &stop.reason)) {
        (Class::Completed, _) => return "the model finished".to_owned(),
        (Class::Timeout, Some(StopReason::Clock(clock))) => {
            let limit = clock.limit(&known.spec.limits).unwrap_or_default();
            let limit = humantime::format_duration(limit);
            return format!("{} ({} {limit})", clock.what(), clock.option());
        }
        (Class::Cancelled, Some(StopReason::Signal(name))) => {
            return format!("the run was stopped: oo got {name}");
        }
        _ => {}
    }
    let sentence = verdict.cause.map_or("the run failed", Cause::sentence);
    let detail = match (ending, verdict.cause) {
        (Ending::NotSpawned(said), _) => Some(said.clone()),
        (_, Some(Cause::Signal)) => match ending {
            Ending::Exited(exit) => Some(format!("claude {}", exit.sentence())),
            Ending::Unknown | Ending::NotSpawned(_) => None,
        },
        (_, Some(Cause::Doorman)) => doorman_status(known.observed),
        _ => row
            .filter(|row| row.is_error == Some(true))
            .and_then(|row| row.errors.first().cloned().or_else(|| row.text.clone()))
            .or_else(|| retry_detail(known.observed))
            .or_else(|| last_line(known)),
    };
    match detail
        .as_deref()
        .map(one_line)
        .filter(|detail| !detail.is_empty())
    {
        Some(detail) => format!("{sentence}: {detail}"),
        None => sentence.to_owned(),
    }
}

fn doorman_status(observed: &Observed) -> Option<String> {
    let servers = observed.init.as_ref()?.mcp_servers.0.as_ref()?;
    let server = servers
        .iter()
        .find(|server| server.name == super::mcp_config::SERVER);
    Some(match server {
        Some(server) => format!("claude says its MCP server is {:?}", server.status),
        None => "claude does not list its MCP server".to_owned(),
    })
}

fn retry_detail(observed: &Observed) -> Option<String> {
    let retry = observed.retries.last()?;
    let status = retry.error_status.map(|status| format!("HTTP {status}"));
    let word = retry.error.clone();
    let what: Vec<String> = status.into_iter().chain(word).collect();
    Some(format!(
        "{} on attempt {}",
        what.join(" "),
        retry.attempt.unwrap_or_default()
    ))
}

/// The last line of stderr, when claude said nothing else.
fn last_line(known: &Known<'_>) -> Option<String> {
    if known.observed.rows > 0 {
        return None;
    }
    let text = crate::store::end_of(&known.files.stderr(), STDERR_TAIL);
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map(str::to_owned)
}

fn one_line(text: &str) -> String {
    const MOST: usize = 300;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// What to do next, for a person. A turn that was cut short can be gone on with.
pub(super) fn hint(
    verdict: &Verdict,
    known: &Known<'_>,
    document: &ResultDocument,
) -> Option<String> {
    let next = next_step(verdict, known);
    let cut_short = verdict.class == Class::Timeout || verdict.cause.is_some_and(Cause::cuts_short);
    // Without a transcript there is nothing to go on with.
    let session = document
        .transcript
        .as_ref()
        .and(document.session_id.as_ref());
    match (cut_short, session) {
        (true, Some(session)) => {
            let go_on = format!("to go on: oo resume {session} \"…\"");
            Some(next.map_or(go_on.clone(), |next| format!("{next}; {go_on}")))
        }
        _ => next,
    }
}

fn next_step(verdict: &Verdict, known: &Known<'_>) -> Option<String> {
    let stop = known.record.and_then(|record| record.stop.as_ref());
    match (verdict.class, verdict.cause, stop.map(|stop| &stop.reason)) {
        (Class::Completed, ..) => None,
        (Class::Timeout, _, Some(StopReason::Clock(clock))) => Some(format!(
            "raise {} if that is expected; 0s turns the clock off",
            clock.option()
        )),
        (_, Some(Cause::RateLimit), _) => match resets_at(known.observed) {
            Some(at) => Some(format!("the limit resets at {at}: start again after that")),
            None => Some(Cause::RateLimit.hint().to_owned()),
        },
        (_, cause, _) => cause.map(|cause| cause.hint().to_owned()),
    }
}

pub(super) fn resets_at(observed: &Observed) -> Option<Timestamp> {
    Timestamp::from_second(observed.resets_at?).ok()
}
