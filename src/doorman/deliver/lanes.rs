//! The lines that wait, sender by sender, and the pace at which each may be offered.
//!
//! - Lines of one sender go in their order: the next one only when the one before was accepted.
//! - A sender that is held back does not hold back the others: lanes take turns.
//! - The pace is that of claude's own guard, which drops in silence what comes faster: for each
//!   sender a bucket of 30 lines that gains one every two seconds (measured: 2.1.308, 2.1.332).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many lines a sender may send at once.
const BURST: f64 = 30.0;

/// How long until a sender may send one more. A little more than what was measured: to be early
/// costs a second and more, to be late nothing.
const REFILL: Duration = Duration::from_millis(2050);

/// The pauses after lines that were dropped: at first the guard's own pace, in the end seldom
/// enough to be no burden for a session that takes nothing for hours.
const PAUSES: (Duration, Duration) = (REFILL, Duration::from_secs(16));

/// A line that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Names a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneId(usize);

#[derive(Debug)]
struct Lane {
    sender: String,
    waiting: VecDeque<Waiting>,
    /// Lines that were offered and neither accepted nor dropped yet.
    offered: usize,
    tokens: f64,
    at: Instant,
    /// How many were dropped in a row.
    drops: u32,
    not_before: Instant,
}

/// The lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    turn: usize,
    count: usize,
}

impl Lanes {
    /// The lane of a sender.
    pub(super) fn of(&mut self, sender: &str, now: Instant) -> LaneId {
        if let Some(at) = self.lanes.iter().position(|lane| lane.sender == sender) {
            return LaneId(at);
        }
        self.lanes.push(Lane {
            sender: sender.to_owned(),
            waiting: VecDeque::new(),
            offered: 0,
            tokens: BURST,
            at: now,
            drops: 0,
            not_before: now,
        });
        LaneId(self.lanes.len() - 1)
    }

    /// Puts a line where it belongs by its offset.
    pub(super) fn put(&mut self, id: LaneId, line: Waiting) {
        let waiting = &mut self.lanes[id.0].waiting;
        let at = waiting.partition_point(|other| other.offset < line.offset);
        waiting.insert(at, line);
        self.count += 1;
    }

    /// The line that is next, of the senders that may send now, and its lane; it is not taken.
    pub(super) fn next(&mut self, now: Instant) -> Option<(LaneId, Waiting)> {
        let lanes = self.lanes.len();
        (0..lanes)
            .map(|step| (self.turn + step) % lanes)
            .find_map(|at| {
                let lane = &mut self.lanes[at];
                let line = *lane.waiting.front()?;
                (lane.ready_at(now)? <= now).then_some((LaneId(at), line))
            })
    }

    /// Takes that line: it is offered.
    pub(super) fn offer(&mut self, id: LaneId, now: Instant) {
        let lane = &mut self.lanes[id.0];
        lane.refill(now);
        lane.tokens = (lane.tokens - 1.0).max(0.0);
        self.take(id);
        self.lanes[id.0].offered += 1;
        self.turn = id.0 + 1;
    }

    /// Takes that line away: nothing is to be done about it.
    pub(super) fn take(&mut self, id: LaneId) {
        if self.lanes[id.0].waiting.pop_front().is_some() {
            self.count -= 1;
        }
    }

    /// A line was offered before this doorman was there, and nobody knows yet what became of it.
    pub(super) fn hold(&mut self, id: LaneId) {
        self.lanes[id.0].offered += 1;
    }

    /// A line that was offered has been accepted.
    pub(super) fn accepted(&mut self, id: LaneId) {
        let lane = &mut self.lanes[id.0];
        lane.offered = lane.offered.saturating_sub(1);
        lane.drops = 0;
    }

    /// A line that was offered was dropped: the guard's bucket of this sender is empty, whatever
    /// was thought of it.
    pub(super) fn dropped(&mut self, id: LaneId, line: Waiting, now: Instant) {
        let lane = &mut self.lanes[id.0];
        lane.offered = lane.offered.saturating_sub(1);
        lane.tokens = 1.0;
        lane.at = now;
        let pause = PAUSES
            .0
            .saturating_mul(1 << lane.drops.min(8))
            .min(PAUSES.1);
        lane.not_before = now + pause;
        lane.drops += 1;
        self.put(id, line);
    }

    /// A line that was offered before is to be offered again, without anybody's fault.
    pub(super) fn released(&mut self, id: LaneId, line: Waiting) {
        let lane = &mut self.lanes[id.0];
        lane.offered = lane.offered.saturating_sub(1);
        self.put(id, line);
    }

    /// Takes a line out, wherever it stands.
    pub(super) fn remove(&mut self, id: LaneId, offset: u64) {
        let waiting = &mut self.lanes[id.0].waiting;
        let before = waiting.len();
        waiting.retain(|line| line.offset != offset);
        self.count -= before - waiting.len();
    }

