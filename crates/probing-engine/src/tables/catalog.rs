//! `probing.tables` and `probing.columns`: the tables and columns as rows.

use probing_proto::tables::builtin;

use crate::columns::arrays;
use crate::columns::rows::{RowsBuilder, Value};
use crate::columns::{Kind, WHOSE, col};
use crate::snapshot::target_snapshot::{Needs, ReadFailure, TargetSnapshot};
use crate::tables::ALL;
use crate::tables::definition::Table;

pub(crate) const TABLES: Table = Table {
    name: "probing.tables",
    doc: "The tables of each process; `SHOW TABLES` shows each table once.",
    columns: &[
        col("table_name", Kind::Text, "its name, as a query writes it"),
        col(
            "kind",
            Kind::Text,
            "live: read at the time of the query; recorded: written by the process as it ran",
        ),
        col(
            "rows",
            Kind::Int,
            "how many rows it has now; null for live ones, which are not read to be counted, and where they cannot be read",
        ),
        col("description", Kind::Text, "contents"),
        col("example", Kind::Text, "a query of it"),
    ],
    example: "SELECT DISTINCT table_name, description FROM probing.tables ORDER BY table_name",
    needs: |_| Needs::default(),
    fill: tables,
};

pub(crate) const COLUMNS: Table = Table {
    name: "probing.columns",
    doc: "The columns of those tables, each with its documentation; `DESCRIBE python.backtrace` shows those of one.",
    columns: &[
        col("table_name", Kind::Text, "the table"),
        col("column_name", Kind::Text, "the column"),
        col("position", Kind::Int, "its place in the table, from 1 on"),
        col(
            "data_type",
            Kind::Text,
            "integer, number, boolean, text or time",
        ),
        col("description", Kind::Text, "contents"),
    ],
    example: "SELECT DISTINCT table_name, column_name, description FROM probing.columns WHERE description LIKE '%GIL%'",
    needs: |_| Needs::default(),
    fill: columns,
};

fn tables(seen: &TargetSnapshot, rows: &mut RowsBuilder) -> Result<(), ReadFailure> {
    for table in ALL {
        rows.push([
            table.name.into(),
            "live".into(),
            Value::Null,
            table.doc.into(),
            table.example.into(),
        ]);
    }
    let recorded = recorded(seen)?;
    for table in recorded {
        let count = table.snapshot().ok().map(|snapshot| snapshot.rows());
        rows.push(recorded_table(table.name(), count));
    }
    let unreadable = unreadable(seen, recorded)?;
    for name in &unreadable {
        rows.push(recorded_table(name, None));
    }
    for table in builtin::ALL {
        if !is_among(recorded, table.name) && !unreadable.contains(&table.name) {
            rows.push(recorded_table(table.name, Some(0)));
        }
    }
    Ok(())
}

fn columns(seen: &TargetSnapshot, rows: &mut RowsBuilder) -> Result<(), ReadFailure> {
    for table in ALL {
        for (place, column) in table.all_columns().enumerate() {
            rows.push([
                table.name.into(),
                column.name.into(),
                (place + 1).into(),
                column.kind.word().into(),
                column.doc.into(),
            ]);
        }
    }
    let recorded = recorded(seen)?;
    for table in recorded {
        recorded_columns(table.name(), table.columns(), rows);
    }
    for table in builtin::ALL {
        if !is_among(recorded, table.name) {
            recorded_columns(table.name, &table.all_columns(), rows);
        }
    }
    Ok(())
}

fn is_among(tables: &[probing_store::Table], name: &str) -> bool {
    tables.iter().any(|table| table.name() == name)
}

fn recorded_table(name: &str, rows: Option<usize>) -> [Value<'_>; 5] {
    let own = builtin::named(name);
    let example = match own {
        Some(table) => table.example.into(),
        None => format!("SELECT * FROM {name} ORDER BY ts DESC LIMIT 10").into(),
    };
    let doc = own.map(|table| table.doc);
    [
        name.into(),
        "recorded".into(),
        rows.into(),
        doc.into(),
        example,
    ]
}

fn recorded_columns(table: &str, columns: &[probing_store::Column], rows: &mut RowsBuilder) {
    let whose = WHOSE.iter().map(|column| {
        let doc = Value::from(column.doc);
        (column.name.to_owned(), column.kind.word(), doc)
    });
    let own = columns.iter().map(|column| {
        let doc = Some(&column.doc).filter(|doc| !doc.is_empty());
        (
            column.name.to_lowercase(),
            arrays::word(column.kind),
            Value::from(doc),
        )
    });
    for (place, (name, kind, doc)) in whose.chain(own).enumerate() {
        rows.push([
            table.into(),
            name.into(),
            (place + 1).into(),
            kind.into(),
            doc,
        ]);
    }
}

/// Tables that are only in files that cannot be read, each once.
fn unreadable<'a>(
    seen: &'a TargetSnapshot,
    readable: &[probing_store::Table],
) -> Result<Vec<&'a str>, ReadFailure> {
    let Some(recorded) = seen.recorded()? else {
        return Ok(Vec::new());
    };
    let files = recorded.store.unreadable().iter();
    let mut names: Vec<&str> = files
        .map(probing_store::Unreadable::table)
        .filter(|name| !is_among(readable, name))
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

fn recorded(seen: &TargetSnapshot) -> Result<&[probing_store::Table], ReadFailure> {
    Ok(seen
        .recorded()?
        .map_or(&[], |recorded| recorded.store.tables()))
}
