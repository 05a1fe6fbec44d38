//! The peer guard: what a door lets in before anybody is asked.
//!
//! Invariants: per sender a bucket of 30 lines that refills at one line per two seconds; at most
//! 50 lines wait over all senders; a text equal to one of the same sender that still waits, or
//! was the last one let in, is dropped. Time is passed in, so the rules can be tested.

use std::collections::HashMap;
use std::time::{Duration, Instant};

const BUCKET: f64 = 30.0;
const REFILL: Duration = Duration::from_secs(2);
/// How many lines may wait.
pub(crate) const WAITING: usize = 50;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Pass,
    Duplicate,
    TooFast,
    Full,
}

#[derive(Debug)]
struct Sender {
    tokens: f64,
    at: Instant,
    last: Option<String>,
}

/// The state of the guard.
#[derive(Debug, Default)]
pub(crate) struct Guard(HashMap<String, Sender>);

impl Guard {
    /// Judges one line; `waiting` is how many lines wait now.
    pub(crate) fn judge(
        &mut self,
        from: &str,
        text: &str,
        waiting: usize,
        now: Instant,
    ) -> Judgement {
        let sender = self.0.entry(from.to_owned()).or_insert_with(|| Sender {
            tokens: BUCKET,
            at: now,
            last: None,
        });
        let refill = now.duration_since(sender.at).as_secs_f64() / REFILL.as_secs_f64();
        sender.tokens = (sender.tokens + refill).min(BUCKET);
        sender.at = now;
        if sender.last.as_deref() == Some(text) {
            return Judgement::Duplicate;
        }
        if sender.tokens < 1.0 {
            return Judgement::TooFast;
        }
        if waiting >= WAITING {
            return Judgement::Full;
        }
        sender.tokens -= 1.0;
        sender.last = Some(text.to_owned());
        Judgement::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(guard: &mut Guard, from: &str, n: usize, start: Instant, gap: Duration) -> usize {
        let mut passed = 0;
        for i in 0..n {
            let now = start + gap * u32::try_from(i).unwrap();
            if guard.judge(from, &format!("line {i}"), 0, now) == Judgement::Pass {
                passed += 1;
            }
        }
        passed
    }

    #[test]
    fn a_burst_of_eighty_lets_thirty_in() {
        let n = passed(
            &mut Guard::default(),
            "a",
            80,
            Instant::now(),
            Duration::from_millis(6),
        );
        assert_eq!(n, 30);
    }

    #[test]
    fn forty_at_three_a_second_let_about_thirty_five_in() {
        let n = passed(
            &mut Guard::default(),
            "a",
            40,
            Instant::now(),
            Duration::from_millis(333),
        );
        assert!((35..=36).contains(&n), "{n}");
    }

    #[test]
    fn fifty_wait_over_all_senders() {
        let mut guard = Guard::default();
        let now = Instant::now();
        let mut waiting = 0;
        for i in 0..100 {
            let from = ["a", "b", "c", "d"][i % 4];
            if guard.judge(from, &format!("line {i}"), waiting, now) == Judgement::Pass {
                waiting += 1;
            }
        }
        assert_eq!(waiting, WAITING);
    }

    #[test]
    fn the_same_text_again_is_dropped() {
        let mut guard = Guard::default();
        let now = Instant::now();
        assert_eq!(guard.judge("a", "x", 0, now), Judgement::Pass);
        assert_eq!(guard.judge("a", "x", 1, now), Judgement::Duplicate);
        assert_eq!(guard.judge("b", "x", 1, now), Judgement::Pass);
        assert_eq!(guard.judge("a", "y", 1, now), Judgement::Pass);
    }
}
