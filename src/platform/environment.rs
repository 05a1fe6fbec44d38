//! The process's environment, read once, as bytes.
//!
//! Nothing else reads variables: a verb gets an [`Environment`] and so can be tested with any.
//! Its `Debug` shows names only, since values may be secrets.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// Names and values, in the order of the names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    pairs: std::collections::BTreeMap<OsString, OsString>,
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the one home of this call")]
    pub fn inherited() -> Self {
        Self {
            pairs: std::env::vars_os().collect(),
        }
    }

    /// The value of a variable.
    #[must_use]
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<OsString> {
        self.pairs.get(name.as_ref()).cloned()
    }

    /// The value of a variable, if it is UTF-8.
    #[must_use]
    pub fn get_text(&self, name: impl AsRef<OsStr>) -> Option<&str> {
        self.pairs.get(name.as_ref())?.to_str()
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.pairs.insert(name.into(), value.into());
    }

    /// Removes a variable.
    pub fn remove(&mut self, name: impl AsRef<OsStr>) {
        self.pairs.remove(name.as_ref());
    }

    /// Keeps the variables for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&OsStr) -> bool) {
        self.pairs.retain(|name, _| keep(name));
    }

    /// Every variable, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.pairs
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<T: IntoIterator<Item = (OsString, OsString)>>(iter: T) -> Self {
        Self {
            pairs: iter.into_iter().collect(),
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.pairs.keys()).finish()
    }
}
