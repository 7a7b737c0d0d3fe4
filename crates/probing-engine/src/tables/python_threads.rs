//! `python.threads`: the threads that Python knows.

use probing_proto::report::{FrameType, GilState};

use crate::columns::rows::RowsBuilder;
use crate::columns::{Kind, col};
use crate::snapshot::target_snapshot::{Needs, ReadFailure, TargetSnapshot};
use crate::tables::definition::Table;

pub(crate) const TABLE: Table = Table {
    name: "python.threads",
    doc: "The threads that Python knows, the main thread first. Read from outside, in every state of the process.",
    columns: &[
        col(
            "thread_id",
            Kind::Int,
            "the kernel's id of it, as in python.backtrace and process.threads",
        ),
        col(
            "native_id",
            Kind::Int,
            "the same under Python's name for it, threading.get_native_id()",
        ),
        col(
            "ident",
            Kind::Int,
            "Python's id of it, threading.get_ident()",
        ),
        col(
            "name",
            Kind::Text,
            "its name in threading, else the kernel's",
        ),
        col(
            "daemon",
            Kind::Bool,
            "whether the program's end does not wait for it; null when not known",
        ),
        col("main", Kind::Bool, "whether it is the main thread"),
        col(
            "state",
            Kind::Text,
            "running, asleep, stopped, or the system call that it waits in",
        ),
        col("holds_gil", Kind::Bool, "whether it has the GIL"),
        col("gil", Kind::Text, "holds, waits or free"),
        col("frames", Kind::Int, "how deep its stack is"),
        col("func", Kind::Text, "function that it is in"),
        col("file", Kind::Text, "file of that function"),
        col("lineno", Kind::Int, "line being executed"),
    ],
    example: "SELECT name, state, holds_gil, func, lineno FROM python.threads ORDER BY main DESC, name",
    needs: |_| Needs::default(),
    fill,
};

fn fill(seen: &TargetSnapshot, rows: &mut RowsBuilder) -> Result<(), ReadFailure> {
    let threads = seen.stacks()?.threads.iter();
    for thread in threads.filter(|thread| thread.ident != 0) {
        let mut python = thread
            .frames
            .iter()
            .filter(|frame| frame.frame_type == FrameType::Python);
        let innermost = python.next();
        rows.push([
            thread.thread_id.into(),
            thread.thread_id.into(),
            thread.ident.into(),
            thread.thread_name.as_ref().into(),
            thread.daemon.into(),
            thread.main.into(),
            thread.state.as_str().into(),
            (thread.gil == GilState::Holds).into(),
            match thread.gil {
                GilState::Holds => "holds",
                GilState::Waits => "waits",
                GilState::Free => "free",
            }
            .into(),
            (usize::from(innermost.is_some()) + python.count()).into(),
            innermost.map(|frame| frame.func.as_ref()).into(),
            innermost.map(|frame| frame.file.as_ref()).into(),
            innermost.and_then(|frame| frame.lineno).into(),
        ]);
    }
    Ok(())
}
