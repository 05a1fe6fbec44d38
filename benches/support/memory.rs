//! The memory of the supervisor while claude works and the model thinks.

use std::time::Duration;

use super::claude_under_test::Chosen;
use super::status::{self, Memory};
use super::table::{Gauge, Table};
use crate::world::claude::MODEL;
use crate::world::process::Running;

/// Long enough for claude's own start to be over.
const THINKS: Duration = Duration::from_secs(3);

/// How often the kernel is asked. The peak is the kernel's own, so only what is new in the last
/// moment can be missed, and the last thing that a supervisor does is to sync its result.
const EVERY: Duration = Duration::from_millis(1);

/// Against the limit of the design.
pub(crate) fn of_the_supervisor(chosen: &Chosen, table: &mut Table) {
    let env = chosen.world(THINKS);
    let running = env.oo(["start", "think", "--model", MODEL]).spawn();
    let Watched { peak, steady, .. } = watch(running);
    table.gauge(&Gauge {
        name: "the supervisor's memory in a run, its peak",
        value: peak,
        limit: 10.0,
        unit: "MiB",
    });
    table.gauge(&Gauge {
        name: "the supervisor's memory in a run, the median",
        value: steady,
        limit: 10.0,
        unit: "MiB",
    });
}

/// What was seen of a process to its end; memory in MiB.
pub(crate) struct Watched {
    pub(crate) peak: f64,
    pub(crate) steady: f64,
    pub(crate) stdout: String,
}

/// Watches a process to its end, which has to be a success.
pub(crate) fn watch(mut running: Running) -> Watched {
    let mut seen: Vec<Memory> = Vec::new();
    while !running.has_ended() {
        seen.extend(status::memory(running.pid()));
        std::thread::sleep(EVERY);
    }
    let finished = running.wait(Duration::from_secs(1));
    finished.expect_code(0);
    let mut now: Vec<f64> = seen.iter().map(|memory| memory.now).collect();
    now.sort_by(f64::total_cmp);
    Watched {
        peak: seen.iter().map(|memory| memory.peak).fold(0.0, f64::max),
        steady: now[now.len() / 2],
        stdout: finished.stdout,
    }
}
