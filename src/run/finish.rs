//! From what is known of a run to its result document.
//!
//! The supervisor calls this at the end, `oo show` for a run whose supervisor died: one code, so
//! that a run has one truth.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::held::HoldEntry;
use super::lines::Lines;
use super::observed::Observed;
use super::record::ProcessRecord;
use super::result::{ClaudeEntry, LineageEntry, ResultDocument, ResultEntry, State};
use super::spec::{DoormanMode, LaunchSpec};
use super::verdict::{self, Ending, Facts, Verdict};
use super::{argv, streak, wording};
use crate::exit::Class;
use crate::inbox::{Heartbeat, Inbox};
use crate::platform::host;
use crate::session::lineage::By;
use crate::session::transcript;
use crate::store::{RunFiles, StateDir};

/// How much of stderr a result shows, in bytes.
pub(super) const STDERR_TAIL: u64 = 4 * 1024;

/// How much of a transcript's end is looked at, in bytes.
const TRANSCRIPT_TAIL: u64 = 256 * 1024;

/// Everything that is known of a run.
#[derive(Debug)]
pub struct Known<'a> {
    /// The state folder.
    pub state: &'a StateDir,
    /// The run's files.
    pub files: &'a RunFiles,
    /// What was to be run.
    pub spec: &'a LaunchSpec,
    /// Its processes; nothing when it was never forked.
    pub record: Option<&'a ProcessRecord>,
    /// What the rows told.
    pub observed: &'a Observed,
    /// How claude ended; nothing while it runs.
    pub ending: Option<&'a Ending>,
    /// The doorman's last sign of life while claude ran.
    pub heartbeat: Option<&'a Heartbeat>,
    /// claude's configuration folder, where transcripts are.
    pub config: Option<&'a Path>,
    /// From the spawn to the first byte, where it was measured.
    pub first_output: Option<Duration>,
    /// When it ended, or was last heard of.
    pub ended_at: Option<Timestamp>,
    /// What the supervisor noticed besides, each a sentence.
    pub notes: Vec<String>,
}

/// The document of a run, over or not.
#[must_use]
pub fn document(known: &Known<'_>) -> ResultDocument {
    let transcript = transcript(known);
    let lines = lines(known);
    let mut document = base(known, transcript.as_deref(), lines.as_ref());
    let Some(ending) = known.ending else {
        return document;
    };
    let rows = transcript
        .as_deref()
        .and_then(|path| transcript::tail(path, TRANSCRIPT_TAIL).ok())
        .map(|tail| transcript::parse(&tail.bytes))
        .unwrap_or_default();
    let stderr = document.stderr_tail.clone().unwrap_or_default();
    let stop = known.record.and_then(|record| record.stop.as_ref());
    let verdict = verdict::verdict(&Facts {
        observed: known.observed,
        ending,
        stop,
        stderr: &stderr,
        interrupted: rows.interrupted,
    });
    // A process that was killed gave no result row, but its transcript may have the total.
    document.total_cost_usd = known.observed.total_cost_usd().or(rows.total_cost_usd);
    document.cost_usd = document
        .total_cost_usd
        .map(|total| cost(total, known.spec.cost_before_usd));
    judge(&mut document, known, ending, verdict, lines.as_ref());
    document
}

/// What one run cost: claude's total spans the session. Rounded to a millionth of a cent, where
/// the difference of two binary fractions is noise.
fn cost(total: f64, before: f64) -> f64 {
    const PARTS: f64 = 1e8;
    ((total - before) * PARTS).round() / PARTS
}

fn judge(
    document: &mut ResultDocument,
    known: &Known<'_>,
    ending: &Ending,
    verdict: Verdict,
    lines: Option<&Lines>,
) {
    let class = verdict.class.of(known.spec.verb);
    let row = verdict
        .deciding
        .and_then(|index| known.observed.results.get(index));
    document.state = State::Ended;
    document.class = Some(class);
    document.cause = verdict.cause;
    document.exit_code = Some(class.exit_code());
    document.message = Some(wording::message(&verdict, known, ending, row));
    document.hint = wording::hint(&verdict, known, document);
    document.result = verdict.text;
    document.partial_result = verdict.partial;
    document.deciding_index = verdict.deciding;
    if let Some(row) = row {
        document.subtype.clone_from(&row.subtype);
        document.is_error = row.is_error;
        document.terminal_reason.clone_from(&row.terminal_reason);
        document.api_error_status = row.api_error_status;
        document.num_turns = row.num_turns;
        document.stop_reason.clone_from(&row.stop_reason);
        document.usage.clone_from(&row.usage);
    }
    if let Ending::Exited(exit) = ending {
        document.exit = Some(*exit);
    }
    let mut notes = known.notes.clone();
    notes.extend(verdict.notes);
    if let (Some(reported), asked) = (&document.session_id, known.spec.session_id.to_string())
        && *reported != asked
    {
        notes.push(format!(
            "claude worked in session {reported}, not in {asked} as it was told"
        ));
    }
    if !document.permission_denials.is_empty() {
        let count = document.permission_denials.len();
        notes.push(format!(
            "{count} tool {} denied",
            if count == 1 { "call was" } else { "calls were" }
        ));
    }
    match document.unparsed_rows {
        0 => {}
        1 => notes.push("1 line on stdout was no row".to_owned()),
        count => notes.push(format!("{count} lines on stdout were no rows")),
    }
    // claude does not say that its stdout is full.
    if verdict.class == Class::Failed && host::is_full(known.files.root()) {
        notes.push(format!(
            "the disk of {} is full",
            known.files.root().display()
        ));
    }
    notes.extend(streak::note(known.state, known.spec, class, verdict.cause));
    if let Some(lines) = lines {
        notes.extend(lines.notes(known.spec.session_id));
    }
    document.note = (!notes.is_empty()).then(|| notes.join("; "));
}

