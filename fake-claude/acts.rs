//! Plays the acts of a script at the points of a run.

use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use serde_json::Value;

use crate::helper;
use crate::hub::lock;
use crate::ids;
use crate::quirks::{Act, Point, from_hex};
use crate::row::row;
use crate::session::Session;

/// Plays what the script wants at this point.
pub(crate) fn play(s: &Session, point: Point) {
    let acts = s.quirks.acts(point);
    if acts.is_empty() {
        return;
    }
    let passing = s.passing(point);
    for act in acts {
        if act.nth.is_none_or(|nth| nth == passing) {
            one(s, &act);
        }
    }
}

fn one(s: &Session, act: &Act) {
    if let Some(line) = &act.line {
        s.print(format!("{}\n", completed(s, line.clone())).as_bytes());
    }
    if let Some(raw) = &act.raw {
        s.print(raw.as_bytes());
    }
    if let Some(bytes) = act.hex.as_deref().and_then(from_hex) {
        s.print(&bytes);
    }
    if let Some(mib) = act.big_line_mib {
        big_line(s, mib);
    }
    if let Some(text) = &act.transcript {
        let mut log = lock(&s.log);
        log.open();
        log.raw(text.as_bytes());
    }
    if let Some(text) = &act.stderr {
        eprint!("{text}");
    }
    if let Some(ms) = act.sleep_ms {
        s.hub.sleep(Duration::from_millis(ms));
    }
    if act.hang == Some(true) {
        hang(s);
    }
    if let Some(code) = act.exit {
        std::process::exit(code);
    }
    if let Some(name) = &act.signal {
        die(name);
    }
    if let Some(ms) = act.orphan_ms {
        helper::orphan(ms);
    }
    if let Some(mib) = act.allocate_mib {
        allocate(mib);
    }
}

/// Nothing happens until somebody asks for the end of the turn or of the process.
pub(crate) fn hang(s: &Session) {
    s.hub.wait(None, |state| {
        (state.stop.is_some() || state.interrupt).then_some(())
    });
}

/// A row of the script, with the fields that every row has.
fn completed(s: &Session, mut line: Value) -> Value {
    if let Some(fields) = line
        .as_object_mut()
        .filter(|fields| fields.contains_key("type"))
    {
        {
            fields
                .entry("session_id")
                .or_insert_with(|| s.shown_id().into());
            fields.entry("uuid").or_insert_with(|| ids::uuid().into());
        }
    }
    line
}

fn big_line(s: &Session, mib: usize) {
    let text = "x".repeat(mib << 20);
    let message = row! {
        "id": format!("msg_{}", ids::hex(20)),
        "type": "message",
        "role": "assistant",
        "model": s.model,
        "content": [row! { "type": "text", "text": text }],
        "stop_reason": (),
    };
    s.say(&row! {
        "type": "assistant",
        "message": message,
        "parent_tool_use_id": (),
        "session_id": s.shown_id(),
        "uuid": ids::uuid(),
    });
}

fn allocate(mib: usize) {
    let mut memory = vec![0_u8; mib << 20];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    std::hint::black_box(memory.leak());
}

/// Ends the process by a signal; TERM, INT and HUP kill it only before their handlers are there.
fn die(name: &str) {
    let signal = match name {
        "KILL" => Signal::SIGKILL,
        "ABRT" => std::process::abort(),
        "SEGV" => Signal::SIGSEGV,
        "INT" => Signal::SIGINT,
        "HUP" => Signal::SIGHUP,
        _ => Signal::SIGTERM,
    };
    // The runtime's handler for SIGSEGV steps aside at the first one.
    let _ = raise(signal);
    let _ = raise(signal);
}
