//! `probing query` and `probing export`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::arguments::NamedTargets;
use crate::arguments::amounts::some_seconds;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 query \"SELECT func, file, lineno, depth FROM python.backtrace WHERE depth < 5\"
  probing -t 4242 query                    a prompt: Tab completes tables and columns, \\d lists them
  probing -t all query \"SELECT pid, name, state FROM python.threads WHERE holds_gil\"
  probing --ranks 0-7 query \"SELECT func, count(*) FROM python.backtrace WHERE depth = 0 GROUP BY func\"
  probing -t 4242 query --every 2s \"SELECT name, duration(user_ns) FROM process.threads\"
  probing -t 4242 query --csv \"SELECT * FROM process.info\" > info.csv
  echo 'SHOW TABLES; DESCRIBE python.backtrace;' | probing -t 4242 query

Queries only read, from outside: nothing runs in a target, and it may hang, be stopped or hold its GIL. A
target that cannot be read is missing among the rows and named on stderr. docs/tables.md has all tables.")]
pub(crate) struct QueryArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// One statement; without it a prompt opens, or statements are read from standard input
    pub(crate) sql: Option<String>,

    #[command(flatten)]
    pub(crate) format: QueryFormat,

    /// Ask again and again, so long apart: 2s, 500ms, 1m; on a terminal in place; ends with Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = some_seconds, requires = "sql", conflicts_with = "parquet")]
    pub(crate) every: Option<Duration>,
}

/// How rows are written; a table without any of these.
#[derive(Debug, Clone, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct QueryFormat {
    /// Print JSON: an array with an object for each row
    #[arg(long, group = "format")]
    pub(crate) json: bool,

    /// Print CSV with a heading; control characters as `\xNN`
    #[arg(long, group = "format")]
    pub(crate) csv: bool,

    /// Print an Arrow IPC stream
    #[arg(long, group = "format")]
    pub(crate) arrow: bool,

    /// Write a Parquet file
    #[arg(long, value_name = "FILE", group = "format")]
    pub(crate) parquet: Option<PathBuf>,

    /// Do not cut a table to the width of the terminal
    #[arg(long, group = "format")]
    pub(crate) wide: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 export --parquet run-7
  probing --ranks 0-7 export --parquet run-7   rows of all ranks together, told apart by pid, rank and host

Rows that a process has recorded stay readable for a while when it has ended; what shall stay for good is
exported. One file for each table, oldest rows first.")]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// The folder for the Parquet files; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) parquet: PathBuf,
}
