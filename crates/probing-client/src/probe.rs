//! A typed handle on the probe in one target.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use probing_process::processes::Process;
use probing_proto::message::{
    Call, Evaluated, Event, Hello, Locals, LocalsCall, Request, RequestId, Stream,
};

use crate::connection::{Connection, PATIENCE, Sender};
use crate::error::ClientError;
use crate::meeting;

/// How long code that was interrupted may take to end before it counts as stuck.
const GRACE: Duration = Duration::from_secs(2);

/// How much later than its deadline an answer may arrive.
const MARGIN: Duration = Duration::from_millis(500);

/// A connection to the probe in one process.
#[derive(Debug)]
pub struct Probe {
    hello: Hello,
    connection: Connection,
    sender: Arc<Sender>,
    ids: Arc<AtomicU64>,
}

/// How an eval ended, as seen from here.
#[derive(Debug)]
pub enum EvalEnd {
    /// By itself, or because [`Canceller::cancel`] was called.
    Evaluated(Evaluated),
    /// The deadline passed; interrupted, it ended like this.
    TimedOut(Evaluated),
    /// The deadline passed, and it did not end when interrupted: it is inside a C call, or has not `begun` because
    /// another thread holds the GIL.
    Stuck { begun: bool },
}

impl Probe {
    pub(crate) fn of_process(process: &Process) -> Result<Self, ClientError> {
        let pid = process.pid;
        let Some(socket) = meeting::socket_of(process)? else {
            return Err(ClientError::NoProbe { pid });
        };
        if process.stat.is_stopped() {
            return Err(ClientError::Stopped { pid });
        }
        Self::at(&socket, PATIENCE).map_err(|error| match error {
            ClientError::NobodyListens { socket } => ClientError::DeadSocket { pid, socket },
            error => error,
        })
    }

    /// Connects to the probe that listens at `socket`.
    pub(crate) fn at(socket: &Path, patience: Duration) -> Result<Self, ClientError> {
        let (connection, hello) = Connection::open(socket, patience)?;
        Ok(Self {
            hello,
            sender: Arc::new(connection.sender()?),
            connection,
            ids: Arc::new(AtomicU64::new(1)),
        })
    }

    /// Who answers.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Whether the probe at the other end is still there, as far as can be told without asking it.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    /// Starts running `code`; follow it with [`Probe::finish_eval`].
    pub fn start_eval(&self, code: String) -> Result<Canceller, ClientError> {
        let request = self.send(Call::Eval { code })?;
        Ok(Canceller {
            sender: Arc::clone(&self.sender),
            ids: Arc::clone(&self.ids),
            request,
        })
    }

    /// Hands what the code prints to `on_output`, until it ends or time is up.
    pub fn finish_eval(
        &mut self,
        eval: &Canceller,
        timeout: Option<Duration>,
        mut on_output: impl FnMut(Stream, &str),
    ) -> Result<EvalEnd, ClientError> {
        let mut deadline = timeout.map(|timeout| Instant::now() + timeout);
        let (mut timed_out, mut begun) = (false, true);
        loop {
            let Some(message) = self.connection.receive(deadline)? else {
                if timed_out {
                    return Ok(EvalEnd::Stuck { begun });
                }
                timed_out = true;
                deadline = Some(Instant::now() + GRACE);
                eval.cancel()?;
                continue;
            };
            if let Event::Cancelling { begun: told } = message.event {
                begun = told;
            }
            if message.id != Some(eval.request) {
                continue;
            }
            match message.event {
                Event::Output { stream, text } => on_output(stream, &text),
                Event::Evaluated(evaluated) if timed_out => {
                    return Ok(EvalEnd::TimedOut(evaluated));
                }
                Event::Evaluated(evaluated) => return Ok(EvalEnd::Evaluated(evaluated)),
                Event::Failed(failure) => return Err(ClientError::Refused(failure)),
                Event::Hello(_) | Event::Locals(_) | Event::Done | Event::Cancelling { .. } => {}
            }
        }
    }

    /// Values of the locals of these threads, as far as they are known within the deadline.
    pub(crate) fn locals(
        &mut self,
        threads: Vec<u64>,
        deadline: Duration,
    ) -> Result<Locals, ClientError> {
        let patience = deadline + MARGIN;
        let until = Some(Instant::now() + patience);
        let id = self.send(Call::Locals(LocalsCall {
            threads,
            deadline_millis: deadline.as_millis() as u64,
        }))?;
        loop {
            match self.connection.receive(until)? {
                Some(message) if message.id == Some(id) => match message.event {
                    Event::Locals(locals) => return Ok(locals),
                    Event::Failed(failure) => return Err(ClientError::Refused(failure)),
                    _ => {}
                },
                Some(_) => {}
                None => return Err(ClientError::Silent { patience }),
            }
        }
    }

    /// Takes the probe out of the process. Returns when its files are gone.
    pub fn detach(mut self) -> Result<(), ClientError> {
        let id = self.send(Call::Detach)?;
        let deadline = Some(Instant::now() + PATIENCE);
        let mut done = false;
        loop {
            match self.connection.receive(deadline) {
                Ok(Some(message)) if message.id == Some(id) => match message.event {
                    Event::Failed(failure) => return Err(ClientError::Refused(failure)),
                    _ => done = true,
                },
                Ok(Some(_)) => {}
                Ok(None) => return Err(ClientError::Silent { patience: PATIENCE }),
                Err(ClientError::Gone) if done => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&self, call: Call) -> Result<RequestId, ClientError> {
        let id = next(&self.ids);
        self.sender.send(&Request { id, call })?;
        Ok(id)
    }
}

/// Interrupts one eval, from any thread.
#[derive(Debug, Clone)]
pub struct Canceller {
    sender: Arc<Sender>,
    ids: Arc<AtomicU64>,
    request: RequestId,
}

impl Canceller {
    pub fn cancel(&self) -> Result<(), ClientError> {
        self.sender.send(&Request {
            id: next(&self.ids),
            call: Call::Cancel {
                request: self.request,
            },
        })
    }
}

fn next(ids: &AtomicU64) -> RequestId {
    RequestId(ids.fetch_add(1, Ordering::Relaxed))
}
