//! The rows of one query as they come, and its errors.

pub(crate) mod formats;

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
use crate::snapshot::target_snapshot::{TargetSetSnapshot, UnreadTarget};
use crate::sources::remote_query::RemoteRows;

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
