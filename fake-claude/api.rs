//! Requests to the API that is not there: the script answers, the retry rule is played.
//!
//! Measured: 401, 408, 409, 429 and 5xx are tried again, up to ten times or
//! CLAUDE_CODE_MAX_RETRIES; the delay doubles from half a second to 32 s and is drawn out by up
//! to a quarter; a Retry-After is kept to, unless it is so long that trying again is given up.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::hub::lock;
use crate::ids;
use crate::row::row;
use crate::script::{Replies, Reply};
use crate::voice::Voice;

/// A longer Retry-After ends the trying.
const LONGEST_RETRY_AFTER: u64 = 60;

/// What a request came to.
pub(crate) enum Answer {
    Reply {
        reply: Box<Reply>,
        request: String,
    },
    Error(Problem),
    /// Somebody wants the turn or the process to end.
    Aborted,
}

/// Why a request failed.
#[derive(Clone)]
pub(crate) struct Problem {
    pub(crate) status: Option<u16>,
    pub(crate) kind: Option<String>,
    pub(crate) connection: bool,
    pub(crate) text: String,
    /// `error` of the assistant row.
    pub(crate) class: &'static str,
    message: String,
    request_id: Option<String>,
}

/// The error type that goes with a status.
fn default_kind(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

fn retryable(status: u16) -> bool {
    matches!(status, 401 | 408 | 409 | 429) || status >= 500
}

/// `error` of an api_retry row.
fn retry_class(status: Option<u16>) -> &'static str {
    match status {
        Some(401) => "authentication_failed",
        Some(429) => "rate_limit",
        Some(529) => "overloaded",
        Some(s) if s >= 500 => "server_error",
        _ => "unknown",
    }
}

fn host() -> String {
    let url = std::env::var("ANTHROPIC_BASE_URL").unwrap_or_default();
    let host = url.split("//").nth(1).unwrap_or("api.anthropic.com");
    host.split('/').next().unwrap_or(host).to_owned()
}

impl Problem {
    fn http(model: &str, reply: &Reply, status: u16) -> Self {
        let message = reply
            .message
            .clone()
            .unwrap_or_else(|| format!("mock says {status}"));
        let kind = reply
            .error_type
            .clone()
            .unwrap_or_else(|| default_kind(status).to_owned());
        let (class, text) = match status {
            401 | 403 => (
                "authentication_failed",
                format!("Failed to authenticate. API Error: {status} {message}"),
            ),
            404 => (
                "model_not_found",
                format!(
                    "There's an issue with the selected model ({model}). It may not exist or you \
                     may not have access to it. Run --model to pick a different model."
                ),
            ),
            413 => (
                "invalid_request",
                "Request too large (max 32MB). Accumulated images and attachments in the \
                 conversation pushed the request over the limit. Remove older images or compact \
                 the conversation."
                    .to_owned(),
            ),
            429 => (
                "rate_limit",
                format!("API Error: Request rejected (429) · {message}"),
            ),
            s if s >= 500 => (
                "server_error",
                format!(
                    "API Error: {status} {message}. This is a server-side issue, usually \
                     temporary — try again in a moment. If it persists, check your inference \
                     gateway ({}).",
                    host()
                ),
            ),
            _ => ("unknown", format!("API Error: {status} {message}")),
        };
        Self {
            status: Some(status),
            kind: Some(kind),
            connection: false,
            text,
            class,
            message,
            request_id: Some(format!("req_{}", ids::hex(12))),
        }
    }

    fn connection() -> Self {
        Self {
            status: None,
            kind: None,
            connection: true,
            text: "API Error: Connection refused — a firewall or proxy may be blocking it \
                   (ECONNREFUSED)"
                .to_owned(),
            class: "server_error",
            message: String::new(),
            request_id: None,
        }
    }

    fn not_logged_in() -> Self {
        Self {
            connection: false,
            text: "Not logged in · Please run /login".to_owned(),
            class: "authentication_failed",
            ..Self::connection()
        }
    }

