//! The end of the process, in the measured order.
//!
//! After a signal: the registry row goes first, then the cost is written, then the rest of the
//! rows. After the last result: MCP servers, socket, row, key, cost. Everything here happens once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::hub::{Intake, lock};
use crate::ids;
use crate::opening::queue_row;
use crate::quirks::Point;
use crate::session::Session;
use crate::stream::{self, TaskEnd};
use crate::{acts, tasks};

static BEGUN: AtomicBool = AtomicBool::new(false);

/// The registry row goes, the cost is written, commands are killed.
pub(crate) fn begin(s: &Session) {
    if BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    s.hub.tell(|state| state.intake = Intake::Shut);
    let _ = std::fs::remove_file(&s.socket);
    s.registry.remove();
    s.mcp.interrupt();
    cost(s);
    kill_commands(s);
}

fn cost(s: &Session) {
    let id = s.id();
    let row = lock(&s.ledger).state_row(&id, ids::since(s.started), s.newer);
    s.note(&row);
}

/// Kills the sessions of all running commands.
pub(crate) fn kill_commands(s: &Session) {
    for pid in std::mem::take(&mut *lock(&s.running)) {
        if let Ok(pid) = i32::try_from(pid) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Background commands that a signal has killed are told of; sub-agents are not.
pub(crate) fn tell_killed(s: &Session) {
    let commands: Vec<_> = s.hub.tell(|state| {
        let (agents, commands) = std::mem::take(&mut state.tasks)
            .into_iter()
            .partition(|t| t.agent.is_some());
        state.tasks = agents;
        commands
    });
    for task in commands {
        let end = TaskEnd {
            status: "stopped",
            output_file: "",
            summary: &task.description,
            is_report: false,
            usage: None,
        };
        stream::task_notification(s, &task, &end);
        stream::task_updated(s, &task, "killed");
        stream::tasks_changed(s);
        let text = tasks::notification(
            &task,
            &tasks::output_file(s, &task.id),
            "killed",
            &format!("Background command \"{}\" was stopped", task.description),
            None,
        );
        s.note(&queue_row(s, "enqueue", Some(&text)));
    }
}

/// Sub-agents get a moment to say their last row.
pub(crate) fn join_agents(s: &Session) {
    let threads = std::mem::take(&mut *lock(&s.threads));
    let deadline = std::time::Instant::now() + Duration::from_millis(500);
    while threads.iter().any(|t| !t.is_finished()) && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The last things, when everything has been said.
pub(crate) fn finish(s: &Session) {
    let held = s.hub.tell(|state| {
        // After a signal the door is shut already.
        if state.intake == Intake::Open {
            state.intake = Intake::Late;
        }
        std::mem::take(&mut state.held)
    });
    for (message, hold, pid) in held {
        stream::hold(s, &message, &hold, pid, true);
    }
    s.mcp.interrupt();
    if !BEGUN.load(Ordering::Relaxed) {
        s.registry.status("idle");
    }
    s.mcp.stop();
    s.hub.tell(|state| state.intake = Intake::Shut);
    if !BEGUN.swap(true, Ordering::Relaxed) {
        let _ = std::fs::remove_file(&s.socket);
        s.registry.remove();
        cost(s);
    }
    kill_commands(s);
    acts::play(s, Point::Exit);
}
