//! The doorman: an MCP server over stdio, a child of the session's claude, that carries the lines
//! of its inbox through the session's door and proves that they arrived.
//!
//! - It finds its session by the law ([`post`]), holds the one lock of its inbox ([`seat`]),
//!   carries lines ([`deliver`]) and gives a sign of life: when it sits down, before `initialize`
//!   is answered, every few seconds, and when it leaves. In between it sleeps: the file system
//!   wakes it.
//! - Whatever is wrong, it speaks correct MCP: a claude is never broken by its doorman. The tool
//!   `status` tells what is wrong.
//! - It leaves at once on a signal (claude sends SIGINT with its last row, and waits), when its
//!   input ends, and when its parent is gone.
//! - One closed enum, [`Event`], goes into one plain function, [`Doorman::handle`]; `attend` is
//!   the loop around it, and the only place that waits.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::inbox::{Inbox, State};
use crate::platform::environment::Environment;
use crate::store::{Lock, StateDir};

mod attend;
pub mod deliver;
pub mod door;
pub mod foreground;
pub mod post;
pub mod reach;
pub mod rpc;
pub mod seat;
pub mod server;
pub mod stdio;

pub use attend::serve;

use deliver::Offer;
use post::{Finding, Lookout, Sight};
use reach::{Open, Reach};
use rpc::{Message, Request, Response};
use seat::Seat;
use server::Status;
use stdio::Incoming;

/// How long a seat is kept in a session that the owner has left, at most, and how often it is
/// looked whether its lines have turned up.
const LINGER: Duration = Duration::from_secs(10);
const LOOK_BACK: Duration = Duration::from_millis(200);

/// Whether doormen are turned off: `OO_DOORMAN=0`.
#[must_use]
pub fn is_off(environment: &Environment) -> bool {
    environment
        .get("OO_DOORMAN")
        .is_some_and(|value| value == "0")
}

/// Everything that can happen to a doorman.
#[derive(Debug)]
pub enum Event {
    /// claude sent something.
    Incoming(Incoming),
    /// claude will send nothing more.
    InputEnded,
    /// Somebody asked it to leave.
    Stop,
    /// Its parent is gone.
    ParentEnded,
    /// The time that [`Doorman::due`] named has come.
    Due,
    /// A file that [`Doorman::watched`] named has changed, or there is more to look at.
    News,
    /// What was to be written to the door was written, or not.
    Written(std::io::Result<()>),
    /// The lock that [`Doorman::lock_to_wait_for`] named; nothing when it cannot be waited for.
    Lock(PathBuf, Option<Lock>),
}

/// What is to be done about an event.
#[derive(Debug, Default)]
pub struct Reaction {
    /// Answers to send, in this order.
    pub answers: Vec<Response>,
    /// Whether to leave, and how.
    pub leave: Option<Leave>,
}

/// How to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Nobody reads what is not written yet.
    AtOnce,
    /// Answers are still read.
    WhenWritten,
}

/// A doorman and where it stands.
#[derive(Debug)]
pub struct Doorman {
    post: Post,
    environment: Environment,
    greeted: bool,
    /// An `initialize` that waits until the post is known.
    held: Option<Request>,
    /// Whether there is more to look at, right now.
    busy: bool,
    /// The seat in a session that the owner has left, and how long it is kept at most.
    left: Option<(Box<Seat>, Instant)>,
    /// When it leaves at the latest, and as soon as nothing waits any more; nothing for one that
    /// stays.
    until: Option<Instant>,
}

#[derive(Debug)]
enum Post {
    /// Switched off by `OO_DOORMAN=0`.
    Off,
    /// Not known yet.
    Looking {
        lookout: Lookout,
        until: Instant,
        next: Instant,
    },
    /// It serves nobody, for this reason.
    Idle(String),
    /// It has a seat in a session, with the lock or without.
    Seated(Box<Seat>),
}

impl Doorman {
    /// A doorman below `parent`, and its first look around.
    #[must_use]
    pub fn new(environment: &Environment, parent: i32) -> Self {
        let now = Instant::now();
        let mut doorman = Self {
            post: if is_off(environment) {
                Post::Off
            } else {
                Post::Looking {
                    lookout: Lookout::new(environment, parent),
                    until: now + post::PATIENCE,
                    next: now,
                }
            },
            environment: environment.clone(),
            greeted: false,
            held: None,
            busy: false,
            left: None,
            until: None,
        };
        doorman.look();
        doorman
    }

