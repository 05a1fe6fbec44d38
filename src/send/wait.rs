//! Waiting until a line has arrived, or it is known that it will not for now.
//!
//! Woken by the acks file, by the end of the doorman's process, by a signal, and by the deadline;
//! every two seconds a look makes sure that somebody still carries the line. The folder is not
//! watched: every doorman's heartbeat lands there.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::sight::{self, Post, Sight};
use crate::error::Error;
use crate::exit::SendClass;
use crate::inbox::{Ack, AckClass, Follower, Inbox, LineState, Written};
use crate::platform::pidfd::PidFd;
use crate::platform::signals::{StopSignal, StopSignals};
use crate::platform::watch::Watch;
use crate::store::StateDir;

/// How often somebody looks whether the doorman is still there.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The same while it comes up or goes.
const LOOK_OFTEN: Duration = Duration::from_millis(100);

/// How often the acks are read where the kernel has no watch left.
const POLL: Duration = Duration::from_millis(50);

/// How long after the doorman left it is waited to see whether the session ends too, or another
/// doorman takes over.
const GOING: Duration = Duration::from_secs(1);

/// How long a doorman that lives may be overdue: after a machine slept, its next sign of life is
/// seconds away.
const OVERDUE: Duration = Duration::from_secs(6);

/// A line that is waited for.
pub(super) struct Waiting<'a> {
    pub(super) state: &'a StateDir,
    pub(super) config: Option<&'a Path>,
    pub(super) inbox: &'a Inbox,
    pub(super) written: Written,
    pub(super) follower: Follower,
    /// How far the line has to come.
    pub(super) until: LineState,
    /// The last ack of the line.
    pub(super) ack: Option<Ack>,
    /// The last look at its doorman.
    pub(super) sight: Option<Sight>,
}

/// How the wait ended.
#[derive(Debug)]
pub(super) enum End {
    /// The line has come as far as was asked.
    Arrived(SendClass),
    /// Its doorman refused it.
    Refused,
    /// The session lives and nobody carries the line; whether somebody did when the wait began.
    NoDoorman { had_one: bool },
    /// The session does not run.
    Offline,
    /// The inbox was replaced, and the line is not in the new one.
    TakenOut,
    /// The time ran out.
    TimeUp,
    /// A signal came.
    Stopped(StopSignal),
    /// It cannot be told what becomes of the line.
    Blind(Error),
}

/// What the looks have shown so far.
#[derive(Default)]
struct Looks {
    next: Option<Instant>,
    /// Whether a doorman was there, or coming.
    had_one: bool,
    /// Since when there is none, or it is overdue.
    gone_since: Option<(Post, Instant)>,
    doorman: Option<(i32, PidFd)>,
}

impl Waiting<'_> {
    /// Waits for `limit` at most; without any time it looks once.
    pub(super) async fn wait(&mut self, limit: Duration, mut signals: StopSignals) -> End {
        let began = Instant::now();
        // A limit beyond the clock's end is none.
        let deadline = began.checked_add(limit);
        let mut watch = self.watch();
        let mut looks = Looks::default();
        loop {
            if let Some(end) = self.read() {
                return end;
            }
            let now = Instant::now();
            if looks.next.is_none_or(|next| next <= now) {
                if self.follower.reopen_if_replaced().unwrap_or(false) {
                    watch = self.watch();
                    continue;
                }
                if let Some(end) = self.look(&mut looks, now) {
                    // What the doorman said last counts more than that it left.
                    return self.read().unwrap_or(end);
                }
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                return End::TimeUp;
            }
            let next = looks.next.unwrap_or(now);
            let poll = watch.is_none().then(|| now + POLL);
            let wake = [deadline, poll]
                .into_iter()
                .flatten()
                .fold(next, Instant::min);
            let doorman = async {
                match &looks.doorman {
                    Some((_, handle)) => handle.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                signal = signals.next() => return End::Stopped(signal),
                broken = changed(watch.as_ref()) => if broken {
                    watch = None;
                },
                // Whether or not the handle is good for anything: look, and open a new one.
                _ = doorman => {
                    looks.doorman = None;
                    looks.next = None;
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    fn watch(&self) -> Option<Watch> {
        let watch = Watch::new().ok()?;
        watch.add_file(self.follower.path()).ok()?;
        Some(watch)
    }

    /// Reads the new acks; how the wait ends by them.
    fn read(&mut self) -> Option<End> {
        match self.follower.newest(&self.written) {
            Ok(Some(ack)) => self.ack = Some(ack),
            Ok(None) => {}
            Err(error) => return Some(End::Blind(error)),
        }
        let ack = self.ack.as_ref()?;
        if ack.class == Some(AckClass::Refused) {
            return Some(End::Refused);
        }
        // A state of a newer doorman tells nothing that was asked for.
        let reached = ack.state != LineState::Unknown && ack.state >= self.until;
        reached.then(|| End::Arrived(class_of(ack)))
    }

    fn look(&mut self, looks: &mut Looks, now: Instant) -> Option<End> {
        match self.written.is_still_in(self.inbox) {
            Ok(Some(place)) => self.written.place = place,
            Ok(None) => return Some(End::TakenOut),
            Err(error) => return Some(End::Blind(error)),
        }
        let sight = match sight::look(self.state, self.config, self.inbox.session()) {
            Ok(sight) => sight,
            Err(error) => return Some(End::Blind(error)),
        };
        let (post, live) = (sight.post, sight.live);
        let pid = sight.heartbeat.as_ref().map(|heartbeat| heartbeat.pid);
        self.sight = Some(sight);
        let every = match post {
            Post::Kept => LOOK_EVERY,
            Post::Overdue | Post::Coming | Post::Left => LOOK_OFTEN,
        };
        looks.next = Some(now + every);
        let patience = match post {
            Post::Kept | Post::Coming => {
                looks.had_one = true;
                looks.gone_since = None;
                looks.keep_an_eye_on(pid.filter(|_| post == Post::Kept));
                return None;
            }
            Post::Left if !live => return Some(End::Offline),
            Post::Left => GOING,
            Post::Overdue => OVERDUE,
        };
        looks.keep_an_eye_on(None);
        let since = match looks.gone_since {
            Some((what, since)) if what == post => since,
            _ => now,
        };
        looks.gone_since = Some((post, since));
        let patient = looks.had_one && now.duration_since(since) < patience;
        (!patient).then_some(End::NoDoorman {
            had_one: looks.had_one,
        })
    }
}

impl Looks {
    fn keep_an_eye_on(&mut self, pid: Option<i32>) {
        let known = self.doorman.as_ref().map(|(pid, _)| *pid);
        if known != pid {
            self.doorman = pid.and_then(|pid| Some((pid, PidFd::open(pid).ok()?)));
        }
    }
}

/// Waits for a change of the acks; whether the watch is of no use any more.
async fn changed(watch: Option<&Watch>) -> bool {
    match watch {
        Some(watch) => watch.changed().await.is_err(),
        None => std::future::pending().await,
    }
}

/// The doorman writes the class that it expects before it knows.
fn class_of(ack: &Ack) -> SendClass {
    match ack.class {
        Some(AckClass::DeliveredStart) => SendClass::DeliveredStart,
        Some(AckClass::DeliveredSteer | AckClass::Refused | AckClass::Unknown) | None => {
            SendClass::DeliveredSteer
        }
    }
}
