//! Times and durations for people.

use std::time::Duration;

use jiff::Timestamp;

/// How long ago something was: `just now`, `5 min ago`, `3 h ago`, `2 days ago`, then the date.
#[must_use]
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs();
    match seconds {
        // A clock that was set back is not worth a word.
        i64::MIN..10 => "just now".to_owned(),
        10..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        86_400..172_800 => "yesterday".to_owned(),
        172_800..1_209_600 => format!("{} days ago", seconds / 86_400),
        _ => date(then),
    }
}

/// The day, in UTC: `2026-11-30`.
fn date(then: Timestamp) -> String {
    then.to_string().chars().take_while(|c| *c != 'T').collect()
}

/// A duration in at most two units: `0.4 s`, `42 s`, `1m 3s`, `2h 5m`.
#[must_use]
pub fn took(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Dollars: two digits from a dollar on, four below, where the cents are what there is.
#[must_use]
pub fn dollars(amount: f64) -> String {
    if amount.abs() >= 1.0 {
        format!("${amount:.2}")
    } else {
        format!("${amount:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_ago() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        for (then, text) in [
            ("2026-11-30T12:00:05Z", "just now"),
            ("2026-11-30T11:59:51Z", "just now"),
            ("2026-11-30T11:59:15Z", "45 s ago"),
            ("2026-11-30T11:59:00Z", "1 min ago"),
            ("2026-11-30T11:00:01Z", "59 min ago"),
            ("2026-11-29T13:00:00Z", "23 h ago"),
            ("2026-11-29T11:00:00Z", "yesterday"),
            ("2026-11-27T11:00:00Z", "3 days ago"),
            ("2026-10-01T11:00:00Z", "2026-10-01"),
        ] {
            assert_eq!(ago(then.parse().unwrap(), now), text);
        }
    }

    #[test]
    fn how_long() {
        for (millis, text) in [
            (0, "0.0 s"),
            (430, "0.4 s"),
            (42_000, "42 s"),
            (63_900, "1m 3s"),
            (7_500_000, "2h 5m"),
            (180_000_000, "2d 2h"),
        ] {
            assert_eq!(took(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn how_much() {
        assert_eq!(dollars(0.000_125), "$0.0001");
        assert_eq!(dollars(12.345), "$12.35");
    }
}
