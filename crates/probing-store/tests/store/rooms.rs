//! Rings where there is little room, or none.

use std::fs;

use probing_store::{Budget, Kind, Storage, Value, Writer};
use tempfile::tempdir_in;

use crate::{KEY, rows, schema, snapshot};

fn columns() -> probing_store::Schema {
    schema(&[("n", Kind::I64, false), ("t", Kind::Text, true)])
}

#[test]
fn without_a_budget_rows_are_kept_in_the_process() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("t.ring");
    let mut writer = Writer::create(&path, columns(), KEY, 0, &Budget::new(1000)).unwrap();
    for n in 0..100_000 {
        let row = [Value::I64(n), Value::Text("a text that is not short")];
        writer.append(n, &row).unwrap();
    }
    let Storage::Heap { reason } = writer.storage() else {
        panic!("there is room")
    };
    assert_eq!(
        reason,
        "the memory that may be used for recording is used up (1000 bytes left)"
    );
    assert_eq!(writer.rows(), 100_000);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn where_no_file_can_be_made_rows_are_kept_in_the_process() {
    let path = std::path::Path::new("/dev/shm/probing-no-such-folder/t.ring");
    let writer = Writer::create(path, columns(), KEY, 0, &Budget::new(1 << 20)).unwrap();
    let Storage::Heap { reason } = writer.storage() else {
        panic!("there is such a folder")
    };
    assert!(reason.contains("No such file"), "{reason}");
}

#[test]
fn little_room_makes_smaller_chunks() {
    let folder = tempdir_in("/dev/shm").unwrap();
    for (bytes, most) in [(64 << 10, 64), (1 << 20, 1024), (8 << 20, 4096)] {
        let path = folder.path().join("t.ring");
        let mut writer = Writer::create(&path, columns(), KEY, 0, &Budget::new(bytes)).unwrap();
        assert_eq!(writer.storage(), Storage::Shared, "{bytes}");
        for n in 0..10_000 {
            writer.append(n, &[Value::I64(n), Value::Null]).unwrap();
        }
        let snapshot = snapshot(folder.path());
        assert_eq!(snapshot.chunks()[0].rows(), most, "{bytes}");
        let kept = rows(&snapshot);
        assert_eq!(kept.last().unwrap()[0], crate::Cell::Int(9_999));
        fs::remove_file(path).unwrap();
    }
}
