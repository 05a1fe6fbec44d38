//! Every verb with its exit codes: the manual and `docs/exit-codes.md` are made from this.

use super::{Class, DELIVERY_FAILED, NOT_DELIVERABLE, USAGE, Verb};

/// A verb and what its exit codes mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbCodes {
    /// The verb as it is typed, or `any`.
    pub verb: &'static str,
    /// Each code with its meaning, in the order of the codes.
    pub codes: Vec<(u8, &'static str)>,
}

/// What cannot be read is treated as what is not there.
const NOT_READABLE: (u8, &str) = (
    Class::Refused.exit_code(),
    "not found, named by too little, or not readable",
);

/// The table. The verbs that have classes come with them.
#[must_use]
pub fn all() -> Vec<VerbCodes> {
    let row = |verb, codes: &[(u8, &'static str)]| VerbCodes {
        verb,
        codes: codes.to_vec(),
    };
    vec![
        classed(Verb::Start),
        classed(Verb::Resume),
        classed(Verb::Send),
        row(
            "runs",
            &[(0, "listed, the broken ones named"), NOT_READABLE],
        ),
        row(
            "show",
            &[(0, "shown, whatever became of the run"), NOT_READABLE],
        ),
        row("doctor", &[(0, "no findings"), (1, "findings")]),
        row("version", &[(0, "told, even when there is no claude")]),
        row("completions", &[(0, "printed")]),
        row("man", &[(0, "printed")]),
        row(
            "doorman",
            &[
                (0, "served until its input closed; nothing waits"),
                (USAGE, "with neither --mcp nor --allow-foreground"),
                (NOT_DELIVERABLE, "nothing can be delivered from here"),
                (DELIVERY_FAILED, "delivery failed, the lines wait"),
            ],
        ),
        row(
            "any",
            &[
                (USAGE, "the command line makes no sense"),
                (
                    Class::Failed.exit_code(),
                    "the answer could not be written to stdout",
                ),
            ],
        ),
    ]
}

fn classed(verb: Verb) -> VerbCodes {
    VerbCodes {
        verb: verb.name(),
        codes: verb.codes(),
    }
}
