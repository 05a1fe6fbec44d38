//! Deviations from the usual behaviour, one for each thing that has broken for somebody.
//!
//! The general form is `at`: a list of acts at named points of a run. The named quirks are
//! either switches that other modules read, or shorthands that [`Quirks::acts`] turns into acts.
//! README.md lists which report each of them plays.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The points of a run at which acts can be played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Point {
    /// Before anything was written; a signal kills the process here, there are no handlers yet.
    Launch,
    /// After the registry row, before the MCP servers and the init row.
    Start,
    /// After an init row.
    Init,
    /// After the rows of an assistant message.
    Reply,
    /// After a tool call's row, before the tool runs.
    ToolUse,
    /// After a tool's result row.
    ToolResult,
    /// When a background task has ended, before its rows.
    TaskEnd,
    /// Before a result row.
    BeforeResult,
    /// After a result row.
    Result,
    /// After the registry row is gone, before the process ends.
    Exit,
}

/// One act. Exactly one of the kinds is set; `nth` limits it to one passing of the point.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Act {
    /// Only at this passing of the point, counted from 1.
    pub(crate) nth: Option<u32>,
    /// A JSON row on stdout; session_id and uuid are added when it is an object without them.
    pub(crate) line: Option<Value>,
    /// Text on stdout, exactly as given (no line feed added).
    pub(crate) raw: Option<String>,
    /// Bytes on stdout, as hexadecimal digits.
    pub(crate) hex: Option<String>,
    /// An assistant row of about this many MiB on stdout.
    pub(crate) big_line_mib: Option<usize>,
    /// Text appended to the transcript, exactly as given.
    pub(crate) transcript: Option<String>,
    /// Text on stderr, exactly as given.
    pub(crate) stderr: Option<String>,
    /// A pause; signals are honoured in it.
    pub(crate) sleep_ms: Option<u64>,
    /// Nothing more happens; signals are honoured unless ignored.
    pub(crate) hang: Option<bool>,
    /// The process ends with this code, at once and without tidying up.
    pub(crate) exit: Option<i32>,
    /// The process ends by this signal: KILL, ABRT, SEGV; at `launch` also TERM, INT, HUP.
    pub(crate) signal: Option<String>,
    /// A process in a session of its own that holds stdout and stderr for so long.
    pub(crate) orphan_ms: Option<u64>,
    /// So much memory is allocated and touched.
    pub(crate) allocate_mib: Option<usize>,
}

/// A change of result rows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patch {
    /// Only the row with this result_index.
    pub(crate) index: Option<u32>,
    #[serde(default)]
    pub(crate) set: Map<String, Value>,
    #[serde(default)]
    pub(crate) drop: Vec<String>,
}

/// What `--resume` of an unknown session says, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LostSession {
    /// As measured: a result row and a line on stderr.
    #[default]
    Both,
    /// Only `errors[]` of a result row.
    Row,
    /// Only stderr.
    Stderr,
    /// Nothing at all; it hangs.
    Hang,
}

/// Another session under the same process.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Switch {
    /// After so many turns.
    pub(crate) after_turn: u32,
    pub(crate) to: uuid::Uuid,
}

/// All quirks of a script.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Quirks {
    /// Acts at named points.
    pub(crate) at: BTreeMap<Point, Vec<Act>>,
    /// Never says a byte.
    pub(crate) silent_start: bool,
    /// No output and no exit after the first tool result.
    pub(crate) hang_after_tool_result: bool,
    /// All results are given, the process never exits.
    pub(crate) never_exit: bool,
    /// The process lives on for so long after everything is said.
    pub(crate) linger_ms: u64,
    /// Signals without effect: INT, TERM, HUP.
    pub(crate) ignore_signals: Vec<String>,
    /// A process that outlives claude and holds stdout for so long.
    pub(crate) orphan_ms: Option<u64>,
    /// The exit code, whatever happened.
    pub(crate) exit_code: Option<u8>,
    /// Changes of result rows.
    pub(crate) result_patch: Vec<Patch>,
    /// No result row is written.
    pub(crate) no_result: bool,
    /// All result rows come together at the end.
    pub(crate) hold_results: bool,
    /// Fields of the init rows that are replaced.
    pub(crate) init_patch: Map<String, Value>,
    /// The status of an MCP server in the init row, by its name.
    pub(crate) mcp_status: BTreeMap<String, String>,
    /// Sub-agents and background commands are killed at the end, nobody is told.
    pub(crate) kill_tasks_at_result: bool,
    /// These tools are denied, whatever the permissions.
    pub(crate) deny: Vec<String>,
    /// A `tool_progress` row at this interval while a tool runs (real: 30 s).
    pub(crate) tool_progress_ms: Option<u64>,
    /// stdout ends after so many bytes.
    pub(crate) stdout_cut_bytes: Option<usize>,
    /// Rows carry this session id instead.
    pub(crate) report_session_id: Option<String>,
    /// The process turns to another session.
    pub(crate) switch_session: Option<Switch>,
    /// What an unknown `--resume` id leads to.
    pub(crate) lost_session: LostSession,
    /// The API cannot be reached.
    pub(crate) dead_api: bool,
    /// Nobody is logged in.
    pub(crate) not_logged_in: bool,
    /// No transcript is written.
    pub(crate) no_transcript: bool,
    /// No registry row is written.
    pub(crate) no_registry: bool,
    /// The door takes lines and loses the first so many of them.
    pub(crate) door_lose: u32,
    /// The door's file is there, nobody listens.
    pub(crate) door_refuse: bool,
    /// The first so many connections are accepted and never read.
    pub(crate) door_hang: u32,
    /// The first so many connections (before any that hang) are accepted and closed at once.
    pub(crate) door_close: u32,
    /// The door lets everything in.
    pub(crate) guard_off: bool,
    /// Factor on the guard's times (real: a line per 2 s, 30 s for a text); 1 when absent.
    pub(crate) guard_scale: Option<f64>,
    /// A stdio MCP server that dies is started again.
    pub(crate) restart_servers: bool,
    /// There is no door.
    pub(crate) no_door: bool,
    /// Waiting lines are thrown away at the end of a turn.
    pub(crate) lose_queue: bool,
    /// A folded-in line is shown to the model twice.
    pub(crate) replay_line: bool,
    /// The size of the first request's rows in the transcript.
    pub(crate) request_row_bytes: usize,
    /// Factor on the delays between retries; 0.01 when absent.
    pub(crate) retry_scale: Option<f64>,
    /// A foreground command that runs this long is announced as a task; 3000 when absent.
    pub(crate) task_after_ms: Option<u64>,
}

