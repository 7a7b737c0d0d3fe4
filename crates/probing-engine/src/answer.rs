//! The rows of one query as they come, and its errors.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result as Read;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt as _;
use futures::future::{Either, select};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use crate::error::EngineError;
use crate::sources::remote_query::RemoteRows;
use crate::sources::target_snapshot::{TargetSetSnapshot, UnreadTarget};

/// Batches that may be ready before they are taken.
const AHEAD: usize = 2;

/// The limits of a query, and its cancellation. By default: as long as the caller waits, and a part of free memory.
#[derive(Debug, Clone, Default)]
pub struct QueryLimits {
    /// From the question to the last row; then it fails with [`EngineError::TooLong`].
    pub time: Option<Duration>,
    /// What it may keep at once; beyond that it fails with [`EngineError::TooLarge`].
    pub memory_bytes: Option<usize>,
    pub stopper: Stopper,
}

/// Ends queries, from any thread.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// All queries that have it fail with [`EngineError::Stopped`]: at once those that run, later those that begin.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    async fn stopped(&self) {
        // It cannot fail: the other end is in `self`.
        self.0.subscribe().wait_for(|is_so| *is_so).await.ok();
    }
}

impl Default for Stopper {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

/// How long an answer is waited for.
#[derive(Debug, Clone)]
pub(crate) struct QueryDeadline {
    stopper: Stopper,
    time: Option<Duration>,
    began: Instant,
}

impl QueryDeadline {
    pub(crate) fn of(terms: &QueryLimits) -> Self {
        Self {
            stopper: terms.stopper.clone(),
            time: terms.time,
            began: Instant::now(),
        }
    }

    /// What comes of `work`, unless it is stopped or too late before. Work that computes belongs to another thread: it
    /// is left behind, not ended.
    pub(crate) async fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, EngineError> {
        let (stopped, work) = (Box::pin(self.stopper.stopped()), Box::pin(work));
        let ended = select(stopped, work);
        let end = self.time.and_then(|time| self.began.checked_add(time));
        let ended = match (end, self.time) {
            (Some(end), Some(time)) => timeout_at(end.into(), ended)
                .await
                .map_err(|_elapsed| EngineError::TooLong { time })?,
            _ => ended.await,
        };
        match ended {
            Either::Left(_) => Err(EngineError::Stopped),
            Either::Right((done, _)) => Ok(done),
        }
    }
}

/// The rows of one query, as they come. Whoever drops it ends the query.
pub struct ResultStream {
    /// Runs the query.
    runtime: Handle,
    sql: String,
    schema: SchemaRef,
    batches: mpsc::Receiver<Read<RecordBatch>>,
    /// Reads them. On threads of the engine: whoever waits here can leave, also while it computes.
    reading: JoinHandle<()>,
    source: Source,
    patience: QueryDeadline,
    memory_bytes: usize,
    rows: usize,
}

/// What is to be said about an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub rows: usize,
    pub took: Duration,
    /// Targets whose rows are missing.
    pub missing: Vec<UnreadTarget>,
}

/// What an answer is made of.
pub(crate) struct Planned {
    pub(crate) sql: String,
    pub(crate) stream: SendableRecordBatchStream,
    pub(crate) source: Source,
    pub(crate) memory_bytes: usize,
}

impl Planned {
    /// Of targets of this machine.
    pub(crate) fn here(
        sql: String,
        stream: SendableRecordBatchStream,
        sight: &Arc<TargetSetSnapshot>,
        memory_bytes: usize,
    ) -> Self {
        Self {
            sql,
            stream,
            source: Source::InProcess(Arc::clone(sight)),
            memory_bytes,
        }
    }
}

/// Whose rows they are.
pub(crate) enum Source {
    InProcess(Arc<TargetSetSnapshot>),
    Remote(RemoteRows),
}

