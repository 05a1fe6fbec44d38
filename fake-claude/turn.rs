//! One turn: from the command that starts it to the result it comes to.
//!
//! Invariants: a turn begins with its own init row; the user rows it wrote are its num_turns;
//! waiting lines are folded in only between a tool's result and the next request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use crate::api::{Answer, ask};
use crate::hub::{Command, Priority, Source, Stop, lock};
use crate::ids;
use crate::quirks::Point;
use crate::result::{End, Finished};
use crate::row::{Row, row};
use crate::script::Usage;
use crate::session::Session;
use crate::voice::{Call, Voice, stop_reason};
use crate::{acts, opening, shutdown, stream, tools};

/// Turns of the session so far, those before a resume included.
pub(crate) static TURNS: AtomicU32 = AtomicU32::new(0);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// A turn while it runs.
struct Turn<'a> {
    s: &'a Arc<Session>,
    voice: Voice<'a>,
    began: Instant,
    request_at_ms: u64,
    first_ms: u64,
    user_rows: u32,
    usage: Usage,
    text: String,
    stop_reason: Option<String>,
    denials: Vec<Row>,
    absorbed: Vec<Command>,
}

/// Plays a turn. `None`: the process has to end without a result.
pub(crate) fn run(s: &Arc<Session>, command: &Command) -> Option<Finished> {
    let prompt_id = ids::uuid();
    opening::play(
        s,
        command,
        &prompt_id,
        TURNS.fetch_add(1, Ordering::Relaxed) + 1,
    );
    let mut turn = Turn {
        s,
        voice: Voice {
            s,
            agent: None,
            prompt_id,
        },
        began: Instant::now(),
        request_at_ms: ids::now_ms(),
        first_ms: 0,
        user_rows: 1,
        usage: Usage {
            input_tokens: 0,
            output_tokens: 0,
            ..Usage::default()
        },
        text: String::new(),
        stop_reason: None,
        denials: Vec::new(),
        absorbed: Vec::new(),
    };
    let end = turn.play(command)?;
    for absorbed in &turn.absorbed {
        stream::lifecycle(s, absorbed, "completed");
    }
    Some(turn.finish(command, end))
}

