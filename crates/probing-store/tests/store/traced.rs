//! Rows of tracers: a record is a row when something begins, and two when that has ended; that of a line stays one.

use std::path::Path;

use probing_store::ring::packed::{self, LineRow, TraceEventKind, TraceRow};
use probing_store::{TraceRowId, Writer, Zone};
use proptest::prelude::*;
use tempfile::tempdir_in;

use crate::{Cell, cell, snapshot, writer};

const NAMES: [&str; 6] = ["call", "return", "yield", "resume", "exception", "line"];

/// A row as it is read back: what, depth, duration, step.
type Row = (&'static str, i64, Option<i64>, Option<i64>);

/// What a tracer does, and what it should be read as.
struct Traced {
    writer: Writer,
    function: u32,
    now: i64,
    open: Vec<(TraceRowId, i64)>,
    /// The line that the thread is at, when it came there, and which of the expected rows that is.
    line: Option<(TraceRowId, i64, usize)>,
    step: Option<i64>,
    expected: Vec<Row>,
}

impl Traced {
    fn new(folder: &Path, bytes: u64) -> Self {
        let mut writer = writer(&folder.join("t.ring"), packed::schema(), bytes);
        Self {
            function: writer.function("f", "f.py", 7),
            writer,
            now: 1000,
            open: Vec::new(),
            line: None,
            step: None,
            expected: Vec::new(),
        }
    }

    fn row(&self, did: TraceEventKind, took: Option<i64>) -> TraceRow {
        TraceRow {
            ts: self.now,
            did,
            function: self.function,
            thread_id: 42,
            depth: self.open.len() as u16,
            duration_nanos: took,
            step: self.step,
        }
    }

    fn expect(&mut self, did: TraceEventKind, took: Option<i64>) {
        let depth = self.open.len() as i64;
        let name = NAMES[did as usize];
        self.expected.push((name, depth, took, self.step));
    }

    /// Comes to a line; the one before has ended. Whether that could be told.
    fn line(&mut self) -> bool {
        self.now += 10;
        let is_told = self.end_line();
        let place = self.writer.append_line(&LineRow {
            ts: self.now,
            line: self.function,
            thread_id: 42,
            depth: self.open.len() as u16,
            step: self.step,
        });
        self.line = Some((place, self.now, self.expected.len()));
        self.expected
            .push((NAMES[5], self.open.len() as i64, None, self.step));
        is_told
    }

    fn end_line(&mut self) -> bool {
        let Some((place, began, row)) = self.line.take() else {
            return true;
        };
        let took = self.now - began;
        let is_told = self.writer.end_line(place, took);
        if is_told {
            self.expected[row].2 = Some(took);
        }
        is_told
    }

    fn begin(&mut self, did: TraceEventKind) {
        self.now += 10;
        let place = self.writer.append_trace(&self.row(did, None));
        self.expect(did, None);
        self.open.push((place, self.now));
    }

    /// Whether it had its place in the row of its beginning.
    fn end(&mut self, did: TraceEventKind) -> bool {
        self.now += 10;
        self.end_line();
        let Some((place, began)) = self.open.pop() else {
            return true;
        };
        let took = self.now - began;
        self.expect(did, Some(took));
        let is_there = self.writer.end_trace(place, did, took, self.step);
        if !is_there {
            self.writer.append_trace(&self.row(did, Some(took)));
        }
        is_there
    }
}

/// All rows in the order in which they are read, which is that of their times, as far as one chunk knows them.
fn read(folder: &Path) -> Vec<Row> {
    let snapshot = snapshot(folder);
    let column = |name: &str| {
        let columns = snapshot.columns().iter();
        columns.clone().position(|it| it.name == name).unwrap()
    };
    let wanted = [
        "kind",
        "depth",
        "ts",
        "duration_ns",
        "step",
        "thread_id",
        "func",
        "file",
        "lineno",
    ]
    .map(column);
    let mut all = Vec::new();
    for chunk in snapshot.chunks() {
        let data = snapshot.read(chunk, &wanted).unwrap().unwrap();
        let Some(Zone::Int { min, max }) = snapshot.zone(chunk, wanted[2]) else {
            panic!("bounds of the time are known");
        };
        let mut bounds = (i64::MAX, i64::MIN);
        for row in 0..chunk.rows() {
            let int = |place: usize| match cell(&data[place], row) {
                Cell::Int(value) => Some(value),
                _ => None,
            };
            let Cell::Text(kind) = cell(&data[0], row) else {
                panic!("no kind");
            };
            let kind = NAMES.iter().find(|name| **name == kind).unwrap();
            let ts = int(2).unwrap();
            assert!(ts >= bounds.1, "in the order of time");
            bounds = (bounds.0.min(ts), ts);
            all.push((*kind, int(1).unwrap(), int(3), int(4)));
            assert_eq!((int(5), int(8)), (Some(42), Some(7)));
            assert_eq!(cell(&data[6], row), Cell::Text("f".to_owned()));
            assert_eq!(cell(&data[7], row), Cell::Text("f.py".to_owned()));
        }
        assert_eq!((min, max), bounds);
        if let Some(tally) = snapshot.tally(chunk, wanted[2]) {
            assert_eq!(tally.values as usize, chunk.rows());
        }
    }
    assert_eq!(all.len(), snapshot.rows());
    all
}

#[test]
fn what_begins_is_a_row_at_once_and_its_end_is_the_next_in_time() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let mut traced = Traced::new(folder.path(), 1 << 20);
    traced.begin(TraceEventKind::Call);
    assert_eq!(read(folder.path()), traced.expected);
    traced.begin(TraceEventKind::Call);
    assert!(traced.end(TraceEventKind::Exception));
    traced.begin(TraceEventKind::Resume);
    assert_eq!(read(folder.path()), traced.expected);
    assert!(traced.end(TraceEventKind::Yield));
    assert!(traced.end(TraceEventKind::Return));
    let kinds: Vec<_> = traced.expected.iter().map(|row| row.0).collect();
    assert_eq!(
        kinds,
        ["call", "call", "exception", "resume", "yield", "return"]
    );
    assert_eq!(read(folder.path()), traced.expected);
    // Of who has ended, too.
    let expected = traced.expected.clone();
    drop(traced);
    assert_eq!(read(folder.path()), expected);
}

