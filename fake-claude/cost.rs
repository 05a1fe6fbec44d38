//! What the answers cost: a running total per model, carried over from the session's past.
//!
//! Invariants: the total never falls; what was spent since the last result row is counted once.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::row::{Number, Row, row};
use crate::script::Usage;

/// Dollars per million tokens, input and output.
fn price(model: &str) -> (f64, f64) {
    if model.contains("opus") {
        (5.0, 25.0)
    } else if model.contains("sonnet") {
        (3.0, 15.0)
    } else {
        (1.0, 5.0)
    }
}

/// The dollars of one answer.
pub(crate) fn dollars(model: &str, usage: &Usage) -> f64 {
    let (input, output) = price(model);
    let tokens = |n: u64| n as f64 / 1e6;
    tokens(usage.input_tokens) * input
        + tokens(usage.output_tokens) * output
        + tokens(usage.cache_read_input_tokens) * input * 0.1
        + tokens(usage.cache_creation_input_tokens) * input * 1.25
}

/// Tokens and dollars of one model.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spent {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_creation: u64,
    dollars: f64,
}

impl Spent {
    fn add(&mut self, usage: &Usage, dollars: f64) {
        self.input += usage.input_tokens;
        self.output += usage.output_tokens;
        self.cache_read += usage.cache_read_input_tokens;
        self.cache_creation += usage.cache_creation_input_tokens;
        // Sums of decimal fractions drift in the 17th digit; the captured totals do not show it.
        self.dollars = tidy(self.dollars + dollars);
    }
}

fn tidy(dollars: f64) -> f64 {
    (dollars * 1e12).round() / 1e12
}

/// The running totals of a session.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    total: f64,
    models: BTreeMap<String, Spent>,
    since: BTreeMap<String, Spent>,
    pub(crate) api_ms: u64,
    pub(crate) api_ms_without_retries: u64,
    pub(crate) tool_ms: u64,
    pub(crate) earlier_ms: u64,
    pub(crate) start_ms: u64,
}

impl Ledger {
    /// Takes over what the session cost before, from its last `cost-state` row.
    pub(crate) fn carry(&mut self, row: &Value) {
        let n = |v: &Value, k: &str| v.get(k).and_then(Value::as_u64).unwrap_or(0);
        self.total = row
            .get("totalCostUSD")
            .and_then(Value::as_f64)
            .unwrap_or(0.0);
        self.api_ms = n(row, "totalAPIDuration");
        self.api_ms_without_retries = n(row, "totalAPIDurationWithoutRetries");
        self.tool_ms = n(row, "totalToolDuration");
        self.earlier_ms = n(row, "totalDuration");
        if let Some(start) = row.get("startTime").and_then(Value::as_u64) {
            self.start_ms = start;
        }
        let models = row.get("modelUsage").and_then(Value::as_object);
        for (model, m) in models.into_iter().flatten() {
            self.models.insert(
                model.clone(),
                Spent {
                    input: n(m, "inputTokens"),
                    output: n(m, "outputTokens"),
                    cache_read: n(m, "cacheReadInputTokens"),
                    cache_creation: n(m, "cacheCreationInputTokens"),
                    dollars: m.get("costUSD").and_then(Value::as_f64).unwrap_or(0.0),
                },
            );
        }
    }

    /// Books one answer.
    pub(crate) fn book(&mut self, model: &str, usage: &Usage, took_ms: u64, without_retries: u64) {
        let dollars = dollars(model, usage);
        self.total = tidy(self.total + dollars);
        self.models
            .entry(model.to_owned())
            .or_default()
            .add(usage, dollars);
        self.since
            .entry(model.to_owned())
            .or_default()
            .add(usage, dollars);
        self.api_ms += took_ms;
        self.api_ms_without_retries += without_retries;
    }

    pub(crate) fn total(&self) -> f64 {
        self.total
    }

    /// `modelUsage` of a result row.
    pub(crate) fn model_usage(&self, newer: bool) -> Row {
        usage_rows(&self.models, newer)
    }

    /// `model_usage_since_last_result`; the next row starts from nothing.
    pub(crate) fn take_since(&mut self, newer: bool) -> Row {
        usage_rows(&std::mem::take(&mut self.since), newer)
    }

    /// The `cost-state` row of the transcript.
    pub(crate) fn state_row(&self, session: &str, lived_ms: u64, newer: bool) -> Row {
        let mut models = Row::new();
        for (model, s) in &self.models {
            let fields = row! {
                "inputTokens": s.input,
                "outputTokens": s.output,
                "thinkingTokens": 0,
                "cacheReadInputTokens": s.cache_read,
                "cacheCreationInputTokens": s.cache_creation,
            }
            .put_if(
                newer,
                "cacheCreationEphemeral5mInputTokens",
                &s.cache_creation,
            )
            .put_if(newer, "cacheCreationEphemeral1hInputTokens", &0)
            .put("webSearchRequests", &0)
            .put("costUSD", &Number(s.dollars));
            models = models.put(model, &fields);
        }
        row! {
            "type": "cost-state",
            "sessionId": session,
            "totalCostUSD": Number(self.total),
            "totalAPIDuration": self.api_ms,
            "totalAPIDurationWithoutRetries": self.api_ms_without_retries,
            "totalToolDuration": self.tool_ms,
            "totalLinesAdded": 0,
            "totalLinesRemoved": 0,
            "totalDuration": self.earlier_ms + lived_ms,
            "startTime": self.start_ms,
            "modelUsage": models,
            "hasUnknownModelCost": false,
        }
    }
}

fn usage_rows(models: &BTreeMap<String, Spent>, newer: bool) -> Row {
    let mut rows = Row::new();
    for (model, s) in models {
        let fields = row! {
            "inputTokens": s.input,
            "outputTokens": s.output,
            "cacheReadInputTokens": s.cache_read,
            "cacheCreationInputTokens": s.cache_creation,
            "webSearchRequests": 0,
            "costUSD": Number(s.dollars),
            "contextWindow": 200_000,
            "maxOutputTokens": 32_000,
            "thinkingTokens": 0,
        }
        .put_if(
            newer,
            "cacheCreationEphemeral5mInputTokens",
            &s.cache_creation,
        )
        .put_if(newer, "cacheCreationEphemeral1hInputTokens", &0)
        .put("canonicalModel", model)
        .put("provider", "firstParty")
        .put("costBasis", "list");
        rows = rows.put(model, &fields);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_equal_runs_cost_what_was_captured() {
        let mut ledger = Ledger::default();
        let mut seen = Vec::new();
        for _ in 0..4 {
            ledger.book("claude-haiku-4-5", &Usage::default(), 1, 1);
            seen.push(ledger.total());
        }
        assert_eq!(seen, [0.000_125, 0.000_25, 0.000_375, 0.000_5]);
        let state: Value = serde_json::from_str(&ledger.state_row("s", 1, true).line()).unwrap();
        let mut next = Ledger::default();
        next.carry(&state);
        assert_eq!(next.total(), 0.000_5);
        next.book("claude-haiku-4-5", &Usage::default(), 1, 1);
        assert_eq!(next.total(), 0.000_625);
        let since = next.take_since(true).line();
        assert!(since.contains(r#""costUSD":0.000125"#), "{since}");
        assert_eq!(next.take_since(true).line(), "{}");
    }
}
