//! `probing -t PID export --parquet DIR`: everything that the targets have recorded, one file for each table.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use probing_client::Members;
use probing_engine::{Engine, Terms};

use super::Aim;
use super::query::{counted, said_whom_it_lacks, whole};
use crate::arguments::ExportArguments;
use crate::exit::{self, Status};

pub(crate) fn run(arguments: &ExportArguments, aim: &Aim) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let engine = Engine::start()?;
    let tables = engine.recorded(&members)?;
    if tables.is_empty() {
        bail!("nothing was recorded: programs record with probing.record(…) and probing.span(…)");
    }
    let folder = &arguments.parquet;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for table in tables {
        export(&engine, &table, folder, &members)?;
    }
    Ok(exit::OK)
}

fn export(engine: &Engine, table: &str, folder: &Path, members: &Members) -> anyhow::Result<()> {
    // Names of tables have no slashes.
    let path = folder.join(format!("{table}.parquet"));
    let sql = format!("{} ORDER BY ts", whole(table));
    let written = engine
        .blocking_ask(&sql, members, &Terms::default())?
        .write_parquet(&path);
    let summary = said_whom_it_lacks(written, members)?;
    let bytes = fs::metadata(&path)?.len();
    writeln!(
        anstream::stdout(),
        "{}: {}, {bytes} bytes",
        path.display(),
        counted(summary.rows)
    )?;
    Ok(())
}
