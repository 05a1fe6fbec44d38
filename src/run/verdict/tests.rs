//! The table of verdicts: what a claude really wrote (`tests/captured/`), and what has been
//! reported of others, against the class and cause that each must get.

use std::path::PathBuf;

use jiff::Timestamp;

use super::*;
use crate::run::stop::{StopReason, StopRecord};
use crate::run::watchdog::Clock;

const ANSWER: &str = r#"{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"yes","terminal_reason":"completed"}"#;
const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
const SAYS: &str = r#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"hm"}]},"parent_tool_use_id":null}"#;
const TASK: &str = r#"{"type":"system","subtype":"task_started","task_id":"t","is_backgrounded":true,"task_type":"local_bash"}"#;

fn observe(lines: &[&str]) -> Observed {
    let mut observed = Observed::default();
    for line in lines {
        observed.line(line.as_bytes());
    }
    observed
}

fn exited(code: i32) -> Ending {
    Ending::Exited(Exit {
        code: Some(code),
        signal: None,
    })
}

const fn killed(signal: i32) -> Ending {
    Ending::Exited(Exit {
        code: None,
        signal: Some(signal),
    })
}

fn judged(lines: &[&str], ending: &Ending, stop: Option<&StopRecord>) -> Verdict {
    let observed = observe(lines);
    verdict(&Facts {
        observed: &observed,
        ending,
        stop,
        stderr: "",
        interrupted: false,
    })
}

fn stop(reason: StopReason, after_answer: bool) -> StopRecord {
    StopRecord {
        reason,
        at: Timestamp::UNIX_EPOCH,
        after_answer,
    }
}

