//! A typed handle on the probe in one target.

pub(crate) mod breakpoints;
pub(crate) mod completion;
pub(crate) mod connection;
pub(crate) mod disconnect;
pub(crate) mod package;
pub(crate) mod private_socket;
pub(crate) mod recorders;
pub(crate) mod socket_path;
pub(crate) mod torch;
pub(crate) mod trace;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use probing_attach::Options as AttachOptions;
use probing_process::access::peer::Peer;
use probing_process::proc;
use probing_process::procfs::processes::Process;
use probing_process::procfs::threads;
use probing_proto::message::{
    Call, Eval, Evaluated, Event, Hello, Locals, LocalsCall, Message, Progress, Request, RequestId,
    Stream,
};
use probing_proto::process::Pid;

use crate::error::{ClientError, LocalError};
use crate::probe::breakpoints::Following;
use crate::probe::connection::{CONNECT_TIMEOUT, Connection, Sender};
use crate::probe::disconnect::DisconnectWatcher;

/// How long code that was interrupted may take to end before it counts as stuck, and a request that was cancelled to be answered.
const GRACE: Duration = Duration::from_secs(2);
/// How long code may take to begin before it is worth saying what it waits for, and the probe to say what it has cancelled.
const START: Duration = Duration::from_secs(1);

/// How often to look whether the probe's thread has ended.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// How much later than its deadline an answer may arrive.
const MARGIN: Duration = Duration::from_millis(500);

/// A connection to the probe in one process.
#[derive(Debug)]
pub struct Probe {
    hello: Hello,
    /// The process as it is seen from here, where that is known: in a container it calls itself by another number.
    seen: Option<Pid>,
    pub(crate) connection: Connection,
    pub(crate) following: Following,
    sender: Arc<Sender>,
    ids: Arc<AtomicU64>,
}

/// What to do about a process that has no probe.
#[derive(Debug, Clone)]
pub enum Entry {
    /// Bring one in.
    Attach(AttachOptions),
    /// Leave it as it is, and say so.
    Forbidden,
}

/// Only its user, and root, may talk to a process's probe.
pub(crate) fn check_user(process: &Process) -> Result<(), ClientError> {
    let (own, pid, uid) = (rustix::process::geteuid(), process.pid, process.uid);
    if uid == own.as_raw() || own.is_root() {
        Ok(())
    } else {
        Err(ClientError::Local(LocalError::OtherUser { pid, uid }))
    }
}

/// How an eval ended, as seen from here.
#[derive(Debug)]
pub enum EvalEnd {
    /// By itself, or because [`Canceller::cancel`] was called.
    Evaluated(Evaluated),
    /// The deadline passed; interrupted, it ended like this.
    TimedOut(Evaluated),
    /// The deadline passed, and it did not begin (and never will), or did not end when interrupted: it is inside a C call.
    Stuck(Progress),
}

/// What is heard of an eval before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalEvent<'a> {
    /// It printed.
    Output(Stream, &'a str),
    /// It has not begun for a while: it waits for the thread with this number, or for the GIL.
    Waits(Option<u64>),
}

impl Probe {
    pub(crate) fn of_process(process: &Process) -> Result<Self, ClientError> {
        let pid = process.pid;
        let Some(socket) = socket_path::socket_of(process)? else {
            return Err(ClientError::NoProbe { pid });
        };
        if process.stat.is_stopped() {
            return Err(ClientError::Local(LocalError::Stopped { pid }));
        }
        let connected = Connection::to_process(process, &socket, CONNECT_TIMEOUT);
        let connected = connected.map_err(|error| match error {
            ClientError::Local(LocalError::NobodyListens { socket }) => {
                ClientError::Local(LocalError::DeadSocket { pid, socket })
            }
            error => error,
        })?;
        let probe = Self::greeted(connected)?;
        Ok(Self {
            seen: Some(pid),
            ..probe
        })
    }

    /// Connects to the probe that listens at `socket`.
    pub(crate) fn at(socket: &Path, patience: Duration) -> Result<Self, ClientError> {
        Self::greeted(Connection::to_socket(socket, patience)?)
    }

    /// Hears the probe at the other end of a socket that is connected.
    pub(crate) fn over(socket: UnixStream, patience: Duration) -> Result<Self, ClientError> {
        Self::greeted(Connection::over(socket, patience)?)
    }

