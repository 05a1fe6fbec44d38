//! JSON objects that keep the order of their fields.
//!
//! The real program's rows have a fixed field order that is not alphabetical (a result row does
//! not begin with `type`), and readers have come to grief over it. A [`Row`] writes its fields
//! in the order they were put, and nests as a value.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// One JSON object under construction.
#[derive(Clone, Default)]
pub(crate) struct Row(String);

impl Row {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A row whose fields are given as the text between the braces.
    pub(crate) fn from_fields(fields: &str) -> Self {
        Self(fields.to_owned())
    }

    /// The row without one of its fields.
    pub(crate) fn without(&self, key: &str) -> Self {
        let fields: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(&self.line()).unwrap_or_default();
        let Some(value) = fields.get(key) else {
            return self.clone();
        };
        let field = format!("\"{key}\":{}", value.get());
        let rest = self.0.replacen(&format!("{field},"), "", 1);
        Self(rest.replacen(&format!(",{field}"), "", 1))
    }

    /// Appends one field.
    pub(crate) fn put<T: Serialize + ?Sized>(mut self, key: &str, value: &T) -> Self {
        let value = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        if !self.0.is_empty() {
            self.0.push(',');
        }
        let _ = write!(self.0, "\"{key}\":{value}");
        self
    }

    /// Appends a field when `wanted`.
    pub(crate) fn put_if<T: Serialize + ?Sized>(self, wanted: bool, key: &str, value: &T) -> Self {
        if wanted { self.put(key, value) } else { self }
    }

    /// Appends a field when there is a value.
    pub(crate) fn put_some<T: Serialize>(self, key: &str, value: Option<&T>) -> Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    /// Appends all fields of another row.
    pub(crate) fn join(mut self, other: &Row) -> Self {
        if !self.0.is_empty() && !other.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(&other.0);
        self
    }

    /// The object as one line of JSON, without a line feed.
    pub(crate) fn line(&self) -> String {
        format!("{{{}}}", self.0)
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.line())
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

/// Any JSON value, kept as its text.
#[derive(Clone)]
pub(crate) struct Raw(String);

impl Raw {
    pub(crate) fn new<T: Serialize + ?Sized>(value: &T) -> Self {
        Self(serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned()))
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.0.clone())
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

/// A number as JavaScript writes it: `0`, not `0.0`.
pub(crate) struct Number(pub(crate) f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 == 0.0 {
            serializer.serialize_u64(0)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

/// `row! { "type": "system", "attempt": 1 }`
macro_rules! row {
    ($($key:literal : $value:expr),* $(,)?) => {
        $crate::row::Row::new()$(.put($key, &$value))*
    };
}
pub(crate) use row;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_nest() {
        let inner = row! { "b": 1, "a": () };
        let line = row! { "z": "x\n", "inner": inner, "n": Number(0.0), "c": Number(0.000125) }
            .put_if(false, "no", &1)
            .put_some("some", Some(&[1, 2]))
            .line();
        assert_eq!(
            line,
            r#"{"z":"x\n","inner":{"b":1,"a":null},"n":0,"c":0.000125,"some":[1,2]}"#
        );
    }
}
