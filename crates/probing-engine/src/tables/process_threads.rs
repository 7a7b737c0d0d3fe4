//! `process.threads`: the threads that the kernel runs, Python's and others.

use crate::columns::rows::{RowsBuilder, Value};
use crate::columns::{Kind, col};
use crate::snapshot::target_snapshot::{Needs, ReadFailure, TargetSnapshot};
use crate::tables::definition::Table;

pub(crate) const TABLE: Table = Table {
    name: "process.threads",
    doc: "Every thread that the kernel runs for the process, those of C++ and CUDA among them; `python.threads` has \
          those that Python knows.",
    columns: &[
        col(
            "thread_id",
            Kind::Int,
            "the kernel's id of it; that of the main thread is the pid",
        ),
        col(
            "name",
            Kind::Text,
            "name of the thread in the kernel, at most 15 bytes",
        ),
        col(
            "state",
            Kind::Text,
            "running, asleep, asleep in the kernel, stopped, …",
        ),
        col(
            "system_call",
            Kind::Text,
            "function of the kernel in which it sleeps; null when it does not, or when reading is not permitted",
        ),
        col("user_ns", Kind::Int, "CPU time in its own code"),
        col("system_ns", Kind::Int, "CPU time in the kernel"),
        col("processor", Kind::Int, "CPU that it ran on last"),
        col(
            "waits",
            Kind::Int,
            "how often it gave its CPU away by itself",
        ),
        col("preemptions", Kind::Int, "how often it was made to"),
        col(
            "major_faults",
            Kind::Int,
            "page faults that waited for a disk",
        ),
        col("started_at", Kind::Time, "when it was started"),
    ],
    example: "SELECT thread_id, name, state, duration(user_ns + system_ns) AS cpu FROM process.threads \
              ORDER BY user_ns + system_ns DESC LIMIT 10",
    needs: |_| Needs::default(),
    fill,
};

fn fill(seen: &TargetSnapshot, rows: &mut RowsBuilder) -> Result<(), ReadFailure> {
    for thread in seen.threads()? {
        rows.push([
            thread.thread_id.into(),
            thread.name.as_ref().into(),
            thread.state.into(),
            thread.system_call.as_ref().into(),
            thread.usage.user_nanos.into(),
            thread.usage.system_nanos.into(),
            thread.usage.processor.into(),
            thread.usage.waits.into(),
            thread.usage.preemptions.into(),
            thread.usage.major_faults.into(),
            Value::time(thread.started_at_nanos),
        ]);
    }
    Ok(())
}
