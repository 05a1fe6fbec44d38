//! The conversation as it happens, for a person: what the model says, and a line for each tool.

use crate::run::row::{Block, Row};

/// Turns rows into text.
#[derive(Debug, Default)]
pub struct Follow {
    failed: Vec<String>,
}

impl Follow {
    /// What a row adds to the conversation, without a line feed at its end; nothing for most rows.
    #[must_use]
    pub fn text(&mut self, row: &Row) -> Option<String> {
        match row {
            Row::Assistant(message) => {
                let indent = if message.parent.is_some() { "    " } else { "" };
                let lines: Vec<String> = message
                    .blocks
                    .iter()
                    .filter_map(|block| match block {
                        Block::Text(text) if message.error.is_some() => {
                            Some(format!("{indent}! {text}"))
                        }
                        Block::Text(text) if !text.trim().is_empty() => {
                            Some(indented(text, indent))
                        }
                        Block::ToolUse { name, brief, .. } => Some(match brief {
                            Some(brief) => format!("{indent}> {name}: {}", first_line(brief)),
                            None => format!("{indent}> {name}"),
                        }),
                        Block::Text(_) | Block::ToolResult { .. } | Block::Other => None,
                    })
                    .collect();
                (!lines.is_empty()).then(|| lines.join("\n"))
            }
            Row::User(message) => {
                let failed = message.blocks.iter().filter_map(|block| match block {
                    Block::ToolResult { id, is_error: true } if !self.failed.contains(id) => {
                        Some(id.clone())
                    }
                    _ => None,
                });
                let failed: Vec<String> = failed.collect();
                let text = (!failed.is_empty()).then(|| "  ! the tool failed".to_owned());
                self.failed.extend(failed);
                text
            }
            Row::PermissionDenied(denial) => Some(format!(
                "  ! permission denied: {}",
                denial.tool_name.as_deref().unwrap_or("a tool")
            )),
            Row::Init(_)
            | Row::Result(_)
            | Row::Retry(_)
            | Row::Task(_)
            | Row::BackgroundTasks(_)
            | Row::RateLimit { .. }
            | Row::Other { .. } => None,
        }
    }
}

fn indented(text: &str, indent: &str) -> String {
    if indent.is_empty() {
        return text.trim_end().to_owned();
    }
    let lines: Vec<String> = text
        .trim_end()
        .lines()
        .map(|line| format!("{indent}{line}"))
        .collect();
    lines.join("\n")
}

fn first_line(text: &str) -> String {
    const MOST: usize = 160;
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(MOST).collect();
    if short.len() < text.trim_end().len() {
        format!("{short} …")
    } else {
        short
    }
}
