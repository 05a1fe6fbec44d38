//! The live line: what a run is doing, on a terminal's last line.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::clean;
use super::say::stderr_is_terminal;

/// How often the line is drawn anew.
const EVERY: Duration = Duration::from_millis(250);

/// The line on stderr.
#[derive(Debug)]
pub struct Live {
    bar: ProgressBar,
}

/// What the line shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Since the spawn.
    pub elapsed: Duration,
    /// Turns of the model.
    pub turns: usize,
    /// Whether a held session waits for lines.
    pub idle: bool,
    /// The tool at work, with what it is about.
    pub tool: Option<String>,
    /// Sub-agents that live.
    pub riders: usize,
    /// Background tasks that live.
    pub tasks: usize,
    /// In dollars.
    pub cost_usd: Option<f64>,
}

impl Live {
    /// A line, if stderr is a terminal.
    #[must_use]
    pub fn on_terminal() -> Option<Self> {
        if !stderr_is_terminal() {
            return None;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template("{spinner} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        Some(Self { bar })
    }

    /// How often [`Live::show`] wants to be called.
    #[must_use]
    pub const fn every() -> Duration {
        EVERY
    }

    /// Draws it.
    pub fn show(&self, progress: &Progress) {
        self.bar.set_message(progress.line());
        self.bar.tick();
    }

    /// Says something above it.
    pub fn above(&self, speak: impl FnOnce()) {
        self.bar.suspend(speak);
    }

    /// Takes it away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress {
    /// The line, without its spinner: `1m 3s · 4 turns · Bash: cargo test · 2 riders · $0.0421`.
    #[must_use]
    pub fn line(&self) -> String {
        let elapsed = Duration::from_secs(self.elapsed.as_secs());
        let mut parts = vec![humantime::format_duration(elapsed).to_string()];
        if self.turns > 0 {
            parts.push(count(self.turns, "turn"));
        }
        if self.idle {
            parts.push("idle, waiting for lines".to_owned());
        }
        if let Some(tool) = &self.tool {
            let line = tool.split_whitespace().collect::<Vec<_>>().join(" ");
            parts.push(clean(&line).chars().take(60).collect());
        }
        if self.riders > 0 {
            parts.push(count(self.riders, "rider"));
        }
        if self.tasks > 0 {
            parts.push(count(self.tasks, "background task"));
        }
        if let Some(cost) = self.cost_usd {
            parts.push(format!("${cost:.4}"));
        }
        parts.join(" · ")
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_what_there_is() {
        let mut progress = Progress {
            elapsed: Duration::from_millis(63_400),
            ..Progress::default()
        };
        assert_eq!(progress.line(), "1m 3s");
        progress.turns = 1;
        progress.riders = 2;
        progress.tool = Some("Bash: cargo\n test \x1b[2J".to_owned());
        progress.cost_usd = Some(0.042_14);
        assert_eq!(
            progress.line(),
            "1m 3s · 1 turn · Bash: cargo test [2J · 2 riders · $0.0421"
        );
        let idle = Progress {
            turns: 2,
            idle: true,
            ..Progress::default()
        };
        assert_eq!(idle.line(), "0s · 2 turns · idle, waiting for lines");
    }
}
