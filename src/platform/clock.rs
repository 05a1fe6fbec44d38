//! The wall clock, for records. Deadlines use tokio's monotonic clock instead.

use std::time::Duration;

use jiff::Timestamp;

/// Now, to the millisecond: what records hold.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one home of this call")]
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// How long ago `then` was; zero when it lies ahead.
#[must_use]
pub fn age(then: Timestamp) -> Duration {
    Duration::try_from(now().duration_since(then)).unwrap_or_default()
}

/// How far ahead `then` lies; zero when it is past.
#[must_use]
pub fn ahead(then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now())).unwrap_or_default()
}
