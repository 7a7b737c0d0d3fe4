//! Rings where there is little room, or none.

#![expect(clippy::print_stderr, reason = "says what was left out")]
#![expect(unsafe_code, reason = "a view of the files that is its own thread's")]

use std::fs;
use std::path::Path;
use std::thread;

use probing_store::{Budget, Kind, Storage, Value, Writer};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tempfile::{tempdir, tempdir_in};

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

/// Does something with a tmpfs of this size, which only this thread sees. False where we may not.
pub(crate) fn on_a_small_tmpfs(megabytes: u32, work: impl FnOnce(&Path) + Send) -> bool {
    let folder = tempdir().unwrap();
    let alone = || -> rustix::io::Result<()> {
        // SAFETY: of this thread alone, which opens and closes what it uses by itself.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private)?;
        let options = std::ffi::CString::new(format!("size={megabytes}m")).unwrap();
        mount(
            "tmpfs",
            folder.path(),
            "tmpfs",
            MountFlags::empty(),
            options.as_c_str(),
        )
    };
    thread::scope(|scope| {
        let body = || match alone() {
            Ok(()) => {
                work(folder.path());
                true
            }
            Err(error) => {
                eprintln!("left out: a file system of our own ({error}); run the tests as root");
                false
            }
        };
        scope.spawn(body).join().unwrap()
    })
}

#[test]
fn on_a_tmpfs_of_one_megabyte_rings_stay_small_and_nobody_dies() {
    on_a_small_tmpfs(1, |folder| {
        // More is allowed than there is: what cannot be reserved is not touched.
        let budget = Budget::new(32 << 20);
        let make =
            |name: &str| Writer::create(&folder.join(name), columns(), KEY, 0, &budget).unwrap();
        let mut first = make("a.ring");
        assert_eq!(first.storage(), Storage::Shared);
        let text = "a text that does not fit into its view ".repeat(3);
        for n in 0..100_000 {
            let text = format!("{text}{n}");
            first
                .append(n, &[Value::I64(n), Value::Text(&text)])
                .unwrap();
        }
        assert!(first.bytes() <= 1 << 20, "{}", first.bytes());
        let kept = rows(&snapshot(folder));
        assert_eq!(kept.last().unwrap()[0], crate::Cell::Int(99_999));
        assert!(kept.len() >= 64, "{}", kept.len());
        // Somebody else takes what is left.
        fs::write(folder.join("rest"), vec![0; 2 << 20]).unwrap_err();
        let mut second = make("b.ring");
        let Storage::Heap { reason } = second.storage() else {
            panic!("there is room")
        };
        assert!(reason.contains("No space left on device"), "{reason}");
        for n in 0..100_000 {
            second
                .append(n, &[Value::I64(n), Value::Text(&text)])
                .unwrap();
            first
                .append(n, &[Value::I64(n), Value::Text(&text)])
                .unwrap();
        }
        assert_eq!(
            rows(&snapshot(folder)).last().unwrap()[0],
            crate::Cell::Int(99_999)
        );
    });
}