impl Quirks {
    /// The acts at a point: the script's own, then the shorthands.
    pub(crate) fn acts(&self, point: Point) -> Vec<Act> {
        let mut acts = self.at.get(&point).cloned().unwrap_or_default();
        let hang = Act {
            hang: Some(true),
            ..Act::default()
        };
        match point {
            Point::Start => {
                if let Some(ms) = self.orphan_ms {
                    acts.push(Act {
                        orphan_ms: Some(ms),
                        ..Act::default()
                    });
                }
                if self.silent_start {
                    acts.push(hang);
                }
            }
            Point::ToolResult if self.hang_after_tool_result => acts.push(hang),
            Point::Exit if self.linger_ms > 0 => acts.push(Act {
                sleep_ms: Some(self.linger_ms),
                ..Act::default()
            }),
            _ => {}
        }
        acts
    }

    /// Whether a signal has no effect.
    pub(crate) fn ignores(&self, name: &str) -> bool {
        self.ignore_signals.iter().any(|s| s == name)
    }

    /// Refuses what cannot be played.
    pub(crate) fn check(&self) -> Result<(), String> {
        for name in &self.ignore_signals {
            if !["INT", "TERM", "HUP"].contains(&name.as_str()) {
                return Err(format!("ignore_signals: {name} is none of INT, TERM, HUP"));
            }
        }
        if let Some(scale) = self.guard_scale
            && !(scale > 0.0 && scale <= 1000.0)
        {
            return Err(format!(
                "guard_scale: {scale} is not above 0 and at most 1000"
            ));
        }
        for (point, acts) in &self.at {
            for (i, act) in acts.iter().enumerate() {
                if act.kinds() != 1 {
                    return Err(format!(
                        "at {point:?}, act {i}: exactly one kind of act is needed"
                    ));
                }
                if let Some(hex) = &act.hex {
                    from_hex(hex).ok_or_else(|| format!("at {point:?}, act {i}: bad hex"))?;
                }
                if let Some(name) = &act.signal {
                    let handled = ["TERM", "INT", "HUP"].contains(&name.as_str());
                    let playable = if handled {
                        *point == Point::Launch
                    } else {
                        ["KILL", "ABRT", "SEGV"].contains(&name.as_str())
                    };
                    if !playable {
                        return Err(format!("at {point:?}, act {i}: cannot die by {name} here"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Act {
    fn kinds(&self) -> usize {
        [
            self.line.is_some(),
            self.raw.is_some(),
            self.hex.is_some(),
            self.big_line_mib.is_some(),
            self.transcript.is_some(),
            self.stderr.is_some(),
            self.sleep_ms.is_some(),
            self.hang.is_some(),
            self.exit.is_some(),
            self.signal.is_some(),
            self.orphan_ms.is_some(),
            self.allocate_mib.is_some(),
        ]
        .iter()
        .filter(|set| **set)
        .count()
    }
}

/// Bytes from hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text
        .chars()
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorthands_become_acts() {
        let quirks: Quirks = serde_json::from_str(
            r#"{"silent_start":true,"at":{"result":[{"raw":"x"},{"hang":true}]}}"#,
        )
        .unwrap();
        assert_eq!(quirks.acts(Point::Start).len(), 1);
        assert_eq!(quirks.acts(Point::Result).len(), 2);
        assert!(quirks.check().is_ok());
    }

    #[test]
    fn an_act_is_of_one_kind() {
        let two: Quirks =
            serde_json::from_str(r#"{"at":{"init":[{"raw":"x","sleep_ms":1}]}}"#).unwrap();
        assert!(two.check().is_err());
        assert_eq!(from_hex("ff0a"), Some(vec![255, 10]));
        assert_eq!(from_hex("f"), None);
    }

    /// Every snippet of the reference can be played.
    #[test]
    fn the_reference_is_playable() {
        let reference = include_str!("README.md");
        let table = reference.split("## Field reports").nth(1).unwrap();
        let mut played = 0;
        for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
            for snippet in row.split('`').skip(1).step_by(2) {
                let script = match snippet.chars().next() {
                    Some('"') if snippet.contains(':') => {
                        let quirks = snippet.strip_prefix("\"quirks\": {").map_or_else(
                            || snippet.to_owned(),
                            |rest| rest.trim_end_matches('}').to_owned(),
                        );
                        format!(r#"{{"replies":[],"quirks":{{{quirks}}}}}"#)
                    }
                    Some('{') => format!(r#"{{"replies":[{snippet}]}}"#),
                    _ => continue,
                };
                played += 1;
                if let Err(error) = crate::script::Script::parse(&script) {
                    panic!("{script}: {error}");
                }
            }
        }
        assert!(played > 30, "only {played} snippets were found");
    }
}