    /// When it wants to hear [`Event::Due`]; never, if nothing is to be done.
    #[must_use]
    pub fn due(&mut self) -> Option<Instant> {
        match &mut self.post {
            Post::Off | Post::Idle(_) => None,
            Post::Looking { next, .. } => Some(*next),
            Post::Seated(seat) => {
                let now = Instant::now();
                let left = self.left.as_ref().map(|_| now + LOOK_BACK);
                let others = [left, self.until].into_iter().flatten();
                Some(others.fold(seat.due(now), Instant::min))
            }
        }
    }

    /// Whether it wants to hear [`Event::News`] as soon as everybody else was heard.
    #[must_use]
    pub const fn busy(&self) -> bool {
        self.busy
    }

    /// The files whose changes are news to it.
    #[must_use]
    pub fn watched(&self) -> Vec<PathBuf> {
        match &self.post {
            Post::Seated(seat) => seat.watched(),
            Post::Off | Post::Looking { .. } | Post::Idle(_) => Vec::new(),
        }
    }

    /// A lock that somebody has to wait for on its behalf; each is named once.
    pub fn lock_to_wait_for(&mut self) -> Option<PathBuf> {
        match &mut self.post {
            Post::Seated(seat) => seat.lock_to_wait_for(),
            Post::Off | Post::Looking { .. } | Post::Idle(_) => None,
        }
    }

    /// What is to be written to the door, if anything is. It is on record as offered.
    pub fn offer(&mut self) -> Option<(Open, Vec<u8>)> {
        let Post::Seated(seat) = &mut self.post else {
            return None;
        };
        match seat.offer(Instant::now()) {
            Offer::Write(open, frames) => Some((open, frames)),
            Offer::Moved(_) => {
                self.follow();
                None
            }
            Offer::None => None,
        }
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event) -> Reaction {
        let mut reaction = Reaction::default();
        match event {
            Event::Incoming(Incoming::TooLong) => reaction.answers.push(Response::error(
                None,
                rpc::INVALID_REQUEST,
                "a message has at most 1 MiB",
            )),
            Event::Incoming(Incoming::Line(line)) => match rpc::decode(&line) {
                Some(Message::Request(request)) => self.take(request, &mut reaction.answers),
                Some(Message::Broken(answer)) => reaction.answers.push(answer),
                Some(Message::Notification | Message::Response) | None => {}
            },
            Event::Due => {
                match &mut self.post {
                    Post::Looking { .. } => self.look(),
                    Post::Seated(_) => self.wake(),
                    Post::Off | Post::Idle(_) => {}
                }
                if !self.is_looking()
                    && let Some(request) = self.held.take()
                {
                    self.take(request, &mut reaction.answers);
                }
            }
            Event::News => self.wake(),
            Event::Written(result) => {
                if let Post::Seated(seat) = &mut self.post {
                    seat.written(result, Instant::now());
                }
                // The transcript is opened now, so that its next row is news.
                self.wake();
            }
            Event::Lock(path, lock) => {
                if let Post::Seated(seat) = &mut self.post {
                    seat.give_lock(&path, lock);
                }
                self.wake();
            }
            Event::InputEnded => reaction.leave = Some(Leave::WhenWritten),
            Event::Stop | Event::ParentEnded => reaction.leave = Some(Leave::AtOnce),
        }
        if reaction.leave.is_none() && self.is_done() {
            reaction.leave = Some(Leave::AtOnce);
        }
        if reaction.leave.is_some()
            && let Post::Seated(seat) = &mut self.post
        {
            seat.leave(State::Stopped);
            if let Some((mut seat, _)) = self.left.take() {
                seat.leave(State::Switched);
            }
        }
        reaction
    }

