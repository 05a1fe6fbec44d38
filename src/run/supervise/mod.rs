//! The supervisor: one claude, from its spawn to its result.
//!
//! A loop takes one closed enum of events and hands each to a plain function. claude writes to
//! files, so nothing that the supervisor does, or fails to do, can stop it; and nothing is waited
//! for but the process itself: an orphan that holds the files open blocks nothing.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::Instant;

use super::held::ResultsLog;
use super::launch::Prepared;
use super::observed::Observed;
use super::record::{self, ProcessRecord};
use super::result::ResultDocument;
use super::stop::{Ladder, StopReason};
use super::verdict::{Ending, Exit};
use super::watchdog::{Due, Watchdog};
use crate::error::{Error, Result};
use crate::inbox::{Heartbeat, Inbox};
use crate::platform::pidfd::PidFd;
use crate::platform::process::Identity;
use crate::platform::signals::{StopSignal, StopSignals};
use crate::platform::spawn::{self, Running, SpawnPlan};
use crate::platform::watch::Watch;
use crate::platform::{clock, host};
use crate::session::transcript::Extent;
use crate::store::{StateDir, Tail};

mod ending;
mod observer;
mod rows;
mod stdin;

pub use observer::{Notice, Observer};

use stdin::Stdin;

/// A run that is over.
#[derive(Debug)]
pub struct Supervised {
    /// Its result.
    pub document: ResultDocument,
    /// Why the result is not on disk, if it is not.
    pub unsaved: Option<Error>,
}

/// Where a supervised run lives.
#[derive(Debug)]
pub struct Surroundings {
    /// The state folder.
    pub state: StateDir,
    /// claude's configuration folder, by the child's environment.
    pub config: Option<PathBuf>,
}

/// Spawns and watches a run until it is over, and writes its result.
///
/// # Errors
/// Refused when claude could not be put on record or nothing could watch it: then it never ran,
/// and nothing is left. Failed when it cannot be watched any more: what claude wrote stays in the
/// folder, and `oo show` judges it.
pub async fn supervise(
    prepared: Prepared,
    surroundings: Surroundings,
    observer: &mut dyn Observer,
) -> Result<Supervised> {
    let (means, stdin, plan) = match Means::of(&prepared) {
        Ok(ready) => ready,
        Err(error) => return Err(prepared.refuse(error)),
    };
    let Means {
        signals,
        watch,
        events,
        stderr,
    } = means;
    let gated = spawn::gated(plan);
    let mut run = Run {
        watchdog: Watchdog::new(prepared.spec.limits, prepared.spec.hold),
        stdin,
        results: prepared.spec.hold.map(|_| ResultsLog::of(&prepared.files)),
        inbox: Inbox::of(&surroundings.state, prepared.spec.session_id),
        prepared,
        surroundings,
        events,
        stderr,
        observed: Observed::default(),
        began: Instant::now(),
        record: None,
        ladder: None,
        below: Vec::new(),
        killed: false,
        first_output: None,
        behind: false,
        heartbeat: None,
        extent: None,
        servers_seen: false,
        notes: Vec::new(),
    };
    // The install may tell the version, before claude itself does.
    if let Some(version) = run.prepared.spec.claude.version.clone() {
        run.check_version(&version, observer);
    }
    run.check_reach(observer);
    let ending = match gated {
        Err(e) => Ending::NotSpawned(e.to_string()),
        Ok(gated) => {
            let pid = gated.pid();
            let ended = PidFd::open(pid).map_err(|e| Error::failed(format!("no pidfd: {e}")));
            let ended = match ended.and_then(|ended| run.write_down(pid).map(|()| ended)) {
                Ok(ended) => ended,
                Err(error) => {
                    // The child is not let go, and so leaves without having been claude.
                    drop(gated);
                    return Err(run.prepared.refuse(error));
                }
            };
            match gated.release() {
                Err(e) => Ending::NotSpawned(e.to_string()),
                Ok(child) => {
                    // While claude starts; a disk that fails here does not end the run.
                    let syncing = run.prepared.sync();
                    let ending = run.watch(child, &ended, &watch, signals, observer).await?;
                    let synced = syncing.map(JoinHandle::join);
                    if let Err(error) | Ok(Ok(Err(error))) = synced {
                        run.notes.push(error.to_string());
                    }
                    ending
                }
            }
        }
    };
    Ok(run.finish(&ending))
}

/// What is needed to watch a run; all of it is had before the spawn.
struct Means {
    signals: StopSignals,
    watch: Watch,
    events: Tail,
    stderr: Tail,
}

impl Means {
    fn of(prepared: &Prepared) -> Result<(Self, Option<Stdin>, SpawnPlan)> {
        let root = prepared.files.root();
        let watch = || {
            let watch = Watch::new()?;
            watch.add(root)?;
            Ok(watch)
        };
        let means = Self {
            // Or a signal in between would leave a claude without its supervisor.
            signals: StopSignals::listen()
                .map_err(|e| Error::failed(format!("cannot take signals: {e}")))?,
            watch: watch().map_err(|e| {
                Error::io("watch", root, e).hint(
                    "too many programs watch files: see fs.inotify.max_user_instances in inotify(7)",
                )
            })?,
            events: Tail::open(&prepared.files.events())?,
            stderr: Tail::open(&prepared.files.stderr())?,
        };
        let (theirs, ours) = Stdin::of(prepared)?;
        Ok((means, ours, prepared.plan(theirs)?))
    }
}

