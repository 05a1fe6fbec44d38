//! The doorman: an MCP server over stdio, a child of the session's claude, that shows whether the
//! session can be reached.
//!
//! - It finds its session by the law ([`post`]), holds the one lock of its inbox, and gives a
//!   sign of life ([`beat`]): when it sits down, before `initialize` is answered, every few
//!   seconds, and when it leaves. In between it sleeps.
//! - Whatever is wrong, it speaks correct MCP: a claude is never broken by its doorman. The tool
//!   `status` tells what is wrong.
//! - It leaves at once on a signal (claude sends SIGINT with its last row, and waits), when its
//!   input ends, and when its parent is gone.
//! - One closed enum, [`Event`], goes into one plain function, [`Doorman::handle`].
//!
//! # Where lines will be carried
//!
//! This version carries no lines: what stands in an inbox waits there. The delivery loop's place
//! is a module `deliver` beside these, owned by [`beat::Seat`], since only the holder of the lock
//! may deliver. What wakes it (the inbox grew, the transcript grew, a pause is over) becomes
//! variants of [`Event`]; what it has to do next becomes part of [`Doorman::due`]. The session
//! switch belongs to the same place: the owner's row is read again, and the seat exchanged.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::inbox::{Counts, Inbox, State};
use crate::platform::environment::Environment;
use crate::platform::pidfd::PidFd;
use crate::platform::signals::StopSignals;
use crate::store::StateDir;

pub mod beat;
pub mod post;
pub mod rpc;
pub mod server;
pub mod stdio;

use beat::Seat;
use post::{Finding, Lookout, Sight};
use rpc::{Message, Request, Response};
use server::Status;
use stdio::{Connection, Incoming};

/// How long answers that are on their way are waited for when the input has ended.
const FLUSH: Duration = Duration::from_millis(100);

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
    Seated { seat: Box<Seat>, next: Instant },
}

impl Doorman {
    /// A doorman below `parent`, and its first look around.
    #[must_use]
    pub fn new(environment: &Environment, parent: i32) -> Self {
        let off = environment
            .get("OO_DOORMAN")
            .is_some_and(|value| value == "0");
        let now = Instant::now();
        let mut doorman = Self {
            post: if off {
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
        };
        doorman.look();
        doorman
    }

    /// When it wants to hear [`Event::Due`]; never, if nothing is to be done.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        match &self.post {
            Post::Off | Post::Idle(_) => None,
            Post::Looking { next, .. } | Post::Seated { next, .. } => Some(*next),
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
                    Post::Seated { .. } => self.beat(),
                    Post::Off | Post::Idle(_) => {}
                }
                if !self.is_looking()
                    && let Some(request) = self.held.take()
                {
                    self.take(request, &mut reaction.answers);
                }
            }
            Event::InputEnded => reaction.leave = Some(Leave::WhenWritten),
            Event::Stop | Event::ParentEnded => reaction.leave = Some(Leave::AtOnce),
        }
        if reaction.leave.is_some()
            && let Post::Seated { seat, .. } = &mut self.post
        {
            seat.leave();
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
            carries_lines: false,
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
            Post::Seated { seat, .. } => {
                let Counts {
                    delivered, pending, ..
                } = seat.counts();
                status.state = match seat.state() {
                    State::Starting => "starting",
                    State::Following => "following",
                    State::Stopped => "stopped",
                    State::Switched => "switched",
                    State::Standby | State::Unknown => "standby",
                };
                status.reason = seat.trouble().map(str::to_owned);
                status.session_id = Some(seat.inbox().session());
                status.peer_pid = Some(seat.peer().pid);
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
            self.beat();
        }
        answers.push(server::respond(&request, || self.status()));
    }

    fn beat(&mut self) {
        if let Post::Seated { seat, next } = &mut self.post {
            seat.beat(if self.greeted {
                State::Following
            } else {
                State::Starting
            });
            *next = Instant::now() + beat::INTERVAL;
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
        let (session, peer) = match finding {
            Finding::Serves { session, peer } => (session, peer),
            Finding::Nobody(reason) => return Post::Idle(reason.text()),
        };
        let state =
            StateDir::locate(&self.environment).and_then(|state| state.prepare().map(|()| state));
        match state {
            Ok(state) => Post::Seated {
                seat: Box::new(Seat::take(Inbox::of(&state, session), peer)),
                next: Instant::now() + beat::INTERVAL,
            },
            Err(e) => Post::Idle(e.to_string()),
        }
    }
}

/// Serves claude over stdin and stdout until it is time to leave. The exit code is 0.
///
/// # Errors
/// When the process cannot get what a server needs: threads, signals, a runtime.
pub fn serve(environment: &Environment) -> Result<u8> {
    let fail = |e: std::io::Error| Error::failed(format!("cannot start the doorman: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(fail)?;
    runtime.block_on(async {
        let mut stop = StopSignals::listen().map_err(fail)?;
        let parent = nix::unistd::getppid().as_raw();
        let handle = PidFd::open(parent);
        let connection = Connection::stdio().map_err(fail)?;
        let ended = async {
            // It may have ended before the handle was there, and another have its pid.
            if nix::unistd::getppid().as_raw() != parent {
                return;
            }
            let told = match &handle {
                Ok(handle) => handle.ended().await.is_ok(),
                Err(_) => false,
            };
            // Where a parent cannot be watched (one in another pid namespace), the end of the
            // input has to tell; that must not look like a death.
            if !told {
                std::future::pending::<()>().await;
            }
        };
        let mut doorman = Doorman::new(environment, parent);
        attend(&mut doorman, connection, ended, &mut stop).await;
        Ok(0)
    })
}

/// The loop: waits for the next event, and does what the doorman says.
async fn attend(
    doorman: &mut Doorman,
    mut connection: Connection,
    parent_ended: impl Future<Output = ()>,
    stop: &mut StopSignals,
) {
    tokio::pin!(parent_ended);
    loop {
        let due = async {
            match doorman.due() {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        // In this order: no flood of messages keeps it from leaving, or from its heartbeat.
        let event = tokio::select! {
            biased;
            _ = stop.next() => Event::Stop,
            () = &mut parent_ended => Event::ParentEnded,
            () = due => Event::Due,
            incoming = connection.next() => incoming.map_or(Event::InputEnded, Event::Incoming),
        };
        let mut reaction = doorman.handle(event);
        for answer in &reaction.answers {
            if connection.send(rpc::encode(answer)).is_err() {
                reaction.leave = doorman.handle(Event::Stop).leave;
                break;
            }
        }
        match reaction.leave {
            None => {}
            Some(Leave::AtOnce) => return,
            Some(Leave::WhenWritten) => return connection.flush(FLUSH),
        }
    }
}

#[cfg(test)]
mod tests;