    /// Nothing of this sender is offered before that time.
    pub(super) fn pause(&mut self, id: LaneId, until: Instant) {
        let lane = &mut self.lanes[id.0];
        lane.not_before = lane.not_before.max(until);
    }

    /// When the next line may be offered; nothing when none waits that could be.
    pub(super) fn due(&mut self, now: Instant) -> Option<Instant> {
        self.lanes
            .iter_mut()
            .filter(|lane| !lane.waiting.is_empty())
            .filter_map(|lane| lane.ready_at(now))
            .min()
    }

    /// How many lines wait.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// The earliest offset of a line that waits.
    pub(super) fn earliest(&self) -> Option<u64> {
        let first = |lane: &Lane| lane.waiting.front().map(|line| line.offset);
        self.lanes.iter().filter_map(first).min()
    }

    /// Forgets the lines, not the paces: the inbox is another one.
    pub(super) fn clear(&mut self) {
        for lane in &mut self.lanes {
            lane.waiting.clear();
        }
        self.count = 0;
    }
}

impl Lane {
    fn refill(&mut self, now: Instant) {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() / REFILL.as_secs_f64();
        self.tokens = (self.tokens + gained).min(BURST);
        self.at = self.at.max(now);
    }

    /// When it may send; nothing while a line is on its way.
    fn ready_at(&mut self, now: Instant) -> Option<Instant> {
        if self.offered > 0 {
            return None;
        }
        self.refill(now);
        let lacking = (1.0 - self.tokens).max(0.0);
        Some((now + REFILL.mul_f64(lacking)).max(self.not_before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn line(offset: u64) -> Waiting {
        Waiting { offset, length: 1 }
    }

    /// Lines of these senders, in this order.
    fn lanes(senders: &[&str], now: Instant) -> Lanes {
        let mut lanes = Lanes::default();
        for (offset, sender) in (0..).zip(senders) {
            let id = lanes.of(sender, now);
            lanes.put(id, line(offset));
        }
        lanes
    }

    #[test]
    fn senders_take_turns_and_one_line_is_on_its_way_for_each() {
        let now = Instant::now();
        let mut lanes = lanes(&["a", "a", "b", "a"], now);
        let mut order = Vec::new();
        while let Some((id, line)) = lanes.next(now) {
            lanes.offer(id, now);
            order.push((id, line.offset));
        }
        let (a, b) = (LaneId(0), LaneId(1));
        assert_eq!(order, [(a, 0), (b, 2)]);
        assert_eq!(lanes.due(now), None);
        lanes.accepted(a);
        assert_eq!(lanes.next(now), Some((a, line(1))));
        assert_eq!((lanes.len(), lanes.earliest()), (2, Some(1)));
    }

    #[test]
    fn a_burst_is_followed_by_the_guards_pace() {
        let start = Instant::now();
        let mut lanes = lanes(&["a"; 40], start);
        let mut now = start;
        let mut at_once = 0;
        while let Some((id, _)) = lanes.next(now) {
            lanes.offer(id, now);
            lanes.accepted(id);
            at_once += 1;
        }
        assert_eq!(at_once, 30);
        for _ in 0..10 {
            let due = lanes.due(now).unwrap();
            assert!(due - now > Duration::from_secs(2), "{:?}", due - now);
            now = due + Duration::from_millis(1);
            let (id, _) = lanes.next(now).unwrap();
            lanes.offer(id, now);
            lanes.accepted(id);
        }
        assert_eq!(lanes.len(), 0);
    }

    #[test]
    fn what_was_dropped_comes_again_first_and_later_each_time() {
        let mut now = Instant::now();
        let mut lanes = lanes(&["a", "a", "b"], now);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let (id, next) = lanes.next(now).unwrap();
            assert_eq!(next, line(0));
            lanes.offer(id, now);
            lanes.dropped(id, next, now);
            // The other sender goes on.
            assert_eq!(lanes.next(now).unwrap().0, LaneId(1));
            let due = lanes.lanes[0].ready_at(now).unwrap();
            pauses.push((due - now).as_millis());
            now = due;
            lanes.turn = 0;
        }
        assert_eq!(pauses, [2050, 4100, 8200, 16000, 16000, 16000]);
    }

    #[test]
    fn what_is_held_holds_its_lane_until_it_is_released() {
        let now = Instant::now();
        let mut lanes = lanes(&["a", "b"], now);
        let a = lanes.of("a", now);
        lanes.hold(a);
        assert_eq!(lanes.next(now).unwrap().1, line(1));
        lanes.released(a, line(9));
        assert_eq!(lanes.next(now).unwrap().1, line(0));
        lanes.clear();
        assert_eq!(
            (lanes.len(), lanes.due(now), lanes.earliest()),
            (0, None, None)
        );
    }
}
