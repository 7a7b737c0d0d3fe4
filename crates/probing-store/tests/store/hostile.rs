//! Files that somebody has damaged, on purpose or not: they are refused or read, and never make the reader fail.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use probing_store::{Kind, Store, Value};
use proptest::prelude::*;
use tempfile::tempdir_in;

use crate::copies::copied;
use crate::{schema, writer};

/// A ring with all kinds and several chunks.
pub(crate) fn ring(path: &Path) {
    let columns = [
        ("b", Kind::Bool, true),
        ("n", Kind::I64, false),
        ("x", Kind::F64, true),
        ("t", Kind::Text, true),
        ("s", Kind::Symbol, true),
        ("i", Kind::Bytes16, false),
    ];
    let mut writer = writer(path, schema(&columns), 256 << 10);
    for n in 0..3000_i64 {
        let symbol = writer.symbol(&format!("symbol number {}", n % 10));
        let text = format!("text number {n} ").repeat(n as usize % 30);
        let row = [
            Value::Bool(n % 3 == 0),
            Value::I64(n),
            if n % 5 == 0 {
                Value::Null
            } else {
                Value::F64(n as f64)
            },
            Value::Text(&text),
            Value::Symbol(symbol),
            Value::Bytes16([n as u8; 16]),
        ];
        writer.append(n, &row).unwrap();
    }
}

/// Reads everything that can be read, as an engine would.
fn read_all(folder: &Path) -> (usize, usize) {
    let store = Store::open(folder).unwrap();
    let (mut rows, mut refused) = (0, store.unreadable().len());
    for table in store.tables() {
        let Ok(snapshot) = table.snapshot() else {
            refused += 1;
            continue;
        };
        let columns: Vec<usize> = (0..snapshot.columns().len()).collect();
        for chunk in snapshot.chunks() {
            for &column in &columns {
                snapshot.zone(chunk, column);
                let tally = snapshot.tally(chunk, column);
                assert!(tally.is_none_or(|tally| tally.values as usize <= chunk.rows()));
                match snapshot.read(chunk, &[column]) {
                    Err(_) => refused += 1,
                    Ok(None) => {}
                    Ok(Some(data)) => {
                        for row in 0..chunk.rows() {
                            // Text must be there and be text, whatever the file says.
                            let cell = crate::cell(&data[0], row);
                            rows += usize::from(cell != crate::Cell::Null);
                        }
                    }
                }
            }
        }
    }
    (rows, refused)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_makes_the_reader_fail(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<[u8; 8]>(), any::<bool>()), 1..20),
        end in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let folder = tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("t.ring");
        ring(&path);
        let file = File::options().write(true).open(&path).unwrap();
        let length = file.metadata().unwrap().len() as usize;
        for (place, bytes, in_header) in damage {
            // The numbers that everything hangs on are hit as often as the rest.
            let place = place.index(if in_header { 256 } else { length });
            file.write_at(&bytes, place as u64).unwrap();
        }
        if let Some(end) = end {
            file.set_len(end.index(length) as u64).unwrap();
        }
        read_all(folder.path());
        let (copy, _) = copied(folder.path(), 1 << 20);
        read_all(copy.path());
    }

    #[test]
    fn no_bytes_make_the_reader_fail(bytes in prop::collection::vec(any::<u8>(), 0..9000), is_ring in any::<bool>()) {
        let folder = tempdir_in("/dev/shm").unwrap();
        let mut bytes = bytes;
        if is_ring && bytes.len() >= 12 {
            bytes[..12].copy_from_slice(b"probing\0\x01\0\0\0");
        }
        fs::write(folder.path().join("t.ring"), bytes).unwrap();
        read_all(folder.path());
    }
}

/// Damage that was thought of, one by one: where, which bytes, and how it is told.
#[test]
fn damage_of_every_sort_is_refused_in_words() {
    let told = |place: u64, bytes: &[u8]| -> Vec<String> {
        let folder = tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("t.ring");
        ring(&path);
        let file = File::options().write(true).open(&path).unwrap();
        file.write_at(bytes, place).unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut told: Vec<String> = store
            .unreadable()
            .iter()
            .map(|file| file.error.to_string())
            .collect();
        for table in store.tables() {
            let snapshot = table.snapshot().unwrap();
            for chunk in snapshot.chunks() {
                for column in 0..snapshot.columns().len() {
                    told.extend(
                        snapshot
                            .read(chunk, &[column])
                            .err()
                            .map(|error| error.to_string()),
                    );
                }
            }
        }
        told
    };
    let all = u32::MAX.to_le_bytes();
    let says = |place: u64, bytes: &[u8], words: &str| {
        let told = told(place, bytes);
        assert!(
            told.iter().any(|line| line.starts_with(words)),
            "{place}: {told:?}"
        );
    };
    assert_eq!(told(0, b""), Vec::<String>::new());
    says(0, b"x", "not a ring of recorded rows: ");
    says(8, &9_u32.to_le_bytes(), "a ring in the unknown format 9: ");
    for number in [56, 60, 64, 68, 72, 76] {
        says(number, &all, "a ring with an invalid header: ");
    }
    says(4096, b"[]", "a ring with an invalid header: ");
    // The string count, the first end, the first byte of the heap.
    says(
        8192,
        &all,
        "recorded rows of user.t are damaged: its strings are not strings",
    );
    // What the writer never says of itself is passed over: slots and rows beyond the bounds.
    assert_eq!(told(128, &all), Vec::<String>::new());
}

#[test]
fn a_file_that_grows_shorter_while_it_is_read_has_fewer_rows() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("t.ring");
    ring(&path);
    let (before, _) = read_all(folder.path());
    assert!(before > 100, "{before}");
    let store = Store::open(folder.path()).unwrap();
    let snapshot = store.table("user.t").unwrap().snapshot().unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    for chunk in snapshot.chunks() {
        assert!(!matches!(snapshot.read(chunk, &[0]), Ok(Some(_))));
    }
}
