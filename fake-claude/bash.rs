//! The Bash tool: real commands, each in a session of its own.
//!
//! Invariants: a command's session is killed when claude ends by INT, TERM or HUP, and survives
//! when claude is killed; its output goes to a file, so nothing waits for the end of a pipe.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::hub::{Task, lock};
use crate::ids;
use crate::quirks::Point;
use crate::row::{Raw, row};
use crate::session::Session;
use crate::stream::{self, TaskEnd};
use crate::tasks::{self, Ended};
use crate::tools::{self, Done};
use crate::voice::{Call, Outcome, Permission, Voice};
use crate::{acts, helper};

fn text<'a>(input: &'a Value, key: &str) -> Option<&'a str> {
    input.get(key).and_then(Value::as_str)
}

fn spawn(s: &Session, command: &str, output: &std::path::Path) -> std::io::Result<Child> {
    if let Some(folder) = output.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let out = File::create(output)?;
    let mut helper = helper::command("bash", command);
    helper
        .envs(s.child_env())
        .env("AI_AGENT", s.agent_name("agent"))
        .env("CLAUDE_CODE_CHILD_SESSION", "1")
        .env("CLAUDE_CODE_SESSION_ATTENDED", "0")
        .env("CLAUDE_PID", std::process::id().to_string())
        .current_dir(&s.cwd)
        .stdin(Stdio::null())
        .stderr(Stdio::from(out.try_clone()?))
        .stdout(Stdio::from(out));
    if let Ok(exe) = std::env::current_exe() {
        helper.env("CLAUDE_CODE_EXECPATH", exe);
    }
    let child = helper.spawn()?;
    lock(&s.running).push(child.id());
    Ok(child)
}

fn code(status: std::io::Result<ExitStatus>) -> i32 {
    status.map_or(1, |s| {
        s.code().unwrap_or_else(|| 128 + s.signal().unwrap_or(0))
    })
}

/// Runs a command, in the foreground or not.
pub(crate) fn run(voice: &Voice<'_>, s: &Arc<Session>, call: Call, by: &'static str) -> Done {
    let command = text(&call.input, "command").unwrap_or_default().to_owned();
    let background = call.input.get("run_in_background").and_then(Value::as_bool) == Some(true);
    let task = Task {
        id: format!("b{}", ids::base36(8)),
        run_id: ids::run_id(),
        tool_use_id: call.id.clone(),
        description: text(&call.input, "description")
            .unwrap_or(&command)
            .to_owned(),
        agent: None,
    };
    let output = tasks::output_file(s, &task.id);
    let child = match spawn(s, &command, &output) {
        Ok(child) => child,
        Err(e) => crate::strict(&format!("cannot run a command: {e}")),
    };
    if background {
        in_background(s, task, child);
        let shown = output.display();
        return done(
            call,
            by,
            0,
            &format!(
                "Command running in background with ID: {}. Output is being written to: {shown}. \
                 You will be notified when it completes. To check interim output, use Read on \
                 that file path.",
                output.file_stem().unwrap_or_default().to_string_lossy()
            ),
            true,
        );
    }
    let (exit, aborted) = in_foreground(voice, s, &task, &call, child);
    let said = std::fs::read(&output).unwrap_or_default();
    let _ = std::fs::remove_file(&output);
    let said = String::from_utf8_lossy(&said).trim_end().to_owned();
    Done {
        aborted,
        ..done(call, by, exit, &said, false)
    }
}

fn done(call: Call, by: &'static str, exit: i32, said: &str, background: bool) -> Done {
    let outcome = if exit == 0 {
        let result = row! {
            "stdout": if background { "" } else { said },
            "stderr": "",
            "interrupted": false,
            "isImage": false,
            "noOutputExpected": false,
        };
        let id = said
            .split("ID: ")
            .nth(1)
            .and_then(|rest| rest.split('.').next());
        let result = result.put_some("backgroundTaskId", id.filter(|_| background).as_ref());
        let content = if said.is_empty() {
            "(Bash completed with no output)"
        } else {
            said
        };
        Outcome {
            content: Raw::new(content),
            is_error: Some(false),
            result: Some(Raw::new(&result)),
            permission: Permission::Accepted(by),
            ran_bash: true,
        }
    } else {
        let said = if said.is_empty() {
            String::new()
        } else {
            format!("\n{said}")
        };
        let content = format!("Exit code {exit}{said}");
        Outcome {
            result: Some(Raw::new(&format!("Error: {content}"))),
            content: Raw::new(&content),
            permission: Permission::Accepted(by),
            ..tools::killed()
        }
    };
    Done {
        call,
        outcome,
        denied: false,
        aborted: false,
    }
}

