//! One integration binary: a file a verb.
#![allow(
    clippy::disallowed_methods,
    reason = "tests start processes and write files"
)]

mod doorman;