impl Turn<'_> {
    fn play(&mut self, command: &Command) -> Option<End> {
        let named = matches!(command.source, Source::Sdk { named: true });
        let mut extra = Row::new();
        if named {
            let uuids: Vec<&str> = command.all().map(|c| &*c.uuid).collect();
            extra = row! { "user_message_uuid": command.uuid, "user_message_uuids": uuids };
        }
        let mut rounds = 0;
        loop {
            if self.stopped() {
                return self.abort(None);
            }
            let fresh = !self.s.resumed && !REQUESTED.swap(true, Ordering::Relaxed);
            let (reply, request) = match ask(&self.voice, &self.s.replies, fresh) {
                Answer::Reply { reply, request } => (reply, request),
                Answer::Aborted => return self.abort(None),
                Answer::Error(problem) => {
                    problem.say(&self.voice);
                    self.stop_reason = Some("stop_sequence".to_owned());
                    return Some(End::ApiError {
                        status: problem.status,
                        kind: problem.kind,
                        connection: problem.connection,
                        text: problem.text,
                    });
                }
            };
            rounds += 1;
            let usage = reply.usage.unwrap_or_default();
            self.usage.input_tokens += usage.input_tokens;
            self.usage.output_tokens += usage.output_tokens;
            self.usage.cache_read_input_tokens += usage.cache_read_input_tokens;
            self.usage.cache_creation_input_tokens += usage.cache_creation_input_tokens;
            let stop = reply.stop_reason.clone();
            self.stop_reason = Some(stop.unwrap_or_else(|| stop_reason(&reply).to_owned()));
            if let Some(text) = &reply.text {
                self.text.clone_from(text);
            }
            if self.first_ms == 0 {
                self.first_ms = ids::since(self.began).max(1);
            }
            let calls = self
                .voice
                .answer(*reply, &request, std::mem::take(&mut extra));
            acts::play(self.s, Point::Reply);
            if self.stopped() {
                return self.abort(None);
            }
            if let Some(end) = self.over_budget() {
                return Some(end);
            }
            if calls.is_empty() {
                return Some(End::Answer(self.text.clone()));
            }
            for call in calls {
                if let Some(end) = self.call(call) {
                    return end;
                }
            }
            if let Some(end) = self.out_of_turns(rounds) {
                return Some(end);
            }
            if self.fold() {
                return Some(End::CutShort);
            }
        }
    }

    /// Runs one tool. `Some`: the turn is over, with or without an end.
    fn call(&mut self, call: Call) -> Option<Option<End>> {
        acts::play(self.s, Point::ToolUse);
        if self.stopped() {
            return Some(self.abort(Some(&call)));
        }
        let done = tools::run(&self.voice, self.s, call);
        if done.aborted {
            return Some(self.abort(Some(&done.call)));
        }
        if done.denied {
            self.denials.push(row! {
                "tool_name": done.call.name,
                "tool_use_id": done.call.id,
                "tool_input": done.call.input,
            });
        }
        self.voice.tool_result(&done.call, &done.outcome);
        self.user_rows += 1;
        acts::play(self.s, Point::ToolResult);
        self.stopped().then(|| self.abort(None))
    }

    fn stopped(&self) -> bool {
        self.s
            .hub
            .look(|state| state.stop.is_some() || state.interrupt)
    }

    /// The end of a turn that somebody wants to end; `call` is the tool that runs.
    fn abort(&mut self, call: Option<&Call>) -> Option<End> {
        let stop = self.s.hub.look(|state| state.stop);
        if stop.is_some() {
            shutdown::begin(self.s);
        }
        if matches!(stop, Some(Stop::Term | Stop::Hup)) {
            if let Some(call) = call {
                self.voice.tool_result(call, &tools::killed());
            }
            return None;
        }
        if let Some(call) = call {
            self.voice
                .tool_result(call, &tools::rejected(stop.is_none()));
            self.user_rows += 1;
        } else {
            self.stop_reason = None;
        }
        self.voice.interrupted(call.is_some());
        self.user_rows += 1;
        self.s.hub.tell(|state| state.interrupt = false);
        Some(End::Interrupted {
            in_tool: call.is_some(),
        })
    }

    fn over_budget(&self) -> Option<End> {
        let given = self.s.flags.value("--max-budget-usd")?;
        let most: f64 = given.parse().ok()?;
        (lock(&self.s.ledger).total() >= most).then(|| End::MaxBudget(given.to_owned()))
    }

    fn out_of_turns(&self, rounds: u64) -> Option<End> {
        let most: u64 = self.s.flags.value("--max-turns")?.parse().ok()?;
        if rounds < most || most == 0 {
            return None;
        }
        let uuid = ids::uuid();
        let attachment = row! {
            "type": "max_turns_reached",
            "maxTurns": most,
            "turnCount": most + 1,
            "exitCommitted": false,
        };
        opening::attach(self.s, &uuid, &attachment, None);
        Some(End::MaxTurns(most))
    }

    /// Takes in what waits. True: a line wants the turn to end.
    fn fold(&mut self) -> bool {
        let (now, taken) = self.s.hub.tell(|state| {
            if state.queue.iter().any(|c| c.priority == Priority::Now) {
                return (true, Vec::new());
            }
            let (taken, kept) = std::mem::take(&mut state.queue).into_iter().partition(|c| {
                c.priority == Priority::Next && !matches!(c.source, Source::Task { .. })
            });
            state.queue = kept;
            (false, taken)
        });
        for command in taken {
            stream::lifecycle(self.s, &command, "started");
            stream::replay(self.s, &command, &opening::spoken(&command));
            let times = if self.s.quirks.replay_line { 2 } else { 1 };
            for _ in 0..times {
                opening::absorb(self.s, &command);
            }
            self.absorbed.push(command);
        }
        now
    }

    fn finish(self, command: &Command, end: End) -> Finished {
        let origin = match &command.source {
            Source::Sdk { .. } => None,
            Source::Peer { origin, .. } | Source::Task { origin, .. } => Some(origin.clone()),
        };
        let named = |c: &Command| matches!(c.source, Source::Sdk { named: true });
        let all = command.all().chain(&self.absorbed);
        Finished {
            end,
            user_rows: self.user_rows,
            usage: self.usage,
            stop_reason: self.stop_reason,
            denials: self.denials,
            origin,
            user_uuid: named(command).then(|| command.uuid.clone()),
            user_uuids: all.filter(|c| named(c)).map(|c| c.uuid.clone()).collect(),
            took_ms: ids::since(self.began),
            first_ms: self.first_ms,
            request_at_ms: self.request_at_ms,
        }
    }
}
