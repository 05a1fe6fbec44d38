//! The peer guard: what a door lets in before anybody is asked.
//!
//! Invariants, in the order of the checks: a text equal to the last one of the same sender, sent
//! less than 30 s before, is dropped and costs nothing; per sender there is a bucket of 30 lines
//! that refills at one line per two seconds, and what it drops is forgotten; a line that finds 50
//! others waiting is dropped, but has been paid for and counts as the sender's last text. Ids
//! play no part. Time is passed in, so the rules can be tested.

use std::collections::HashMap;
use std::time::{Duration, Instant};

const BUCKET: f64 = 30.0;
const REFILL: Duration = Duration::from_secs(2);
const MEMORY: Duration = Duration::from_secs(30);
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
    last: Option<(String, Instant)>,
}

/// The state of the guard.
#[derive(Debug)]
pub(crate) struct Guard {
    senders: HashMap<String, Sender>,
    refill: Duration,
    memory: Duration,
}

impl Guard {
    /// A guard whose times are this many times the real ones.
    pub(crate) fn new(scale: f64) -> Self {
        Self {
            senders: HashMap::new(),
            refill: REFILL.mul_f64(scale),
            memory: MEMORY.mul_f64(scale),
        }
    }

    /// Judges one line; `waiting` is how many lines wait now.
    pub(crate) fn judge(
        &mut self,
        sender: &str,
        text: &str,
        waiting: usize,
        now: Instant,
    ) -> Judgement {
        let sender = self
            .senders
            .entry(sender.to_owned())
            .or_insert_with(|| Sender {
                tokens: BUCKET,
                at: now,
                last: None,
            });
        let refill = now.duration_since(sender.at).as_secs_f64() / self.refill.as_secs_f64();
        sender.tokens = (sender.tokens + refill).min(BUCKET);
        sender.at = now;
        if let Some((last, at)) = &sender.last
            && last == text
            && now.duration_since(*at) < self.memory
        {
            return Judgement::Duplicate;
        }
        if sender.tokens < 1.0 {
            return Judgement::TooFast;
        }
        sender.tokens -= 1.0;
        sender.last = Some((text.to_owned(), now));
        if waiting >= WAITING {
            return Judgement::Full;
        }
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
            &mut Guard::new(1.0),
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
            &mut Guard::new(1.0),
            "a",
            40,
            Instant::now(),
            Duration::from_millis(333),
        );
        assert!((35..=36).contains(&n), "{n}");
    }

    #[test]
    fn a_scale_makes_the_bucket_refill_faster() {
        let gap = Duration::from_millis(20);
        assert_eq!(
            passed(&mut Guard::new(0.01), "a", 80, Instant::now(), gap),
            80
        );
    }

    #[test]
    fn offers_that_the_bucket_drops_cost_nothing() {
        let mut guard = Guard::new(1.0);
        let now = Instant::now();
        assert_eq!(passed(&mut guard, "a", 60, now, Duration::ZERO), 30);
        for ms in (0..2000).step_by(50) {
            let at = now + Duration::from_millis(ms);
            assert_eq!(guard.judge("a", "again", 0, at), Judgement::TooFast);
        }
        let at = now + Duration::from_secs(2);
        assert_eq!(guard.judge("a", "again", 0, at), Judgement::Pass);
    }

    #[test]
    fn fifty_wait_over_all_senders() {
        let mut guard = Guard::new(1.0);
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
    fn the_last_text_of_a_sender_is_dropped_for_thirty_seconds() {
        let mut guard = Guard::new(1.0);
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(guard.judge("a", "x", 0, at(0)), Judgement::Pass);
        assert_eq!(guard.judge("b", "x", 1, at(0)), Judgement::Pass);
        assert_eq!(guard.judge("a", "x", 1, at(1)), Judgement::Duplicate);
        // What was dropped does not begin the time anew.
        assert_eq!(guard.judge("a", "x", 0, at(29)), Judgement::Duplicate);
        assert_eq!(guard.judge("a", "x", 0, at(30)), Judgement::Pass);
        assert_eq!(guard.judge("a", "y", 1, at(31)), Judgement::Pass);
        assert_eq!(guard.judge("a", "x", 2, at(31)), Judgement::Pass);
    }

    #[test]
    fn duplicates_are_free_and_a_full_queue_is_not() {
        let mut guard = Guard::new(1.0);
        let now = Instant::now();
        for _ in 0..20 {
            guard.judge("a", "x", 0, now);
        }
        assert_eq!(passed(&mut guard, "a", 40, now, Duration::ZERO), 29);
        for i in 0..10 {
            let text = format!("line {i}");
            assert_eq!(guard.judge("b", &text, WAITING, now), Judgement::Full);
        }
        assert_eq!(guard.judge("b", "line 9", 0, now), Judgement::Duplicate);
        assert_eq!(passed(&mut guard, "b", 40, now, Duration::ZERO), 20);
    }
}
