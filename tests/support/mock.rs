//! The Messages API on loopback, played from a [`Scenario`], for a real claude.
//!
//! A request belongs to a conversation: the session it names, and in that the sub-agent it names
//! or the main one. Which list of answers is a sub-agent's is found by the prompt that its first
//! message holds. So parallel sessions and sub-agents each get their own answers in order.
//!
//! Invariants: a request that the scenario has no answer for is an error of the test, kept in
//! [`Mock::faults`]; requests that are not a conversation (no tools offered: titles and the like)
//! get a harmless word and use up nothing; nothing but loopback is listened on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{MockServer, Request, Respond, ResponseTemplate};

use super::scenario::{Repeat, Reply, Scenario};
use super::sse;

/// A running mock. It lives as long as this value.
pub(crate) struct Mock {
    state: Arc<Mutex<State>>,
    server: MockServer,
    _runtime: tokio::runtime::Runtime,
}

/// One request to the Messages API.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) path: String,
    pub(crate) session: String,
    pub(crate) agent: Option<String>,
    pub(crate) body: Value,
    /// What it was answered: `reply 3`, `status 529`, `auxiliary`, …
    pub(crate) answer: String,
}

#[derive(Default)]
struct State {
    conversations: Vec<(Option<String>, Vec<Reply>)>,
    cursors: HashMap<(String, Option<String>, usize), Cursor>,
    requests: Vec<Recorded>,
    faults: Vec<String>,
}

/// Where a conversation stands in its list.
#[derive(Default)]
struct Cursor {
    next: usize,
    given: u32,
    /// The length of the conversation to which an error that claude does not retry was given.
    ended_at: Option<usize>,
}

impl Mock {
    pub(crate) fn start(scenario: &Scenario) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let state = Arc::new(Mutex::new(State::default()));
        let responder = Responder(Arc::clone(&state));
        let server = runtime.block_on(async {
            let server = MockServer::builder()
                .disable_request_recording()
                .start()
                .await;
            wiremock::Mock::given(any())
                .respond_with(responder)
                .mount(&server)
                .await;
            server
        });
        let mock = Self {
            state,
            server,
            _runtime: runtime,
        };
        mock.script(scenario);
        mock
    }

    /// The address for `ANTHROPIC_BASE_URL`.
    pub(crate) fn url(&self) -> String {
        self.server.uri()
    }

    /// Replaces the scenario; every conversation starts at its first answer again.
    pub(crate) fn script(&self, scenario: &Scenario) {
        let mut state = self.lock();
        state.conversations = scenario.conversations();
        state.cursors.clear();
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.lock().requests.clone()
    }

    /// What went against the scenario.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.lock().faults.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no answer panics")
    }
}

struct Responder(Arc<Mutex<State>>);

impl Respond for Responder {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut state = self.0.lock().expect("no answer panics");
        let path = request.url.path().to_owned();
        let header = |name: &str| {
            request
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let mut recorded = Recorded {
            session: header("x-claude-code-session-id").unwrap_or_default(),
            agent: header("x-claude-code-agent-id"),
            body: serde_json::from_slice(&request.body).unwrap_or_default(),
            answer: String::new(),
            path,
        };
        let (answer, response) = state.answer(&recorded);
        recorded.answer = answer;
        state.requests.push(recorded);
        response.insert_header(
            "request-id",
            format!("req_{}", uuid::Uuid::new_v4().simple()),
        )
    }
}

impl State {
    fn answer(&mut self, request: &Recorded) -> (String, ResponseTemplate) {
        match request.path.as_str() {
            "/v1/messages" if has_tools(&request.body) => self.converse(request),
            "/v1/messages" => (
                "auxiliary".to_owned(),
                rendered(request, &Reply::text("ok")),
            ),
            "/v1/messages/count_tokens" => (
                "tokens".to_owned(),
                ResponseTemplate::new(200).set_body_json(json!({ "input_tokens": 10 })),
            ),
            // A look whether the API is there at all; it minds no answer.
            _ => {
                let body = sse::error(404, &Reply::default());
                (
                    "not found".to_owned(),
                    ResponseTemplate::new(404).set_body_json(body),
                )
            }
        }
    }

    fn converse(&mut self, request: &Recorded) -> (String, ResponseTemplate) {
        let messages = request.body["messages"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let opening = messages.first().map(text_of).unwrap_or_default();
        let which = self
            .conversations
            .iter()
            .position(|(prompt, _)| prompt.as_deref().is_some_and(|p| opening.contains(p)))
            .unwrap_or(0);
        let key = (request.session.clone(), request.agent.clone(), which);
        let cursor = self.cursors.entry(key).or_default();
        let replies = &self.conversations[which].1;
        match cursor.advance(replies, messages.len()) {
            Some((index, reply)) => (format!("reply {index}"), rendered(request, reply)),
            None => {
                let fault = format!(
                    "conversation {which} asked for answer {} of {}",
                    cursor.next + 1,
                    replies.len()
                );
                self.faults.push(fault.clone());
                let reply = Reply::error(400).described("invalid_request_error", &fault);
                (fault, rendered(request, &reply))
            }
        }
    }
}

impl Cursor {
    /// The answer to a request with so many messages, and its place in the list.
    fn advance<'r>(&mut self, replies: &'r [Reply], messages: usize) -> Option<(usize, &'r Reply)> {
        if let Some(ended_at) = self.ended_at.take() {
            if ended_at == messages {
                self.ended_at = Some(ended_at);
            } else {
                self.next += 1;
            }
        }
        let index = self.next;
        let reply = replies.get(index)?;
        if reply.is_final_error() {
            self.ended_at = Some(messages);
        } else {
            self.given += 1;
            let done = match reply.repeat {
                Some(Repeat::Forever) => false,
                Some(Repeat::Times(times)) => self.given >= times,
                None => true,
            };
            if done {
                self.next += 1;
                self.given = 0;
            }
        }
        Some((index, reply))
    }
}

fn has_tools(body: &Value) -> bool {
    body["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty())
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .filter_map(|block| block["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

fn rendered(request: &Recorded, reply: &Reply) -> ResponseTemplate {
    let model = request.body["model"].as_str().unwrap_or("none");
    let mut response = match reply.status {
        Some(status) => ResponseTemplate::new(status).set_body_json(sse::error(status, reply)),
        None if request.body["stream"] == true => {
            ResponseTemplate::new(200).set_body_raw(sse::events(model, reply), "text/event-stream")
        }
        None => ResponseTemplate::new(200).set_body_json(sse::message(model, reply)),
    };
    if let Some(seconds) = reply.retry_after {
        response = response.insert_header("retry-after", seconds.to_string());
    }
    if let Some(delay) = reply.delay_ms {
        response = response.set_delay(Duration::from_millis(delay));
    }
    response
}
