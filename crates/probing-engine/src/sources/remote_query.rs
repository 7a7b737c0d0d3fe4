//! Rows of targets on another machine: their agent runs the query there, and they come as a stream.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;
use probing_client::{AgentError, ClientError, Members, Node, RowStream};
use probing_proto::agent::QueryEnd;
use probing_proto::process::Pid;
use tokio::sync::mpsc;

use crate::error::EngineError;
use crate::snapshot::target_snapshot::{ReadFailure, UnreadTarget};

/// An answer on its way.
#[derive(Debug, Clone)]
pub(crate) struct RemoteRows {
    rows: Arc<Mutex<RowStream>>,
    members: Members,
}

impl RemoteRows {
    /// Asks the agent of these targets, for who waits where that keeps nobody waiting.
    pub(crate) fn open(
        node: &Node,
        sql: &str,
        members: &Members,
    ) -> Result<(Self, Batches), EngineError> {
        let pids: Vec<Pid> = members.all.iter().filter_map(|member| member.pid).collect();
        let elsewhere = Self {
            rows: Arc::new(Mutex::new(node.query(sql, pids)?)),
            members: members.clone(),
        };
        let reader = StreamReader::try_new(Shared(elsewhere.clone()), None)?;
        Ok((elsewhere, reader))
    }

    /// The same, whose rows come by themselves.
    pub(crate) fn ask(
        node: &Node,
        sql: &str,
        members: &Members,
    ) -> Result<(Self, SendableRecordBatchStream), EngineError> {
        let (elsewhere, reader) = Self::open(node, sql, members)?;
        let schema = reader.schema();
        let (sender, receiver) = mpsc::channel(1);
        // On a thread of its own, which waits for the network; when nobody takes rows any more it ends with the next.
        thread::Builder::new()
            .name("rows".to_owned())
            .spawn(move || {
                for batch in reader {
                    let batch = batch.map_err(DataFusionError::from);
                    if sender.blocking_send(batch).is_err() {
                        break;
                    }
                }
            })
            .map_err(|source| EngineError::NotStarted { source })?;
        let batches = stream::unfold(receiver, |mut receiver| async {
            let batch = receiver.recv().await?;
            Some((batch, receiver))
        });
        let stream = RecordBatchStreamAdapter::new(schema, batches);
        Ok((elsewhere, Box::pin(stream)))
    }

    /// Which targets the rows are not of.
    pub(crate) fn missing(&self) -> Result<Vec<UnreadTarget>, EngineError> {
        let QueryEnd {
            missing, refusal, ..
        } = self.rows().end()?;
        if let Some(refusal) = refusal {
            let (endpoint, status) = (String::new(), 200);
            return Err(EngineError::Remote(ClientError::Agent(
                AgentError::Refused {
                    endpoint,
                    status,
                    refusal,
                },
            )));
        }
        let named = missing.into_iter().filter_map(|one| {
            let mut members = self.members.all.iter();
            let member = members.find(|member| member.pid.is_some() && member.pid == one.pid)?;
            Some(UnreadTarget {
                who: member.who.clone(),
                pid: member.pid,
                why: ReadFailure {
                    message: one.failure.error,
                    hint: one.failure.hint,
                },
            })
        });
        Ok(named.collect())
    }

    fn rows(&self) -> MutexGuard<'_, RowStream> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows as they come.
pub(crate) type Batches = StreamReader<Shared>;

/// Who reads the rows, while another waits for their end.
pub(crate) struct Shared(RemoteRows);

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.rows().read(buffer)
    }
}