impl ResultStream {
    pub(crate) fn start(planned: Planned, runtime: Handle, patience: QueryDeadline) -> Self {
        let Planned {
            sql,
            mut stream,
            source,
            memory_bytes,
        } = planned;
        let schema = stream.schema();
        let (sender, batches) = mpsc::channel(AHEAD);
        let reading = runtime.spawn(async move {
            while let Some(batch) = stream.next().await {
                let is_last = batch.is_err();
                if sender.send(batch).await.is_err() || is_last {
                    break;
                }
            }
        });
        Self {
            runtime,
            sql,
            schema,
            batches,
            reading,
            source,
            patience,
            memory_bytes,
            rows: 0,
        }
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next rows; `None` after the last. In a runtime of tokio that has a clock.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let batch = match self.patience.wait(self.batches.recv()).await? {
            None => {
                let ended = self.patience.wait(&mut self.reading).await?;
                return ended.map(|()| None).map_err(EngineError::panicked);
            }
            Some(batch) => batch.map_err(|error| EngineError::of(error, &self.sql))?,
        };
        self.rows += batch.num_rows();
        Ok(Some(batch))
    }

    /// The same for a thread that waits.
    pub fn blocking_next(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.next())
    }

    /// What is to be said when all rows have come. An error when there are none because nobody could be asked.
    pub fn end(self) -> Result<Summary, EngineError> {
        let missing = match &self.source {
            Source::Remote(elsewhere) => elsewhere.missing()?,
            Source::InProcess(sight) if sight.is_blind() => {
                let missing = sight.missing();
                return Err(EngineError::Blind { missing });
            }
            Source::InProcess(sight) => sight.missing(),
        };
        Ok(Summary {
            rows: self.rows,
            took: self.patience.began.elapsed(),
            missing,
        })
    }

    /// What it may keep in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

impl Drop for ResultStream {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl fmt::Debug for ResultStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("sql", &self.sql)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use probing_client::{Members, Ranks};

    use super::*;
    use crate::engine::Engine;

    /// Computes for years.
    const ENDLESS: &str =
        "SELECT count(*) FROM generate_series(1, 1000000000000) AS a(x) WHERE x % 7 = 3";

    fn nobody() -> Members {
        Members {
            all: Vec::new(),
            missing: Ranks::default(),
        }
    }

    fn outcome(sql: &str, terms: &QueryLimits) -> Result<usize, EngineError> {
        let engine = Engine::start()?;
        let mut answer = engine.blocking_ask(sql, &nobody(), terms)?;
        let mut rows = 0;
        while let Some(batch) = answer.blocking_next()? {
            rows += batch.num_rows();
        }
        assert_eq!(answer.end()?.rows, rows);
        Ok(rows)
    }

    #[test]
    fn a_query_ends_when_its_time_is_over() {
        let terms = QueryLimits {
            time: Some(Duration::from_millis(50)),
            ..QueryLimits::default()
        };
        let outcome = outcome(ENDLESS, &terms);
        assert!(matches!(outcome, Err(EngineError::TooLong { .. })));
    }

    #[test]
    fn a_query_takes_no_more_memory_than_it_may() {
        let terms = QueryLimits {
            memory_bytes: Some(4 << 20),
            ..QueryLimits::default()
        };
        let series = "generate_series(1, 1000000000) AS s(x)";
        for sql in [
            format!("SELECT x % 1000000, count(*) FROM {series} GROUP BY 1"),
            format!("SELECT x FROM {series} ORDER BY x % 1000"),
            format!("SELECT count(*) FROM {series} JOIN (SELECT x AS y FROM {series}) ON x = y"),
        ] {
            let outcome = outcome(&sql, &terms);
            let is_told = matches!(outcome, Err(EngineError::TooLarge { .. }));
            assert!(is_told, "{sql}: {outcome:?}");
        }
    }

