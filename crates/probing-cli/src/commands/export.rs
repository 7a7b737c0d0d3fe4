//! `probing export --parquet DIR`: writes recorded rows, one file for each table.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use probing_client::Members;
use probing_engine::{Engine, EngineError, QueryLimits};
use probing_proto::text::visible;

use crate::arguments::ExportArguments;
use crate::commands::TargetArgs;
use crate::commands::query::{counted, said_whom_it_lacks, whole};
use crate::errors;
use crate::exit::{self, Status};
use crate::terminal;

pub(crate) fn run(arguments: &ExportArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let engine = Engine::start()?;
    let tables = engine.recorded(&members)?;
    if tables.is_empty() {
        bail!("no recorded rows: programs record with probing.record(…) and probing.span(…)");
    }
    let folder = &arguments.parquet;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut unread = Vec::new();
    let mut is_any_read = false;
    for table in tables {
        match export(&engine, &table, folder, &members) {
            Ok(()) => is_any_read = true,
            // The others are not affected.
            Err(error) if is_blind(&error) => unread.push(error),
            Err(error) => return Err(error),
        }
    }
    let last = if is_any_read { None } else { unread.pop() };
    for error in &unread {
        errors::warn(error)?;
    }
    last.map_or(Ok(exit::OK), Err)
}

fn is_blind(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(EngineError::Blind { .. }))
}

fn export(engine: &Engine, table: &str, folder: &Path, members: &Members) -> anyhow::Result<()> {
    // An agent or a capture may call a table as it likes.
    let path = folder.join(format!("{}.parquet", visible::file_name(table)));
    let sql = format!("{} ORDER BY ts", whole(table));
    let written = engine
        .blocking_ask(&sql, members, &QueryLimits::default())?
        .write_parquet(&path);
    let summary = said_whom_it_lacks(written, members)?;
    let bytes = fs::metadata(&path)?.len();
    writeln!(
        terminal::stdout(),
        "{}: {}, {bytes} bytes",
        path.display(),
        counted(summary.rows)
    )?;
    Ok(())
}
