//! Can every inbox be read, and is its place known?

use std::path::PathBuf;

use super::{Finding, Outcome, Surroundings};
use crate::inbox::{Adoption, Inbox};
use crate::store::StateDir;

const ADOPT: &str = "`oo doctor --fix` takes it over at its end: then only new lines are carried; \
                     without that its next doorman begins at its start";

pub(super) fn check(surroundings: &Surroundings<'_>) -> Outcome {
    let Ok(state) = &surroundings.state else {
        return Outcome::Skipped("there is no state folder to look in".to_owned());
    };
    let inboxes = match Inbox::all(state) {
        Ok(inboxes) => inboxes,
        Err(error) => return Outcome::Found(vec![Finding::error(&error, "see the message")]),
    };
    let mut findings = Vec::new();
    let mut waiting = 0;
    for inbox in &inboxes {
        match inbox.counts() {
            Ok(counts) => waiting += counts.pending,
            Err(error) => {
                findings.push(Finding::error(&error, "move it away").at(&inbox.lines()));
                continue;
            }
        }
        if inbox.adoptable().unwrap_or(false) {
            let message = format!("the inbox of {} has lines and no offset", inbox.session());
            findings.push(Finding::new(message, ADOPT).at(&inbox.lines()));
        }
    }
    if !findings.is_empty() {
        return Outcome::Found(findings);
    }
    let inboxes = inboxes.len();
    Outcome::Well(format!("{inboxes} inboxes; {waiting} lines wait in them"))
}

/// Takes over the inboxes whose place is not known; what was done, a sentence each.
pub(super) fn fix(state: &StateDir) -> Vec<String> {
    let adopt = |inbox: &Inbox| -> Option<String> {
        let path: PathBuf = inbox.lines();
        let shown = path.display();
        match inbox.adopt() {
            Ok(Adoption::AtEnd(offset)) => Some(format!("{shown} was taken over at byte {offset}")),
            Ok(Adoption::NotNeeded) => None,
            Ok(Adoption::HasDoorman) => Some(format!(
                "{shown} was left alone: a doorman is at work there"
            )),
            Err(error) => Some(error.to_string()),
        }
    };
    Inbox::all(state)
        .unwrap_or_default()
        .iter()
        .filter_map(adopt)
        .collect()
}
