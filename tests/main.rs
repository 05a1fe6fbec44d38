//! One integration binary: a file a verb.

mod doorman;