#[test]
fn what_a_real_claude_wrote_gets_its_class_and_cause() {
    use Cause as C;
    let table: &[(&str, &str, Option<Cause>)] = &[
        ("2.1.332", "plain", None),
        ("2.1.332", "bash-two-allowed", None),
        ("2.1.332", "bash-bg", None),
        ("2.1.332", "bash-denied", None),
        ("2.1.332", "agent-fg", None),
        ("2.1.332", "agent-bg", None),
        ("2.1.332", "bad-model", None),
        ("2.1.332", "http-529x2", None),
        ("2.1.332", "max-turns", Some(C::MaxTurns)),
        ("2.1.332", "max-budget", Some(C::Budget)),
        ("2.1.332", "http-400", Some(C::InvalidRequest)),
        ("2.1.332", "http-402", Some(C::Billing)),
        ("2.1.332", "http-403", Some(C::Auth)),
        ("2.1.332", "http-404", Some(C::Model)),
        ("2.1.332", "http-413", Some(C::InvalidRequest)),
        ("2.1.332", "http-401-max2", Some(C::Auth)),
        ("2.1.332", "no-api-key", Some(C::Auth)),
        ("2.1.332", "http-429-max2", Some(C::RateLimit)),
        ("2.1.332", "http-429-retry-after-3600", Some(C::RateLimit)),
        ("2.1.332", "http-529-forever", Some(C::Overloaded)),
        ("2.1.332", "http-500-max0", Some(C::Api)),
        ("2.1.332", "dead-api", Some(C::Api)),
        ("2.1.332", "sigint-bash", Some(C::Interrupted)),
        ("2.1.332", "sigint-stream", Some(C::Interrupted)),
        ("2.1.332", "sigint-retry", Some(C::Interrupted)),
        ("2.1.332", "sigint-agent", Some(C::UnfinishedBackground)),
        (
            "2.1.332",
            "sigint-bg-after-result",
            Some(C::UnfinishedBackground),
        ),
        ("2.1.332", "sigint-startup", Some(C::NoOutput)),
        ("2.1.332", "sigterm-bash", Some(C::Signal)),
        ("2.1.332", "sigterm-stream", Some(C::Signal)),
        (
            "2.1.332",
            "sigterm-bg-after-result",
            Some(C::UnfinishedBackground),
        ),
        ("2.1.332", "sighup-bash", Some(C::Signal)),
        ("2.1.332", "sigkill-bash", Some(C::Signal)),
        ("2.1.332", "resume-unknown", Some(C::SessionLost)),
        ("2.1.332", "id-in-use", Some(C::SessionInUse)),
        ("2.1.332", "skip-perms-as-root", Some(C::Permission)),
        ("2.1.332", "unknown-flag", Some(C::Configuration)),
        ("2.1.332", "bad-mcp-config", Some(C::Configuration)),
        ("2.1.332", "bad-permission-mode", Some(C::Configuration)),
        ("2.1.332", "bad-settings-file", Some(C::Configuration)),
        ("2.1.332", "missing-sysprompt-file", Some(C::Configuration)),
        ("2.1.332", "bad-max-turns", Some(C::Configuration)),
        ("2.1.332", "empty-prompt", Some(C::NoOutput)),
        ("2.1.332", "big-prompt", Some(C::NoOutput)),
        ("2.1.308", "plain", None),
        ("2.1.308", "sigint-bash", Some(C::Interrupted)),
        ("2.1.308", "sigint-stream", Some(C::Interrupted)),
        ("2.1.308", "sigterm-bash", Some(C::Signal)),
        ("2.1.308", "resume-unknown", Some(C::SessionLost)),
        ("2.1.308", "id-in-use", Some(C::SessionInUse)),
    ];
    let mut wrong = Vec::new();
    for (version, case, cause) in table {
        let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/captured", version, case]
            .iter()
            .collect();
        let rows = std::fs::read(folder.join("stdout.jsonl")).unwrap();
        let stderr = std::fs::read_to_string(folder.join("stderr.txt")).unwrap();
        let exit: Exit =
            serde_json::from_slice(&std::fs::read(folder.join("exit.json")).unwrap()).unwrap();
        let mut observed = Observed::default();
        for line in rows.split(|byte| *byte == b'\n') {
            observed.line(line);
        }
        let ending = Ending::Exited(exit);
        let facts = Facts {
            observed: &observed,
            ending: &ending,
            stop: None,
            stderr: &stderr,
            interrupted: false,
        };
        let found = verdict(&facts);
        let class = if cause.is_none() {
            Class::Completed
        } else {
            Class::Failed
        };
        if (found.class, found.cause) != (class, *cause) {
            wrong.push(format!(
                "{version} {case}: {:?} {:?}",
                found.class, found.cause
            ));
        }
        assert_eq!(observed.unparsed, 0, "{version} {case}");
        assert_eq!(
            found.text.is_some(),
            class == Class::Completed,
            "{version} {case}"
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn exit_codes_and_words_of_success_deceive() {
    use Cause as C;
    let error = |fields: &str| {
        format!(
            r#"{{"type":"result","subtype":"success","is_error":true,"num_turns":1,"result":"API Error",{fields}}}"#
        )
    };
    let api = error(r#""api_error_status":529,"terminal_reason":"api_error""#);
    let odd = ANSWER.replace("completed", "stop_hook_prevented");
    let full = ANSWER.replace("completed", "prompt_too_long");
    let lost = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,"errors":["No conversation found with session ID: x"]}"#;
    let table: &[(&str, &[&str], Ending, Option<Cause>)] = &[
        (
            "API error with exit 0",
            &[INIT, &api],
            exited(0),
            Some(C::Overloaded),
        ),
        (
            "a good answer with exit 1",
            &[INIT, ANSWER],
            exited(1),
            None,
        ),
        ("killed after its answer", &[INIT, ANSWER], killed(9), None),
        (
            "killed in a further turn",
            &[INIT, ANSWER, INIT, SAYS],
            killed(9),
            Some(C::Signal),
        ),
        (
            "a further turn without a result",
            &[INIT, ANSWER, INIT],
            exited(0),
            Some(C::NoResult),
        ),
        ("nothing at all, exit 0", &[], exited(0), Some(C::NoOutput)),
        (
            "rows and no result, exit 0",
            &[INIT, SAYS],
            exited(0),
            Some(C::NoResult),
        ),
        (
            "only noise",
            &["Warning: something"],
            exited(0),
            Some(C::NoResult),
        ),
        ("success by a hook", &[INIT, &odd], exited(0), Some(C::Hook)),
        (
            "success in a full context",
            &[INIT, &full],
            exited(0),
            Some(C::ContextFull),
        ),
        (
            "a lost session on stdout alone",
            &[lost],
            exited(1),
            Some(C::SessionLost),
        ),
        (
            "a task alive at the end",
            &[INIT, TASK, ANSWER],
            exited(0),
            Some(C::UnfinishedBackground),
        ),
        (
            "supervisor and claude lost",
            &[INIT, SAYS],
            Ending::Unknown,
            Some(C::LostSupervisor),
        ),
        (
            "supervisor lost, answer there",
            &[INIT, ANSWER],
            Ending::Unknown,
            None,
        ),
        (
            "not executable",
            &[],
            Ending::NotSpawned("no".to_owned()),
            Some(C::Spawn),
        ),
    ];
    for (name, lines, ending, cause) in table {
        let found = judged(lines, ending, None);
        let class = if cause.is_none() {
            Class::Completed
        } else {
            Class::Failed
        };
        assert_eq!((found.class, found.cause), (class, *cause), "{name}");
    }
}

#[test]
fn the_row_with_turns_decides() {
    let empty =
        r#"{"type":"result","subtype":"success","is_error":false,"num_turns":0,"result":""}"#;
    let second = ANSWER.replace("yes", "later");
    let found = judged(&[INIT, ANSWER, &second, empty], &exited(0), None);
    assert_eq!(
        (found.deciding, found.text.as_deref()),
        (Some(1), Some("later"))
    );
    let found = judged(&[INIT, empty], &exited(0), None);
    assert_eq!((found.deciding, found.text.as_deref()), (Some(0), Some("")));
}

#[test]
fn an_empty_result_is_the_models_last_message_and_says_so() {
    let empty = ANSWER.replace("yes", "");
    let found = judged(&[INIT, SAYS, &empty], &exited(0), None);
    assert_eq!(found.text.as_deref(), Some("hm"));
    assert!(
        found.notes.iter().any(|note| note.contains("last message")),
        "{:?}",
        found.notes
    );
    let failed = judged(&[INIT, SAYS], &killed(9), None);
    assert_eq!((failed.text, failed.partial.as_deref()), (None, Some("hm")));
}

#[test]
fn what_oo_ended_is_classed_by_why() {
    use Cause as C;
    let table = [
        (
            StopReason::Clock(Clock::FirstOutput),
            Class::Timeout,
            Some(C::SilentStart),
        ),
        (
            StopReason::Clock(Clock::Idle),
            Class::Timeout,
            Some(C::Stalled),
        ),
        (
            StopReason::Clock(Clock::Tool),
            Class::Timeout,
            Some(C::Stalled),
        ),
        (
            StopReason::Clock(Clock::Background),
            Class::Timeout,
            Some(C::UnfinishedBackground),
        ),
        (StopReason::Clock(Clock::Wall), Class::Timeout, None),
        (
            StopReason::Signal("SIGINT".to_owned()),
            Class::Cancelled,
            Some(C::Interrupted),
        ),
        (StopReason::Auth, Class::Failed, Some(C::Auth)),
        (StopReason::Doorman, Class::Failed, Some(C::Doorman)),
    ];
    for (reason, class, cause) in table {
        // claude calls an interrupted run with sub-agents a success.
        for lines in [&[INIT][..], &[INIT, ANSWER]] {
            let record = stop(reason.clone(), false);
            let found = judged(lines, &exited(0), Some(&record));
            assert_eq!((found.class, found.cause), (class, cause), "{reason:?}");
            assert_eq!(found.text, None);
        }
    }
}

#[test]
fn an_answer_that_was_whole_before_the_stop_stands() {
    for reason in [
        StopReason::Clock(Clock::Drain),
        StopReason::Signal("SIGTERM".to_owned()),
    ] {
        let record = stop(reason, true);
        for ending in [exited(143), killed(9), exited(0)] {
            let found = judged(&[INIT, ANSWER], &ending, Some(&record));
            assert_eq!(
                (found.class, found.text.as_deref()),
                (Class::Completed, Some("yes"))
            );
            assert_eq!(found.notes.len(), 1, "{:?}", found.notes);
        }
    }
    let record = stop(StopReason::Clock(Clock::Drain), true);
    let found = judged(&[INIT, ANSWER], &killed(9), Some(&record));
    assert!(found.notes[0].starts_with("late exit"));
    // A turn that began after it has no answer.
    let record = stop(StopReason::Signal("SIGTERM".to_owned()), true);
    let found = judged(&[INIT, ANSWER, INIT], &exited(0), Some(&record));
    assert_eq!((found.class, found.text), (Class::Cancelled, None));
}

#[test]
fn what_failed_in_an_earlier_turn_is_no_cause_of_this_one() {
    let retry = r#"{"type":"system","subtype":"api_retry","error_status":401}"#;
    let error = r#"{"type":"assistant","error":"rate_limit","api_error_status":429,"message":{"content":[]}}"#;
    let failed = ANSWER.replace("false", "true");
    let lines = [INIT, retry, error, &failed, INIT];
    let observed = observe(&lines);
    assert_eq!(
        (observed.retries.len(), observed.turn_retries().len()),
        (1, 0)
    );
    let found = judged(&lines, &exited(1), None);
    assert_eq!(found.cause, Some(Cause::NoResult));
    let found = judged(&lines[..4], &exited(1), None);
    assert_eq!(found.cause, Some(Cause::RateLimit));
}

#[test]
fn tasks_that_ended_before_the_answer_are_done() {
    let killed_task =
        r#"{"type":"system","subtype":"task_notification","task_id":"t","status":"stopped"}"#;
    let done =
        r#"{"type":"system","subtype":"task_notification","task_id":"t","status":"completed"}"#;
    let gone = r#"{"type":"system","subtype":"background_tasks_changed","tasks":[]}"#;
    for (lines, class) in [
        (&[INIT, TASK, killed_task, ANSWER][..], Class::Completed),
        (&[INIT, TASK, ANSWER, done], Class::Completed),
        (&[INIT, TASK, ANSWER, gone], Class::Completed),
        (&[INIT, TASK, ANSWER, killed_task, gone], Class::Failed),
        (
            &[INIT, TASK, ANSWER, killed_task, INIT, ANSWER],
            Class::Completed,
        ),
    ] {
        assert_eq!(judged(lines, &exited(0), None).class, class, "{lines:?}");
    }
}
