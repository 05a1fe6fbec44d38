//! The clocks against scripted rows; no time passes.

use super::*;

const INIT: &str = r#"{"type":"system","subtype":"init"}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success","num_turns":1,"result":"x"}"#;
const TASK: &str = r#"{"type":"system","subtype":"task_started","task_id":"t","is_backgrounded":true,"task_type":"local_agent"}"#;
const TASK_DONE: &str =
    r#"{"type":"system","subtype":"task_notification","task_id":"t","status":"completed"}"#;

struct Script {
    watchdog: Watchdog,
    observed: Observed,
}

impl Script {
    fn new() -> Self {
        Self::held(None)
    }

    fn held(hold: Option<Hold>) -> Self {
        let limits = Limits {
            wall: None,
            ..Limits::default()
        };
        Self {
            watchdog: Watchdog::new(limits, hold),
            observed: Observed::default(),
        }
    }

    fn at(mut self, seconds: u64, line: &str) -> Self {
        let row = self.observed.line(line.as_bytes()).unwrap();
        self.watchdog.row(s(seconds), &row, &self.observed);
        self
    }

    /// The next clock, and the second at which it runs out.
    fn next(&self) -> Option<(u64, Clock)> {
        self.watchdog.next().map(|(at, due)| match due {
            Due::Clock(clock) => (at.as_secs(), clock),
            Due::Close => panic!("stdin is to be closed at {at:?}"),
        })
    }

    /// The second at which stdin is closed.
    fn closes(&self) -> Option<u64> {
        self.watchdog.next().map(|(at, due)| {
            assert_eq!(due, Due::Close);
            at.as_secs()
        })
    }
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn call(id: &str, parent: Option<&str>) -> String {
    let parent = parent.map_or("null".to_owned(), |parent| format!("{parent:?}"));
    format!(
        r#"{{"type":"assistant","parent_tool_use_id":{parent},"message":{{"id":"m","content":[{{"type":"tool_use","id":"{id}","name":"Bash","input":{{"command":"x"}}}}]}}}}"#
    )
}

fn answer(id: &str) -> String {
    format!(
        r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"{id}","content":"x"}}]}}}}"#
    )
}

#[test]
fn before_the_first_byte_only_the_first_output_counts() {
    let script = Script::new();
    assert_eq!(script.next(), Some((120, Clock::FirstOutput)));
    assert_eq!(script.watchdog.due(s(119)), None);
    assert_eq!(
        script.watchdog.due(s(120)),
        Some(Due::Clock(Clock::FirstOutput))
    );
    let script = script.at(100, INIT);
    assert_eq!(script.next(), Some((700, Clock::Idle)));
}

#[test]
fn half_a_row_is_a_sign_of_life() {
    let mut script = Script::new();
    script.watchdog.bytes(s(30));
    assert_eq!(script.next(), Some((630, Clock::Idle)));
    script.watchdog.bytes(s(40));
    assert_eq!(script.next(), Some((640, Clock::Idle)));
    script.watchdog.moved(s(35));
    assert_eq!(
        script.next(),
        Some((640, Clock::Idle)),
        "older than the newest byte"
    );
    script.watchdog.moved(s(50));
    assert_eq!(script.next(), Some((650, Clock::Idle)));
}

