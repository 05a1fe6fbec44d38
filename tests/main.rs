//! The one integration binary: every test of oo that starts a process.
//!
//! One binary because linking is what takes the time, and because the real-claude lane starts
//! this binary again inside a network namespace. `docs/testing.md` tells how to add a test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests start processes, read the environment and write files on their own account"
)]
#![allow(
    clippy::print_stderr,
    reason = "a failing test prints everything it knows"
)]

mod support;

mod docs;
mod doctor;
mod doorman;
mod doorman_by_hand;
mod fake_claude;
mod hostile;

mod lane_claude;
mod lane_ends;
mod lane_errors;
mod lane_process;
mod lane_shape;
mod lane_support;
mod resume;
mod resume_held;
mod resume_lines;
mod resume_race;
mod resume_refused;
mod runs;
mod send;
mod send_full_disk;
mod send_targets;
mod send_throttle;
mod send_waits;
mod send_writes;
mod show;
mod start;
mod start_clocks;
mod start_descriptors;
mod start_full_disk;
mod start_hold;
mod start_hold_ends;
mod start_refused;
mod start_reports;
mod steer;
mod steer_doors;
mod steer_storms;
mod verbs_misc;
