//! Identifiers and times in the forms the real program gives them.

use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

pub(crate) fn uuid() -> String {
    Uuid::new_v4().to_string()
}

/// `n` hexadecimal digits, at most 32.
pub(crate) fn hex(n: usize) -> String {
    Uuid::new_v4().simple().to_string()[..n].to_owned()
}

/// `n` digits of base 36, at most 16.
pub(crate) fn base36(n: usize) -> String {
    const DIGITS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let bytes = Uuid::new_v4().into_bytes();
    bytes
        .iter()
        .cycle()
        .take(n)
        .map(|b| char::from(DIGITS[usize::from(*b) % 36]))
        .collect()
}

/// A number in `0.0..1.0`.
pub(crate) fn random() -> f64 {
    let bytes = Uuid::new_v4().into_bytes();
    f64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / f64::from(u32::MAX)
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since `start`.
pub(crate) fn since(start: std::time::Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// `2026-11-30T21:00:04.100Z`
pub(crate) fn timestamp() -> String {
    stamp(now_ms())
}

pub(crate) fn stamp(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms)
        .map(|t| t.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())
        .unwrap_or_default()
}

/// A path as a folder name: every character outside `[A-Za-z0-9]` becomes a dash.
pub(crate) fn encode(path: &str) -> String {
    path.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect()
}

/// The run id of a background task.
pub(crate) fn run_id() -> String {
    format!("0{}-{}", base36(8), hex(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_paths_have_the_captured_forms() {
        assert_eq!(stamp(1_796_072_404_100), "2026-11-30T21:00:04.100Z");
        assert_eq!(encode("/srv/a_b/2.1"), "-srv-a-b-2-1");
        assert_eq!(hex(16).len(), 16);
        assert!((0.0..=1.0).contains(&random()));
    }
}
