//! Stops that nobody could look at leave a capture, where `PROBING_CAPTURE_DIR` says where: those whose time was over, and those
//! at an exception that nobody catches. It is a folder with the parts of a capture as JSON, which `probing -t x.probe` reads like
//! the file that it writes itself: so the guest needs no archive, and starts no process in somebody else's program.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use probing_proto::capture::{Excerpt, FORMAT, Manifest};
use probing_proto::env::{self, PROBING_CAPTURE_DIR};
use probing_proto::function;
use probing_proto::message::FrameLocals;
use probing_proto::process::Pid;
use probing_proto::report::{
    BacktraceReport, FrameType, GilState, ReadWay, ReportedFrame, ReportedLocal, ReportedThread,
};
use probing_proto::stops::Stop;
use pyo3::prelude::*;
use serde_json::Value;

use super::{frame, source, thread};
use crate::interrupt::own_thread;
use crate::locals;

/// Captures of one process: a loop of stops must not fill a disk.
const MOST: u32 = 100;
/// Threads beside the one that stopped.
const MAX_OTHERS: usize = 200;
/// Lines on each side of a place.
const AROUND: u32 = 10;
/// Lines that are looked at for the function that a place is in.
const IN_SIGHT: u32 = 500;
const MAX_EXCERPTS: usize = 200;

static WRITTEN: AtomicU32 = AtomicU32::new(0);

/// Writes one, if that was asked for; what came of it, in words.
pub(super) fn keep(stack: &[Bound<'_, PyAny>], stop: Stop, reason: &str) -> Option<String> {
    let folder = PathBuf::from(PROBING_CAPTURE_DIR.value()?);
    let py = stack.first()?.py();
    if WRITTEN.fetch_add(1, Ordering::AcqRel) >= MOST {
        return Some(format!("not captured: {MOST} captures are enough"));
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
    let path = folder.join(format!("{pid}-stop-{}.probe", stop.stop.0));
    let manifest = Manifest {
        format: FORMAT,
        probing: env!("CARGO_PKG_VERSION").to_owned(),
        taken_at_nanos,
        reason: reason.to_owned(),
        host: kernel("/proc/sys/kernel/hostname").concat(),
        pid,
        rank: env::rank(env::Variable::value),
        python: python.clone(),
        command: kernel("/proc/self/cmdline"),
        stops: vec![stop],
        tables: Vec::new(),
        missing: vec![
            "tables: the process wrote this itself; `probing capture` keeps them, too".to_owned(),
        ],
    };
    let stacks = BacktraceReport {
        pid,
        python,
        threads,
        taken_at_nanos,
        took_seconds: began.elapsed().map_or(0.0, |took| took.as_secs_f64()),
        paused_seconds: 0.0,
        read: ReadWay::Probe,
    };
    let parts = [
        ("stacks.json", serde_json::to_value(stacks)),
        ("sources.json", serde_json::to_value(sources)),
        ("capture.json", serde_json::to_value(manifest)),
    ];
    // Without the GIL: a disk may be slow.
    let written = py.detach(|| write(&path, parts));
    Some(match written {
        Ok(()) => format!("captured: {}", path.display()),
        Err(error) => format!("not captured: {}: {error}", path.display()),
    })
}

/// Under another name until it is whole.
fn write(path: &Path, parts: [(&str, serde_json::Result<Value>); 3]) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(&unfinished)?;
    for (name, part) in parts {
        let mut file = fs::OpenOptions::new();
        let file = file.write(true).create_new(true).mode(0o600);
        let mut file = file.open(unfinished.join(name))?;
        file.write_all(&serde_json::to_vec(&part?)?)?;
    }
    fs::rename(&unfinished, path)
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
        thread_id: Some(thread::id()),
        state: "stopped".to_owned(),
        ..told(py, own, stack)
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
            all.push(told(py, ident, &frame::stack(&innermost)));
        }
    }
    all
}

fn pairs<'py>(current: &Bound<'py, PyAny>) -> PyResult<Vec<(u64, Bound<'py, PyAny>)>> {
    let items = current.call_method0("items")?.try_iter()?;
    items.map(|item| item?.extract()).collect()
}

fn told(py: Python<'_>, ident: u64, stack: &[Bound<'_, PyAny>]) -> ReportedThread {
    let frames = locals::told(stack).unwrap_or_default();
    let name = thread::name_of(py, ident);
    ReportedThread {
        thread_id: None,
        ident,
        daemon: None,
        main: name == "MainThread",
        thread_name: Some(name),
        state: "not known".to_owned(),
        gil: GilState::Free,
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
        if let Some(lines) = source::lines(py, &frame.file, begin, 2 * IN_SIGHT) {
            let (first, last) = function::kept(&lines, line - begin + 1, AROUND);
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
