//! `probing query`: runs SQL, writes the rows, reports what is missing.

mod prompt;
mod repeated;
mod statements;

use std::io::{self, BufWriter, Read as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use probing_client::{Members, Stop};
use probing_engine::{
    Engine, EngineError, Format, Layout, QueryLimits, ResultStream, Stopper, Summary, UnreadTarget,
    missing_targets,
};

use crate::arguments::{QueryArguments, QueryFormat};
use crate::commands::TargetArgs;
use crate::commands::answers::missing_lines;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;
use crate::terminal::Sink;
use probing_proto::agent::IncompleteAnswer;
use probing_proto::text::visible::Notation;

pub(crate) fn run(arguments: &QueryArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    aim.members()?;
    let once = |aim| asker(arguments, aim, Running::stop_or_leave);
    match (&arguments.sql, arguments.every) {
        (Some(sql), Some(every)) => {
            let stop = Stop::default();
            let enough = stop.clone();
            let pressed = move |running: &Running| {
                enough.ask();
                running.stop();
            };
            repeated::run(&asker(arguments, aim, pressed)?, sql, every, &stop)
        }
        (Some(sql), None) => once(aim)?.ask(sql),
        (None, _) if terminal::is_interactive() => {
            prompt::run(&asker(arguments, aim, Running::stop)?)
        }
        (None, _) => from_input(&once(aim)?),
    }
}

/// From its first moment on Ctrl-C does what `pressed` does.
fn asker<'a>(
    arguments: &'a QueryArguments,
    aim: &'a TargetArgs,
    pressed: impl Fn(&Running) + Send + 'static,
) -> anyhow::Result<QueryRunner<'a>> {
    let running = Running::default();
    let meant = running.clone();
    ctrlc::set_handler(move || pressed(&meant))?;
    Ok(QueryRunner::new(aim, &arguments.format, running)?)
}

/// Statements one after the other; the first that fails ends it.
fn from_input(asker: &QueryRunner<'_>) -> anyhow::Result<Status> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let mut status = exit::OK;
    for statement in statements::split(&text) {
        status = asker.ask(statement)?;
    }
    Ok(status)
}

/// Whom is asked, and how the rows are written.
#[derive(Debug)]
pub(crate) struct QueryRunner<'a> {
    engine: Engine,
    aim: &'a TargetArgs,
    format: &'a QueryFormat,
    running: Running,
}

/// What Ctrl-C means: the queries since the last [`Running::renew`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Running(Arc<Mutex<Stopper>>);

impl Running {
    /// Ends it.
    pub(crate) fn stop(&self) {
        self.lock().stop();
    }

    /// Ends it; and the command itself, when it was ended before and the answer still is being written.
    fn stop_or_leave(&self) {
        if self.lock().is_stopped() {
            exit::leave();
        }
        self.stop();
    }

    /// What comes now was not meant.
    pub(crate) fn renew(&self) {
        *self.lock() = Stopper::default();
    }

    fn lock(&self) -> MutexGuard<'_, Stopper> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> QueryRunner<'a> {
    pub(crate) fn new(
        aim: &'a TargetArgs,
        format: &'a QueryFormat,
        running: Running,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            engine: Engine::start()?,
            aim,
            format,
            running,
        })
    }

    fn answer(&self, sql: &str, members: &Members) -> Result<ResultStream, EngineError> {
        let terms = QueryLimits {
            stopper: self.running.lock().clone(),
            ..QueryLimits::default()
        };
        self.engine.blocking_ask(sql, members, &terms)
    }

    /// Asks once, and writes the rows to where they belong.
    pub(crate) fn ask(&self, sql: &str) -> anyhow::Result<Status> {
        let members = self.aim.members()?;
        let answer = self.answer(sql, &members)?;
        let written = match &self.format.parquet {
            Some(path) => answer.write_parquet(path),
            None => answer.write(self.format(), &mut self.out()?),
        };
        let summary = said_whom_it_lacks(written, &members)?;
        if matches!(self.format(), Format::Json) && self.format.parquet.is_none() {
            say_missing_as_json(&summary.missing, &members)?;
        }
        let took = summary.took.as_secs_f64() * 1e3;
        writeln!(
            terminal::stderr(),
            "{} in {took:.1} ms",
            counted(summary.rows)
        )?;
        Ok(exit::OK)
    }

    /// Where rows of this format go.
    fn out(&self) -> anyhow::Result<BufWriter<Sink>> {
        let out = match self.format() {
            Format::Text(_) => terminal::stdout(),
            Format::Json => terminal::rows(Notation::Json),
            Format::Csv => terminal::rows(Notation::Csv),
            Format::Arrow => terminal::binary()?,
        };
        Ok(BufWriter::new(out))
    }

    fn format(&self) -> Format {
        match self.format {
            QueryFormat { json: true, .. } => Format::Json,
            QueryFormat { csv: true, .. } => Format::Csv,
            QueryFormat { arrow: true, .. } => Format::Arrow,
            QueryFormat { wide, .. } => {
                let width = Some(terminal::width());
                let is_cut = !wide && terminal::is_stdout_terminal();
                Format::Text(Layout {
                    width: width.filter(|_| is_cut),
                })
            }
        }
    }
}

/// `1 row`, `2 rows`
pub(super) fn counted(rows: usize) -> String {
    let noun = if rows == 1 { "row" } else { "rows" };
    format!("{rows} {noun}")
}

/// What asks for all of a table.
pub(super) fn whole(table: &str) -> String {
    let (schema, name) = table.split_once('.').unwrap_or(("user", table));
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    format!("SELECT * FROM {}.{}", quoted(schema), quoted(name))
}

/// Names the targets whose rows are missing.
pub(super) fn said_whom_it_lacks(
    written: Result<Summary, EngineError>,
    members: &Members,
) -> anyhow::Result<Summary> {
    let missing = match &written {
        Ok(summary) => summary.missing.as_slice(),
        // The error itself tells of the only one.
        Err(EngineError::Blind { missing }) if missing.len() > 1 => missing.as_slice(),
        Err(_) => &[],
    };
    if written.is_ok() || !missing.is_empty() {
        say_missing(missing, members)?;
    }
    Ok(written?)
}

/// The same for a program that reads the rows as JSON: a line `{"missing": […]}`, where something is.
fn say_missing_as_json(missing: &[UnreadTarget], members: &Members) -> anyhow::Result<()> {
    let missing = missing_targets(missing, members);
    if !missing.is_empty() {
        let line = json::line(&IncompleteAnswer { missing })?;
        writeln!(terminal::stderr(), "{line}")?;
    }
    Ok(())
}

pub(super) fn say_missing(missing: &[UnreadTarget], members: &Members) -> anyhow::Result<()> {
    for line in missing_lines(missing, members) {
        let warning = if line.starts_with(' ') {
            ""
        } else {
            "warning: "
        };
        writeln!(terminal::stderr(), "{warning}{line}")?;
    }
    Ok(())
}
