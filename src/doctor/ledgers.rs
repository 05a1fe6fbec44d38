//! Do the lines of the ledgers parse?

use serde_json::{Map, Value};

use super::{Finding, Outcome, Surroundings};
use crate::session::lineage::Link;
use crate::store::{Ledger, LedgerLines};

pub(super) fn check(surroundings: &Surroundings<'_>) -> Outcome {
    let Ok(state) = &surroundings.state else {
        return Outcome::Skipped("it is not known where the state folder is".to_owned());
    };
    let lineage = Ledger::at(state.lineage());
    let receipts = Ledger::at(state.receipts());
    let mut findings = Vec::new();
    let links = look(&lineage, lineage.read::<Link>(), &mut findings);
    let records = look(
        &receipts,
        receipts.read::<Map<String, Value>>(),
        &mut findings,
    );
    Outcome::of(findings, || {
        format!("{links} links of lineage and {records} receipts, all of them whole")
    })
}

/// How many lines are good; the others become findings.
fn look<T>(
    ledger: &Ledger,
    read: crate::error::Result<LedgerLines<T>>,
    findings: &mut Vec<Finding>,
) -> usize {
    let path = ledger.path();
    let shown = path.display();
    let lines = match read {
        Ok(lines) => lines,
        Err(error) => {
            findings.push(Finding::error(&error, "make it a file that you can read").at(path));
            return 0;
        }
    };
    if !lines.bad.is_empty() {
        const NAMED: usize = 5;
        let first: Vec<String> = lines.bad.iter().take(NAMED).map(usize::to_string).collect();
        let more = lines.bad.len().saturating_sub(NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        findings.push(
            Finding::new(
                format!(
                    "{shown} has lines that are no records: {}{more}",
                    first.join(", ")
                ),
                "they are passed by; look at them, and delete them once you know whose they are",
            )
            .at(path),
        );
    }
    if lines.torn {
        findings.push(
            Finding::new(
                format!("the last line of {shown} was cut short: its writer died"),
                "that record is lost; the next one begins on a line of its own",
            )
            .at(path),
        );
    }
    lines.lines.len()
}
