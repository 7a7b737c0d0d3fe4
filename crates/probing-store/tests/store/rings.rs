//! A ring while it is written: bounded, in order, and never torn.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use probing_store::{Budget, Chunk, Kind, Store, Tally, Value, Writer, Zone, monotonic_nanos};
use tempfile::tempdir_in;

use crate::{Cell, KEY, budget, rows, schema, snapshot, writer};

#[test]
fn a_full_ring_forgets_its_oldest_rows_and_no_others() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let mut writer = writer(
        &folder.path().join("t.ring"),
        schema(&[("n", Kind::I64, false)]),
        1 << 20,
    );
    for n in 0..200_000 {
        writer.append(n, &[Value::I64(n)]).unwrap();
    }
    assert!(writer.bytes() <= 1 << 20, "{}", writer.bytes());
    let numbers = rows(&snapshot(folder.path()));
    let first = 200_000 - numbers.len() as i64;
    assert!(numbers.len() > 20_000, "{}", numbers.len());
    let expected: Vec<Vec<Cell>> = (first..200_000).map(|n| vec![Cell::Int(n)]).collect();
    assert!(numbers == expected);
    assert_eq!(writer.rows(), 200_000);
}

#[test]
fn zones_hold_all_values_of_a_chunk() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let columns = [
        ("n", Kind::I64, true),
        ("x", Kind::F64, false),
        ("nan", Kind::F64, false),
        ("none", Kind::U8, true),
        ("b", Kind::Bool, false),
        ("t", Kind::Text, false),
    ];
    let mut writer = writer(&folder.path().join("t.ring"), schema(&columns), 16 << 20);
    for n in 0..5000_i64 {
        let number = if n % 7 == 0 {
            Value::Null
        } else {
            Value::I64(-n)
        };
        let nan = if n == 9 { f64::NAN } else { 1.0 };
        let row = [
            number,
            Value::F64(n as f64 / 2.0),
            Value::F64(nan),
            Value::Null,
            Value::Bool(false),
            Value::Text("t"),
        ];
        writer.append(n, &row).unwrap();
    }
    let snapshot = snapshot(folder.path());
    let [full, last] = snapshot.chunks() else {
        panic!("two chunks")
    };
    assert_eq!((full.rows(), last.rows()), (4096, 904));
    let zone = |column| snapshot.zone(full, column);
    assert_eq!(
        zone(1),
        Some(Zone::Int {
            min: -4094,
            max: -1
        })
    );
    assert_eq!(
        zone(2),
        Some(Zone::Float {
            min: 0.0,
            max: 2047.5
        })
    );
    assert_eq!(zone(3), None);
    assert_eq!(zone(4), Some(Zone::Empty));
    assert_eq!(zone(5), Some(Zone::Int { min: 0, max: 0 }));
    assert_eq!(zone(6), None);
    let tally = |column| snapshot.tally(full, column);
    let known = |values, sum| Some(Tally { values, sum });
    let sum = (0..4096).filter(|n| n % 7 != 0).sum::<i64>();
    assert_eq!(tally(0), known(4096, None));
    assert_eq!(tally(1), known(4096 - 586, Some(-sum)));
    assert_eq!(tally(2), known(4096, None));
    assert_eq!(tally(4), known(0, Some(0)));
    assert_eq!(tally(5), known(4096, None));
    assert_eq!(tally(6), known(4096, None));
    // Still being written: only its time is known.
    assert_eq!(snapshot.tally(last, 1), None);
    assert_eq!(snapshot.zone(last, 1), None);
    assert!(matches!(snapshot.zone(last, 0), Some(Zone::Int { .. })));
}

#[test]
fn a_ring_leaves_room_for_others() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let budget = Budget::new(4 << 20);
    let make = |name: &str| {
        let path = folder.path().join(name);
        Writer::create(&path, schema(&[("n", Kind::I64, false)]), KEY, 0, &budget).unwrap()
    };
    let mut greedy = make("a.ring");
    for n in 0..1_000_000 {
        greedy.append(n, &[Value::I64(n)]).unwrap();
    }
    assert!(
        greedy.bytes() > 1 << 20 && greedy.bytes() <= 2 << 20,
        "{}",
        greedy.bytes()
    );
    let mut second = make("b.ring");
    for n in 0..1_000_000 {
        second.append(n, &[Value::I64(n)]).unwrap();
    }
    assert!(second.bytes() > 512 << 10, "{}", second.bytes());
    assert_eq!(second.storage(), probing_store::Storage::Shared);
}

