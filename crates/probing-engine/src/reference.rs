//! `docs/tables.md`, made from the tables and functions themselves.

use crate::functions;
use crate::table::WHOSE;
use crate::tables;

/// The text of the document.
pub fn reference() -> String {
    let mut text = String::from(
        "# Tables\n\n\
         Made from `crates/probing-engine/src/tables/` by `make docs`; edit those files, not this one. Every example runs \
         in a test.\n\n\
         ```console\n$ probing -t 4242 query \"SELECT func, lineno FROM python.backtrace\"\n```\n\n\
         The first columns of every table say whose row it is, so the same query works for one process and for many \
         (`-t A -t B`, `-t all`, `--ranks 0-7`):\n\n",
    );
    text.push_str(&columns(WHOSE.iter()));
    for table in tables::ALL {
        text.push_str(&format!("\n## `{}`\n\n{}\n\n", table.name, table.doc));
        text.push_str(&columns(table.columns.iter()));
        text.push_str(&format!("\n```sql\n{}\n```\n", table.example));
    }
    text.push_str("\n## Functions\n\nBeside those of SQL, which are DataFusion's:\n");
    for function in functions::ALL {
        text.push_str(&format!(
            "\n`{}`: {}.\n\n```sql\n{}\n```\n",
            function.call, function.doc, function.example
        ));
    }
    text
}

fn columns<'a>(columns: impl Iterator<Item = &'a crate::table::Column>) -> String {
    let mut text = String::from("| column | type | |\n|---|---|---|\n");
    for column in columns {
        text.push_str(&format!(
            "| `{}` | {} | {} |\n",
            column.name,
            column.kind.word(),
            column.doc
        ));
    }
    text
}