    fn greeted((connection, hello): (Connection, Hello)) -> Result<Self, ClientError> {
        Ok(Self {
            hello,
            seen: None,
            sender: Arc::new(connection.sender()?),
            connection,
            following: Following::default(),
            ids: Arc::new(AtomicU64::new(1)),
        })
    }

    /// For who passes on what is said: the socket, and what came on it behind the hello.
    pub fn into_socket(self) -> (Hello, UnixStream, Vec<u8>) {
        let (socket, rest) = self.connection.into_socket();
        (self.hello, socket, rest)
    }

    /// Who answers.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The process by the number that users know, and by its own in a container: `4242 (1 in its container)`.
    pub fn process(&self) -> String {
        let own = self.hello.pid;
        match self.seen {
            Some(seen) if seen != own => format!("{seen} ({own} in its container)"),
            _ => own.to_string(),
        }
    }

    /// Whether the probe at the other end is still there, as far as can be told without asking it.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    /// Starts running code; follow it with [`Probe::finish_eval`].
    pub fn start_eval(&self, eval: Eval) -> Result<Canceller, ClientError> {
        let request = self.send(Call::Eval(eval))?;
        Ok(Canceller {
            sender: Arc::clone(&self.sender),
            ids: Arc::clone(&self.ids),
            request,
        })
    }

    /// Tells `on_news` what is heard of the eval, until it ends or time is up.
    pub fn finish_eval(
        &mut self,
        eval: &Canceller,
        timeout: Option<Duration>,
        mut on_news: impl FnMut(EvalEvent<'_>),
    ) -> Result<EvalEnd, ClientError> {
        let mut deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut look_at = Some(Instant::now() + START);
        let mut cancelled = None;
        loop {
            let until = deadline.into_iter().chain(look_at).min();
            let Some(message) = self.connection.receive(until)? else {
                if look_at.is_some() && until == look_at {
                    look_at = None;
                    let request = eval.request;
                    self.send(Call::Progress { request })?;
                } else if let Some(progress) = cancelled {
                    return Ok(EvalEnd::Stuck(progress));
                } else {
                    // Until the probe has told better.
                    let begun = true;
                    let thread = None;
                    cancelled = Some(Progress { begun, thread });
                    (deadline, look_at) = (Some(Instant::now() + GRACE), None);
                    eval.cancel()?;
                }
                continue;
            };
            match message.event {
                // With one eval on the connection both can only be about that.
                Event::Cancelling(progress) if !progress.begun => {
                    return Ok(EvalEnd::Stuck(progress));
                }
                Event::Cancelling(progress) if cancelled.is_some() => cancelled = Some(progress),
                Event::Progress(Progress {
                    begun: false,
                    thread,
                }) => on_news(EvalEvent::Waits(thread)),
                _ if message.id != Some(eval.request) => self.following.overhear(message),
                Event::Output { stream, text } => {
                    look_at = None;
                    on_news(EvalEvent::Output(stream, &text));
                }
                Event::Evaluated(evaluated) if cancelled.is_some() => {
                    return Ok(EvalEnd::TimedOut(evaluated));
                }
                Event::Evaluated(evaluated) => return Ok(EvalEnd::Evaluated(evaluated)),
                Event::Failed(failure) => return Err(ClientError::NotDone(failure)),
                // Late answers to what was asked before.
                _ => {}
            }
        }
    }

    /// Values of the locals of these threads, as far as they are known within the deadline.
    pub(crate) fn locals(
        &mut self,
        threads: Vec<u64>,
        deadline: Duration,
    ) -> Result<Locals, ClientError> {
        let call = Call::Locals(LocalsCall {
            threads,
            deadline_millis: deadline.as_millis() as u64,
        });
        match self.ask(call, deadline + MARGIN)? {
            Event::Locals(locals) => Ok(locals),
            _ => Ok(Locals {
                threads: Vec::new(),
            }),
        }
    }

    /// Bytes of the process's own memory or files, each piece that was asked for.
    pub(crate) fn read(&mut self, call: Call) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let (event, payload) = self.ask_for_bytes(call, CONNECT_TIMEOUT)?;
        let pieces = match event {
            Event::Read(pieces) => pieces.of(&payload),
            _ => None,
        };
        let theirs = self.hello.protocol;
        pieces.ok_or(ClientError::OtherProtocol { theirs })
    }

