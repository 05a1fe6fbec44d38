//! What must hold whatever claude writes and however it ends.

use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
use proptest::{prop_assert, prop_assert_eq, proptest};

use super::observed::Observed;
use super::row;
use super::stop::{StopReason, StopRecord};
use super::verdict::{Ending, Exit, Facts, verdict};
use super::watchdog::Clock;
use crate::exit::Class;
use crate::store::Tail;

/// Lines as claude writes them, as it should not, and as nobody does.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        r#"{"type":"system","subtype":"init","session_id":"s","mcp_servers":[{"name":"oo","status":"connected"}]}"#,
        r#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"hm"},{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}"#,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t"}]}}"#,
        r#"{"type":"user","message":{"content":"[Request interrupted by user]"}}"#,
        r#"{"type":"assistant","error":"rate_limit","message":{"content":[{"type":"text","text":"API Error"}]}}"#,
        r#"{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"yes","terminal_reason":"completed","total_cost_usd":0.5}"#,
        r#"{"type":"result","subtype":"success","is_error":true,"num_turns":1,"result":"API Error","api_error_status":429}"#,
        r#"{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":3}"#,
        r#"{"type":"result","num_turns":-1,"is_error":"yes","result":{},"errors":[1,{}]}"#,
        r#"{"type":"system","subtype":"task_started","task_id":"a","is_backgrounded":true}"#,
        r#"{"type":"system","subtype":"task_notification","task_id":"a","status":"killed"}"#,
        r#"{"type":"system","subtype":"background_tasks_changed","tasks":[]}"#,
        r#"{"type":"system","subtype":"api_retry","retry_delay_ms":1e300,"error_status":99999}"#,
    ];
    prop_oneof![
        8 => prop::sample::select(known.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        2 => prop::sample::select(known.to_vec())
            .prop_flat_map(|text| (Just(text), 0..text.len()))
            .prop_map(|(text, cut)| text.as_bytes()[..cut].to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..80),
    ]
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        (0..256_i32).prop_map(|code| Ending::Exited(Exit {
            code: Some(code),
            signal: None
        })),
        (1..32_i32).prop_map(|signal| Ending::Exited(Exit {
            code: None,
            signal: Some(signal)
        })),
        Just(Ending::Unknown),
        Just(Ending::NotSpawned("no".to_owned())),
    ]
}

fn stop() -> impl Strategy<Value = Option<StopReason>> {
    prop_oneof![
        3 => Just(None),
        1 => Just(Some(StopReason::Clock(Clock::Idle))),
        1 => Just(Some(StopReason::Clock(Clock::Wall))),
        1 => Just(Some(StopReason::Signal("SIGINT".to_owned()))),
        1 => Just(Some(StopReason::Auth)),
    ]
}

proptest! {
    #[test]
    fn no_line_is_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = row::parse(&bytes);
    }

    #[test]
    fn completed_means_that_an_answer_was_whole(
        lines in prop::collection::vec(line(), 0..12),
        stop_at in 0..12_usize,
        (ending, reason) in (ending(), stop()),
    ) {
        let mut observed = Observed::default();
        let mut after_answer = false;
        for (index, line) in lines.iter().enumerate() {
            if index == stop_at {
                after_answer = observed.at_rest();
            }
            observed.line(line);
        }
        if stop_at >= lines.len() {
            after_answer = observed.at_rest();
        }
        let stop = reason.map(|reason| StopRecord {
            reason,
            at: jiff::Timestamp::UNIX_EPOCH,
            after_answer,
        });
        let facts = Facts {
            observed: &observed,
            ending: &ending,
            stop: stop.as_ref(),
            stderr: "",
            interrupted: false,
        };
        let found = verdict(&facts);
        prop_assert_eq!(found.text.is_some(), found.class == Class::Completed);
        match found.class {
            Class::Completed => {
                prop_assert_eq!(found.cause, None);
                let row = &observed.results[found.deciding.unwrap()];
                prop_assert!(row.is_error != Some(true));
                prop_assert!(!matches!(ending, Ending::NotSpawned(_)));
                prop_assert!(stop.is_none_or(|stop| stop.after_answer));
            }
            Class::Failed => prop_assert!(found.cause.is_some()),
            Class::Timeout | Class::Cancelled => prop_assert!(stop.is_some()),
            Class::Started
            | Class::Refused
            | Class::DeliveredResume
            | Class::HeldBySession
            | Class::Error => prop_assert!(false, "{:?}", found.class),
        }
    }

    #[test]
    fn a_file_read_in_any_pieces_has_the_same_lines(
        lines in prop::collection::vec("[a-z]{0,40}", 0..20),
        cuts in prop::collection::vec(0..400_usize, 0..10),
    ) {
        use std::io::Write as _;
        let text = lines.join("\n");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut tail = Tail::open(file.path()).unwrap();
        let mut found: Vec<String> = Vec::new();
        let mut take = |line: &[u8]| found.push(String::from_utf8(line.to_vec()).unwrap());
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let mut at = 0;
        for cut in cuts {
            file.write_all(&text.as_bytes()[at..cut]).unwrap();
            tail.read_new(u64::MAX, &mut take).unwrap();
            at = cut;
        }
        tail.finish(&mut take);
        let mut expected = lines;
        // An empty end is no line.
        if expected.last().is_some_and(String::is_empty) {
            expected.pop();
        }
        prop_assert_eq!(found, expected);
    }
}
