//! What claude writes, as it comes: rows are taken in, shown and acted on.

use std::time::Duration;

use super::{Notice, Observer, Run};
use crate::error::{Error, Result};
use crate::inbox::Heartbeat;
use crate::platform::clock;
use crate::run::row::{Init, Row};
use crate::run::spec::DoormanMode;
use crate::run::stop::StopReason;
use crate::run::watchdog::{Clock, Due};
use crate::run::{claude_program, mcp_config};
use crate::session::transcript;

/// How much is read before signals and clocks are asked again, in bytes: a claude that writes
/// faster than its rows can be read must not make oo deaf.
const BATCH: u64 = 256 << 10;

/// At the second refusal claude is stopped: it would go on for three minutes (measured: 2.1.332).
const AUTH_RETRIES: usize = 2;

impl Run {
    /// Takes in the next of what claude wrote, and notes whether there may be more.
    pub(super) fn read_rows(&mut self, now: Duration, observer: &mut dyn Observer) -> Result<()> {
        let said = self.read_stderr(BATCH, now, observer)?;
        let new = self.read_batch(BATCH, now, observer)?;
        self.behind = said >= BATCH || new >= BATCH;
        self.interrupt_late_turn(now);
        Ok(())
    }

    /// Takes in all that is there once claude has ended, and no more: what still writes to the
    /// file is not claude.
    pub(super) fn read_rest(&mut self, now: Duration, observer: &mut dyn Observer) -> Result<()> {
        let most = self.stderr.pending().map_err(|e| self.unreadable(e))?;
        self.read_stderr(most, now, observer)?;
        let most = self.events.pending().map_err(|e| self.unreadable(e))?;
        self.read_batch(most, now, observer).map(drop)
    }

    fn unreadable(&self, error: std::io::Error) -> Error {
        Error::io(
            "read what claude wrote to",
            self.prepared.files.root(),
            error,
        )
    }

    fn read_batch(&mut self, most: u64, now: Duration, observer: &mut dyn Observer) -> Result<u64> {
        let Self {
            events,
            observed,
            watchdog,
            ..
        } = self;
        let mut inits: Vec<Init> = Vec::new();
        let mut beats = false;
        let new = events
            .read_new(most, |line| {
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
            .map_err(|e| self.unreadable(e))?;
        if new == 0 {
            return Ok(0);
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
        if beats {
            self.log_results();
        }
        let refused = self
            .observed
            .turn_retries()
            .iter()
            .filter(|retry| retry.is_auth())
            .count();
        if refused >= AUTH_RETRIES && self.ladder.is_none() {
            self.stop(StopReason::Auth, now, observer)?;
        }
        Ok(new)
    }

    /// What claude says on stderr is shown, and a sign of life; it is no first output.
    fn read_stderr(
        &mut self,
        most: u64,
        now: Duration,
        observer: &mut dyn Observer,
    ) -> Result<u64> {
        let new = self
            .stderr
            .read_new(most, |line| said(line, observer))
            .map_err(|e| self.unreadable(e))?;
        if new > 0 {
            self.watchdog.moved(now);
        }
        Ok(new)
    }

    /// The last lines, when they have no line feed.
    pub(super) fn read_end(&mut self, observer: &mut dyn Observer) {
        let Self {
            events,
            stderr,
            observed,
            ..
        } = self;
        stderr.finish(|line| said(line, observer));
        events.finish(|line| {
            if let Some(row) = observed.line(line) {
                observer.row(&row, line, observed);
            }
        });
    }

    pub(super) fn check_init(
        &mut self,
        init: &Init,
        now: Duration,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        if let Some(version) = &init.claude_code_version.0 {
            self.check_version(version, observer);
        }
        if std::mem::replace(&mut self.servers_seen, true) {
            return Ok(());
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

    /// Warns of a claude that is older than oo is tested with, once.
    pub(super) fn check_version(&mut self, version: &str, observer: &mut dyn Observer) {
        if let Some(warning) = claude_program::too_old(version)
            && !self.notes.contains(&warning)
        {
            observer.notice(&Notice::Warning(warning.clone()));
            self.notes.push(warning);
        }
    }

    /// Says that oo carries no line to a session that is held open without a doorman. Its door
    /// takes lines from others, so it is no reason to refuse.
    pub(super) fn check_reach(&mut self, observer: &mut dyn Observer) {
        let spec = &self.prepared.spec;
        if spec.hold.is_some() && spec.doorman == DoormanMode::None {
            let warning = "the session is held open without a doorman: oo carries no line to it, \
                           only a program that writes to its door itself can start a turn"
                .to_owned();
            observer.notice(&Notice::Warning(warning.clone()));
            self.notes.push(warning);
        }
    }

    /// Keeps the newest heartbeat that shows the doorman at work: at the end it is gone.
    pub(super) fn read_heartbeat(&mut self) {
        if let Some(beat) = self.own_heartbeat().filter(Heartbeat::is_fresh) {
            self.heartbeat = Some(beat);
        }
    }

    /// In a run of some milliseconds the doorman was never seen at work: then its farewell is its
    /// last sign of life.
    pub(super) fn read_last_heartbeat(&mut self) {
        if self.heartbeat.is_none() {
            self.heartbeat = self.own_heartbeat();
        }
    }

    /// Another session's claude could hold the inbox by a doorman of its own.
    fn own_heartbeat(&self) -> Option<Heartbeat> {
        let claude = self.record.as_ref()?.claude.pid;
        let beat = Heartbeat::read(&self.inbox.heartbeat()).ok().flatten()?;
        (beat.peer_pid == Some(claude)).then_some(beat)
    }

    /// What is due. Before the model is called silent, its transcript is asked.
    pub(super) fn overdue(&mut self, now: Duration) -> Option<Due> {
        let due = self.watchdog.due(now)?;
        if due == Due::Clock(Clock::Idle)
            && let Some(at) = self.transcript_growth(now)
        {
            self.watchdog.moved(at);
            return self.watchdog.due(now);
        }
        Some(due)
    }

    /// When the transcript or a rider's was last written to, if it was since the last look.
    pub(super) fn transcript_growth(&mut self, now: Duration) -> Option<Duration> {
        let spec = &self.prepared.spec;
        let config = self.surroundings.config.as_deref()?;
        let path = transcript::find(config, spec.session_id, Some(&spec.cwd))?;
        let extent = transcript::extent(&path);
        let grown = self.extent.replace(extent) != Some(extent);
        let modified = jiff::Timestamp::try_from(extent.modified?).ok()?;
        grown.then(|| now.saturating_sub(clock::age(modified)))
    }
}

fn said(line: &[u8], observer: &mut dyn Observer) {
    if !line.trim_ascii().is_empty() {
        observer.notice(&Notice::Said(String::from_utf8_lossy(line).into_owned()));
    }
}
