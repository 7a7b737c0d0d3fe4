//! `process.info`: one row for each process.

use probing_store::Storage;

use crate::columns::rows::{RowsBuilder, Value};
use crate::columns::{Kind, col};
use crate::snapshot::target_snapshot::{Needs, ReadFailure, TargetSnapshot};
use crate::tables::definition::Table;

pub(crate) const TABLE: Table = Table {
    name: "process.info",
    doc: "What the kernel knows of each process: one row each. Read from outside, in every state of it.",
    columns: &[
        col("command", Kind::Text, "its command line"),
        col("python", Kind::Text, "version of its interpreter: 3.12"),
        col(
            "state",
            Kind::Text,
            "running, asleep, stopped, …: of its main thread",
        ),
        col("started_at", Kind::Time, "when it was started"),
        col("threads", Kind::Int, "how many threads it has"),
        col("resident_bytes", Kind::Int, "memory that it has in use"),
        col("virtual_bytes", Kind::Int, "memory that it has reserved"),
        col("user_ns", Kind::Int, "CPU time in its own code"),
        col("system_ns", Kind::Int, "CPU time in the kernel"),
        col(
            "major_faults",
            Kind::Int,
            "page faults that waited for a disk",
        ),
        col(
            "open_files",
            Kind::Int,
            "how many files and sockets it has open",
        ),
        col("program", Kind::Text, "path of its executable"),
        col("folder", Kind::Text, "its working directory"),
        col("parent", Kind::Int, "pid of the process that started it"),
        col(
            "own_pid",
            Kind::Int,
            "its pid as it sees it itself: another one in a container",
        ),
        col("uid", Kind::Int, "user that it runs as"),
        col("gid", Kind::Int, "group that it runs as"),
        col("probed", Kind::Bool, "whether a probe is in it"),
        col(
            "recorded_bytes",
            Kind::Int,
            "memory of the rows that it has recorded; null when it has none",
        ),
        col(
            "recording",
            Kind::Text,
            "where those rows are: shared, or heap and why; null when it has none",
        ),
    ],
    example: "SELECT pid, rank, python, state, duration(user_ns + system_ns) AS cpu, resident_bytes / 1000000 AS mb \
              FROM process.info",
    needs: |_| Needs::default(),
    fill,
};

fn fill(seen: &TargetSnapshot, rows: &mut RowsBuilder) -> Result<(), ReadFailure> {
    if let Some(kept) = &seen.kept {
        let (command, python) = (kept.command.join(" ").into(), (&kept.python).into());
        let mut row = [const { Value::Null }; TABLE.columns.len()];
        (row[0], row[1]) = (command, python);
        rows.push(row);
        return Ok(());
    }
    let facts = seen.facts()?;
    // Where it cannot be looked at, the rest is told all the same.
    let recorded = seen.recorded().ok().flatten();
    let who = recorded.and_then(|recorded| recorded.recording.recorder.as_ref());
    let path = |path: &Option<std::path::PathBuf>| -> Value<'static> {
        let text = path.as_ref().map(|path| path.display().to_string());
        text.into()
    };
    rows.push([
        facts.command.join(" ").into(),
        facts.python.as_ref().into(),
        facts.state.into(),
        Value::time(facts.started_at_nanos),
        facts.threads.into(),
        facts.usage.resident_bytes.into(),
        facts.usage.virtual_bytes.into(),
        facts.usage.user_nanos.into(),
        facts.usage.system_nanos.into(),
        facts.usage.major_faults.into(),
        facts.open_files.into(),
        path(&facts.program),
        path(&facts.folder),
        facts.parent.0.into(),
        facts.own_pid.0.into(),
        facts.uid.into(),
        facts.gid.into(),
        facts.probed.into(),
        recorded.map(|recorded| recorded.store.bytes()).into(),
        who.map(|who| storage(&who.storage)).into(),
    ]);
    Ok(())
}

fn storage(storage: &Storage) -> String {
    match storage {
        Storage::Shared => "shared".to_owned(),
        Storage::Heap { reason } => format!("heap: {reason}"),
    }
}
