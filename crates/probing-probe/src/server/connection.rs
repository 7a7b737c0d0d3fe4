//! One client: its bytes in, its answers out, its evals in flight.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use probing_proto::message::reads::Pieces;
use probing_proto::message::{Call, Event, Failure, Message, Progress, Request, RequestId};
use probing_proto::wire::{self, Decoder, Frame, MAX_ANSWER, MAX_REQUEST, WireError};

use crate::eval::interrupt::Interrupt;
use crate::eval::last_value::ConnectionValue;
use crate::eval::output_sink::Sink;
use crate::process::fork_child::ClosedInChildren;
use crate::recorders::Borrowed;
use crate::requests::outbox::{Outbox, OutgoingMessage, Waker};
use crate::requests::subsystem::Subsystem;
use crate::server::subsystems::SUBSYSTEMS;

/// Bytes taken from one client before the others have their turn.
const TURN: usize = 256 << 10;
/// Evals that one client may have in flight.
const MAX_IN_FLIGHT: usize = 32;

#[derive(Debug)]
pub(crate) struct Connection {
    // Before the stream: the number is forgotten before the file is closed.
    _closed_in_children: ClosedInChildren,
    stream: UnixStream,
    decoder: Decoder,
    outbox: Arc<Outbox>,
    /// The rest of a frame that the socket had no room for.
    unsent: Vec<u8>,
    in_flight: HashMap<RequestId, Arc<Interrupt>>,
    /// Cancelled by what arrived together with them: they never begin.
    given_up: Vec<RequestId>,
    /// What `_` is for this client.
    held: ConnectionValue,
    /// What is on for as long as it is there.
    borrowed: Arc<Borrowed>,
}

