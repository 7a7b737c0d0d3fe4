//! A table that fits the terminal.

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use probing_proto::text::visible;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

const GAP: &str = "  ";
const MARK: char = '…';
/// A column is not made narrower than this to save room for others.
const NARROWEST: usize = 8;
/// A text longer than this is cut even where there is room: nobody reads it in a table.
const MAX_CELL_CHARS: usize = 10_000;
const NULL: &str = "NULL";
const LINE_BREAK: &str = "⏎";

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Columns of the terminal; `None`: as many as it takes.
    pub width: Option<usize>,
}

/// The table with its heading, cut to the layout.
pub(super) fn table(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    layout: Layout,
) -> Result<String, ArrowError> {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    if names == ["plan_type", "plan"] {
        return plans(batches);
    }
    let mut columns = Vec::new();
    for (index, field) in schema.fields().iter().enumerate() {
        let mut cells = vec![visible::line(field.name()).into_owned()];
        for batch in batches {
            cells.extend(texts(batch.column(index).as_ref(), layout)?);
        }
        columns.push(TextColumn {
            width: cells.iter().map(|cell| cell.width()).max().unwrap_or(0),
            cells,
            is_number: field.data_type().is_numeric(),
        });
    }
    let hidden = layout.width.map_or(0, |width| fit(&mut columns, width));
    let shown = &columns[..columns.len() - hidden];
    let rows = shown.first().map_or(0, |column| column.cells.len());
    let mut text = String::new();
    for row in 0..rows {
        let line: Vec<String> = shown.iter().map(|column| column.cell(row)).collect();
        text.push_str(line.join(GAP).trim_end());
        text.push('\n');
        if row == 0 {
            let rule: Vec<String> = shown
                .iter()
                .map(|column| "─".repeat(column.width))
                .collect();
            text.push_str(&rule.join(GAP));
            text.push('\n');
        }
    }
    if hidden > 0 {
        let names: Vec<&str> = columns[columns.len() - hidden..]
            .iter()
            .map(|column| column.cells[0].as_str())
            .collect();
        text.push_str(&format!(
            "({hidden} columns more, shown by --wide: {})\n",
            names.join(", ")
        ));
    }
    Ok(text)
}

/// What `EXPLAIN` gives: texts of many lines, which mean nothing on one.
fn plans(batches: &[RecordBatch]) -> Result<String, ArrowError> {
    let options = FormatOptions::new().with_display_error(true);
    let mut text = String::new();
    for batch in batches {
        let [kinds, plans] =
            [0, 1].map(|index| ArrayFormatter::try_new(batch.column(index), &options));
        let (kinds, plans) = (kinds?, plans?);
        for row in 0..batch.num_rows() {
            text.push_str(&format!("{}\n", kinds.value(row)));
            for line in plans.value(row).to_string().lines() {
                text.push_str(&format!("  {}\n", visible::line(line)));
            }
        }
    }
    Ok(text)
}

/// A column with its heading.
struct TextColumn {
    cells: Vec<String>,
    width: usize,
    is_number: bool,
}

impl TextColumn {
    fn cell(&self, row: usize) -> String {
        let cell = cut(&self.cells[row], self.width);
        let space = " ".repeat(self.width - cell.width());
        if self.is_number {
            format!("{space}{cell}")
        } else {
            format!("{cell}{space}")
        }
    }
}

/// Makes wide columns narrower until all fit; how many at the end do not even so.
fn fit(columns: &mut [TextColumn], room: usize) -> usize {
    let total = |widths: &mut dyn Iterator<Item = usize>| {
        let widths: Vec<usize> = widths.collect();
        widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
    };
    let mut hidden = 0;
    loop {
        let shown = &mut columns[..];
        let count = shown.len() - hidden;
        let shown = &mut shown[..count];
        let widest = shown.iter().map(|column| column.width).max().unwrap_or(0);
        // The largest width to which all can be cut.
        let fits =
            |limit: usize| total(&mut shown.iter().map(|column| column.width.min(limit))) <= room;
        let limit = (NARROWEST..=widest).rev().find(|limit| fits(*limit));
        let limit = limit.or_else(|| fits(widest).then_some(widest));
        match limit {
            Some(limit) => {
                for column in shown {
                    column.width = column.width.min(limit);
                }
                return hidden;
            }
            None if count <= 1 => {
                for column in shown {
                    column.width = column.width.min(room.max(1));
                }
                return hidden;
            }
            None => hidden += 1,
        }
    }
}

/// What fits into `width`, with a mark when it is not all.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 0;
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used + 1 > width {
            break;
        }
        cut.push(letter);
    }
    cut.push(MARK);
    cut
}

/// Every value on one line, with characters that a terminal obeys in their visible form: a program's own words may
/// contain any.
fn texts(array: &dyn Array, layout: Layout) -> Result<Vec<String>, ArrowError> {
    let options = FormatOptions::new()
        .with_null(NULL)
        .with_display_error(true);
    let formatter = ArrayFormatter::try_new(array, &options)?;
    let longest = if layout.width.is_some() {
        MAX_CELL_CHARS
    } else {
        usize::MAX
    };
    let text = |row: usize| {
        let text = formatter.value(row).to_string();
        let text: String = text.chars().take(longest).collect();
        visible::line(&text.replace('\n', LINE_BREAK)).into_owned()
    };
    Ok((0..array.len()).map(text).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int64Array, StringViewArray};

    use super::*;

    fn drawn(width: Option<usize>) -> String {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(1000)]));
        let short = StringViewArray::from(vec![Some("a"), Some("bé日"), None]);
        let long = StringViewArray::from(vec!["one two three four", "x\ny\x1b[H", ""]);
        let batch = RecordBatch::try_from_iter([
            ("n", numbers),
            ("short", Arc::new(short) as ArrayRef),
            ("long", Arc::new(long) as ArrayRef),
        ])
        .unwrap();
        table(
            &batch.schema(),
            std::slice::from_ref(&batch),
            Layout { width },
        )
        .unwrap()
    }

    #[test]
    fn columns_are_aligned_numbers_to_the_right() {
        insta::assert_snapshot!(drawn(None), @r"
           n  short  long
        ────  ─────  ──────────────────
           1  a      one two three four
        NULL  bé日   x⏎y\x1b[H
        1000  NULL
        ");
    }

    #[test]
    fn what_does_not_fit_is_cut_with_a_mark_the_widest_first() {
        insta::assert_snapshot!(drawn(Some(24)), @r"
           n  short  long
        ────  ─────  ───────────
           1  a      one two th…
        NULL  bé日   x⏎y\x1b[H
        1000  NULL
        ");
        insta::assert_snapshot!(drawn(Some(12)), @r"
           n  short
        ────  ─────
           1  a
        NULL  bé日
        1000  NULL
        (1 columns more, shown by --wide: long)
        ");
        insta::assert_snapshot!(drawn(Some(3)), @r"
          n
        ───
          1
        NU…
        10…
        (2 columns more, shown by --wide: short, long)
        ");
    }
}