    /// The assistant row that stands for the error, on stdout and in the transcript.
    pub(crate) fn say(&self, voice: &Voice<'_>) {
        let s = voice.s;
        let uuid = ids::uuid();
        let usage = row! {
            "output_tokens_details": (),
            "input_tokens": 0,
            "output_tokens": 0,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "server_tool_use": row! { "web_search_requests": 0, "web_fetch_requests": 0 },
            "service_tier": (),
            "cache_creation":
                row! { "ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0 },
            "inference_geo": (),
            "iterations": (),
            "speed": (),
            "fallback_credit": (),
        };
        let message = row! {
            "diagnostics": (),
            "id": ids::uuid(),
            "container": (),
            "model": "<synthetic>",
            "role": "assistant",
            "stop_details": (),
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "type": "message",
            "usage": usage,
            "content": [row! { "type": "text", "text": self.text }],
            "context_management": (),
        };
        let now = ids::timestamp();
        let parent = voice.agent.map(|agent| &agent.task.tool_use_id);
        s.say(
            &row! {
                "type": "assistant",
                "message": message,
                "parent_tool_use_id": parent,
                "session_id": s.shown_id(),
                "uuid": uuid,
                "timestamp": now,
                "error": self.class,
            }
            .put_some("request_id", self.request_id.as_ref())
            .put("is_api_error_message", &true)
            .put_some("api_error_status", self.status.as_ref())
            .put_some("api_error_type", self.kind.as_ref().filter(|_| s.newer))
            .put_if(self.connection, "api_error", "connection_failed"),
        );
        let body = row! { "type": "assistant", "uuid": uuid, "timestamp": now, "message": message }
            .put_some("requestId", self.request_id.as_ref())
            .put_if(self.connection, "apiError", "connection_failed")
            .put("error", self.class)
            .put("isApiErrorMessage", &true)
            .put_some("apiErrorStatus", self.status.as_ref())
            .put_some("apiErrorType", self.kind.as_ref().filter(|_| s.newer))
            .put("perTurnEffort", &())
            .put("failedResponseHadNoToolCall", &true)
            .put_if(s.newer, "madeBy", "model");
        voice.log(&uuid, &body);
    }

    /// The rows of a try that failed and will be made again.
    fn say_retry(&self, voice: &Voice<'_>, attempt: u32, most: u32, delay_ms: u64) {
        let s = voice.s;
        s.say(&row! {
            "type": "system",
            "subtype": "api_retry",
            "attempt": attempt,
            "max_retries": most,
            "retry_delay_ms": delay_ms,
            "error_status": self.status,
            "error": retry_class(self.status),
            "session_id": s.shown_id(),
            "uuid": ids::uuid(),
        });
        let error = match self.status {
            Some(status) => {
                let body = format!(
                    "{status} {{\"type\":\"error\",\"error\":{{\"type\":\"{}\",\"message\":\"{}\"}}}}",
                    self.kind.as_deref().unwrap_or_default(),
                    self.message
                );
                row! {
                    "message": body,
                    "status": status,
                    "formatted": format!("{status} {}", self.message),
                    "connection": (),
                    "isNetworkDown": false,
                }
            }
            None => row! {
                "message": "Connection error.",
                "formatted": self.text.trim_start_matches("API Error: "),
                "connection": row! { "code": "ECONNREFUSED", "isSSLError": false },
                "isNetworkDown": true,
            },
        };
        let uuid = ids::uuid();
        let body = row! {
            "type": "system",
            "subtype": "api_error",
            "level": "error",
            "error": error.put("rateLimits", &()).put("noResponse", &()),
            "retryInMs": delay_ms,
            "retryAttempt": attempt,
            "maxRetries": most,
            "source": "request_retry",
            "timestamp": ids::timestamp(),
            "uuid": uuid,
        };
        voice.log(&uuid, &body);
    }
}

/// The delay before the next try, without the script's scale.
fn delay_ms(attempt: u32, retry_after: Option<u64>, random: f64) -> u64 {
    let base = match retry_after {
        Some(seconds) => seconds.saturating_mul(1000),
        None => (500_u64 << (attempt - 1).min(10)).min(32_000),
    };
    let stretched = base as f64 * (1.0 + random * 0.25);
    Duration::from_secs_f64(stretched / 1000.0)
        .as_millis()
        .try_into()
        .unwrap_or(u64::MAX)
}

/// Sleeps; true when the speaker has to give up.
fn sleep(voice: &Voice<'_>, time: Duration) -> bool {
    let main = voice.agent.is_none();
    let deadline = Some(Instant::now() + time);
    voice
        .s
        .hub
        .wait(deadline, |state| {
            (state.stop.is_some() || (main && state.interrupt)).then_some(())
        })
        .is_some()
}

/// The rows of one request in the transcript.
fn note_request(voice: &Voice<'_>, first_ever: bool, again: bool) -> String {
    let s = voice.s;
    let id = ids::uuid();
    let agent = voice.agent.map(|agent| &agent.task.id);
    let head = |kind: &str| row! { "type": kind, "sessionId": s.id() }.put_some("agentId", agent);
    let filling = "x".repeat(s.quirks.request_row_bytes);
    if first_ever {
        let shape =
            row! { "system": [row! { "type": "text", "text": filling }], "tools": ([] as [u8; 0]) };
        voice.note(
            &head("api-request-shape")
                .put("shapeHash", &ids::hex(32))
                .put("timestamp", &ids::timestamp())
                .put("version", &s.version)
                .put("shape", &shape),
        );
    }
    if !again {
        let message = row! { "role": "user", "content": ([] as [u8; 0]) };
        voice.note(
            &head("api-request-blob")
                .put("hash", &ids::hex(32))
                .put("message", &message),
        );
    }
    voice.note(
        &head("api-request")
            .put("id", &id)
            .put("timestamp", &ids::timestamp())
            .put("version", &s.version)
            .put(
                "querySource",
                if agent.is_some() {
                    "agent:builtin"
                } else {
                    "sdk"
                },
            )
            .put("params", &row! { "model": s.model, "max_tokens": 32_000 }),
    );
    id
}

/// Makes one request, with all its tries.
pub(crate) fn ask(voice: &Voice<'_>, replies: &Mutex<Replies>, first_ever: bool) -> Answer {
    let s = voice.s;
    let most = std::env::var("CLAUDE_CODE_MAX_RETRIES")
        .ok()
        .and_then(|n| n.parse().ok());
    let most: u32 = most.unwrap_or(10);
    let scale = s.quirks.retry_scale.unwrap_or(0.01);
    let began = Instant::now();
    let mut attempt = 0;
    loop {
        let tried = Instant::now();
        let request = note_request(voice, first_ever && attempt == 0, attempt > 0);
        if s.quirks.not_logged_in {
            return Answer::Error(Problem::not_logged_in());
        }
        let (problem, retry_after, again) = if s.quirks.dead_api {
            (Problem::connection(), None, true)
        } else {
            let Some(reply) = lock(replies).next() else {
                crate::strict("the script has no reply left for this request");
            };
            let delay = reply.delay_ms.unwrap_or(0);
            if delay > 0 && sleep(voice, Duration::from_millis(delay)) {
                return Answer::Aborted;
            }
            let Some(status) = reply.status else {
                let usage = reply.usage.unwrap_or_default();
                lock(&s.ledger).book(&s.model, &usage, ids::since(began), ids::since(tried));
                return Answer::Reply {
                    reply: Box::new(reply),
                    request,
                };
            };
            let patient = reply
                .retry_after
                .is_none_or(|after| after <= LONGEST_RETRY_AFTER);
            let problem = Problem::http(&s.model, &reply, status);
            (problem, reply.retry_after, retryable(status) && patient)
        };
        if !again || attempt >= most {
            return Answer::Error(problem);
        }
        attempt += 1;
        let delay = delay_ms(attempt, retry_after, ids::random());
        problem.say_retry(voice, attempt, most, delay);
        if sleep(
            voice,
            Duration::from_secs_f64(delay as f64 * scale / 1000.0),
        ) {
            return Answer::Aborted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delays_are_the_measured_ones() {
        let least: Vec<_> = (1..=10).map(|n| delay_ms(n, None, 0.0)).collect();
        assert_eq!(
            least,
            [
                500, 1000, 2000, 4000, 8000, 16_000, 32_000, 32_000, 32_000, 32_000
            ]
        );
        // All measured delays lie within a quarter above these.
        for (n, measured) in [
            (1, 582),
            (2, 1242),
            (5, 9964),
            (6, 18_616),
            (7, 39_756),
            (10, 37_527),
        ] {
            assert!((delay_ms(n, None, 0.0)..=delay_ms(n, None, 1.0)).contains(&measured));
        }
        assert!((5000..=6250).contains(&delay_ms(1, Some(5), 0.3)));
    }
}
