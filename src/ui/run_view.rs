//! How a run looks while it goes on: rows or a conversation on stdout, notices and a live line on
//! stderr.

use std::time::Duration;

use super::follow::Follow;
use super::live::{Live, Progress};
use super::say::Console;
use crate::error::{Error, Result};
use crate::run::observed::Observed;
use crate::run::row::{Retry, Row};
use crate::run::stop::{Rung, StopReason};
use crate::run::supervise::{Notice, Observer};

/// The view.
#[derive(Debug)]
pub struct RunView {
    console: Console,
    shown: Shown,
    live: Option<Live>,
    /// Whether the session is held open between turns.
    held: bool,
    /// What stdout failed with: then nothing more is written to it, and the run goes on.
    broken: Option<Error>,
}

#[derive(Debug)]
enum Shown {
    Nothing,
    Conversation(Follow),
    Rows,
}

impl RunView {
    /// A view for these options.
    #[must_use]
    pub fn new(console: Console, follow: bool, json: bool) -> Self {
        let shown = match (follow, json) {
            (false, _) => Shown::Nothing,
            (true, false) => Shown::Conversation(Follow::default()),
            (true, true) => Shown::Rows,
        };
        let live = if console.quiet {
            None
        } else {
            Live::on_terminal()
        };
        Self {
            console,
            shown,
            live,
            held: false,
            broken: None,
        }
    }

    /// The same view, of a session that is held open between turns.
    #[must_use]
    pub const fn held(mut self, held: bool) -> Self {
        self.held = held;
        self
    }

    /// Takes the live line away.
    ///
    /// # Errors
    /// When stdout did not take all that it was given.
    pub fn end(self) -> Result<()> {
        if let Some(live) = &self.live {
            live.end();
        }
        self.broken.map_or(Ok(()), Err)
    }

    fn above(&self, speak: impl FnOnce()) {
        match &self.live {
            Some(live) => live.above(speak),
            None => speak(),
        }
    }
}

impl Observer for RunView {
    fn row(&mut self, row: &Row, line: &[u8], _observed: &Observed) {
        if self.broken.is_some() {
            return;
        }
        let console = self.console;
        let mut written = Ok(());
        match &mut self.shown {
            Shown::Nothing => return,
            Shown::Rows => {
                self.above(|| written = console.line(line));
            }
            Shown::Conversation(follow) => {
                if let Some(text) = follow.text(row) {
                    self.above(|| written = console.answer(&text));
                }
            }
        }
        self.broken = written.err();
    }

    fn notice(&mut self, notice: &Notice) {
        let text = match notice {
            Notice::Warning(warning) => warning.clone(),
            Notice::Retry(retry) => retrying(retry),
            Notice::Said(line) => format!("claude: {line}"),
            Notice::Closing(idle) => format!(
                "closing the session: it was idle for {} (--hold)",
                humantime::format_duration(*idle)
            ),
            Notice::Stopping(reason) => format!("ending the run: {}", why(reason)),
            Notice::Climbed(rung) => match rung {
                // Said already, with the reason.
                Rung::Close | Rung::Interrupt => return,
                Rung::Terminate => "still there: SIGTERM".to_owned(),
                Rung::Kill => "still there: SIGKILL to all of it".to_owned(),
                Rung::Abandon => "claude cannot be ended".to_owned(),
            },
        };
        let console = self.console;
        self.above(|| console.note(&text));
    }

    fn tick(&mut self, elapsed: Duration, observed: &Observed) {
        if let Some(live) = &self.live {
            let tool = observed
                .tools
                .values()
                .next_back()
                .map(|call| match &call.brief {
                    Some(brief) => format!("{}: {brief}", call.name),
                    None => call.name.clone(),
                });
            live.show(&Progress {
                elapsed,
                idle: self.held && observed.at_rest(),
                turns: observed.turns(),
                tool,
                riders: observed.riders(),
                tasks: observed.live_tasks(),
                cost_usd: observed.total_cost_usd(),
            });
        }
    }

    fn every(&self) -> Option<Duration> {
        self.live.as_ref().map(|_| Live::every())
    }
}

fn retrying(retry: &Retry) -> String {
    let status = retry
        .error_status
        .map_or_else(|| "no answer".to_owned(), |s| format!("HTTP {s}"));
    let word = retry.error.as_deref().unwrap_or("unknown");
    let seconds = retry.retry_delay_ms.unwrap_or_default() / 1000.0;
    format!(
        "the API failed ({status}, {word}); claude asks again in {seconds:.1} s (attempt {} of {})",
        retry.attempt.unwrap_or_default(),
        retry.max_retries.unwrap_or_default(),
    )
}

fn why(reason: &StopReason) -> String {
    match reason {
        StopReason::Clock(clock) => format!("{} ({})", clock.what(), clock.option()),
        StopReason::Signal(name) => format!("oo got {name}; once more to kill it"),
        StopReason::Auth => "the API refuses the credentials".to_owned(),
        StopReason::Doorman => "the doorman is not connected".to_owned(),
    }
}
