//! The life of the process between start-up and the end: turns, results, waiting.
//!
//! Invariants: a result row is held back while a sub-agent is alive, and comes together with the
//! next; the decision to end and the closing of the door are one step under the hub's lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::hub::{Command, Intake, State, Stop, lock};
use crate::quirks::Point;
use crate::result::{self, Finished};
use crate::session::{Format, Session};
use crate::stream::{self, TaskEnd};
use crate::{acts, shutdown, turn};

/// How long sub-agents are waited for after a turn.
const CEILING: u64 = 600_000;

enum Next {
    Turn(Command),
    Over,
    Stop(Stop),
    BadInput(String),
}

#[derive(Default)]
struct Said {
    /// Turns whose rows are held back, with the command that started each.
    held: Vec<(Finished, Command)>,
    last_failed: bool,
}

/// Plays everything; the exit code.
pub(crate) fn run(s: &Arc<Session>) -> u8 {
    let mut said = Said::default();
    acts::play(s, Point::Start);
    let code = loop {
        match next(s, &mut said) {
            Next::Turn(command) => play(s, &command, &mut said),
            Next::BadInput(error) => {
                eprintln!("{error}");
                break 1;
            }
            Next::Over => {
                flush(s, &mut said, true);
                break u8::from(said.last_failed);
            }
            Next::Stop(stop) => {
                shutdown::begin(s);
                shutdown::join_agents(s);
                shutdown::tell_killed(s);
                if stop == Stop::Int {
                    flush(s, &mut said, true);
                }
                break stop.exit_code();
            }
        }
    };
    let code = after(s, code);
    shutdown::finish(s);
    s.quirks.exit_code.unwrap_or(code)
}

/// The process that never ends by itself.
fn after(s: &Session, code: u8) -> u8 {
    if !s.quirks.never_exit {
        return code;
    }
    s.registry.status("idle");
    let stop = s.hub.wait(None, |state| state.stop);
    stop.map_or(code, Stop::exit_code)
}

fn next(s: &Session, said: &mut Said) -> Next {
    let ceiling = std::env::var("CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS");
    let ceiling = ceiling
        .ok()
        .and_then(|ms| ms.parse().ok())
        .unwrap_or(CEILING);
    let deadline = (ceiling > 0 && s.hub.look(State::agents_alive))
        .then(|| Instant::now() + Duration::from_millis(ceiling));
    let mut idle = false;
    loop {
        let next = s.hub.wait(
            if idle { deadline } else { Some(Instant::now()) },
            |state| {
                if let Some(stop) = state.stop {
                    return Some(Next::Stop(stop));
                }
                if let Some(error) = state.input_error.take() {
                    return Some(Next::BadInput(error));
                }
                if let Some(command) = state.take() {
                    state.in_turn = true;
                    return Some(Next::Turn(command));
                }
                let quiet = state.tasks.is_empty() && state.input_pending == 0;
                if !state.input_open && (quiet || s.quirks.kill_tasks_at_result) {
                    state.intake = Intake::Late;
                    return Some(Next::Over);
                }
                None
            },
        );
        match next {
            Some(next) => {
                if matches!(next, Next::Turn(_)) {
                    s.registry.status("busy");
                }
                return next;
            }
            None if !idle => {
                idle = true;
                if s.hub.look(|state| state.input_open) {
                    s.registry.status("idle");
                }
            }
            None => {
                give_up_on_agents(s, ceiling);
                flush(s, said, false);
            }
        }
    }
}

fn play(s: &Arc<Session>, command: &Command, said: &mut Said) {
    let finished = turn::run(s, command);
    s.hub.tell(|state| {
        state.in_turn = false;
        state.interrupt = false;
        if s.quirks.lose_queue {
            state.queue.clear();
        }
    });
    let Some(finished) = finished else { return };
    let interrupted = s.hub.look(|state| state.stop.is_some());
    said.held.push((finished, command.clone()));
    let hold = s.quirks.hold_results
        || (s.hub.look(State::agents_alive) && !s.quirks.kill_tasks_at_result);
    if !hold || interrupted {
        flush(s, said, false);
    }
    let turns = turn::TURNS.load(Ordering::Relaxed);
    if let Some(switch) = s
        .quirks
        .switch_session
        .as_ref()
        .filter(|w| w.after_turn == turns)
    {
        stream::reset(s);
        if s.newer {
            stream::tasks_changed(s);
        }
        s.switch(&switch.to.to_string());
    }
}

/// Writes the rows that were held back. `last`: nothing more will come.
fn flush(s: &Session, said: &mut Said, last: bool) {
    // Json and text print one result only, the last.
    if s.format != Format::Stream && !last {
        return;
    }
    let held = std::mem::take(&mut said.held);
    let count = held.len();
    for (i, (finished, command)) in held.into_iter().enumerate() {
        result::write(s, &finished, last && i + 1 == count);
        let interrupted = matches!(finished.end, result::End::Interrupted { .. });
        let state = if interrupted {
            "cancelled"
        } else {
            "completed"
        };
        for command in command.all() {
            stream::lifecycle(s, command, state);
        }
        said.last_failed = finished.is_error();
    }
}

/// Sub-agents that were waited for too long are stopped.
fn give_up_on_agents(s: &Session, ceiling: u64) {
    let agents: Vec<_> = s.hub.tell(|state| {
        let (agents, others) = std::mem::take(&mut state.tasks)
            .into_iter()
            .partition(|t| t.agent.is_some());
        state.tasks = others;
        agents
    });
    let seconds = ceiling / 1000;
    for task in agents {
        lock(&s.stats).killed_by_system += 1;
        eprintln!(
            "Background tasks still running {seconds}s after the last turn (subagent \"{}\"); \
             stopping them. Set CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS=0 to wait indefinitely.",
            task.description
        );
        stream::task_updated(s, &task, "killed");
        let end = TaskEnd {
            status: "stopped",
            output_file: "",
            summary: &task.description,
            is_report: false,
            usage: None,
        };
        stream::task_notification(s, &task, &end);
        stream::tasks_changed(s);
    }
}
