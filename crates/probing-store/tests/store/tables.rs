//! A table of several rings, whose columns have changed over time.

use std::fs;

use probing_store::{Column, Kind, Store, Value, Writer, Zone};
use tempfile::tempdir_in;

use crate::{Cell, KEY, budget, rows, schema};

#[test]
fn older_rows_are_told_in_the_words_of_the_newer() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let budget = budget();
    let make = |name: &str, columns: &[(&str, Kind, bool)], row: &[Value<'_>]| {
        let path = folder.path().join(name);
        let mut writer = Writer::create(&path, schema(columns), KEY, 0, &budget).unwrap();
        writer.append(i64::from(name.as_bytes()[0]), row).unwrap();
    };
    make(
        "1.ring",
        &[
            ("n", Kind::Bool, true),
            ("x", Kind::I64, false),
            ("s", Kind::F64, false),
        ],
        &[Value::Bool(true), Value::I64(3), Value::F64(0.5)],
    );
    make(
        "2.ring",
        &[
            ("n", Kind::I64, true),
            ("X", Kind::F64, false),
            ("s", Kind::Symbol, false),
            ("new", Kind::Text, true),
        ],
        &[
            Value::Null,
            Value::F64(0.25),
            Value::Symbol(0),
            Value::Text("a text that is long"),
        ],
    );
    let store = Store::open(folder.path()).unwrap();
    let table = store.table("user.t").unwrap();
    let columns: Vec<_> = table
        .columns()
        .iter()
        .map(
            |Column {
                 name,
                 kind,
                 nullable,
                 ..
             }| (name.as_str(), *kind, *nullable),
        )
        .collect();
    assert_eq!(
        columns,
        [
            ("ts", Kind::Time, false),
            ("n", Kind::I64, true),
            ("x", Kind::F64, false),
            ("s", Kind::Text, false),
            ("new", Kind::Text, true)
        ]
    );
    let snapshot = table.snapshot().unwrap();
    let text = |text: &str| Cell::Text(text.to_owned());
    let float = |value: f64| Cell::Float(value.to_bits());
    assert_eq!(
        rows(&snapshot),
        [
            vec![Cell::Int(1), float(3.0), text("0.5"), Cell::Null],
            vec![
                Cell::Null,
                float(0.25),
                text("(other)"),
                text("a text that is long")
            ],
        ]
    );
    let first = &snapshot.chunks()[0];
    assert_eq!(snapshot.zone(first, 1), Some(Zone::Int { min: 1, max: 1 }));
    assert_eq!(
        snapshot.zone(first, 2),
        Some(Zone::Float { min: 3.0, max: 3.0 })
    );
    assert_eq!(snapshot.zone(first, 3), None);
    assert_eq!(snapshot.zone(first, 4), Some(Zone::Empty));
}

#[test]
fn a_file_that_is_no_ring_does_not_hide_the_others() {
    let folder = tempdir_in("/dev/shm").unwrap();
    crate::writer(
        &folder.path().join("a.ring"),
        schema(&[("n", Kind::I64, false)]),
        4 << 20,
    )
    .append(1, &[Value::I64(1)])
    .unwrap();
    fs::write(folder.path().join("b.ring"), "no ring").unwrap();
    fs::write(folder.path().join("notes"), "not looked at").unwrap();
    fs::create_dir(folder.path().join("c.ring")).unwrap();
    std::os::unix::fs::symlink("a.ring", folder.path().join("d.ring")).unwrap();
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(
        rows(&store.table("user.t").unwrap().snapshot().unwrap()),
        [[Cell::Int(1)]]
    );
    let told: Vec<String> = store
        .unreadable()
        .iter()
        .map(|file| format!("{}\n{}", file.error, file.error.hint()))
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[0].starts_with("not a ring of recorded rows: "),
        "{told:?}"
    );
    assert!(told[1].starts_with("not a regular file: "), "{told:?}");
    assert!(told[2].starts_with("cannot open "), "{told:?}");
    assert!(
        Store::open(&folder.path().join("nowhere"))
            .unwrap()
            .tables()
            .is_empty()
    );
}
