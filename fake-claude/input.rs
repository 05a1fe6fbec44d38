//! stdin: one prompt, read to its end, or lines of JSON that keep the session open.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use crate::door::content;
use crate::hub::{Command, Priority, Source};
use crate::ids;
use crate::opening::queue_row;
use crate::record::Record;
use crate::row::{Row, row};
use crate::session::Session;
use crate::stream;

const LONGEST_PROMPT: usize = 10 * 1024 * 1024;

/// The prompt of a run that reads text; the error is what goes to stderr.
pub(crate) fn prompt(argument: Option<&str>, record: &Record) -> Result<String, String> {
    let stdin = std::io::stdin();
    let mut piped = Vec::new();
    if !stdin.is_terminal() && (argument.is_none() || has_data()) {
        let mut chunk = vec![0; 64 * 1024];
        let mut stdin = stdin.lock();
        while let Ok(n) = stdin.read(&mut chunk) {
            if n == 0 {
                break;
            }
            record.read(&chunk[..n]);
            piped.extend_from_slice(&chunk[..n]);
            if piped.len() > LONGEST_PROMPT {
                return Err(
                    "Error: piped stdin input exceeds 10MB. Pass large content as a file \
                            path in your prompt instead."
                        .to_owned(),
                );
            }
        }
    }
    record.read_all();
    let piped = String::from_utf8_lossy(&piped).into_owned();
    let prompt = match argument {
        Some(argument) if piped.is_empty() => argument.to_owned(),
        Some(argument) => format!("{argument}\n{piped}"),
        None => piped,
    };
    if prompt.is_empty() {
        return Err(
            "Error: Input must be provided either through stdin or as a prompt argument \
                    when using --print"
                .to_owned(),
        );
    }
    if prompt.trim().is_empty() {
        return Err(
            "Error: Input contained only whitespace. Provide a prompt with text through \
                    stdin or as a prompt argument when using --print"
                .to_owned(),
        );
    }
    Ok(prompt)
}

/// Waits up to three seconds for the first byte (or the end) of stdin.
fn has_data() -> bool {
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let ready = poll(&mut fds, PollTimeout::from(3000_u16)).unwrap_or(1) > 0;
    if !ready {
        eprintln!(
            "Warning: no stdin data received in 3s, proceeding without it. If piping from a slow \
             command, redirect stdin explicitly: < /dev/null to skip, or wait longer."
        );
    }
    ready
}

/// Reads lines of JSON until stdin ends.
pub(crate) fn follow(s: &Arc<Session>) {
    let s = Arc::clone(s);
    std::thread::spawn(move || {
        let mut stdin = BufReader::new(std::io::stdin());
        let mut line = Vec::new();
        loop {
            line.clear();
            match stdin.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            s.record.read(&line);
            if line.trim_ascii().is_empty() {
                continue;
            }
            if let Err(error) = take(&s, &line) {
                s.hub
                    .tell(|state| state.input_error.get_or_insert(error).len());
                return;
            }
        }
        s.record.read_all();
        s.hub.tell(|state| state.input_open = false);
    });
}

fn take(s: &Session, line: &[u8]) -> Result<(), String> {
    let length = line.trim_ascii().len();
    let row: Value = serde_json::from_slice(line).map_err(|_| {
        format!("Error parsing streaming input line (type=unknown, {length} chars): SyntaxError")
    })?;
    match row["type"].as_str() {
        Some("user") => {
            let text = content(&row["message"]["content"]).unwrap_or_default();
            let named = row["uuid"].as_str();
            push(s, text, named, row["priority"].as_str());
        }
        Some("control_request") => control(s, &row),
        Some("control_response" | "keep_alive" | "update_environment_variables") => {}
        other => {
            let kind = other.unwrap_or("unknown");
            return Err(format!(
                "Error parsing streaming input line (type={kind}, {length} chars): Error"
            ));
        }
    }
    Ok(())
}

/// Queues a prompt.
pub(crate) fn push(s: &Session, text: String, uuid: Option<&str>, priority: Option<&str>) {
    let command = Command {
        merged: Vec::new(),
        uuid: uuid.map_or_else(ids::uuid, str::to_owned),
        text,
        priority: match priority {
            Some("now") => Priority::Now,
            Some("later") => Priority::Later,
            _ => Priority::Next,
        },
        source: Source::Sdk {
            named: uuid.is_some(),
        },
        at_ms: ids::now_ms(),
    };
    stream::lifecycle(s, &command, "queued");
    s.hub.tell(|state| {
        s.note(&queue_row(s, "enqueue", Some(&command.text)));
        state.queue.push(command);
    });
}

fn control(s: &Session, row: &Value) {
    let id = &row["request_id"];
    match row["request"]["subtype"].as_str() {
        Some("interrupt") => {
            let waiting: Vec<String> = s.hub.look(|state| {
                let sdk = |c: &&Command| matches!(c.source, Source::Sdk { named: true });
                state
                    .queue
                    .iter()
                    .filter(sdk)
                    .map(|c| c.uuid.clone())
                    .collect()
            });
            stream::control(s, id, Ok(row! { "still_queued": waiting }));
            s.hub.tell(|state| state.interrupt = state.in_turn);
        }
        Some("initialize") => stream::control(s, id, Ok(Row::new())),
        other => {
            let other = other.unwrap_or("undefined");
            let error = format!("Unsupported control request subtype: {other}");
            stream::control(s, id, Err(error));
        }
    }
}
