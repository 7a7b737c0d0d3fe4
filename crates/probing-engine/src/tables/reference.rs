//! `docs/tables.md`, made from the tables and functions themselves.

use probing_proto::tables::builtin;
use probing_store::Column;

use crate::columns::Column as LiveColumn;
use crate::columns::WHOSE;
use crate::columns::arrays;
use crate::functions;
use crate::tables;

/// Columns of the prose of a document.
const MAX_COLUMNS: usize = 100;

/// The text of the document.
pub fn reference() -> String {
    let mut text = String::from(
        "# Tables\n\n\
         Made from `crates/probing-engine/src/tables/` and `crates/probing-proto/src/tables/builtin.rs` by `make docs`; edit those \
         files, not this one. Every example runs in a test.\n\n\
         ```console\n$ probing -t 4242 query \"SELECT func, lineno FROM python.backtrace\"\n```\n\n\
         The first columns of every table say whose row it is, so the same query works for one process and for many \
         (`-t A -t B`, `-t all`, `--ranks 0-7`):\n\n",
    );
    text.push_str(&columns(WHOSE.iter().map(of_live)));
    text.push_str("\nThese tables are read at the time of the query:\n");
    for table in tables::ALL {
        let columns = columns(table.columns.iter().map(of_live));
        text.push_str(&section(table.name, table.doc, &columns, table.example));
    }
    text.push_str(
        "\nRecorders that are switched on fill these tables; the rows stay after the process has ended. The program's \
         own tables (`probing.record`) are in the schema `user`:\n",
    );
    for table in builtin::ALL {
        let all = table.all_columns();
        let of_own = |column: &Column| {
            let kind = arrays::word(column.kind);
            (column.name.clone(), kind, column.doc.clone())
        };
        let columns = columns(all.iter().map(of_own));
        text.push_str(&section(table.name, table.doc, &columns, table.example));
    }
    text.push_str("\n## Functions\n\nIn addition to the SQL functions of DataFusion:\n");
    for function in functions::ALL {
        text.push_str(&format!(
            "\n`{}`: {}.\n\n```sql\n{}\n```\n",
            function.call, function.doc, function.example
        ));
    }
    wrapped(&text)
}

/// The text with prose in lines of at most `MAX_COLUMNS`. Tables, headings and code stay as they are.
fn wrapped(text: &str) -> String {
    let (mut wrapped, mut is_code) = (String::with_capacity(text.len()), false);
    for line in text.lines() {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.starts_with(['|', '#']) {
            wrapped.push_str(line);
        } else {
            let mut column = 0;
            for word in line.split(' ') {
                let length = word.chars().count();
                if column > 0 {
                    let fits = column + 1 + length <= MAX_COLUMNS;
                    wrapped.push(if fits { ' ' } else { '\n' });
                    column = if fits { column + 1 } else { 0 };
                }
                wrapped.push_str(word);
                column += length;
            }
        }
        wrapped.push('\n');
    }
    wrapped
}

fn section(name: &str, doc: &str, columns: &str, example: &str) -> String {
    format!("\n## `{name}`\n\n{doc}\n\n{columns}\n```sql\n{example}\n```\n")
}

/// A name, what it is of, and what it says.
type ColumnDoc = (String, &'static str, String);

fn of_live(column: &LiveColumn) -> ColumnDoc {
    let kind = column.kind.word();
    (column.name.to_owned(), kind, column.doc.to_owned())
}

fn columns(columns: impl Iterator<Item = ColumnDoc>) -> String {
    let mut text = String::from("| column | type | |\n|---|---|---|\n");
    for (name, kind, doc) in columns {
        text.push_str(&format!("| `{name}` | {kind} | {doc} |\n"));
    }
    text
}