    #[test]
    fn a_short_text_does_not_become_one_that_fills_the_memory() {
        for (call, rows) in [
            ("repeat('x', 2000000000)", "1"),
            (
                "repeat('ab', x * 10000)",
                "generate_series(1, 4000) AS s(x)",
            ),
            ("lpad('x', 1000000000)", "1"),
            (
                "rpad('x', x, 'ab')",
                "generate_series(100000000, 100000001) AS s(x)",
            ),
            (
                "string_agg(repeat('x', 1000000), ',')",
                "generate_series(1, 100)",
            ),
            (
                "string_agg(repeat('x', 1000000), ',' ORDER BY x)",
                "generate_series(1, 100) AS s(x)",
            ),
            (
                "string_agg(repeat('x', 10000), ',') OVER (ORDER BY x)",
                "generate_series(1, 1000) AS s(x)",
            ),
        ] {
            let from = if rows == "1" {
                String::new()
            } else {
                format!(" FROM {rows}")
            };
            let outcome = outcome(
                &format!("SELECT length({call}){from}"),
                &QueryLimits::default(),
            );
            let is_told = matches!(&outcome, Err(EngineError::TooLarge { message }) if message.contains("64 MB"));
            assert!(is_told, "{call}: {outcome:?}");
        }
        for call in [
            "repeat('ab', 1000)",
            "lpad('x', 10, '-')",
            "rpad(NULL, 10)",
            "repeat('x', NULL)",
            "string_agg('x', ',')",
            "string_agg(NULL, ',')",
        ] {
            let outcome = outcome(&format!("SELECT {call}"), &QueryLimits::default());
            assert!(matches!(outcome, Ok(1)), "{call}: {outcome:?}");
        }
        let long = "SELECT string_agg('x', repeat(',', 300)) FROM generate_series(1, 3)";
        let outcome = outcome(long, &QueryLimits::default());
        assert!(matches!(outcome, Err(EngineError::TooLarge { .. })));
    }

    #[test]
    fn texts_are_joined_in_the_order_that_is_asked_for() {
        let (engine, terms) = (Engine::start().unwrap(), QueryLimits::default());
        for (call, text) in [
            ("string_agg(DISTINCT t, ', ' ORDER BY t DESC)", "c, b, a"),
            ("string_agg(t, '-' ORDER BY t)", "a-b-b-c"),
            ("string_agg(t, '')", "bacb"),
        ] {
            let sql =
                format!("SELECT {call} FROM (VALUES ('b'), ('a'), (NULL), ('c'), ('b')) AS v(t)");
            let answer = engine.blocking_ask(&sql, &nobody(), &terms).unwrap();
            let (table, _) = answer.into_json(1).unwrap();
            assert_eq!(table.rows[0][0], text, "{call}");
        }
    }

    #[test]
    fn a_stopped_query_fails_also_when_it_was_stopped_before_it_began() {
        let terms = QueryLimits::default();
        terms.stopper.stop();
        assert!(matches!(
            outcome("SELECT 1", &terms),
            Err(EngineError::Stopped)
        ));
        let terms = QueryLimits::default();
        let engine = Engine::start().unwrap();
        let mut answer = engine.blocking_ask(ENDLESS, &nobody(), &terms).unwrap();
        let stopping = std::thread::spawn({
            let stopper = terms.stopper;
            move || stopper.stop()
        });
        assert!(matches!(answer.blocking_next(), Err(EngineError::Stopped)));
        stopping.join().unwrap();
        // Neither waits for it.
        drop(answer);
        drop(engine);
    }

    #[test]
    fn batches_come_one_by_one_in_a_runtime_of_somebody_else() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        runtime.block_on(async {
            let engine = Engine::start().unwrap();
            let sql = "SELECT value FROM generate_series(1, 20000)";
            let terms = QueryLimits::default();
            let mut answer = engine.ask(sql, &nobody(), &terms).await.unwrap();
            assert_eq!(answer.schema().field(0).name(), "value");
            let mut sizes = Vec::new();
            while let Some(batch) = answer.next().await.unwrap() {
                sizes.push(batch.num_rows());
            }
            assert!(sizes.len() > 1, "{sizes:?}");
            assert_eq!(sizes.iter().sum::<usize>(), 20_000);
            assert_eq!(answer.end().unwrap().rows, 20_000);
            // Several at the same time; one that is dropped ends.
            let endless = engine.ask(ENDLESS, &nobody(), &terms).await.unwrap();
            let mut other = engine.ask(sql, &nobody(), &terms).await.unwrap();
            assert!(other.next().await.unwrap().is_some());
            drop(endless);
        });
    }

    #[test]
    fn what_goes_wrong_after_the_first_rows_is_told() {
        let sql = "SELECT 1 / (9999 - value) FROM generate_series(1, 20000)";
        let outcome = outcome(sql, &QueryLimits::default());
        assert!(matches!(outcome, Err(EngineError::Failed { .. })));
    }
}