/// Each row says the same thing five times, so that a torn one would be seen.
#[test]
fn readers_never_see_a_torn_row_while_rings_are_written() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let columns = [
        ("a", Kind::I64, false),
        ("b", Kind::I64, true),
        ("c", Kind::F64, false),
        ("d", Kind::Text, false),
        ("e", Kind::Symbol, false),
    ];
    // Small, so that chunks are used again under the readers' eyes.
    let mut writer = writer(&folder.path().join("t.ring"), schema(&columns), 512 << 10);
    let names: Vec<String> = (0..100)
        .map(|n| format!("a name that is not inline {n}"))
        .collect();
    let done = AtomicBool::new(false);
    let mut append = |n: i64| {
        let name = &names[n as usize % 100];
        let symbol = writer.symbol(name);
        let row = [
            Value::I64(n),
            if n % 2 == 0 {
                Value::Null
            } else {
                Value::I64(n)
            },
            Value::F64(n as f64),
            Value::Text(name),
            Value::Symbol(symbol),
        ];
        writer.append(n, &row).unwrap();
    };
    append(0);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut seen, mut highest) = (0_u64, 0);
            while !done.load(Ordering::Relaxed) || seen == 0 {
                let snapshot = snapshot(folder.path());
                // Of one moment: nothing is missing between the oldest row and the newest.
                for pair in snapshot.chunks().windows(2) {
                    let end = pair[0].first_row() + pair[0].rows() as u64;
                    assert_eq!(end, pair[1].first_row());
                }
                for chunk in snapshot.chunks() {
                    // What is told of the chunk is so, also when its rows are gone by now.
                    let first = chunk.first_row() as i64;
                    let numbers = first..first + chunk.rows() as i64;
                    if let Some(tally) = snapshot.tally(chunk, 1) {
                        assert_eq!(tally.sum, Some(numbers.clone().sum()));
                        let odd = numbers.filter(|n| n % 2 == 1).count();
                        let odds = snapshot.tally(chunk, 2).map(|tally| tally.values as usize);
                        assert_eq!(odds, Some(odd));
                    }
                    let Some(data) = snapshot.read(chunk, &[1, 2, 3, 4, 5]).unwrap() else {
                        continue;
                    };
                    for row in 0..chunk.rows() {
                        let cells: Vec<Cell> =
                            data.iter().map(|data| crate::cell(data, row)).collect();
                        let Cell::Int(n) = cells[0] else {
                            panic!("a number")
                        };
                        let name = Cell::Text(names[n as usize % 100].clone());
                        let odd = if n % 2 == 0 { Cell::Null } else { Cell::Int(n) };
                        let float = Cell::Float((n as f64).to_bits());
                        assert_eq!(cells, [Cell::Int(n), odd, float, name.clone(), name]);
                        highest = highest.max(n);
                        seen += 1;
                    }
                }
            }
            (seen, highest)
        });
        for n in 1..2_000_000 {
            append(n);
        }
        done.store(true, Ordering::Relaxed);
        let (seen, highest) = reader.join().unwrap();
        assert!(seen > 0 && highest > 0, "{seen} rows, up to {highest}");
    });
}

