//! Rows of every kind go in and come out.

use probing_store::{AppendError, Kind, Value, Zone, monotonic_nanos, wall_offset_nanos};
use proptest::prelude::*;
use tempfile::tempdir_in;

use crate::{Cell, rows, schema, snapshot, writer};

#[derive(Debug, Clone, PartialEq)]
enum Given {
    Null,
    Bool(bool),
    I64(i64),
    F64(f64),
    Bytes([u8; 16]),
    Text(String),
}

impl Given {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::I64(value) => Value::I64(*value),
            Self::F64(value) => Value::F64(*value),
            Self::Bytes(bytes) => Value::Bytes16(*bytes),
            Self::Text(text) => Value::Text(text),
        }
    }
}

const KINDS: [Kind; 9] = [
    Kind::Bool,
    Kind::U8,
    Kind::U16,
    Kind::I32,
    Kind::U32,
    Kind::I64,
    Kind::F64,
    Kind::Bytes16,
    Kind::Text,
];

fn given(kind: Kind, nullable: bool) -> BoxedStrategy<Given> {
    let some: BoxedStrategy<Given> = match kind {
        Kind::Bool => any::<bool>().prop_map(Given::Bool).boxed(),
        Kind::U8 => any::<u8>().prop_map(|v| Given::I64(v.into())).boxed(),
        Kind::U16 => any::<u16>().prop_map(|v| Given::I64(v.into())).boxed(),
        Kind::I32 => any::<i32>().prop_map(|v| Given::I64(v.into())).boxed(),
        Kind::U32 => any::<u32>().prop_map(|v| Given::I64(v.into())).boxed(),
        Kind::F64 => any::<f64>().prop_map(Given::F64).boxed(),
        Kind::Bytes16 => any::<[u8; 16]>().prop_map(Given::Bytes).boxed(),
        Kind::Text => "\\PC{0,40}|[a-c]{300}".prop_map(Given::Text).boxed(),
        _ => any::<i64>().prop_map(Given::I64).boxed(),
    };
    if nullable {
        prop_oneof![1 => Just(Given::Null), 3 => some].boxed()
    } else {
        some
    }
}

type Table = (Vec<(Kind, bool)>, Vec<Vec<Given>>);

fn tables() -> impl Strategy<Value = Table> {
    let columns = prop::collection::vec((prop::sample::select(&KINDS[..]), any::<bool>()), 1..6);
    columns.prop_flat_map(|columns| {
        let row: Vec<_> = columns
            .iter()
            .map(|(kind, nullable)| given(*kind, *nullable))
            .collect();
        (Just(columns), prop::collection::vec(row, 0..600))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_last_rows_come_out_as_they_went_in((columns, given) in tables(), megabyte in any::<bool>()) {
        let names: Vec<String> = (0..columns.len()).map(|index| format!("c{index}")).collect();
        let columns: Vec<_> = columns
            .iter()
            .zip(&names)
            .map(|((kind, nullable), name)| (name.as_str(), *kind, *nullable))
            .collect();
        let folder = tempdir_in("/dev/shm").unwrap();
        // With little room chunks are small and used again and again.
        let bytes = if megabyte { 1 << 20 } else { 96 << 10 };
        let mut writer = writer(&folder.path().join("t.ring"), schema(&columns), bytes);
        for (index, row) in given.iter().enumerate() {
            let values: Vec<Value<'_>> = row.iter().map(Given::value).collect();
            writer.append(index as i64, &values).unwrap();
        }
        let expected: Vec<Vec<Cell>> = given
            .iter()
            .map(|row| row.iter().map(|value| Cell::from(&value.value())).collect())
            .collect();
        let found = rows(&snapshot(folder.path()));
        prop_assert_eq!(found.is_empty(), expected.is_empty());
        prop_assert_eq!(&found[..], &expected[expected.len() - found.len()..]);
    }
}

#[test]
fn times_are_told_since_1970() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let mut writer = writer(
        &folder.path().join("t.ring"),
        schema(&[("n", Kind::I64, false)]),
        4 << 20,
    );
    let before = monotonic_nanos() + wall_offset_nanos();
    writer.append(monotonic_nanos(), &[Value::I64(1)]).unwrap();
    let after = monotonic_nanos() + wall_offset_nanos();
    let snapshot = snapshot(folder.path());
    let chunk = &snapshot.chunks()[0];
    let data = snapshot.read(chunk, &[0]).unwrap().unwrap();
    let Cell::Int(told) = crate::cell(&data[0], 0) else {
        panic!("a time is a number")
    };
    // Somebody may set the clock by a little meanwhile.
    let second = 1_000_000_000;
    assert!(before - second <= told && told <= after + second);
    assert_eq!(
        snapshot.zone(chunk, 0),
        Some(Zone::Int {
            min: told,
            max: told
        })
    );
}

#[test]
fn a_value_of_another_kind_is_refused_and_leaves_no_trace() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let columns = [
        ("b", Kind::Bool, true),
        ("n", Kind::U8, true),
        ("m", Kind::I64, false),
    ];
    let mut writer = writer(&folder.path().join("t.ring"), schema(&columns), 4 << 20);
    let refused = |column| Err(AppendError::Misfit { column });
    let row = [Value::Bool(true), Value::I64(256), Value::I64(0)];
    assert_eq!(writer.append(1, &row), refused(2));
    let row = [Value::Bool(true), Value::I64(255), Value::Null];
    assert_eq!(writer.append(1, &row), refused(3));
    let row = [Value::Bool(false), Value::Null, Value::I64(7)];
    assert_eq!(writer.append(1, &row), Ok(()));
    assert_eq!(
        writer.append(1, &row[..2]),
        Err(AppendError::Width {
            given: 2,
            wanted: 3
        })
    );
    assert_eq!(
        rows(&snapshot(folder.path())),
        [[Cell::Bool(false), Cell::Null, Cell::Int(7)]]
    );
}

#[test]
fn long_text_is_cut_with_a_mark_and_symbols_beyond_the_bound_are_other() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let columns = [("text", Kind::Text, false), ("name", Kind::Symbol, false)];
    let mut writer = writer(&folder.path().join("t.ring"), schema(&columns), 8 << 20);
    let long = "ä".repeat(20_000);
    let name = writer.symbol("forward");
    assert_eq!(writer.symbol("forward"), name);
    let row = [Value::Text(&long), Value::Symbol(name)];
    writer.append(1, &row).unwrap();
    let mut last = 0;
    for index in 0..20_000 {
        last = writer.symbol(&format!("name number {index}"));
    }
    assert_eq!(last, 0, "the heap has a bound");
    let row = [Value::Text("short"), Value::Symbol(last)];
    writer.append(1, &row).unwrap();
    let rows = rows(&snapshot(folder.path()));
    let Cell::Text(cut) = &rows[0][0] else {
        panic!("a text is text")
    };
    assert!(
        cut.len() <= 16 << 10 && cut.ends_with("ä…"),
        "{}",
        cut.len()
    );
    assert_eq!(rows[0][1], Cell::Text("forward".to_owned()));
    assert_eq!(
        rows[1],
        [
            Cell::Text("short".to_owned()),
            Cell::Text("(other)".to_owned())
        ]
    );
}
