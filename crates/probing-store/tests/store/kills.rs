//! A writer that is killed in the middle of writing, at random moments.
#![expect(unsafe_code, reason = "a witness in shared memory")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use probing_store::{Kind, Value};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use tempfile::tempdir_in;

use crate::{Cell, schema, snapshot, writer};

const KILLS: u64 = 200;

fn columns() -> probing_store::Schema {
    schema(&[
        ("a", Kind::I64, false),
        ("b", Kind::I64, true),
        ("c", Kind::F64, false),
        ("d", Kind::Text, false),
        ("e", Kind::Bool, true),
    ])
}

fn name(n: i64) -> String {
    format!("a text of row {n}, too long to be inline, and new each time")
}

/// A number that outlives the process which wrote it.
fn witness(file: &File) -> &'static AtomicU64 {
    let (read_write, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping of a file of this size, which stays mapped until the process ends; words are aligned in it.
    unsafe {
        let place = mmap(std::ptr::null_mut(), 8, read_write, shared, file, 0).unwrap();
        AtomicU64::from_ptr(place.cast())
    }
}

/// Not a test: the process that is killed. It writes until then, and notes each row when it has been appended.
#[test]
#[ignore = "started by the test below"]
fn tight_writer() {
    let mut folder = String::new();
    stdin().read_line(&mut folder).unwrap();
    let folder = PathBuf::from(folder.trim_end());
    let file = File::options()
        .read(true)
        .write(true)
        .open(folder.join("witness"))
        .unwrap();
    let witness = witness(&file);
    // Small, so that chunks are used again all the time.
    let mut writer = writer(&folder.join("t.ring"), columns(), 512 << 10);
    let mut out = File::options().write(true).open("/dev/stdout").unwrap();
    for n in 0_i64.. {
        let odd = if n % 2 == 0 {
            Value::Null
        } else {
            Value::I64(n)
        };
        let text = name(n);
        let row = [
            Value::I64(n),
            odd,
            Value::F64(n as f64),
            Value::Text(&text),
            Value::Bool(n % 3 == 0),
        ];
        writer.append(n, &row).unwrap();
        witness.store(n as u64 + 1, Ordering::Release);
        if n == 0 {
            writeln!(out, "writes").unwrap();
            out.flush().unwrap();
        }
    }
}

fn start(folder: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::tight_writer", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{}", folder.display()).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The harness says something of its own before, perhaps on the same line.
    let wrote = lines
        .map_while(Result::ok)
        .any(|line| line.ends_with("writes"));
    assert!(wrote, "the writer writes");
    child
}

#[test]
fn killed_at_any_moment_every_row_is_there_and_none_is_torn() {
    let (mut total, mut in_flight) = (0, 0);
    for kill in 0..KILLS {
        let folder = tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("witness");
        File::create(&path).unwrap().set_len(8).unwrap();
        let mut child = start(folder.path());
        // Any moment will do, and each time another.
        thread::sleep(Duration::from_micros(kill * 7919 % 3000));
        child.kill().unwrap();
        child.wait().unwrap();

        let noted = std::fs::read(&path)
            .unwrap()
            .try_into()
            .map(u64::from_le_bytes)
            .unwrap();
        let snapshot = snapshot(folder.path());
        let mut next = snapshot.chunks()[0].first_row();
        assert!(next == 0 || snapshot.rows() >= 64, "{next}");
        for chunk in snapshot.chunks() {
            let data = snapshot.read(chunk, &[1, 2, 3, 4, 5]).unwrap().unwrap();
            for row in 0..chunk.rows() {
                let n = next as i64;
                let cells: Vec<Cell> = data.iter().map(|data| crate::cell(data, row)).collect();
                let odd = if n % 2 == 0 { Cell::Null } else { Cell::Int(n) };
                let float = Cell::Float((n as f64).to_bits());
                let text = Cell::Text(name(n));
                assert_eq!(
                    cells,
                    [Cell::Int(n), odd, float, text, Cell::Bool(n % 3 == 0)]
                );
                next += 1;
            }
        }
        // What was noted had been committed; one more may have been.
        assert!(
            next == noted || next == noted + 1,
            "{next} rows, {noted} noted"
        );
        total += next;
        in_flight += next - noted;
    }
    assert!(total > KILLS, "{total} rows in all, {in_flight} not noted");
}