#[test]
fn a_pinned_snapshot_stays_while_its_writer_comes_round_again_and_again() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let columns = [("a", Kind::I64, false), ("b", Kind::Text, false)];
    let mut writer = writer(&folder.path().join("t.ring"), schema(&columns), 512 << 10);
    let mut append = |n: i64| {
        let row = [Value::I64(n), Value::Text("a text that is not inline")];
        writer.append(monotonic_nanos(), &row).unwrap();
    };
    append(0);
    let (done, room) = (AtomicBool::new(false), AtomicU64::new(u64::MAX));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let store = Store::open(folder.path()).unwrap();
            let table = &store.tables()[0];
            let oldest = || {
                let snapshot = table.snapshot().unwrap();
                snapshot.chunks().first().map_or(0, Chunk::first_row)
            };
            for _ in 0..50 {
                let pinned = table.pinned_snapshot(&room).unwrap();
                assert!(pinned.rows() > 0, "{} overwritten", pinned.overwritten());
                let last = pinned.chunks().last().unwrap().first_row();
                // Every chunk of the ring has been used again by then.
                while oldest() <= last {
                    thread::yield_now();
                }
                let rows = rows(&pinned);
                let first = pinned.chunks()[0].first_row() as i64;
                for (n, row) in (first..).zip(&rows) {
                    assert_eq!(row[0], Cell::Int(n));
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut n = 1;
        while !done.load(Ordering::Relaxed) && !reader.is_finished() {
            append(n);
            n += 1;
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_snapshot_is_pinned_only_where_there_is_room_for_it() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let columns = [("a", Kind::I64, false)];
    let mut writer = writer(&folder.path().join("t.ring"), schema(&columns), 512 << 10);
    for n in 0..100 {
        writer.append(monotonic_nanos(), &[Value::I64(n)]).unwrap();
    }
    let store = Store::open(folder.path()).unwrap();
    let pinned = |room: u64| {
        let room = AtomicU64::new(room);
        let snapshot = store.tables()[0].pinned_snapshot(&room).unwrap();
        assert_eq!(snapshot.rows(), 100);
        room.into_inner()
    };
    assert_eq!(pinned(10), 10);
    assert!(pinned(1 << 30) < 1 << 30);
}

#[test]
fn several_threads_write_a_table_each_into_a_shard_of_its_own() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let budget = budget();
    thread::scope(|scope| {
        for shard in 0..4_u32 {
            let (folder, budget) = (folder.path(), &budget);
            scope.spawn(move || {
                let path = folder.join(format!("{shard}.ring"));
                let columns = schema(&[("n", Kind::I64, false), ("s", Kind::U32, false)]);
                let mut writer = Writer::create(&path, columns, KEY, shard, budget).unwrap();
                for n in 0..10_000 {
                    let row = [Value::I64(n), Value::I64(shard.into())];
                    writer.append(n, &row).unwrap();
                }
            });
        }
    });
    let store = Store::open(folder.path()).unwrap();
    let table = store.table("user.t").unwrap();
    let shards: Vec<u32> = table
        .rings()
        .iter()
        .map(|ring| ring.origin().shard)
        .collect();
    assert_eq!(shards.len(), 4);
    let mut rows = rows(&table.snapshot().unwrap());
    assert_eq!(rows.len(), 40_000);
    rows.sort_by_key(|row| match row[..] {
        [Cell::Int(n), Cell::Int(shard)] => (shard, n),
        _ => panic!("two numbers"),
    });
    for (index, row) in rows.iter().enumerate() {
        let (shard, n) = (index as i64 / 10_000, index as i64 % 10_000);
        assert_eq!(row[..], [Cell::Int(n), Cell::Int(shard)]);
    }
}

#[test]
fn a_ring_that_ends_gives_back_what_it_does_not_need() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let budget = budget();
    let columns = [
        ("n", Kind::I64, true),
        ("t", Kind::Text, true),
        ("x", Kind::F64, false),
    ];
    for count in [0, 1, 700, 4096, 5000, 100_000] {
        let path = folder.path().join("t.ring");
        let mut writer = Writer::create(&path, schema(&columns), KEY, 0, &budget).unwrap();
        let text = |n: i64| format!("a text of row {n} that is not inline, {}", "x".repeat(300));
        for n in 0..count {
            let text = text(n);
            writer
                .append(n, &[Value::I64(n), Value::Text(&text), Value::F64(0.5)])
                .unwrap();
        }
        let before = Store::open(folder.path()).unwrap().bytes();
        let rows_before = rows(&snapshot(folder.path()));
        writer.retire();
        let after = Store::open(folder.path()).unwrap().bytes();
        assert!(rows(&snapshot(folder.path())) == rows_before, "{count}");
        assert!(rows_before.len() as i64 == count || count > 4096);
        match count {
            0 | 1 => assert!(after < before / 5, "{count}: {after} of {before}"),
            100_000 => assert_eq!(after, before),
            _ => assert!(after < before, "{count}: {after} of {before}"),
        }
        std::fs::remove_file(path).unwrap();
    }
}