#[test]
fn an_end_in_another_step_or_after_its_place_is_full_is_a_row_of_its_own() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let mut traced = Traced::new(folder.path(), 1 << 20);
    traced.step = Some(1);
    traced.begin(TraceEventKind::Call);
    traced.step = Some(2);
    assert!(!traced.end(TraceEventKind::Return));
    traced.begin(TraceEventKind::Call);
    for _ in 0..5000 {
        traced.begin(TraceEventKind::Call);
        traced.end(TraceEventKind::Return);
    }
    assert!(!traced.end(TraceEventKind::Return));
    assert_eq!(read(folder.path()), traced.expected);
}

#[test]
fn a_line_is_one_row_that_is_told_how_long_it_took_while_its_place_is_not_full() {
    let folder = tempdir_in("/dev/shm").unwrap();
    let mut traced = Traced::new(folder.path(), 1 << 20);
    traced.begin(TraceEventKind::Call);
    traced.line();
    assert_eq!(read(folder.path()), traced.expected);
    // In another step, too: it is the step in which it began.
    traced.step = Some(1);
    assert!(traced.line());
    assert!(traced.expected[1].2.is_some());
    for _ in 0..5000 {
        traced.begin(TraceEventKind::Call);
    }
    assert!(!traced.line());
    traced.end(TraceEventKind::Return);
    assert_eq!(read(folder.path()), traced.expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_tracer_does_is_read_in_order(
        // Begins, ends, and now and then a line, a step or a look.
        does in prop::collection::vec(0..45_u8, 1..900),
    ) {
        let folder = tempdir_in("/dev/shm").unwrap();
        // Chunks are small.
        let mut traced = Traced::new(folder.path(), 160 << 10);
        for what in does {
            match what {
                0..19 => traced.begin(if what < 5 { TraceEventKind::Resume } else { TraceEventKind::Call }),
                19..37 => {
                    traced.end([TraceEventKind::Return, TraceEventKind::Yield, TraceEventKind::Exception][what as usize % 3]);
                }
                37 => traced.step = Some(traced.step.map_or(0, |step| step + 1)),
                38..43 => {
                    traced.line();
                }
                _ => {
                    let read = read(folder.path());
                    let gone = traced.expected.len() - read.len();
                    prop_assert_eq!(&read, &traced.expected[gone..]);
                }
            }
        }
        let read = read(folder.path());
        // Where the first are gone, the last are those.
        let gone = traced.expected.len() - read.len();
        prop_assert_eq!(&read, &traced.expected[gone..]);
    }
}
