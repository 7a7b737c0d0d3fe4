//! Copies of rings that are being written: whole where they are, and never torn.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use probing_store::ring::packed::{self, TraceEventKind, TraceRow};
use probing_store::{CopyReport, Kind, Limits, Store, Value, Writer, copy};
use tempfile::{TempDir, tempdir_in};

use crate::rooms::on_a_small_tmpfs;
use crate::{Cell, KEY, budget, cell, hostile, rows, schema, snapshot, writer};

/// A copy of a folder, in one of its own.
pub(crate) fn copied(from: &Path, bytes: u64) -> (TempDir, CopyReport) {
    let folder = tempdir_in("/dev/shm").unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    let to = folder.path().join("rings");
    let copies = copy(from, &to, Limits { bytes, until }).unwrap();
    for entry in fs::read_dir(&to).unwrap().flatten() {
        fs::rename(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    (folder, copies)
}

#[test]
fn a_copy_has_the_rows_of_all_its_chunks_and_what_is_known_of_them() {
    let folder = tempdir_in("/dev/shm").unwrap();
    hostile::ring(&folder.path().join("t.ring"));
    let before = snapshot(folder.path());
    let (copy, copies) = copied(folder.path(), 1 << 20);
    assert_eq!(copies.tables, ["user.t"]);
    assert_eq!(copies.left_out, [""; 0]);
    let after = snapshot(copy.path());
    assert!(rows(&before) == rows(&after));
    assert!(before.chunks().len() > 2, "{}", before.chunks().len());
    for (one, other) in before.chunks().iter().zip(after.chunks()) {
        assert_eq!(one.first_row(), other.first_row());
        for column in 0..before.columns().len() {
            assert_eq!(before.zone(one, column), after.zone(other, column));
            assert_eq!(before.tally(one, column), after.tally(other, column));
        }
    }
    // And a copy of the copy.
    let (again, _) = copied(copy.path(), 1 << 20);
    assert!(rows(&snapshot(again.path())) == rows(&after));
}

#[test]
fn rows_of_tracers_are_copied_too() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let mut writer = writer(&folder.path().join("t.ring"), packed::schema(), 4 << 20);
    let function = writer.function("step", "train.py", 7);
    for ts in 0..10_000 {
        writer.append_trace(&TraceRow {
            ts,
            did: TraceEventKind::Return,
            function,
            thread_id: 1,
            depth: 3,
            duration_nanos: Some(ts),
            step: None,
        });
    }
    let before = rows(&snapshot(folder.path()));
    let (copy, _) = copied(folder.path(), 4 << 20);
    assert_eq!(before.len(), 10_000);
    assert!(rows(&snapshot(copy.path())) == before);
}

#[test]
fn what_is_too_much_is_left_out_and_told_the_newest_rows_stay() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("t.ring");
    let mut large = writer(&path, schema(&[("n", Kind::I64, false)]), 4 << 20);
    for n in 0..100_000 {
        large.append(n, &[Value::I64(n)]).unwrap();
    }
    let small = probing_store::Schema {
        table: "user.small".to_owned(),
        ..schema(&[("n", Kind::I64, false)])
    };
    let path = folder.path().join("u.ring");
    let mut small = Writer::create(&path, small, KEY, 0, &budget()).unwrap();
    small.append(1, &[Value::I64(1)]).unwrap();
    let (copy, copies) = copied(folder.path(), 200 << 10);
    assert_eq!(copies.tables, ["user.small", "user.t"]);
    assert!(copies.bytes <= 200 << 10, "{}", copies.bytes);
    let store = Store::open(copy.path()).unwrap();
    let kept = rows(&store.table("user.t").unwrap().snapshot().unwrap());
    let first = 100_000 - kept.len() as i64;
    let expected: Vec<Vec<Cell>> = (first..100_000).map(|n| vec![Cell::Int(n)]).collect();
    assert!(kept.len() > 4096 && kept == expected, "{}", kept.len());
    let left_out = format!("user.t: {first} of 100000 rows, which were too many");
    assert_eq!(copies.left_out, [left_out]);
    let alone = rows(&store.table("user.small").unwrap().snapshot().unwrap());
    assert_eq!(alone, [[Cell::Int(1)]]);
}

#[test]
fn what_has_not_begun_in_time_is_left_out() {
    let folder = tempdir_in("/dev/shm").unwrap();
    hostile::ring(&folder.path().join("t.ring"));
    let to = folder.path().join("copy");
    let limits = Limits {
        bytes: 1 << 20,
        until: Instant::now(),
    };
    let copies = copy(folder.path(), &to, limits).unwrap();
    assert_eq!(copies.left_out.len(), 1, "{copies:?}");
    assert_eq!(snapshot(&to).rows(), 0);
}

#[test]
fn a_full_file_system_leaves_out_tables_and_no_halves_of_them() {
    on_a_small_tmpfs(1, |full| {
        let folder = tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("t.ring");
        let mut writer = writer(&path, schema(&[("n", Kind::I64, false)]), 4 << 20);
        for n in 0..200_000 {
            writer.append(n, &[Value::I64(n)]).unwrap();
        }
        let limits = Limits {
            bytes: 64 << 20,
            until: Instant::now() + Duration::from_mins(1),
        };
        let to = full.join("copy");
        let copies = copy(folder.path(), &to, limits).unwrap();
        assert_eq!(copies.tables, [""; 0]);
        let left_out = "user.t: No space left on device (os error 28)";
        assert_eq!(copies.left_out, [left_out]);
        assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
    });
}

/// Each row says the same thing three times, so that a torn one would be seen.
#[test]
fn a_copy_has_no_torn_row_while_the_ring_is_written() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let columns = [
        ("a", Kind::I64, false),
        ("b", Kind::Text, false),
        ("c", Kind::Symbol, false),
    ];
    // Small, so that chunks are used again under the copy's eyes.
    let mut writer = writer(&folder.path().join("t.ring"), schema(&columns), 512 << 10);
    let name = |n: i64| format!("a name that is not inline {}", n % 100);
    let names: Vec<String> = (0..100).map(name).collect();
    let done = AtomicBool::new(false);
    let mut append = |n: i64| {
        let name = &names[n as usize % 100];
        let symbol = writer.symbol(name);
        let row = [Value::I64(n), Value::Text(name), Value::Symbol(symbol)];
        writer.append(n, &row).unwrap();
    };
    append(0);
    thread::scope(|scope| {
        let copier = scope.spawn(|| {
            let mut seen = 0_u64;
            while !done.load(Ordering::Relaxed) || seen == 0 {
                let (copy, _) = copied(folder.path(), 1 << 20);
                let snapshot = snapshot(copy.path());
                for chunk in snapshot.chunks() {
                    let data = snapshot.read(chunk, &[1, 2, 3]).unwrap().unwrap();
                    for row in 0..chunk.rows() {
                        let n = chunk.first_row() as i64 + row as i64;
                        let text = Cell::Text(name(n));
                        let cells: Vec<Cell> = data.iter().map(|data| cell(data, row)).collect();
                        assert_eq!(cells, [Cell::Int(n), text.clone(), text]);
                        seen += 1;
                    }
                }
            }
            seen
        });
        for n in 1..1_000_000 {
            append(n);
        }
        done.store(true, Ordering::Relaxed);
        assert!(copier.join().unwrap() > 0);
    });
}