/// What is told of an eval that is not known any more.
const ENDED: Progress = Progress {
    begun: true,
    thread: None,
};

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Open,
    Over,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream, waker: Arc<Waker>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            _closed_in_children: ClosedInChildren::new(stream.as_fd()),
            stream,
            decoder: Decoder::new(MAX_REQUEST),
            outbox: Arc::new(Outbox::new(waker)),
            unsent: Vec::new(),
            in_flight: HashMap::new(),
            given_up: Vec::new(),
            held: ConnectionValue::default(),
            borrowed: Arc::default(),
        })
    }

    pub(crate) fn say(&self, id: Option<RequestId>, event: Event) {
        self.outbox.push(Message { id, event });
    }

    /// Answers with bytes. One who asks for more before these are taken is told to wait.
    pub(crate) fn say_read(
        &self,
        id: RequestId,
        read: impl FnOnce() -> Result<(Pieces, Vec<u8>), Failure>,
    ) {
        let read = if self.outbox.has_payload() {
            Err(Failure::new("the answer before this one is not taken yet"))
        } else {
            read()
        };
        let (event, payload) = match read {
            Ok((pieces, payload)) => (Event::Read(pieces), payload),
            Err(failure) => (Event::Failed(failure), Vec::new()),
        };
        let id = Some(id);
        let message = Message { id, event };
        self.outbox
            .push_parcel(OutgoingMessage { message, payload });
    }

    pub(crate) fn has_more_to_say(&self) -> bool {
        !self.unsent.is_empty() || !self.outbox.is_empty()
    }

    /// Whether to hear more. A client that does not take its answers would fill the target's memory with them.
    pub(crate) fn is_heard(&self) -> bool {
        !self.outbox.is_full()
    }

    /// Takes what has arrived, then gives whole requests to `handle`. None of a client that has gone meanwhile: a process that was
    /// stopped, or had no CPU, finds request, cancellation and the end of the connection at once.
    pub(crate) fn read(&mut self, mut handle: impl FnMut(&mut Self, Request)) -> ConnectionState {
        let frames = match self.arrived() {
            Ok(frames) => frames,
            Err(fate) => return fate,
        };
        let mut requests = Vec::new();
        for frame in frames {
            match frame.message::<Request>() {
                Ok(request) => requests.push(request),
                Err(error) => self.refuse(&frame, &error),
            }
        }
        let given_up = requests.iter().filter_map(|request| match request.call {
            Call::Cancel { request } => Some(request),
            _ => None,
        });
        self.given_up = given_up.collect();
        for request in requests {
            handle(self, request);
        }
        self.given_up.clear();
        ConnectionState::Open
    }

    /// Whole frames that have arrived, or what became of the connection.
    fn arrived(&mut self) -> Result<Vec<Frame>, ConnectionState> {
        let mut buffer = [0; 16 << 10];
        let mut frames = Vec::new();
        let mut taken = 0;
        while taken < TURN {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ConnectionState::Over),
                Ok(length) => {
                    taken += length;
                    self.decoder.push(&buffer[..length]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(ConnectionState::Over),
            }
            loop {
                match self.decoder.next_frame() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => {
                        self.say(None, Event::Failed(Failure::new(error.to_string())));
                        self.write();
                        return Err(ConnectionState::Over);
                    }
                }
            }
        }
        Ok(frames)
    }

    /// Whether the client has given up a request that it made just before.
    pub(crate) fn has_given_up(&self, request: RequestId) -> bool {
        self.given_up.contains(&request)
    }

    /// A frame that holds no request we know. A newer client may ask for what this probe cannot do: only that fails.
    fn refuse(&self, frame: &Frame, error: &WireError) {
        let id = serde_json::from_slice::<serde_json::Value>(&frame.json)
            .ok()
            .and_then(|value| value.get("id")?.as_u64())
            .map(RequestId);
        let failure = Failure::new(error.to_string()).with_hint(
            "the probe in this process may be older than your `probing`: detach it and attach again",
        );
        self.say(id, Event::Failed(failure));
    }

    /// Sends what the socket has room for.
    pub(crate) fn write(&mut self) -> ConnectionState {
        loop {
            if self.unsent.is_empty() {
                let Some(parcel) = self.outbox.take() else {
                    return ConnectionState::Open;
                };
                self.unsent = Self::encoded(&parcel);
            }
            match self.stream.write(&self.unsent) {
                Ok(length) if length == self.unsent.len() => self.unsent = Vec::new(),
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return ConnectionState::Open;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return ConnectionState::Over,
            }
        }
    }

    fn encoded(OutgoingMessage { message, payload }: &OutgoingMessage) -> Vec<u8> {
        wire::encode(message, payload, MAX_ANSWER).unwrap_or_else(|error| {
            let event = Event::Failed(Failure::new(error.to_string()));
            wire::encode(
                &Message {
                    id: message.id,
                    event,
                },
                &[],
                MAX_ANSWER,
            )
            .unwrap_or_default()
        })
    }

    /// Makes room for one more eval, which will answer into the sink.
    pub(crate) fn begin(
        &mut self,
        id: RequestId,
        max_output: Option<u64>,
    ) -> Result<Sink, Failure> {
        self.in_flight.retain(|_, interrupt| !interrupt.is_over());
        if self.in_flight.len() == MAX_IN_FLIGHT {
            return Err(Failure::new(format!(
                "more than {MAX_IN_FLIGHT} requests in flight"
            )));
        }
        if self.in_flight.contains_key(&id) {
            return Err(Failure::new(format!(
                "a request with this id is in flight: {}",
                id.0
            )));
        }
        let sink = Sink::new(id, Arc::clone(&self.outbox), max_output);
        if self.has_given_up(id) {
            sink.interrupt.request();
        }
        self.in_flight.insert(id, Arc::clone(&sink.interrupt));
        Ok(sink)
    }

    /// What `_` is for this client.
    pub(crate) fn held(&self) -> ConnectionValue {
        self.held.clone()
    }

    /// What it has borrowed.
    pub(crate) fn borrowed(&self) -> &Arc<Borrowed> {
        &self.borrowed
    }

    /// Where its answers go; by this it is told from other connections.
    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// How far an eval is; one that has just ended has begun.
    pub(crate) fn progress(&self, id: RequestId) -> Progress {
        self.in_flight
            .get(&id)
            .map_or(ENDED, |interrupt| interrupt.progress())
    }

    /// Interrupts an eval, and says so before the eval can answer; one that has just ended needs nothing.
    pub(crate) fn cancel(&self, id: RequestId, request: RequestId) {
        let say = |progress| self.say(Some(id), Event::Cancelling(progress));
        if let Some(interrupt) = self.in_flight.get(&request) {
            interrupt.request_after(say);
        } else {
            say(ENDED);
            let is_kept = |it: &&dyn Subsystem| it.cancel(&self.outbox, request);
            if SUBSYSTEMS.iter().any(is_kept) {
                self.say(Some(request), Event::Done);
            }
        }
        self.outbox.notify();
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for Connection {
    /// The client is gone: nobody wants the answers of its evals.
    fn drop(&mut self) {
        self.outbox.close();
        SUBSYSTEMS
            .iter()
            .for_each(|it| it.client_gone(&self.outbox));
        for interrupt in self.in_flight.values() {
            interrupt.request();
        }
        self.held.let_go();
        self.borrowed.end();
    }
}
