//! Requests to the API that is not there: the script answers, the retry rule is played.
//!
//! Measured: 401, 408, 409, 429 and 5xx are tried again, up to ten times or
//! CLAUDE_CODE_MAX_RETRIES; the delay doubles from half a second to 32 s and is drawn out by up
//! to a quarter; a Retry-After is kept to, unless it is so long that trying again is given up.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::hub::lock;
use crate::ids;
use crate::problem::{Problem, retryable};
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