#[test]
fn a_tool_has_a_clock_of_its_own_and_takes_none_of_the_models() {
    let script = Script::new()
        .at(1, INIT)
        .at(10, &call("a", None))
        .at(20, &call("b", None));
    assert_eq!(script.next(), Some((10 + 1800, Clock::Tool)));
    // A heartbeat of the tool is a row like any other: it must not feed the tool's clock.
    let script = script.at(600, r#"{"type":"tool_progress","tool_use_id":"a"}"#);
    assert_eq!(script.next(), Some((10 + 1800, Clock::Tool)));
    let script = script.at(1700, &answer("a"));
    assert_eq!(script.next(), Some((20 + 1800, Clock::Tool)));
    let script = script.at(1800, &answer("b"));
    assert_eq!(script.next(), Some((1800 + 600, Clock::Idle)));
}

#[test]
fn a_rider_at_work_keeps_its_call_alive() {
    let script = Script::new()
        .at(1, INIT)
        .at(10, &call("agent", None))
        .at(1500, &call("sub", Some("agent")))
        .at(1600, &answer("sub"));
    assert_eq!(script.next(), Some((1500 + 1800, Clock::Tool)));
}

#[test]
fn claude_waits_for_the_api_on_purpose() {
    let retry = r#"{"type":"system","subtype":"api_retry","attempt":1,"retry_delay_ms":3600000}"#;
    let script = Script::new().at(1, INIT).at(2, retry);
    assert_eq!(script.next(), Some((2 + 3600 + 600, Clock::Idle)));
    // The longest wait that a duration can hold is no reason to fail.
    let retry = r#"{"type":"system","subtype":"api_retry","retry_delay_ms":1.844674407370955e22}"#;
    assert_eq!(script.at(u64::MAX / 2, retry).next(), None);
}

#[test]
fn after_a_result_what_lives_on_has_its_own_time() {
    let script = Script::new().at(1, INIT).at(50, RESULT);
    assert_eq!(script.next(), Some((65, Clock::Drain)));
    let script = Script::new().at(1, INIT).at(2, TASK).at(50, RESULT);
    assert_eq!(script.next(), Some((650, Clock::Background)));
    // A row of a task does not move its clock; its end starts the drain.
    let progress = r#"{"type":"system","subtype":"task_progress","task_id":"t"}"#;
    let script = script.at(300, progress);
    assert_eq!(script.next(), Some((650, Clock::Background)));
    let script = script.at(400, TASK_DONE);
    assert_eq!(script.next(), Some((415, Clock::Drain)));
    // And a further turn is a turn.
    let script = script.at(401, INIT);
    assert_eq!(script.next(), Some((1001, Clock::Idle)));
    assert_eq!(script.at(410, RESULT).next(), Some((425, Clock::Drain)));
}

#[test]
fn the_wall_stands_whatever_moves_and_a_clock_can_be_off() {
    let limits = Limits {
        wall: Some(s(30)),
        ..Limits::default()
    };
    let mut watchdog = Watchdog::new(limits, None);
    watchdog.bytes(s(29));
    assert_eq!(watchdog.due(s(30)), Some(Due::Clock(Clock::Wall)));
    let off = Limits {
        first_output: None,
        ..Limits::default()
    };
    assert_eq!(Watchdog::new(off, None).next(), None);
}

#[test]
fn limits_are_recorded_in_milliseconds() {
    let text = serde_json::to_string(&Limits::default()).unwrap();
    assert_eq!(
        text,
        r#"{"first_output":120000,"idle":600000,"tool":1800000,"background":600000,"drain":15000,"wall":null,"grace":5000}"#
    );
    assert_eq!(
        serde_json::from_str::<Limits>(&text).unwrap(),
        Limits::default()
    );
}

const fn idle(seconds: u64) -> Option<Hold> {
    Some(Hold {
        idle: Some(s(seconds)),
    })
}

#[test]
fn a_held_session_is_closed_after_its_idle_time_and_drains_then() {
    let mut script = Script::held(idle(60)).at(1, INIT).at(50, RESULT);
    assert_eq!(script.closes(), Some(110));
    // What claude says of the turn that is over is no new one.
    script = script.at(51, r#"{"type":"command_lifecycle","state":"completed"}"#);
    assert_eq!(script.closes(), Some(110));
    assert_eq!(script.watchdog.due(s(109)), None);
    assert_eq!(script.watchdog.due(s(110)), Some(Due::Close));
    script.watchdog.closed(s(112));
    assert_eq!(script.next(), Some((112 + 15, Clock::Drain)));
    // Closed twice is closed once.
    script.watchdog.closed(s(120));
    assert_eq!(script.next(), Some((112 + 15, Clock::Drain)));
    // A line that came before the end still has its turn.
    let script = script.at(113, INIT);
    assert_eq!(script.next(), Some((713, Clock::Idle)));
    assert_eq!(script.at(120, RESULT).next(), Some((135, Clock::Drain)));
}

#[test]
fn a_further_turn_begins_the_idle_time_anew() {
    let script = Script::held(idle(60))
        .at(1, INIT)
        .at(10, RESULT)
        .at(60, INIT);
    assert_eq!(script.next(), Some((660, Clock::Idle)));
    let script = script.at(65, &call("a", None));
    assert_eq!(script.next(), Some((65 + 1800, Clock::Tool)));
    let script = script.at(70, &answer("a")).at(80, RESULT);
    assert_eq!(script.closes(), Some(140));
}

#[test]
fn what_lives_on_keeps_a_held_session_from_being_idle() {
    let script = Script::held(idle(60))
        .at(1, INIT)
        .at(2, TASK)
        .at(50, RESULT);
    assert_eq!(script.next(), Some((650, Clock::Background)));
    assert_eq!(script.at(400, TASK_DONE).closes(), Some(460));
}

#[test]
fn how_long_a_session_is_held() {
    for (hold, expected) in [
        (Hold { idle: None }, None),
        (
            Hold {
                idle: Some(Duration::ZERO),
            },
            Some(10),
        ),
        // No clock overflows.
        (
            Hold {
                idle: Some(Duration::MAX),
            },
            None,
        ),
    ] {
        let script = Script::held(Some(hold)).at(1, INIT).at(10, RESULT);
        assert_eq!(script.closes(), expected, "{hold:?}");
    }
    // Before there is an answer it is a run as any other.
    assert_eq!(
        Script::held(idle(0)).next(),
        Some((120, Clock::FirstOutput))
    );
    let limits = Limits {
        wall: Some(s(30)),
        ..Limits::default()
    };
    let mut watchdog = Watchdog::new(limits, Some(Hold { idle: None }));
    watchdog.bytes(s(1));
    assert_eq!(watchdog.next(), Some((s(30), Due::Clock(Clock::Wall))));
}

#[test]
fn a_hold_is_recorded_in_milliseconds() {
    for (hold, text) in [
        (Hold { idle: None }, r#"{"idle":null}"#),
        (idle(600).unwrap(), r#"{"idle":600000}"#),
    ] {
        assert_eq!(serde_json::to_string(&hold).unwrap(), text);
        assert_eq!(serde_json::from_str::<Hold>(text).unwrap(), hold);
    }
}
