//! The supervisor: one claude, from its spawn to its result.
//!
//! A loop takes one closed enum of events and hands each to a plain function. claude writes to
//! files, so nothing that the supervisor does, or fails to do, can stop it; and nothing is waited
//! for but the process itself: an orphan that holds the files open blocks nothing.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::finish::{self, Known};
use super::launch::Prepared;
use super::mcp_config;
use super::observed::Observed;
use super::record::{self, ProcessRecord};
use super::result::ResultDocument;
use super::row::{Init, Row};
use super::spec::DoormanMode;
use super::stop::{Ladder, Rung, StopReason, StopRecord};
use super::tail::Tail;
use super::verdict::{Ending, Exit};
use super::watchdog::{Clock, Watchdog};
use crate::error::{Error, Kind, Result};
use crate::inbox::{Heartbeat, Inbox};
use crate::platform::pidfd::{self, PidFd};
use crate::platform::process::{self, Identity};
use crate::platform::signals::{StopSignal, StopSignals};
use crate::platform::spawn::{self, Running};
use crate::platform::watch::Watch;
use crate::platform::{clock, host};
use crate::session::transcript::{self, Extent};
use crate::store::{self, StateDir};

/// Who is told how a run goes. Nothing depends on it.
pub trait Observer {
    /// A row came; `observed` has taken it in.
    fn row(&mut self, row: &Row, line: &[u8], observed: &Observed);
    /// Something that a person may want to know.
    fn notice(&mut self, notice: &Notice);
    /// Time went by, as often as [`Observer::every`] asks.
    fn tick(&mut self, elapsed: Duration, observed: &Observed);
    /// How often to be told that time goes by; nothing: never.
    fn every(&self) -> Option<Duration>;
}

/// Something that a person may want to know while a run goes on.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The claude is older than oo is tested with: the warning.
    OldClaude(String),
    /// claude will ask the API again.
    Retry(super::row::Retry),
    /// oo has decided to end the run.
    Stopping(StopReason),
    /// A rung of the ladder was climbed.
    Climbed(Rung),
}

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
/// Refused when claude could not be put on record: then it never ran, and nothing is left. Failed
/// when the run cannot be watched: what claude wrote stays in the folder, and `oo show` judges it.
pub async fn supervise(
    prepared: Prepared,
    surroundings: Surroundings,
    observer: &mut dyn Observer,
) -> Result<Supervised> {
    // Before the spawn: a signal in between must not leave a claude without its supervisor.
    let signals = StopSignals::listen().map_err(|e| Error::failed(format!("no signals: {e}")))?;
    let watch = Watch::new().map_err(|e| Error::failed(format!("cannot watch files: {e}")))?;
    let root = prepared.files.root();
    watch.add(root).map_err(|e| Error::io("watch", root, e))?;
    let events = Tail::open(&prepared.files.events())?;

    let gated = spawn::gated(prepared.plan()?);
    let mut run = Run {
        watchdog: Watchdog::new(prepared.spec.limits),
        inbox: Inbox::of(&surroundings.state, prepared.spec.session_id),
        prepared,
        surroundings,
        events,
        observed: Observed::default(),
        began: Instant::now(),
        record: None,
        ladder: None,
        below: Vec::new(),
        killed: false,
        first_output: None,
        heartbeat: None,
        extent: None,
        notes: Vec::new(),
    };
    let ending = match gated {
        Err(e) => Ending::NotSpawned(e.to_string()),
        Ok(gated) => {
            let pid = gated.pid();
            let ended = PidFd::open(pid).map_err(|e| Error::failed(format!("no pidfd: {e}")))?;
            if let Err(error) = run.write_down(pid) {
                // The child is let go without a word, and so leaves without having been claude.
                drop(gated);
                run.prepared.files.discard();
                return Err(error.with_kind(Kind::Refused));
            }
            match gated.release() {
                Err(e) => Ending::NotSpawned(e.to_string()),
                Ok(child) => run.watch(child, &ended, &watch, signals, observer).await?,
            }
        }
    };
    Ok(run.finish(&ending))
}

