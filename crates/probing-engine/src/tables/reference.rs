//! `docs/tables.md`, made from the tables and functions themselves.

use probing_proto::tables::builtin;
use probing_store::Column;

use crate::columns::Column as LiveColumn;
use crate::columns::WHOSE;
use crate::columns::arrays;
use crate::functions;
use crate::tables;

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
    text.push_str("\nThese are read when they are asked for:\n");
    for table in tables::ALL {
        let columns = columns(table.columns.iter().map(of_live));
        text.push_str(&section(table.name, table.doc, &columns, table.example));
    }
    text.push_str(
        "\nThese are recorded by what is switched on, and stay when the process is gone; so do those of the program \
         itself (`probing.record`), which are in the schema `user`:\n",
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
    text.push_str("\n## Functions\n\nBeside those of SQL, which are DataFusion's:\n");
    for function in functions::ALL {
        text.push_str(&format!(
            "\n`{}`: {}.\n\n```sql\n{}\n```\n",
            function.call, function.doc, function.example
        ));
    }
    text
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
