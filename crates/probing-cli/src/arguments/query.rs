//! Arguments of `probing query` and `probing export`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::arguments::NamedTargets;
use crate::arguments::amounts::some_seconds;

const OUTPUT: &str = "Output";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 query \"SELECT func, file, lineno, depth FROM python.backtrace WHERE depth < 5\"
  probing -t 4242 query                    open a prompt; Tab completes, \\d lists tables and columns
  probing -t all query \"SELECT pid, name, state FROM python.threads WHERE holds_gil\"
  probing --ranks 0-7 query \"SELECT func, count(*) FROM python.backtrace GROUP BY func\"
  probing -t 4242 query --every 2s \"SELECT name, duration(user_ns) FROM process.threads\"
  probing -t 4242 query --csv \"SELECT * FROM process.info\" > info.csv
  echo 'SHOW TABLES; DESCRIBE python.backtrace;' | probing -t 4242 query

Queries read from outside: nothing runs in a target, and it may hang, be stopped or hold its GIL. A
target that cannot be read has no rows and is named on stderr. docs/tables.md describes all tables.")]
pub(crate) struct QueryArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Run this statement [default: a prompt, or statements from standard input]
    pub(crate) sql: Option<String>,

    #[command(flatten)]
    pub(crate) format: QueryFormat,

    /// Repeat the query every TIME (2s, 500ms, 1m), in place, until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = some_seconds, requires = "sql", conflicts_with = "parquet")]
    pub(crate) every: Option<Duration>,
}

/// The output format of rows: a table without any of these.
#[derive(Debug, Clone, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct QueryFormat {
    /// Print a JSON array with an object for each row
    #[arg(long, group = "format", help_heading = OUTPUT)]
    pub(crate) json: bool,

    /// Print CSV with a header; control characters as `\xNN`
    #[arg(long, group = "format", help_heading = OUTPUT)]
    pub(crate) csv: bool,

    /// Print an Arrow IPC stream
    #[arg(long, group = "format", help_heading = OUTPUT)]
    pub(crate) arrow: bool,

    /// Write a Parquet file
    #[arg(long, value_name = "FILE", group = "format", help_heading = OUTPUT)]
    pub(crate) parquet: Option<PathBuf>,

    /// Print a table wider than the terminal
    #[arg(long, group = "format", help_heading = OUTPUT)]
    pub(crate) wide: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 export --parquet run-7
  probing --ranks 0-7 export --parquet run-7   write all ranks into the same files

Recorded rows stay readable for a day after the process has ended; export the rows that you want to
keep. Each table is one file, with the oldest rows first.")]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Write the Parquet files to DIR, which is created if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) parquet: PathBuf,
}
