//! What a row costs to write and to read, for `benches/run store`.
//!
//! Prints one figure per line: its name and its value.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for the bench"
)]

use std::hint::black_box;

use probing_proto::process::{Pid, ProcessKey};
use probing_store::{Budget, Column, Kind, Schema, Store, Value, Writer};
use rustix::time::{ClockId, clock_gettime};

/// As the command has it: whoever reads asks for buffers of the same sizes again and again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: i64 = 1_000_000;
const ROUNDS: usize = 7;
const KEY: ProcessKey = ProcessKey {
    pid: Pid(1),
    start_ticks: 1,
};

/// As a trace of a training job has them.
fn schema() -> Schema {
    let column = |(name, kind): (&str, Kind)| Column {
        name: name.to_owned(),
        kind,
        nullable: false,
        doc: String::new(),
    };
    let columns = [
        ("ts", Kind::Time),
        ("step", Kind::I64),
        ("module", Kind::Symbol),
        ("stage", Kind::Symbol),
        ("duration", Kind::F64),
        ("bytes", Kind::I64),
    ];
    Schema {
        table: "bench.trace".to_owned(),
        columns: columns.into_iter().map(column).collect(),
    }
}

fn main() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let budget = Budget::new(128 << 20);
    let path = folder.path().join("trace.ring");
    let mut writer = Writer::create(&path, schema(), KEY, 0, &budget).unwrap();
    let modules: Vec<u32> = (0..200)
        .map(|n| writer.symbol(&format!("model.layers.{n}")))
        .collect();
    let stages = ["forward", "backward", "step", "other"].map(|stage| writer.symbol(stage));
    let mut write = || {
        for n in 0..ROWS {
            let row = [
                Value::I64(n / 1000),
                Value::Symbol(modules[n as usize % 200]),
                Value::Symbol(stages[n as usize % 4]),
                Value::F64(n as f64),
                Value::I64(n * 64),
            ];
            writer.append(n, &row).unwrap();
        }
    };
    let first = cpu_nanos(&mut write);
    let again = (0..ROUNDS).map(|_| cpu_nanos(&mut write)).min().unwrap();
    println!("write_first_ns {}", first as f64 / ROWS as f64);
    println!("write_ns {}", again as f64 / ROWS as f64);

    let store = Store::open(folder.path()).unwrap();
    let snapshot = store.table("bench.trace").unwrap().snapshot().unwrap();
    let rows = snapshot.rows() as f64;
    println!("bytes_per_row {}", store.bytes() as f64 / rows);
    for (name, columns) in [
        ("two_numbers", &[1, 4][..]),
        ("two_symbols", &[2, 3]),
        ("all_six", &[0, 1, 2, 3, 4, 5]),
    ] {
        let scan = || {
            for chunk in snapshot.chunks() {
                black_box(snapshot.read(chunk, columns).unwrap().unwrap());
            }
        };
        let best = (0..ROUNDS).map(|_| cpu_nanos(scan)).min().unwrap();
        println!("scan_{name} {}", rows * 1e3 / best as f64);
    }
}

/// CPU time of this process, which others on the machine do not change much.
fn cpu_nanos(mut work: impl FnMut()) -> i64 {
    let now = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let begin = now();
    work();
    now() - begin
}
