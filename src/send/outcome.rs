//! From the end of a wait to a class and words for it.

use crate::exit::SendClass;
use crate::inbox::LineState;

use super::wait::{End, Waiting};
use super::{Report, Request, Surroundings};
use crate::send::sight::Post;

/// For every line that stays in its inbox.
const NOT_AGAIN: &str = "do not send it again";

/// Fills in what became of a line that was written.
pub(super) fn settle(
    report: &mut Report,
    request: &Request,
    around: &Surroundings,
    waiting: &Waiting<'_>,
    end: End,
) {
    if let Some(ack) = &waiting.ack {
        report.take_ack(ack);
    }
    if let Some(sight) = &waiting.sight {
        report.take_sight(sight);
    }
    report.inode = Some(waiting.written.place.inode);
    report.line_offset = Some(waiting.written.place.offset);
    let (class, message, hint) = words(report, request, around, waiting, end);
    report.end(class, message, hint);
    // A line that waits may wait for days.
    let waits = !matches!(report.state, Some(LineState::Accepted | LineState::Seen));
    if waits
        && report.class != SendClass::Refused
        && let Err(error) = waiting.inbox.sync()
    {
        report.add_note(&format!(
            "the line may not survive a loss of power: {error}"
        ));
    }
}

fn words(
    report: &Report,
    request: &Request,
    around: &Surroundings,
    waiting: &Waiting<'_>,
    end: End,
) -> (SendClass, String, Option<String>) {
    let session = request.session;
    let place = report.place();
    let state = how_far(report.state);
    let wait = humantime::format_duration(request.wait);
    let acks = waiting.inbox.acks();
    let goes_on = format!("{NOT_AGAIN}; {} tells what becomes of it", acks.display());
    match end {
        End::Arrived(class) => (class, arrived(class, report.state), None),
        End::Refused => {
            let reason = report.reason.as_deref().unwrap_or("it gave no reason");
            let message = format!("the doorman refused the line: {reason}");
            (SendClass::Refused, message, None)
        }
        End::TakenOut if report.state == Some(LineState::Queued) => {
            let inbox = waiting.inbox.lines();
            let message = format!(
                "the inbox {} was replaced or removed while oo waited, and the line is not in it any more",
                inbox.display()
            );
            let hint = "find out who did that, then send it again";
            (SendClass::Refused, message, Some(hint.to_owned()))
        }
        End::TakenOut => {
            let message = format!(
                "the inbox was replaced or removed while oo waited; the line is {state}, and may arrive all the same"
            );
            (SendClass::Timeout, message, Some(goes_on))
        }
        End::NoDoorman { had_one } => {
            let message = if had_one {
                format!(
                    "the doorman of session {session} has left: the line is {state} and stays in {place}"
                )
            } else {
                format!(
                    "session {session} runs without a doorman: the line is {state} and stays in {place}"
                )
            };
            (SendClass::QueuedNoDoorman, message, Some(no_doorman()))
        }
        End::Offline => {
            let message =
                format!("session {session} does not run: the line is {state} and stays in {place}");
            let hint = format!("{NOT_AGAIN}: the next turn carries it: oo resume {session} \"…\"");
            (SendClass::QueuedOffline, message, Some(hint))
        }
        End::TimeUp
            if waiting
                .sight
                .as_ref()
                .is_some_and(|sight| sight.post == Post::Coming) =>
        {
            let message = format!(
                "the doorman of session {session} had not come up after {wait}: the line is {state} and stays in {place}"
            );
            let hint = format!("{NOT_AGAIN}: the doorman carries it when it comes");
            (SendClass::QueuedNoDoorman, message, Some(hint))
        }
        End::TimeUp if request.wait.is_zero() => {
            let message = format!("the line is {state}, and was not waited for; it is in {place}");
            (SendClass::Timeout, message, Some(goes_on))
        }
        End::TimeUp => {
            let message = format!("the line is {state} after {wait}; it stays in {place}");
            let hint = if around.caller == Some(session) {
                format!(
                    "{NOT_AGAIN}: a session reads a line when the command that sent it has ended"
                )
            } else {
                goes_on
            };
            (SendClass::Timeout, message, Some(hint))
        }
        End::Stopped(signal) => {
            let message = format!(
                "{} ended the wait: the line is {state} and stays in {place}",
                signal.name()
            );
            (SendClass::Timeout, message, Some(goes_on))
        }
        End::Blind(error) => {
            let message =
                format!("it cannot be told what becomes of the line, which is in {place}: {error}");
            (SendClass::Timeout, message, Some(goes_on))
        }
    }
}

fn how_far(state: Option<LineState>) -> &'static str {
    match state {
        Some(LineState::Offered) => "offered but not yet accepted",
        Some(LineState::Accepted) => "accepted but not yet seen",
        Some(LineState::Seen) => "seen",
        Some(LineState::Unknown) => "in a state that this version does not know",
        Some(LineState::Queued) | None => "queued",
    }
}

fn arrived(class: SendClass, state: Option<LineState>) -> String {
    let where_to = match class {
        SendClass::DeliveredStart => "as the beginning of a turn",
        _ => "in the turn under way",
    };
    match state {
        Some(LineState::Offered) => "the line was written to the session's door".to_owned(),
        Some(LineState::Accepted) => "the line is in the session's queue".to_owned(),
        _ => format!("the line is in the model's context, {where_to}"),
    }
}

fn no_doorman() -> String {
    format!(
        "{NOT_AGAIN}: a doorman carries it; one comes with every run of oo, and with every session that has the MCP server `oo doorman --mcp`"
    )
}
