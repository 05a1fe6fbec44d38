//! Tables for people: plain columns, one line a row, no colour.
//!
//! On a terminal a table fits its width, and what does not fit ends in `…`. Into a file or a pipe
//! every cell is whole. A cell is one line without control characters, whoever wrote it.

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Table as Grid, presets,
};

use super::clean;

/// A table.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub heading: &'static str,
    /// What is in it.
    pub kind: Kind,
}

/// What is in a column, and so how it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words that are of use only when they are whole.
    Word,
    /// Numbers: whole, and to the right.
    Number,
    /// Text that gives way when the terminal is narrow.
    Text,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<'c>(&mut self, cells: impl IntoIterator<Item = &'c str>) {
        self.rows.push(cells.into_iter().map(one_line).collect());
    }

    /// The table as text, within `width` columns if there is a limit.
    #[must_use]
    pub fn text(&self, width: Option<u16>) -> String {
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING)
            .set_truncation_indicator("…");
        match width {
            Some(width) => grid
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width),
            None => grid.set_content_arrangement(ContentArrangement::Disabled),
        };
        grid.set_header(self.line(self.columns.iter().map(|column| column.heading)));
        for row in &self.rows {
            grid.add_row(self.line(row.iter().map(String::as_str)));
        }
        for (column, set) in grid.column_iter_mut().zip(&self.columns) {
            column.set_padding((0, 2));
            if set.kind != Kind::Text {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        let lines: Vec<String> = grid
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        lines.join("\n")
    }

    fn line<'c>(&self, cells: impl Iterator<Item = &'c str>) -> Row {
        let cells = cells.zip(&self.columns).map(|(cell, column)| {
            Cell::new(cell).set_alignment(match column.kind {
                Kind::Number => CellAlignment::Right,
                Kind::Word | Kind::Text => CellAlignment::Left,
            })
        });
        let mut row = Row::from(cells.collect::<Vec<_>>());
        row.max_height(1);
        row
    }
}

/// Text on one line, safe for a terminal.
#[must_use]
pub fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    clean(&words).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |heading, kind| Column { heading, kind };
        let mut table = Table::new(&[
            column("RUN", Kind::Word),
            column("COST", Kind::Number),
            column("WHAT", Kind::Text),
        ]);
        table.row(["0123abcd", "$1.20", "say \x1b[31mred\x1b[0m\nand more"]);
        table.row(["0123abce", "$10.00", &"long ".repeat(30)]);
        table
    }

    #[test]
    fn into_a_file_cells_are_whole_and_harmless() {
        let text = table().text(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "RUN         COST  WHAT");
        assert_eq!(lines[1], "0123abcd   $1.20  say [31mred[0m and more");
        assert!(lines[2].ends_with("long long"), "{text}");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn on_a_terminal_rows_stay_on_their_line() {
        for width in [32, 40, 60, 80] {
            let text = table().text(Some(width));
            assert_eq!(text.lines().count(), 3, "{text}");
            for line in text.lines() {
                assert!(
                    line.chars().count() <= usize::from(width),
                    "{width}: {line:?}"
                );
            }
            assert!(text.contains('…'), "{text}");
            assert!(text.contains("\n0123abce  $10.00  long"), "{text}");
        }
    }
}
