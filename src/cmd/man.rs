//! `oo man`: the manual page.
//!
//! One page holds all: `oo` first, then a section for each verb, then exit codes, environment and
//! files. A page is what `man` can search; a page for each verb would have to be installed.

use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::Context;
use super::asking::{self, Format};
use crate::error::{Error, Result};
use crate::exit::table;

/// Print the manual page of oo and all its verbs.
///
/// Try `oo man | man -l -`. The text is the answer; --json wraps it in a document.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {
    /// How to print.
    #[command(flatten)]
    pub format: Format,
}

/// The variables that oo reads.
const VARIABLES: [(&str, &str); 6] = [
    (
        "OO_STATE_DIR",
        "the state folder, before XDG_STATE_HOME/oo and ~/.local/state/oo",
    ),
    (
        "OO_INBOX_DIR",
        "the folder of inboxes, before the state folder's own",
    ),
    ("OO_CLAUDE", "the claude to run, before the one on PATH"),
    ("OO_DOORMAN", "0 turns doormen off"),
    (
        "CLAUDE_CONFIG_DIR",
        "claude's configuration folder, before ~/.claude",
    ),
    ("HOME, PATH", "where the state folder and claude are"),
];

/// Runs it; the exit code.
#[must_use]
pub fn run(args: Args, context: &Context) -> u8 {
    let printed = page((context.definition)()).and_then(|page| asking::text(args.format, &page));
    asking::end(args.format, printed)
}

/// The page, in the language of man.
///
/// # Errors
/// Never in practice: it is written to memory.
pub fn page(command: clap::Command) -> Result<String> {
    let mut bytes = Vec::new();
    write_page(&mut bytes, command)
        .map_err(|e| Error::failed(format!("cannot write the manual page: {e}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write_page(out: &mut Vec<u8>, mut command: clap::Command) -> io::Result<()> {
    command.build();
    let man = Man::new(command.clone()).date("").manual("oo");
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_verb(out, verb)?;
    }
    let mut end = Roff::new();
    end.control("SH", ["EXIT STATUS"]);
    for row in table::all() {
        end.control("TP", []);
        end.text([bold(row.verb)]);
        let codes: Vec<String> = row
            .codes
            .iter()
            .map(|(code, meaning)| format!("{code}: {meaning}"))
            .collect();
        end.text([roman(codes.join("; "))]);
    }
    end.control("SH", ["ENVIRONMENT"]);
    for (name, meaning) in VARIABLES {
        end.control("TP", []);
        end.text([bold(name)]);
        end.text([roman(meaning)]);
    }
    end.control("SH", ["FILES"]);
    end.text([roman(
        "Everything about a run is in the folder runs/RUN of the state folder: spec.json, prompt, \
         mcp.json, process.json, events.jsonl, stderr.log, result.json and lock.",
    )]);
    end.to_writer(out)
}

/// A verb's own page, its sections made subsections of one.
fn write_verb(out: &mut Vec<u8>, verb: &clap::Command) -> io::Result<()> {
    let title = verb.get_bin_name().unwrap_or_else(|| verb.get_name());
    let mut heading = Roff::new();
    heading.control("SH", [title]);
    heading.to_writer(out)?;
    let mut body = Vec::new();
    let man = Man::new(verb.clone());
    man.render_description_section(&mut body)?;
    man.render_synopsis_section(&mut body)?;
    man.render_options_section(&mut body)?;
    for line in String::from_utf8_lossy(&body).lines() {
        // Set up once, at the head of the page.
        if line.starts_with(".ie") || line.starts_with(".el") || line == ".SH DESCRIPTION" {
            continue;
        }
        let line = line.strip_prefix(".SH ").map_or_else(
            || line.to_owned(),
            |section| format!(".SS {}", lower(section)),
        );
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    Ok(())
}

/// `OPTIONS` as `Options`; a heading of ours is in that form already.
fn lower(section: &str) -> String {
    if section.len() <= 3 {
        // MCP
        return section.to_owned();
    }
    let mut seen = false;
    section
        .chars()
        .map(|c| {
            let first = !seen && c.is_alphabetic();
            seen |= c.is_alphabetic();
            if first { c } else { c.to_ascii_lowercase() }
        })
        .collect()
}