/// Waits for a command; the rows and heartbeats of a long one come meanwhile.
fn in_foreground(
    voice: &Voice<'_>,
    s: &Arc<Session>,
    task: &Task,
    call: &Call,
    mut child: Child,
) -> (i32, bool) {
    let began = Instant::now();
    let pid = child.id();
    let (tx, rx) = std::sync::mpsc::channel();
    let waiter = Arc::clone(s);
    let id = call.id.clone();
    std::thread::spawn(move || {
        let _ = tx.send(code(child.wait()));
        waiter.hub.tell(|state| state.ended.push(id));
    });
    let main = voice.agent.is_none();
    let announce = began + Duration::from_millis(s.quirks.task_after_ms.unwrap_or(3000));
    let beat = s
        .quirks
        .tool_progress_ms
        .filter(|_| main)
        .map(Duration::from_millis);
    let (mut announced, mut next_beat) = (false, beat.map(|beat| began + beat));
    loop {
        let deadline = [(!announced).then_some(announce), next_beat]
            .into_iter()
            .flatten()
            .min();
        let over = s.hub.wait(deadline, |state| {
            if state.ended.contains(&call.id) {
                return Some(false);
            }
            (state.stop.is_some() || (main && state.interrupt)).then_some(true)
        });
        let now = Instant::now();
        match over {
            Some(aborted) => {
                if aborted {
                    kill(pid);
                }
                lock(&s.running).retain(|p| *p != pid);
                let exit = rx.recv_timeout(Duration::from_secs(2)).unwrap_or(137);
                s.hub.tell(|state| state.ended.retain(|id| id != &call.id));
                if announced && !aborted {
                    let end = TaskEnd {
                        status: "completed",
                        output_file: "",
                        summary: &task.description,
                        is_report: false,
                        usage: None,
                    };
                    stream::task_notification(s, task, &end);
                }
                let took = ids::since(began);
                lock(&s.ledger).tool_ms += took;
                return (exit, aborted);
            }
            None => {
                if !announced && now >= announce {
                    announced = true;
                    stream::task_started(s, task, false, None);
                }
                if let (Some(at), Some(beat)) = (next_beat.filter(|at| now >= *at), beat) {
                    stream::tool_progress(s, &call.name, &call.id, began.elapsed().as_secs());
                    next_beat = Some(at + beat);
                }
            }
        }
    }
}

fn kill(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        let pid = nix::unistd::Pid::from_raw(pid);
        let _ = nix::sys::signal::killpg(pid, nix::sys::signal::Signal::SIGKILL);
    }
}

fn in_background(s: &Arc<Session>, task: Task, mut child: Child) {
    s.hub.tell(|state| state.tasks.push(task.clone()));
    stream::tasks_changed(s);
    stream::task_started(s, &task, true, None);
    let session = Arc::clone(s);
    std::thread::spawn(move || {
        let pid = child.id();
        let exit = code(child.wait());
        lock(&session.running).retain(|p| *p != pid);
        acts::play(&session, Point::TaskEnd);
        let (status, word) = if exit == 0 {
            ("completed", "completed")
        } else {
            ("failed", "failed")
        };
        let summary = format!(
            "Background command \"{}\" {word} {}",
            task.description,
            if exit == 0 {
                "(exit code 0)".to_owned()
            } else {
                format!("with exit code {exit}")
            }
        );
        tasks::ended(
            &session,
            &task,
            Ended {
                status,
                told: summary.clone(),
                summary,
                report: None,
                usage: None,
                tools_used: None,
            },
        );
    });
}
