//! Background tasks: their files and the notification that starts a turn when they end.

use std::path::PathBuf;

use crate::hub::{Command, Intake, Priority, Source, Task};
use crate::ids;
use crate::opening::queue_row;
use crate::row::{Row, row};
use crate::session::Session;
use crate::stream::{self, TaskEnd};

/// Where a task's output goes.
pub(crate) fn output_file(s: &Session, id: &str) -> PathBuf {
    s.scratch().join("tasks").join(format!("{id}.output"))
}

/// The text that tells the model of a task's end.
pub(crate) fn notification(
    task: &Task,
    file: &std::path::Path,
    status: &str,
    summary: &str,
    report: Option<&str>,
) -> String {
    let report = report.unwrap_or_default();
    format!(
        "<task-notification>\n<task-id>{}</task-id>\n<tool-use-id>{}</tool-use-id>\n\
         <output-file>{}</output-file>\n<status>{status}</status>\n\
         <summary>{summary}</summary>\n{report}</task-notification>",
        task.id,
        task.tool_use_id,
        file.display()
    )
}

/// How a task ended.
pub(crate) struct Ended {
    pub(crate) status: &'static str,
    /// The summary on stdout.
    pub(crate) summary: String,
    /// The summary for the model.
    pub(crate) told: String,
    /// The rest of the notification.
    pub(crate) report: Option<String>,
    pub(crate) usage: Option<Row>,
    pub(crate) tools_used: Option<String>,
}

/// A background task is over: rows, and a command that starts a turn.
pub(crate) fn ended(s: &Session, task: &Task, ended: Ended) {
    let known = s.hub.tell(|state| {
        let before = state.tasks.len();
        if state.intake != Intake::Open {
            return false;
        }
        state.tasks.retain(|t| t.id != task.id);
        let known = state.tasks.len() < before;
        // Until the command is queued, the process must not think that nothing is left.
        state.input_pending += usize::from(known);
        known
    });
    if !known {
        return;
    }
    let file = output_file(s, &task.id);
    let shown = file.display().to_string();
    let end = TaskEnd {
        status: ended.status,
        output_file: &shown,
        summary: &ended.summary,
        is_report: ended.report.is_some(),
        usage: ended.usage.as_ref(),
    };
    stream::task_updated(s, task, ended.status);
    stream::task_notification(s, task, &end);
    stream::tasks_changed(s);
    let text = notification(
        task,
        &file,
        ended.status,
        &ended.told,
        ended.report.as_deref(),
    );
    let origin = row! {
        "kind": "task-notification",
        "producer": "session-task",
        "runId": task.run_id,
    };
    let command = Command {
        merged: Vec::new(),
        uuid: ids::uuid(),
        text,
        priority: Priority::Later,
        source: Source::Task {
            origin,
            tools_used: ended.tools_used,
        },
        at_ms: ids::now_ms(),
    };
    s.hub.tell(|state| {
        state.input_pending -= 1;
        s.note(&queue_row(s, "enqueue", Some(&command.text)));
        state.queue.push(command);
    });
}
