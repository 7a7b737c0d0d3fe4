//! `python.backtrace`: every frame of every thread; and the same with the frames of native code between them.

use probing_proto::report::{FrameType, GilState, ReportedFrame, ReportedThread};

use crate::columns::rows::{RowsBuilder, Value};
use crate::columns::{Column, Kind, col};
use crate::snapshot::target_snapshot::{Needs, ReadFailure, TargetSnapshot};
use crate::tables::definition::Table;

const COLUMNS: &[Column] = &[
    col(
        "thread_id",
        Kind::Int,
        "the kernel's id of the thread; that of the main thread is the pid",
    ),
    col(
        "thread_name",
        Kind::Text,
        "its name in threading, else the kernel's",
    ),
    col(
        "depth",
        Kind::Int,
        "0 is the innermost frame, the one being executed",
    ),
    col(
        "func",
        Kind::Text,
        "the function; from Python 3.11 on with its class: Trainer.step",
    ),
    col(
        "file",
        Kind::Text,
        "its file; of native code its library or program",
    ),
    col("lineno", Kind::Int, "line being executed"),
    col("frame_type", Kind::Text, "Python or Native"),
    col(
        "source",
        Kind::Text,
        "text of that line, where the file can be read",
    ),
    col(
        "locals",
        Kind::Text,
        "local variables as a JSON object of name and value, as far as they can be read from outside; read only when a \
         query names this column",
    ),
    col("main", Kind::Bool, "whether the thread is the main thread"),
    col(
        "ident",
        Kind::Int,
        "Python's id of the thread, threading.get_ident()",
    ),
    col(
        "state",
        Kind::Text,
        "what the thread does: running, asleep, stopped, or the system call that it waits in",
    ),
    col("holds_gil", Kind::Bool, "whether the thread has the GIL"),
    col(
        "complete",
        Kind::Bool,
        "false when frames of the thread are missing because it moved while it was read",
    ),
    col(
        "address",
        Kind::Int,
        "of native code: where in its file it is",
    ),
];

pub(crate) const TABLE: Table = Table {
    name: "python.backtrace",
    doc: "Stacks of all Python threads: one row for each frame, the main thread first, the innermost frame of each \
          first. Read from outside: the process may hang, be stopped or hold its GIL, and nothing runs in it.",
    columns: COLUMNS,
    example: "SELECT func, file, lineno, depth FROM python.backtrace WHERE main ORDER BY depth LIMIT 10",
    needs: |wants| Needs {
        locals: wants("locals"),
        native: false,
    },
    fill: |seen, rows| fill(seen, rows, Python),
};

pub(crate) const WITH_NATIVE: Table = Table {
    name: "python.native_backtrace",
    doc: "Stacks with frames of C, C++ and Rust in their true order among those of Python, and with threads without \
          Python. A thread that is on a CPU is held for a fraction of a millisecond while its stack is copied.",
    columns: COLUMNS,
    example: "SELECT frame_type, count(*) AS frames FROM python.native_backtrace WHERE main GROUP BY frame_type",
    needs: |wants| Needs {
        locals: wants("locals"),
        native: true,
    },
    fill: |seen, rows| fill(seen, rows, All),
};

/// Which frames of a reading are shown. One that was made for both tables has those of native code in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameFilter {
    Python,
    All,
}

use FrameFilter::{All, Python};

fn fill(
    seen: &TargetSnapshot,
    rows: &mut RowsBuilder,
    which: FrameFilter,
) -> Result<(), ReadFailure> {
    let with_locals = rows.wants("locals");
    for thread in &seen.stacks()?.threads {
        let frames = thread.frames.iter();
        let shown = frames.filter(|frame| which == All || frame.frame_type == FrameType::Python);
        for (depth, frame) in shown.enumerate() {
            if rows.is_full() {
                return Ok(());
            }
            let locals = if with_locals { locals(frame) } else { None };
            push(rows, thread, frame, depth, locals);
        }
    }
    Ok(())
}

fn push(
    rows: &mut RowsBuilder,
    thread: &ReportedThread,
    frame: &ReportedFrame,
    depth: usize,
    locals: Option<String>,
) {
    rows.push([
        thread.thread_id.into(),
        thread.thread_name.as_ref().into(),
        depth.into(),
        frame.func.as_ref().into(),
        Some(frame.file.as_ref())
            .filter(|file| !file.is_empty())
            .into(),
        frame.lineno.into(),
        frame.frame_type.name().into(),
        frame.source.as_deref().into(),
        Value::from(locals),
        thread.main.into(),
        Some(thread.ident).filter(|ident| *ident != 0).into(),
        thread.state.as_str().into(),
        (thread.gil == GilState::Holds).into(),
        thread.complete.into(),
        frame.address.into(),
    ]);
}

/// As one JSON object of texts, in the order of the frame.
fn locals(frame: &ReportedFrame) -> Option<String> {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let locals = frame.locals.as_ref()?;
    let pairs = locals
        .iter()
        .map(|local| format!("{}: {}", text(&local.name), text(&local.value)));
    Some(format!("{{{}}}", pairs.collect::<Vec<_>>().join(", ")))
}
