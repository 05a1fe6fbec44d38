//! Ending a run: the decision on record, the ladder, the result.

use std::time::Duration;

use super::{Notice, Observer, Run, Supervised};
use crate::error::Result;
use crate::platform::{clock, pidfd, process};
use crate::run::finish::{self, Known};
use crate::run::kinship;
use crate::run::stop::{Foot, Ladder, Rung, StopReason, StopRecord};
use crate::run::verdict::Ending;
use crate::store;

impl Run {
    /// Begins to end the run. The decision is on record before it is acted on.
    pub(super) fn stop(
        &mut self,
        reason: StopReason,
        now: Duration,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        observer.notice(&Notice::Stopping(reason.clone()));
        let after_answer = self.observed.at_rest();
        let foot = if after_answer && self.stdin.is_some() {
            Foot::Rest
        } else {
            Foot::Work
        };
        self.ladder = Some(Ladder::new(now, self.prepared.spec.limits.grace, foot));
        if let Some(record) = &mut self.record {
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

    pub(super) fn climb(&mut self, now: Duration, observer: &mut dyn Observer) -> Option<Ending> {
        let claude = self.record.as_ref()?.claude.clone();
        let rung = self.ladder.as_mut()?.climb(now)?;
        observer.notice(&Notice::Climbed(rung));
        for process in process::descendants(claude.pid) {
            if !self.below.contains(&process) {
                self.below.push(process);
            }
        }
        match rung {
            Rung::Close => self.close_stdin(now),
            Rung::Interrupt => {
                self.close_stdin(now);
                pidfd::signal(&claude, pidfd::Signal::INT);
            }
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

    pub(super) fn kill_below(&self) {
        for process in &self.below {
            pidfd::signal(process, pidfd::Signal::KILL);
        }
    }

    /// The result, on disk and returned. What a stopped claude left below itself is ended first.
    pub(super) fn finish(mut self, ending: &Ending) -> Supervised {
        let stop = self.record.as_ref().and_then(|record| record.stop.as_ref());
        if self.killed || stop.is_some_and(|stop| !stop.after_answer) {
            self.kill_below();
        }
        self.read_last_heartbeat();
        self.settle_results();
        let mut document = finish::document(&Known {
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
        kinship::record_stray(&self.surroundings.state, &self.prepared.spec, &mut document);
        let unsaved = store::replace_json(&self.prepared.files.result(), &document).err();
        Supervised { document, unsaved }
    }
}
