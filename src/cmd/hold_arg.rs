//! The option that keeps a session open after its turn.

use std::time::Duration;

use crate::run::watchdog::Hold;

/// The option.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct HoldArg {
    /// Keep the session open after its turn: each line that reaches it starts another. With a time,
    /// as in `--hold=10m`, close it when it was idle for so long; 0s: as soon as it is idle
    #[arg(long, value_name = "IDLE", num_args = 0..=1, require_equals = true,
          value_parser = humantime::parse_duration, help_heading = "Clocks")]
    #[allow(
        clippy::option_option,
        reason = "not given, given alone, given with a value"
    )]
    hold: Option<Option<Duration>>,
}

impl HoldArg {
    /// How the session is held, if it is.
    #[must_use]
    pub fn hold(self) -> Option<Hold> {
        self.hold.map(|idle| Hold { idle })
    }
}