/// Everything that can happen to a run.
enum Event {
    /// A file of the run was written to.
    Written,
    /// There is room in claude's stdin, or nobody reads it any more.
    Room,
    /// claude has ended.
    Ended,
    /// oo got a signal.
    Signal(StopSignal),
    /// A deadline has come: a clock's, a rung's, or the observer's.
    Time,
}

struct Run {
    prepared: Prepared,
    surroundings: Surroundings,
    inbox: Inbox,
    events: Tail,
    stderr: Tail,
    /// Our end of claude's stdin, while a held session is open.
    stdin: Option<Stdin>,
    /// The results of a held session.
    results: Option<ResultsLog>,
    observed: Observed,
    watchdog: Watchdog,
    began: Instant,
    record: Option<ProcessRecord>,
    ladder: Option<Ladder>,
    /// What was seen below claude while it was being ended.
    below: Vec<Identity>,
    killed: bool,
    first_output: Option<Duration>,
    /// Whether there may be more to read already.
    behind: bool,
    heartbeat: Option<Heartbeat>,
    extent: Option<Extent>,
    /// Whether claude has listed its MCP servers; it does not start a dead one again.
    servers_seen: bool,
    notes: Vec<String>,
}

impl Run {
    /// Puts the child on record; only then may it become claude.
    fn write_down(&mut self, pid: i32) -> Result<()> {
        let claude = Identity::of(pid)
            .ok_or_else(|| Error::failed(format!("the child {pid} died before it was claude")))?;
        let record = ProcessRecord {
            schema: record::SCHEMA.to_owned(),
            claude,
            supervisor: Identity::own(),
            boot_id: host::boot_id(),
            started_at: clock::now(),
            env_kept: self.prepared.environment.kept.clone(),
            // A relative one is relative to the folder that claude works in.
            config_dir: self.surroundings.config.as_deref().and_then(|config| {
                let absolute = self.prepared.spec.cwd.join(config);
                absolute.to_str().map(str::to_owned)
            }),
            stop: None,
        };
        record.write(&self.prepared.files)?;
        self.record = Some(record);
        self.began = Instant::now();
        Ok(())
    }

    async fn watch(
        &mut self,
        mut child: Running,
        ended: &PidFd,
        watch: &Watch,
        mut signals: StopSignals,
        observer: &mut dyn Observer,
    ) -> Result<Ending> {
        let mut tick = observer.every().map(|every| self.began + every);
        loop {
            let deadline = self.deadline().into_iter().chain(tick).min();
            let time = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let behind = self.behind;
            let written = async {
                if behind {
                    // Signals and clocks are only noticed by a runtime that gets its turn.
                    tokio::task::yield_now().await;
                    Ok(())
                } else {
                    watch.changed().await.map(drop)
                }
            };
            let stdin = self.stdin.as_ref();
            let room = async {
                match stdin {
                    Some(stdin) => stdin.room().await,
                    None => std::future::pending().await,
                }
            };
            // In this order: there may always be something to read.
            let event = tokio::select! {
                biased;
                signal = signals.next() => Event::Signal(signal),
                gone = ended.ended() => gone.map(|()| Event::Ended).map_err(watching)?,
                () = time => Event::Time,
                room = room => room.map(|()| Event::Room).map_err(watching)?,
                written = written => written.map(|()| Event::Written).map_err(watching)?,
            };
            if let (Some(at), Some(every)) = (tick, observer.every())
                && at <= Instant::now()
            {
                tick = Some(Instant::now() + every);
                observer.tick(self.began.elapsed(), &self.observed);
            }
            if let Some(ending) = self.step(&event, &mut child, observer)? {
                return Ok(ending);
            }
        }
    }

    /// Takes one event; the ending, once there is one.
    fn step(
        &mut self,
        event: &Event,
        child: &mut Running,
        observer: &mut dyn Observer,
    ) -> Result<Option<Ending>> {
        let now = self.began.elapsed();
        match event {
            Event::Written => self.read_rows(now, observer)?,
            Event::Room => self.send_prompt(now),
            Event::Ended => {
                let status = child.try_wait().map_err(watching)?;
                self.read_rest(now, observer)?;
                self.read_end(observer);
                return Ok(Some(match status {
                    Some(status) => {
                        let (code, signal) = spawn::code_and_signal(status);
                        Ending::Exited(Exit { code, signal })
                    }
                    None => Ending::Unknown,
                }));
            }
            Event::Signal(signal) => match &mut self.ladder {
                Some(ladder) => ladder.hurry(now),
                None => {
                    // Whether a turn is under way decides how it ends.
                    self.read_rows(now, observer)?;
                    if self.ladder.is_none() {
                        let name = signal.name().to_owned();
                        self.stop(StopReason::Signal(name), now, observer)?;
                    }
                }
            },
            Event::Time => {
                // What was written before counts: oo itself may have been stopped for a while.
                self.read_rows(now, observer)?;
                if self.ladder.is_none()
                    && let Some(due) = self.overdue(now)
                {
                    match due {
                        Due::Clock(clock) => self.stop(StopReason::Clock(clock), now, observer)?,
                        Due::Close => self.close_idle(now, observer),
                    }
                }
            }
        }
        Ok(self.climb(now, observer))
    }

    fn deadline(&self) -> Option<Instant> {
        let due = match &self.ladder {
            Some(ladder) => ladder.next(),
            None => self.watchdog.next().map(|(at, _)| at),
        };
        due.and_then(|at| self.began.checked_add(at))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn watching(error: std::io::Error) -> Error {
    Error::failed(format!("cannot watch claude: {error}"))
}