/// The transcript of the session that claude reports, else of the one it was given.
fn transcript(known: &Known<'_>) -> Option<PathBuf> {
    let config = known.config?;
    let reported = known
        .observed
        .init
        .as_ref()
        .and_then(|init| init.session_id.0.as_deref());
    let session = reported
        .and_then(|id| uuid::Uuid::try_parse(id).ok())
        .unwrap_or(known.spec.session_id);
    transcript::find(config, session, Some(&known.spec.cwd))
}

/// All that is known whether the run is over or not.
fn base(known: &Known<'_>, transcript: Option<&Path>, lines: Option<&Lines>) -> ResultDocument {
    let Known {
        spec,
        observed,
        files,
        ..
    } = known;
    let init = observed.init.as_ref();
    let started_at = started_at(known);
    let path = |path: &Path| Some(path.display().to_string());
    ResultDocument {
        run_id: Some(spec.run_id),
        session_id: init
            .and_then(|init| init.session_id.0.clone())
            .or_else(|| Some(spec.session_id.to_string())),
        requested_session_id: Some(spec.session_id),
        results: observed
            .results
            .iter()
            .enumerate()
            .map(|(index, row)| ResultEntry::of(index, row))
            .collect(),
        total_cost_usd: observed.total_cost_usd(),
        cost_usd: observed
            .total_cost_usd()
            .map(|total| cost(total, spec.cost_before_usd)),
        model_usage: observed
            .results
            .iter()
            .rev()
            .find_map(|row| row.model_usage.clone()),
        doorman: Some(spec.doorman),
        doorman_heartbeat: known
            .heartbeat
            .and_then(|beat| serde_json::to_value(beat).ok()),
        doorman_delivered: lines.and_then(|lines| Some(lines.arrived.as_ref()?.count)),
        doorman_pending: lines.and_then(|lines| lines.pending),
        hold: spec
            .hold
            .map(|hold| HoldEntry::of(hold, known.ending.is_none() && observed.at_rest())),
        lineage: spec.parent.as_ref().map(|parent| LineageEntry {
            child: spec.session_id,
            parent: parent.session_id,
            by: By::Dispatcher,
        }),
        permission_denials: observed.all_denials(),
        background: observed.tasks.values().cloned().collect(),
        mcp_servers: init
            .and_then(|init| init.mcp_servers.0.clone())
            .unwrap_or_default(),
        auth_source: init.and_then(|init| init.api_key_source.0.clone()),
        retries: observed.retries.clone(),
        limit_resets_at: wording::resets_at(observed),
        claude: Some(ClaudeEntry {
            path: spec.claude.path.display().to_string(),
            version: init
                .and_then(|init| init.claude_code_version.0.clone())
                .or_else(|| spec.claude.version.clone()),
            pid: known.record.map(|record| record.claude.pid),
        }),
        cwd: path(&spec.cwd),
        argv: std::iter::once(spec.claude.path.display().to_string())
            .chain(
                argv::arguments(spec, &files.mcp())
                    .iter()
                    .map(|argument| argv::shown(argument)),
            )
            .collect(),
        env_kept: known
            .record
            .map(|record| record.env_kept.clone())
            .unwrap_or_default(),
        started_at: Some(started_at),
        ended_at: known.ended_at,
        duration_ms: known
            .ended_at
            .map(|ended_at| milliseconds_between(started_at, ended_at)),
        first_output_ms: known
            .first_output
            .map(|first| u64::try_from(first.as_millis()).unwrap_or(u64::MAX)),
        unparsed_rows: observed.unparsed,
        transcript: transcript.and_then(path),
        events: path(&files.events()),
        stderr_tail: Some(crate::store::end_of(&files.stderr(), STDERR_TAIL)),
        ..ResultDocument::blank(spec.verb, State::Running)
    }
}

/// The lines of a run: of one without a doorman only if somebody carried some by hand, or some wait.
fn lines(known: &Known<'_>) -> Option<Lines> {
    let inbox = Inbox::of(known.state, known.spec.session_id);
    let lines = if known.ending.is_some() {
        Lines::at_the_end(&inbox, started_at(known), known.config)
    } else {
        Lines::of(&inbox, started_at(known))
    };
    let untold = known.spec.doorman == DoormanMode::None && lines.is_nothing();
    (!untold).then_some(lines)
}

fn started_at(known: &Known<'_>) -> Timestamp {
    known
        .record
        .map_or(known.spec.created_at, |record| record.started_at)
}

fn milliseconds_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}
