//! What oo costs, against the same thing done without it.
//!
//! `cargo bench` runs everything; `cargo bench -- doorman` what has the word in its name. A
//! limit that does not hold makes the exit code 1.
//!
//! criterion and its kin time a function inside one process, some thousand times. What is
//! compared here are processes: their start, their end, the files that they sync, a program of
//! 290 MB that one of them starts. So this is a plain program (`harness = false`) that starts
//! both sides in turn, ours and theirs, and judges the ratio of each pair: whatever else the
//! machine does, it does to both.
//!
//! A real claude runs when a pinned build is there (`docs/testing.md`), inside a network
//! namespace with nothing but loopback, against a mock of the Messages API. Without one the
//! stand-in runs, and the output says so.
//!
//! Variables: `OO_BENCH_RUNS` (pairs, 15), `OO_BENCH_WRITE=1` (the table goes into
//! `docs/performance.md` as well).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench ends at what it did not expect"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "benches start processes, read the environment and write files on their own account"
)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the figures are for people"
)]

use std::process::ExitCode;

use support::claude_under_test::Chosen;
use support::table::Table;
use support::{delivery, doorman, long_line, memory, noop_server, resume, wall_time};

mod support;
/// What the integration tests stand on: the private world, the mock, the walls.
#[allow(
    unused_imports,
    unused_macros,
    reason = "the macros make tests, and there are none here"
)]
#[path = "../tests/support/mod.rs"]
mod world;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|word| word == noop_server::WORD)
    {
        noop_server::serve();
        return ExitCode::SUCCESS;
    }
    let chosen = match Chosen::here_or_inside(&arguments) {
        Ok(chosen) => chosen,
        Err(ended_inside) => return ended_inside,
    };
    let wanted = |name: &str| {
        let mut words = arguments.iter().filter(|word| !word.starts_with('-'));
        words.clone().next().is_none() || words.any(|word| name.contains(word.as_str()))
    };
    let mut table = Table::new(&chosen);
    for (name, measure) in COMPARISONS {
        if wanted(name) {
            measure(&chosen, &mut table);
        }
    }
    table.finish()
}

type Measure = fn(&Chosen, &mut Table);

/// Every comparison, by the name that picks it.
const COMPARISONS: [(&str, Measure); 9] = [
    ("start-bare", wall_time::without_doorman),
    ("start", wall_time::with_doorman),
    ("resume", resume::with_doorman),
    ("resume-huge", resume::of_a_gibibyte),
    ("memory", memory::of_the_supervisor),
    ("long-line", long_line::in_the_supervisor),
    ("doorman-handshake", doorman::handshake),
    ("doorman-idle", doorman::idle),
    ("doorman-delivery", delivery::latency),
];
