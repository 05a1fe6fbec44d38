//! Failed requests: their texts, the assistant row that stands for them, the rows of a retry.
//!
//! Which status gives which text and which class was measured; nothing here is guessed from the
//! names of the statuses.

use crate::ids;
use crate::row::row;
use crate::script::Reply;
use crate::voice::Voice;

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

/// Whether a status is worth another try.
pub(crate) fn retryable(status: u16) -> bool {
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
    /// An HTTP error of the script.
    pub(crate) fn http(model: &str, reply: &Reply, status: u16) -> Self {
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

    /// Nobody listens.
    pub(crate) fn connection() -> Self {
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

    /// No credentials.
    pub(crate) fn not_logged_in() -> Self {
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
    pub(crate) fn say_retry(&self, voice: &Voice<'_>, attempt: u32, most: u32, delay_ms: u64) {
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
                    "requestId": self.request_id,
                    "formatted": format!("{status} {}", self.message),
                    "connection": (),
                    "isNetworkDown": false,
                }
            }
            None => row! {
                "message": "Connection error.",
                "formatted": self.text.trim_start_matches("API Error: "),
                "connection": row! { "code": "ECONNREFUSED", "message": "ECONNREFUSED: Unable to connect.", "isSSLError": false },
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
