//! Captures of stops that timed out or met an uncaught exception, in the folder `PROBING_CAPTURE_DIR`.
//!
//! Stops that nobody could look at leave a capture, where `PROBING_CAPTURE_DIR` says where: those whose time was
//! over, and those at an exception that nobody catches. It is a folder with the parts of a capture as JSON, and
//! with copies of the rings of what the process has recorded; `probing -t x.probe` reads it like the file that it
//! writes itself. So the guest needs no archive, and starts no process in somebody else's program.

mod folder;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use probing_proto::capture::{Excerpt, FORMAT, MANIFEST, Manifest, RINGS, SOURCES, STACKS};
use probing_proto::env::PROBING_CAPTURE_DIR;
use probing_proto::message::FrameLocals;
use probing_proto::message::breakpoints::Stop;
use probing_proto::process::Pid;
use probing_proto::report::{
    BacktraceReport, FrameType, GilState, ReadMethod, ReportedFrame, ReportedLocal, ReportedThread,
};
use probing_proto::text::function_lines;
use probing_store::{CopyReport, Limits};
use pyo3::prelude::*;

use self::folder::Folder;
use crate::breakpoints::of_this_process;
use crate::eval::source_lines;
use crate::inspect::locals;
use crate::python::current_thread::own_thread;
use crate::python::{current_thread, frame};
use crate::recording::rank;
use crate::recording::{self, Recorded};

/// Captures of one process: a loop of stops must not fill a disk.
const MAX_CAPTURES: u32 = 100;
/// Bytes of recorded rows in one capture, and in all of a process.
const MAX_ROW_BYTES: u64 = 64 << 20;
const MAX_TOTAL_ROW_BYTES: u64 = 256 << 20;
/// How long copying them may take.
const COPY_TIMEOUT: Duration = Duration::from_secs(5);
/// Threads beside the one that stopped.
const MAX_OTHERS: usize = 200;
/// Lines on each side of a place.
const AROUND: u32 = 10;
/// Lines that are looked at for the function that a place is in.
const IN_SIGHT: u32 = 500;
const MAX_EXCERPTS: usize = 200;

static WRITTEN: AtomicU32 = AtomicU32::new(0);
static WRITTEN_ROWS: AtomicU64 = AtomicU64::new(0);

/// Writes one, if that was asked for; what came of it, in words.
pub(crate) fn keep(stack: &[Bound<'_, PyAny>], stop: Stop, reason: &str) -> Option<String> {
    let folder = PathBuf::from(PROBING_CAPTURE_DIR.value()?);
    let py = stack.first()?.py();
    if WRITTEN.fetch_add(1, Ordering::AcqRel) >= MAX_CAPTURES {
        return Some(format!(
            "not captured: {MAX_CAPTURES} captures are the limit"
        ));
    }
    let began = SystemTime::now();
    let threads = threads(py, stack);
    let sources = sources(py, &threads);
    let taken_at_nanos = began
        .duration_since(UNIX_EPOCH)
        .map_or(0, |it| it.as_nanos() as u64);
    let version = py.version_info();
    let python = format!("{}.{}", version.major, version.minor);
    let pid = Pid(std::process::id());
    let name = format!("{pid}-stop-{}", stop.stop.0);
    let manifest = Manifest {
        format: FORMAT,
        probing: env!("CARGO_PKG_VERSION").to_owned(),
        taken_at_nanos,
        reason: reason.to_owned(),
        host: kernel("/proc/sys/kernel/hostname").concat(),
        pid,
        rank: rank::rank(),
        python: python.clone(),
        command: kernel("/proc/self/cmdline"),
        stops: vec![stop],
        points: of_this_process().armed(),
        tables: Vec::new(),
        missing: Vec::new(),
    };
    let stacks = BacktraceReport {
        pid,
        python,
        threads,
        taken_at_nanos,
        took_seconds: began.elapsed().map_or(0.0, |took| took.as_secs_f64()),
        paused_seconds: 0.0,
        threads_without_native: 0,
        read: ReadMethod::Probe,
        notes: Vec::new(),
    };
    let recorded = recording::recorded(py);
    // Without the GIL: a disk may be slow.
    let written = py.detach(|| {
        let folder = Folder::begin(&folder, &name)?;
        folder.write(STACKS, serde_json::to_value(stacks))?;
        folder.write(SOURCES, serde_json::to_value(sources))?;
        let manifest = with_rows(manifest, &folder, recorded);
        folder.write(MANIFEST, serde_json::to_value(manifest))?;
        folder.finish()
    });
    Some(match written {
        Ok(path) => format!("captured: {}", path.display()),
        Err(error) => {
            let path = folder.join(name);
            format!("not captured: {}: {error}", path.display())
        }
    })
}

/// Copies what the process has recorded, as far as that can be had: a capture without it is better than none.
fn with_rows(mut manifest: Manifest, folder: &Folder, recorded: Option<Recorded>) -> Manifest {
    let Some(Recorded { rings, heap }) = recorded else {
        return manifest;
    };
    let missing = &mut manifest.missing;
    missing.extend(heap.map(|why| format!("rows in the memory of the process alone: {why}")));
    match rings.map(|rings| copied(&rings, &folder.part(RINGS))) {
        Some(Ok(copies)) => {
            missing.extend(copies.left_out);
            manifest.tables = copies.tables;
        }
        Some(Err(error)) => missing.push(format!("tables: {error}")),
        None => {}
    }
    manifest
}

fn copied(rings: &Path, to: &Path) -> io::Result<CopyReport> {
    // The rest is for the program.
    let room = to.parent().map_or(0, probing_store::free_bytes) / 2;
    let left = MAX_TOTAL_ROW_BYTES.saturating_sub(WRITTEN_ROWS.load(Ordering::Acquire));
    let limits = Limits {
        bytes: MAX_ROW_BYTES.min(left).min(room),
        until: Instant::now() + COPY_TIMEOUT,
    };
    let copies = probing_store::copy(rings, to, limits)?;
    WRITTEN_ROWS.fetch_add(copies.bytes, Ordering::AcqRel);
    Ok(copies)
}

/// What the kernel says, in the parts that NULs and ends of lines make.
fn kernel(file: &str) -> Vec<String> {
    let told = fs::read(file).unwrap_or_default();
    let parts = told.split(|byte| matches!(byte, 0 | b'\n'));
    let parts = parts.map(|part| String::from_utf8_lossy(part).into_owned());
    parts.filter(|part| !part.is_empty()).collect()
}

/// The thread that stopped, then the others.
fn threads(py: Python<'_>, stack: &[Bound<'_, PyAny>]) -> Vec<ReportedThread> {
    let own = own_thread();
    let mut all = vec![ReportedThread {
        thread_id: Some(current_thread::id()),
        state: "stopped".to_owned(),
        ..report_thread(py, own, stack)
    }];
    let current = py
        .import("sys")
        .and_then(|sys| sys.getattr("_current_frames"));
    let current = current.and_then(|current| current.call0());
    let current = current.and_then(|it| {
        it.extract::<Vec<(u64, Bound<'_, PyAny>)>>()
            .or_else(|_| pairs(&it))
    });
    for (ident, innermost) in current.unwrap_or_default().into_iter().take(MAX_OTHERS) {
        if ident != own {
            all.push(report_thread(py, ident, &frame::stack(&innermost)));
        }
    }
    all
}

fn pairs<'py>(current: &Bound<'py, PyAny>) -> PyResult<Vec<(u64, Bound<'py, PyAny>)>> {
    let items = current.call_method0("items")?.try_iter()?;
    items.map(|item| item?.extract()).collect()
}

