//! The outbox of a connection, filled by workers and emptied by the server's thread.
//!
//! Filled by workers, emptied by the server's thread.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use probing_proto::message::{Event, Message};
use rustix::event::EventfdFlags;

use crate::process::fork_child;

/// Text that may wait for a slow client before the code that prints has to wait, too.
const ROOM: usize = 1 << 20;
/// Messages that may wait for a slow client before it has to wait with its requests.
const MESSAGES: usize = 1000;
/// Small pieces of output are sent together up to this length.
const PIECE: usize = 64 << 10;

/// Messages for one connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    room: Condvar,
    waker: Arc<Waker>,
}

/// A message, and bytes that travel with it.
#[derive(Debug)]
pub(crate) struct OutgoingMessage {
    pub(crate) message: Message,
    pub(crate) payload: Vec<u8>,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<OutgoingMessage>,
    text: usize,
    payload: usize,
    closed: bool,
}

impl Outbox {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self {
            waiting: Mutex::default(),
            room: Condvar::new(),
            waker,
        }
    }

    /// Adds a message; after [`Outbox::close`] it is dropped.
    pub(crate) fn push(&self, message: Message) {
        let payload = Vec::new();
        self.push_parcel(OutgoingMessage { message, payload });
    }

    pub(crate) fn push_parcel(&self, parcel: OutgoingMessage) {
        let mut waiting = self.waiting();
        if waiting.closed {
            return;
        }
        waiting.add(parcel);
        drop(waiting);
        self.waker.wake();
    }

    /// Waits, without the GIL, until there is room for more text, the client is gone, or `give_up` says so.
    pub(crate) fn wait_for_room(&self, give_up: impl Fn() -> bool) {
        let waiting = self.waiting();
        drop(self.room.wait_while(waiting, |waiting| {
            waiting.text > ROOM && !waiting.closed && !give_up()
        }));
    }

    /// Whether the client is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.waiting().closed
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiting().text <= ROOM
    }

    /// Whether so much waits already that nothing should be asked for.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting().messages.len() >= MESSAGES
    }

    /// Makes those who wait for room look again.
    pub(crate) fn notify(&self) {
        // The lock orders this after their last look.
        drop(self.waiting());
        self.room.notify_all();
    }

    /// Whether bytes wait that nobody has taken yet: then no more are read for this client.
    pub(crate) fn has_payload(&self) -> bool {
        self.waiting().payload > 0
    }

    pub(crate) fn take(&self) -> Option<OutgoingMessage> {
        let mut waiting = self.waiting();
        let parcel = waiting.messages.pop_front()?;
        waiting.text -= weight(&parcel.message);
        waiting.payload -= parcel.payload.len();
        self.room.notify_all();
        Some(parcel)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().messages.is_empty()
    }

    /// Nobody reads any more.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting();
        *waiting = Waiting {
            closed: true,
            ..Waiting::default()
        };
        self.room.notify_all();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add(&mut self, parcel: OutgoingMessage) {
        self.text += weight(&parcel.message);
        self.payload += parcel.payload.len();
        let last = self.messages.back_mut().map(|last| &mut last.message);
        if let (
            Event::Output { stream, text },
            Some(Message {
                id,
                event:
                    Event::Output {
                        stream: last_stream,
                        text: last_text,
                    },
            }),
        ) = (&parcel.message.event, last)
            && *id == parcel.message.id
            && last_stream == stream
            && last_text.len() + text.len() <= PIECE
        {
            last_text.push_str(text);
        } else {
            self.messages.push_back(parcel);
        }
    }
}

fn weight(message: &Message) -> usize {
    match &message.event {
        Event::Output { text, .. } => text.len(),
        _ => 0,
    }
}

/// Wakes the server's thread.
#[derive(Debug)]
pub(crate) struct Waker {
    eventfd: OwnedFd,
    generation: u32,
}

impl Waker {
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            eventfd: rustix::event::eventfd(0, flags)?,
            generation: fork_child::generation(),
        })
    }

    pub(crate) fn wake(&self) {
        // In a forked child the number may belong to another file by now.
        if self.generation == fork_child::generation() {
            // It fails only when 2^64 wakes are pending: then the thread is awake.
            rustix::io::write(&self.eventfd, &1u64.to_ne_bytes()).ok();
        }
    }

    /// After waking: makes the next wait a wait again.
    pub(crate) fn reset(&self) {
        // Nothing to read means nobody woke us.
        rustix::io::read(&self.eventfd, &mut [0u8; 8]).ok();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
