//! Who looks on while a run is supervised.

use std::time::Duration;

use crate::run::observed::Observed;
use crate::run::row::{Retry, Row};
use crate::run::stop::{Rung, StopReason};

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
    /// Something is not as it should be, or not as somebody may think.
    Warning(String),
    /// claude will ask the API again.
    Retry(Retry),
    /// A held session was idle for this long, and is closed.
    Closing(Duration),
    /// oo has decided to end the run.
    Stopping(StopReason),
    /// claude wrote a line to stderr.
    Said(String),
    /// A rung of the ladder was climbed.
    Climbed(Rung),
}
