//! The figures: printed as they come, judged, and written into the documentation when asked.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::claude_under_test::Chosen;
use super::pair::Pair;

/// Between these lines of the document stands what `OO_BENCH_WRITE=1` writes.
const MARKS: (&str, &str) = ("<!-- figures -->", "<!-- end of figures -->");

const HEAD: [&str; 6] = [
    "what",
    "against",
    "ours",
    "theirs",
    "ratio (least–most)",
    "limit",
];

/// The figures so far.
pub(crate) struct Table {
    conditions: String,
    rows: Vec<[String; 7]>,
    notes: Vec<String>,
    broken: usize,
}

/// A figure that stands alone, with its limit.
pub(crate) struct Gauge<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: f64,
    pub(crate) limit: f64,
    pub(crate) unit: &'a str,
}

impl Table {
    pub(crate) fn new(chosen: &Chosen) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let date = jiff::Timestamp::now().strftime("%Y-%m-%d");
        let conditions = format!(
            "{date}, {cores} cores, Linux on {}; {}.",
            std::env::consts::ARCH,
            chosen.describe()
        );
        println!("{conditions}\n");
        Self {
            conditions,
            rows: Vec::new(),
            notes: Vec::new(),
            broken: 0,
        }
    }

    /// Runs a comparison and takes its figures in.
    pub(crate) fn compare(&mut self, mut pair: Pair<'_>) {
        let compared = pair.run();
        let (median, least, most) = compared.ratio;
        let verdict = self.verdict(median <= pair.limit);
        self.row([
            pair.name.to_owned(),
            pair.against.to_owned(),
            milliseconds(compared.ours),
            milliseconds(compared.theirs),
            format!("{median:.3} ({least:.3}–{most:.3})"),
            format!("{:.2} ×", pair.limit),
            verdict,
        ]);
        println!(
            "  {} pairs, {:+.1} ms in the median",
            compared.rounds, compared.difference_ms
        );
        let [ours, theirs] = compared.undisturbed;
        println!(
            "  fastest {:.1} and {:.1} ms, lower quartile {:.1} and {:.1} ms (not judged)",
            ours.0, theirs.0, ours.1, theirs.1
        );
    }

    /// Takes one figure in.
    pub(crate) fn gauge(&mut self, gauge: &Gauge<'_>) {
        let Gauge {
            name,
            value,
            limit,
            unit,
        } = gauge;
        let verdict = self.verdict(value <= limit);
        self.row([
            (*name).to_owned(),
            String::new(),
            format!("{value:.1} {unit}"),
            String::new(),
            String::new(),
            format!("{limit} {unit}"),
            verdict,
        ]);
    }

    /// Says what could not be measured, and why.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        println!("{name}: skipped: {reason}");
        self.notes.push(format!("{name}: skipped: {reason}"));
    }

    /// Prints the whole, writes it if asked, and judges.
    pub(crate) fn finish(self) -> ExitCode {
        let text = self.markdown();
        println!("\n{text}");
        if std::env::var("OO_BENCH_WRITE").is_ok_and(|value| value == "1") {
            write_down(&text);
        }
        if self.broken > 0 {
            println!("{} of the limits are BROKEN", self.broken);
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }

    fn verdict(&mut self, holds: bool) -> String {
        self.broken += usize::from(!holds);
        if holds { "holds" } else { "BROKEN" }.to_owned()
    }

    fn row(&mut self, row: [String; 7]) {
        let filled: Vec<&str> = row
            .iter()
            .map(String::as_str)
            .filter(|cell| !cell.is_empty())
            .collect();
        println!("{}", filled.join(" | "));
        self.rows.push(row);
    }

    fn markdown(&self) -> String {
        let mut text = format!("{}\n\n| {} | |\n", self.conditions, HEAD.join(" | "));
        text.push_str("| --- | --- | --: | --: | --: | --: | --- |\n");
        for row in &self.rows {
            writeln!(text, "| {} |", row.join(" | ")).expect("a text takes text");
        }
        for note in &self.notes {
            writeln!(text, "\n{note}").expect("a text takes text");
        }
        text
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

fn write_down(figures: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/performance.md");
    let text = std::fs::read_to_string(&path).expect("the document is there");
    let (head, rest) = text.split_once(MARKS.0).expect("it has the first mark");
    let (_, tail) = rest.split_once(MARKS.1).expect("it has the second mark");
    let text = format!("{head}{}\n\n{figures}\n{}{tail}", MARKS.0, MARKS.1);
    std::fs::write(&path, text).expect("the document can be written");
    println!("written to {}", path.display());
}