/// Everything that can happen to a run.
enum Event {
    /// A file of the run was written to.
    Written,
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
    observed: Observed,
    watchdog: Watchdog,
    began: Instant,
    record: Option<ProcessRecord>,
    ladder: Option<Ladder>,
    /// What was seen below claude while it was being ended.
    below: Vec<Identity>,
    killed: bool,
    first_output: Option<Duration>,
    heartbeat: Option<Heartbeat>,
    extent: Option<Extent>,
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
            let event = tokio::select! {
                biased;
                signal = signals.next() => Event::Signal(signal),
                gone = ended.ended() => gone.map(|()| Event::Ended).map_err(watching)?,
                changed = watch.changed() => changed.map(|_| Event::Written).map_err(watching)?,
                () = time => Event::Time,
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
            Event::Ended => {
                let status = child.try_wait().map_err(watching)?;
                self.read_rows(now, observer)?;
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
                None => self.stop(StopReason::Signal(signal.name().to_owned()), now, observer)?,
            },
            Event::Time => {
                if self.ladder.is_none()
                    && let Some(clock) = self.overdue(now)
                {
                    self.stop(StopReason::Clock(clock), now, observer)?;
                }
            }
        }
        Ok(self.climb(now, observer))
    }

    fn read_rows(&mut self, now: Duration, observer: &mut dyn Observer) -> Result<()> {
        let Self {
            events,
            observed,
            watchdog,
            ..
        } = self;
        let mut inits: Vec<Init> = Vec::new();
        let mut beats = false;
        let new = events
            .read_new(|line| {
                if let Some(row) = observed.line(line) {
                    watchdog.row(now, &row, observed);
                    observer.row(&row, line, observed);
                    match row {
                        Row::Init(init) => inits.push(*init),
                        Row::Retry(retry) => observer.notice(&Notice::Retry(retry)),
                        Row::Result(_) => beats = true,
                        _ => {}
                    }
                }
            })
            .map_err(|e| Error::io("read", &self.prepared.files.events(), e))?;
        if new == 0 {
            return Ok(());
        }
        self.watchdog.bytes(now);
        if self.first_output.is_none() {
            self.first_output = Some(now);
        }
        if beats || !inits.is_empty() {
            self.read_heartbeat();
        }
        for init in inits {
            self.check_init(&init, now, observer)?;
        }
        let refused = self
            .observed
            .retries
            .iter()
            .filter(|retry| retry.is_auth())
            .count();
        if refused >= AUTH_RETRIES && self.ladder.is_none() {
            self.stop(StopReason::Auth, now, observer)?;
        }
        Ok(())
    }

    /// The last line, when it has no line feed.
    fn read_end(&mut self, observer: &mut dyn Observer) {
        let Self {
            events, observed, ..
        } = self;
        events.finish(|line| {
            if let Some(row) = observed.line(line) {
                observer.row(&row, line, observed);
            }
        });
    }

    fn check_init(
        &mut self,
        init: &Init,
        now: Duration,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        if let Some(version) = &init.claude_code_version.0
            && let Some(warning) = super::claude_program::too_old(version)
            && !self.notes.contains(&warning)
        {
            observer.notice(&Notice::OldClaude(warning.clone()));
            self.notes.push(warning);
        }
        let servers = init.mcp_servers.0.as_deref().unwrap_or_default();
        let connected = servers
            .iter()
            .any(|server| server.name == mcp_config::SERVER && server.status == "connected");
        let wanted = self.prepared.spec.doorman == DoormanMode::Injected;
        if wanted && !connected && self.ladder.is_none() {
            self.stop(StopReason::Doorman, now, observer)?;
        }
        Ok(())
    }

    /// Keeps the newest heartbeat that shows the doorman at work: at the end it is gone.
    fn read_heartbeat(&mut self) {
        if let Ok(Some(beat)) = Heartbeat::read(&self.inbox.heartbeat())
            && beat.is_fresh()
        {
            self.heartbeat = Some(beat);
        }
    }

    /// The clock that has run out. Before the model is called silent, its transcript is asked.
    fn overdue(&mut self, now: Duration) -> Option<Clock> {
        let clock = self.watchdog.due(now)?;
        if clock == Clock::Idle
            && let Some(at) = self.transcript_growth(now)
        {
            self.watchdog.transcript_grew(at);
            return self.watchdog.due(now);
        }
        Some(clock)
    }

    /// When the transcript or a rider's was last written to, if it was since the last look.
    fn transcript_growth(&mut self, now: Duration) -> Option<Duration> {
        let spec = &self.prepared.spec;
        let config = self.surroundings.config.as_deref()?;
        let path = transcript::find(config, spec.session_id, Some(&spec.cwd))?;
        let extent = transcript::extent(&path);
        let grown = self.extent.replace(extent) != Some(extent);
        let modified = jiff::Timestamp::try_from(extent.modified?).ok()?;
        grown.then(|| now.saturating_sub(clock::age(modified)))
    }

    fn deadline(&self) -> Option<Instant> {
        let due = match &self.ladder {
            Some(ladder) => ladder.next(),
            None => self.watchdog.next().map(|(at, _)| at),
        };
        due.and_then(|at| self.began.checked_add(at))
    }

    /// Begins to end the run. The decision is on record before it is acted on.
    fn stop(
        &mut self,
        reason: StopReason,
        now: Duration,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        observer.notice(&Notice::Stopping(reason.clone()));
        self.ladder = Some(Ladder::new(now, self.prepared.spec.limits.grace));
        if let Some(record) = &mut self.record {
            let after_answer = self.observed.at_rest();
            record.stop = Some(StopRecord {
                reason,
                at: clock::now(),
                after_answer,
            });
            // A full disk must not keep a run from being ended: the result will tell as well.
            if let Err(error) = record.write(&self.prepared.files) {
                self.notes.push(error.to_string());
            }
        }
        Ok(())
    }

    fn climb(&mut self, now: Duration, observer: &mut dyn Observer) -> Option<Ending> {
        let claude = self.record.as_ref()?.claude.clone();
        let rung = self.ladder.as_mut()?.climb(now)?;
        observer.notice(&Notice::Climbed(rung));
        for process in process::descendants(claude.pid) {
            if !self.below.contains(&process) {
                self.below.push(process);
            }
        }
        match rung {
            Rung::Interrupt => pidfd::signal(&claude, pidfd::Signal::INT),
            Rung::Terminate => pidfd::signal(&claude, pidfd::Signal::TERM),
            Rung::Kill => {
                self.killed = true;
                pidfd::signal(&claude, pidfd::Signal::KILL);
                self.kill_below();
            }
            Rung::Abandon => {
                self.notes
                    .push(format!("not even SIGKILL ended claude, pid {}", claude.pid));
                return Some(Ending::Unknown);
            }
        }
        None
    }

    fn kill_below(&self) {
        for process in &self.below {
            pidfd::signal(process, pidfd::Signal::KILL);
        }
    }

    /// The result, on disk and returned. What a stopped claude left below itself is ended first.
    fn finish(mut self, ending: &Ending) -> Supervised {
        let stop = self.record.as_ref().and_then(|record| record.stop.as_ref());
        if self.killed || stop.is_some_and(|stop| !stop.after_answer) {
            self.kill_below();
        }
        let document = finish::document(&Known {
            state: &self.surroundings.state,
            files: &self.prepared.files,
            spec: &self.prepared.spec,
            record: self.record.as_ref(),
            observed: &self.observed,
            ending: Some(ending),
            heartbeat: self.heartbeat.as_ref(),
            config: self.surroundings.config.as_deref(),
            first_output: self.first_output,
            ended_at: Some(clock::now()),
            notes: std::mem::take(&mut self.notes),
        });
        let unsaved = store::replace_json(&self.prepared.files.result(), &document).err();
        Supervised { document, unsaved }
    }
}

/// At the second refusal claude is stopped: it would go on for three minutes (measured: 2.1.332).
const AUTH_RETRIES: usize = 2;

#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn watching(error: std::io::Error) -> Error {
    Error::failed(format!("cannot watch claude: {error}"))
}
