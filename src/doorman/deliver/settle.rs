//! The last word on lines whose doorman could not have it.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Delivery, Reach};
use crate::inbox::Inbox;
use crate::store::Lock;

/// How long it may take. What is not found by then waits, and is looked for again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks in the transcript for lines that were offered and never seen to arrive, now that the
/// session's claude has ended: those that are there have arrived, the others are queued again.
/// `config` is claude's configuration folder. While a doorman is at work, nothing is done.
pub fn settle(inbox: &Inbox, config: Option<&Path>) {
    let Ok(_lock) = Lock::try_take(&inbox.doorman_lock()) else {
        return;
    };
    let mut delivery = Delivery::new(inbox.clone(), Reach::nobody(config));
    let end = Instant::now() + PATIENCE;
    while delivery.wake(Instant::now()) && Instant::now() < end {}
    delivery.leave("the session ended before the line was seen");
}