    /// Asks something that is answered by one message. What comes too late is not waited for, and not begun.
    pub(crate) fn ask(&mut self, call: Call, patience: Duration) -> Result<Event, ClientError> {
        Ok(self.ask_for_bytes(call, patience)?.0)
    }

    fn ask_for_bytes(
        &mut self,
        call: Call,
        patience: Duration,
    ) -> Result<(Event, Vec<u8>), ClientError> {
        let request = self.send(call)?;
        self.answer(request, patience)
    }

    /// The one message that answers a request, and the bytes that came along. A request that is not answered in time is cancelled:
    /// the error says whether it had taken effect by then.
    pub(crate) fn answer(
        &mut self,
        request: RequestId,
        patience: Duration,
    ) -> Result<(Event, Vec<u8>), ClientError> {
        let mut deadline = Instant::now() + patience;
        let mut cancel = None;
        let mut has_begun = false;
        loop {
            let Some(frame) = self.connection.receive_frame(Some(deadline))? else {
                if cancel.is_some() {
                    return Err(given_up(patience, has_begun));
                }
                cancel = Some(self.send(Call::Cancel { request })?);
                deadline = Instant::now() + START;
                continue;
            };
            let message: Message = frame.message()?;
            match message.event {
                Event::Cancelling(progress) if cancel.is_some() && message.id == cancel => {
                    if !progress.begun {
                        return Err(ClientError::GivenUp { patience });
                    }
                    // Its answer is on its way.
                    has_begun = true;
                    deadline = Instant::now() + GRACE;
                }
                _ if message.id != Some(request) => self.following.overhear(message),
                // They may come before the answer to who follows.
                Event::News(_) => self.following.overhear(message),
                Event::Failed(failure) => return Err(ClientError::NotDone(failure)),
                event => return Ok((event, frame.payload)),
            }
        }
    }

    /// For a thread that waits for the end of this connection.
    pub fn hang_up(&self) -> DisconnectWatcher {
        DisconnectWatcher::of(Arc::clone(&self.sender))
    }

    /// Takes the probe out of the process. Returns when its files and its thread are gone.
    pub fn detach(mut self) -> Result<(), ClientError> {
        let thread = self.thread();
        let id = self.send(Call::Detach)?;
        let deadline = Some(Instant::now() + CONNECT_TIMEOUT);
        let mut done = false;
        loop {
            match self.connection.receive(deadline) {
                Ok(Some(message)) if message.id == Some(id) => match message.event {
                    Event::Failed(failure) => return Err(ClientError::Refused(failure)),
                    _ => done = true,
                },
                Ok(Some(_)) => {}
                Ok(None) => {
                    return Err(ClientError::Silent {
                        patience: CONNECT_TIMEOUT,
                    });
                }
                Err(ClientError::Gone) if done => break,
                Err(error) => return Err(error),
            }
        }
        // Its thread closes the connection a moment before it ends.
        while thread.as_ref().is_some_and(|thread| thread.exists()) {
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(ClientError::Silent {
                    patience: CONNECT_TIMEOUT,
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The folder in `/proc` of the probe's thread, which is there for as long as the probe is; none of a process of another
    /// machine, whose agent looks after it.
    pub fn thread(&self) -> Option<PathBuf> {
        let peer = Peer::of(self.sender.stream())
            .ok()
            .and_then(|peer| peer.pid);
        // What an agent passes on comes from a thread of our own.
        let pid = peer.filter(|pid| pid.0 != std::process::id())?;
        let tid = threads::by_id_inside(pid, self.hello.thread?)?;
        Some(proc(pid, &format!("task/{tid}")))
    }

    pub(crate) fn send(&self, call: Call) -> Result<RequestId, ClientError> {
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
    /// Ends the connection, and with it all that was asked on it: for code that does not end when it is interrupted.
    pub fn abandon(&self) -> Result<(), ClientError> {
        self.sender.abandon()
    }

    pub fn cancel(&self) -> Result<(), ClientError> {
        self.sender.send(&Request {
            id: next(&self.ids),
            call: Call::Cancel {
                request: self.request,
            },
        })
    }
}

/// Neither the request nor its cancellation was answered to the end.
fn given_up(patience: Duration, has_begun: bool) -> ClientError {
    if has_begun {
        ClientError::Unfinished { patience }
    } else {
        ClientError::Silent { patience }
    }
}

fn next(ids: &AtomicU64) -> RequestId {
    RequestId(ids.fetch_add(1, Ordering::Relaxed))
}
