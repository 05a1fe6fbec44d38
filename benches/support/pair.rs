//! Two sides of a comparison, run in turn.
//!
//! Each round runs both, and every other round in the other order, so that what one side leaves
//! warm helps the other as often. The ratio is taken in each round; its median is judged. So load
//! that comes and goes is in both figures of a round, and a single disturbed round decides nothing.

use std::time::Duration;

/// The rounds that are not counted: caches, first-run files.
const WARM_UP: usize = 2;

/// The rounds that are counted, unless `OO_BENCH_RUNS` says otherwise.
const ROUNDS: usize = 15;

/// One side: runs it once and tells how long it took.
pub(crate) type Side<'a> = &'a mut dyn FnMut() -> Duration;

/// A comparison.
pub(crate) struct Pair<'a> {
    pub(crate) name: &'static str,
    pub(crate) against: &'static str,
    pub(crate) ours: Side<'a>,
    pub(crate) theirs: Side<'a>,
    /// The greatest median of the ratios that is good enough.
    pub(crate) limit: f64,
}

/// What came of a comparison.
pub(crate) struct Compared {
    pub(crate) ours: Duration,
    pub(crate) theirs: Duration,
    /// Median, least and greatest.
    pub(crate) ratio: (f64, f64, f64),
    /// By how much ours is longer, in the median of the rounds; in milliseconds.
    pub(crate) difference_ms: f64,
    /// Fastest and lower quartile of each side, in milliseconds. Load only ever adds, so they tell
    /// more of the programs and less of the machine; they are shown and not judged.
    pub(crate) undisturbed: [(f64, f64); 2],
    pub(crate) rounds: usize,
}

impl Pair<'_> {
    pub(crate) fn run(&mut self) -> Compared {
        let rounds = std::env::var("OO_BENCH_RUNS").map_or(ROUNDS, |text| {
            text.parse().expect("OO_BENCH_RUNS is a number")
        });
        let mut pairs = Vec::with_capacity(rounds);
        for round in 0..WARM_UP + rounds {
            let (ours, theirs) = if round % 2 == 0 {
                let ours = (self.ours)();
                (ours, (self.theirs)())
            } else {
                let theirs = (self.theirs)();
                ((self.ours)(), theirs)
            };
            if round >= WARM_UP {
                pairs.push((ours, theirs));
            }
        }
        let ratios = pairs
            .iter()
            .map(|(ours, theirs)| ours.as_secs_f64() / theirs.as_secs_f64());
        let differences = pairs
            .iter()
            .map(|(ours, theirs)| (ours.as_secs_f64() - theirs.as_secs_f64()) * 1e3);
        Compared {
            ours: median(pairs.iter().map(|pair| pair.0)),
            theirs: median(pairs.iter().map(|pair| pair.1)),
            ratio: spread(ratios.collect()),
            difference_ms: spread(differences.collect()).0,
            undisturbed: [
                lower(pairs.iter().map(|pair| pair.0)),
                lower(pairs.iter().map(|pair| pair.1)),
            ],
            rounds,
        }
    }
}

/// The fastest and the lower quartile, in milliseconds.
fn lower(durations: impl Iterator<Item = Duration>) -> (f64, f64) {
    let mut values: Vec<f64> = durations.map(|d| d.as_secs_f64() * 1e3).collect();
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 4])
}

fn median(durations: impl Iterator<Item = Duration>) -> Duration {
    let seconds = durations.map(|duration| duration.as_secs_f64());
    Duration::from_secs_f64(spread(seconds.collect()).0)
}

/// Median, least and greatest.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    };
    (median, values[0], values[values.len() - 1])
}
