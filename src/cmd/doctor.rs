//! `oo doctor`: is all well?

use std::path::PathBuf;

use super::Context;
use super::asking::{self, Format};
use crate::doctor::{self, Report, Status, Surroundings};
use crate::error::Result;
use crate::ui::one_line;

/// Look for what keeps runs from going well, and say what to do about it.
///
/// Nothing is changed without --fix, no session is started and no value of a variable is printed.
/// The exit code is 0 without findings, and 1 with some.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The claude to look at [default: $OO_CLAUDE, PATH, the usual places]
    #[arg(long, value_name = "PATH")]
    pub claude: Option<PathBuf>,

    /// First mend what is safe to mend: take over inboxes that an older reader left, at their end
    #[arg(long)]
    pub fix: bool,

    /// How to print.
    #[command(flatten)]
    pub format: Format,
}

/// Runs it; the exit code.
#[must_use]
pub fn run(args: &Args, context: &Context) -> u8 {
    asking::end(args.format, examine(args, context))
}

fn examine(args: &Args, context: &Context) -> Result<u8> {
    let surroundings = Surroundings::new(&context.environment, args.claude.clone());
    let fixed = if args.fix {
        doctor::fix(&surroundings)
    } else {
        Vec::new()
    };
    let report = Report {
        fixed,
        ..doctor::examine(&surroundings)
    };
    let console = asking::console();
    if args.format.json {
        console.document(&report)?;
    } else {
        console.answer(&text(&report))?;
    }
    Ok(u8::from(report.findings > 0))
}

fn text(report: &Report) -> String {
    let fixed = report
        .fixed
        .iter()
        .map(|text| format!("{:<18} {}", "fixed", one_line(text)));
    let mut lines: Vec<String> = fixed.collect();
    for check in &report.checks {
        let status = match check.status {
            Status::Ok => "ok",
            Status::Finding => "finding",
            Status::Skipped => "skipped",
        };
        lines.push(format!(
            "{status:<8} {:<9} {}",
            check.name,
            one_line(&check.message)
        ));
        if let Some(hint) = &check.hint {
            lines.push(format!("{:<18} → {}", "", one_line(hint)));
        }
    }
    lines.push(match report.findings {
        0 => "no findings".to_owned(),
        1 => "1 finding".to_owned(),
        many => format!("{many} findings"),
    });
    lines.join("\n")
}