fn report_thread(py: Python<'_>, ident: u64, stack: &[Bound<'_, PyAny>]) -> ReportedThread {
    let frames = locals::describe_frames(stack).unwrap_or_default();
    let name = current_thread::name_of(py, ident);
    ReportedThread {
        thread_id: None,
        ident,
        daemon: None,
        main: name == "MainThread",
        thread_name: Some(name),
        state: "not known".to_owned(),
        gil: GilState::Free,
        gil_holder: None,
        interpreter: None,
        runs_thread: None,
        complete: true,
        missing: None,
        frames: frames.into_iter().enumerate().map(reported).collect(),
    }
}

fn reported((depth, frame): (usize, FrameLocals)) -> ReportedFrame {
    let locals = frame.locals.map(|locals| {
        let each = locals.into_iter().map(|local| ReportedLocal {
            name: local.name.into(),
            value: local.value.into(),
            kind: Some(local.kind.into()),
        });
        each.collect()
    });
    ReportedFrame {
        func: frame.func.into(),
        file: frame.file.into(),
        lineno: frame.lineno,
        depth,
        frame_type: FrameType::Python,
        address: None,
        source_file: None,
        source: None,
        locals,
        more_locals: frame.more,
    }
}

/// Lines around every place.
fn sources(py: Python<'_>, threads: &[ReportedThread]) -> Vec<Excerpt> {
    let mut all: Vec<Excerpt> = Vec::new();
    for frame in threads.iter().flat_map(|thread| &thread.frames) {
        let Some(line) = frame.lineno else { continue };
        let is_there = |it: &Excerpt| {
            let lines = it.first..it.first + it.lines.len() as u32;
            *it.file == *frame.file && lines.contains(&line)
        };
        if all.len() >= MAX_EXCERPTS || all.iter().any(is_there) {
            continue;
        }
        // As much of the file as the function can be in.
        let begin = line.saturating_sub(IN_SIGHT).max(1);
        if let Some(lines) = source_lines::lines(py, &frame.file, begin, 2 * IN_SIGHT) {
            let (first, last) = function_lines::kept(&lines, line - begin + 1, AROUND);
            let kept = lines.get(first as usize - 1..last as usize);
            all.push(Excerpt {
                file: frame.file.to_string(),
                first: begin + first - 1,
                lines: kept.unwrap_or_default().to_vec(),
            });
        }
    }
    all
}