    /// What it is, as its tool tells it.
    pub fn status(&mut self) -> Status {
        let mut status = Status {
            state: "off",
            reason: None,
            session_id: None,
            peer_pid: None,
            pid: std::process::id(),
            delivered: 0,
            pending: 0,
            heartbeat_at: None,
            oo_version: env!("CARGO_PKG_VERSION"),
        };
        match &mut self.post {
            Post::Off => status.reason = Some("OO_DOORMAN is 0".to_owned()),
            Post::Looking { .. } => status.state = "looking",
            Post::Idle(reason) => {
                status.state = "idle";
                status.reason = Some(reason.clone());
            }
            Post::Seated(seat) => {
                let (delivered, pending) = seat.counted();
                status.state = match seat.state() {
                    State::Starting => "starting",
                    State::Following => "following",
                    State::Stopped => "stopped",
                    State::Switched => "switched",
                    State::Standby | State::Unknown => "standby",
                };
                status.reason = seat.trouble().map(str::to_owned);
                status.session_id = Some(seat.inbox().session());
                status.peer_pid = Some(seat.reach().peer().pid);
                status.heartbeat_at = seat.beaten_at();
                status.delivered = delivered;
                status.pending = pending;
            }
        }
        status
    }

    fn take(&mut self, request: Request, answers: &mut Vec<Response>) {
        if request.method == "initialize" {
            if self.is_looking() && self.held.is_none() {
                self.held = Some(request);
                return;
            }
            // The sign of life comes first: whoever sees the answer can rely on it.
            self.greeted = true;
            if let Post::Seated(seat) = &mut self.post {
                seat.beat(State::Following);
                // Lines may wait already; they come after the answer.
                self.busy = true;
            }
        }
        answers.push(server::respond(&request, || self.status()));
    }

    /// Whether it was to stay only as long as something waits, and nothing does, or for too long.
    fn is_done(&mut self) -> bool {
        let Some(until) = self.until else {
            return false;
        };
        let nothing_waits = match &mut self.post {
            Post::Seated(seat) => !self.busy && seat.counted().1 == 0,
            Post::Off | Post::Looking { .. } | Post::Idle(_) => true,
        };
        nothing_waits || Instant::now() >= until
    }

    /// Looks at what is new in the session.
    fn wake(&mut self) {
        self.follow();
        let now = Instant::now();
        if let Some((seat, until)) = &mut self.left
            && (!seat.lingers(now) || now >= *until)
        {
            seat.leave(State::Switched);
            self.left = None;
        }
        if let Post::Seated(seat) = &mut self.post {
            let state = if self.greeted {
                State::Following
            } else {
                State::Starting
            };
            self.busy = seat.wake(state, Instant::now());
        }
    }

    /// Goes along when the owner has gone over to another session: its row tells.
    fn follow(&mut self) {
        let Post::Seated(seat) = &mut self.post else {
            return;
        };
        let Some(row) = seat.reach().row() else {
            return;
        };
        if row.session_id == seat.inbox().session() {
            return;
        }
        let (reach, now) = (seat.reach().clone(), Instant::now());
        let keep = seat.go_along(row.session_id);
        if !keep {
            seat.leave(State::Switched);
        }
        let seated = self.seated(row.session_id, reach);
        if let (true, Post::Seated(seat)) = (keep, std::mem::replace(&mut self.post, seated))
            && let Some((mut before, _)) = self.left.replace((seat, now + LINGER))
        {
            before.leave(State::Switched);
        }
        if self.greeted
            && let Post::Seated(seat) = &mut self.post
        {
            seat.beat(State::Following);
            self.busy = true;
        }
    }

    const fn is_looking(&self) -> bool {
        matches!(self.post, Post::Looking { .. })
    }

    fn look(&mut self) {
        let Post::Looking {
            lookout,
            until,
            next,
        } = &mut self.post
        else {
            return;
        };
        let Sight { finding, settled } = lookout.look();
        let now = Instant::now();
        if settled || now >= *until {
            self.post = self.settle(finding);
        } else {
            *next = now + post::LOOK_AGAIN;
        }
    }

    fn settle(&self, finding: Finding) -> Post {
        match finding {
            Finding::Serves { session, peer } => {
                self.seated(session, Reach::child(&self.environment, peer))
            }
            Finding::Nobody(reason) => Post::Idle(reason.text()),
        }
    }

    fn seated(&self, session: uuid::Uuid, reach: Reach) -> Post {
        let state =
            StateDir::locate(&self.environment).and_then(|state| state.prepare().map(|()| state));
        match state {
            Ok(state) => Post::Seated(Box::new(Seat::take(Inbox::of(&state, session), reach))),
            Err(e) => Post::Idle(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
