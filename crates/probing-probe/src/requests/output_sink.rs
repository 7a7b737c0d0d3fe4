//! Where the output of one eval goes, and which eval's it is that prints.
//!
//! An eval prints where its thread runs it, and where a task runs that it has started: a task inherits the context of
//! the one that made it, and so does `asyncio.to_thread`.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use probing_proto::message::{Event, MAX_TEXT, Message, RequestId, Stream};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::process::fork_child;
use crate::python::call::call;
use crate::requests::interrupt::Interrupt;
use crate::requests::outbox::Outbox;

/// Where the output of one eval goes.
#[derive(Debug, Clone)]
pub(crate) struct Sink {
    pub(crate) id: RequestId,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) interrupt: Arc<Interrupt>,
    allowance: Arc<Allowance>,
    generation: u32,
}

/// How much may be sent, and how much more there was.
#[derive(Debug)]
struct Allowance {
    left: AtomicU64,
    dropped: AtomicU64,
}

/// Who hears what is printed.
#[derive(Debug, Clone)]
pub(crate) enum OutputReceiver {
    /// Whoever asked for the code that prints.
    Client(Sink),
    /// Nobody wants it.
    Nobody,
    /// As ever.
    Program,
}

thread_local! {
    /// Who hears this thread now; when nothing is said, whoever its context belongs to.
    static OF_THIS_THREAD: RefCell<Option<OutputReceiver>> = const { RefCell::new(None) };
}

/// A `ContextVar` whose value is the eval that the context belongs to. There is none before the first task.
static OF_THIS_CONTEXT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

impl Sink {
    pub(crate) fn new(id: RequestId, outbox: Arc<Outbox>, max_output: Option<u64>) -> Self {
        Self {
            id,
            outbox,
            interrupt: Arc::default(),
            allowance: Arc::new(Allowance {
                left: AtomicU64::new(max_output.unwrap_or(u64::MAX)),
                dropped: AtomicU64::new(0),
            }),
            generation: fork_child::generation(),
        }
    }

    /// That of the eval that the current context belongs to.
    fn of_this_context(py: Python<'_>) -> Option<Self> {
        let variable = OF_THIS_CONTEXT.get(py)?.bind(py);
        let value = call(&variable.getattr("get").ok()?, ()).ok()?;
        let sink = value.cast::<InContext>().ok()?.get().0.clone();
        // A task may outlive its eval, and its process; then it prints for the program.
        (!sink.interrupt.is_over() && sink.generation == fork_child::generation()).then_some(sink)
    }

    /// Runs `code` on behalf of this eval.
    pub(crate) fn lend<T>(&self, code: impl FnOnce() -> T) -> T {
        OutputReceiver::Client(self.clone()).lend(code)
    }

    /// Marks the current context as this eval's.
    pub(crate) fn mark_context(&self, py: Python<'_>) -> PyResult<()> {
        let variable = OF_THIS_CONTEXT.get_or_try_init(py, || {
            // A packed program without it has no tasks either, which would carry the mark on.
            let class = py.import("contextvars")?.getattr("ContextVar")?;
            call(&class, ("probing_eval",)).map(Bound::unbind)
        })?;
        let mark = Bound::new(py, InContext(self.clone()))?;
        call(&variable.bind(py).getattr("set")?, (mark,)).map(drop)
    }

    /// Sends what was printed, as far as is allowed; waits, without the GIL, while a slow client has enough to read.
    pub(crate) fn print(&self, py: Python<'_>, stream: Stream, text: &str) {
        let allowed = self.allowance.take(text);
        for piece in pieces(allowed) {
            if !self.outbox.has_room() {
                py.detach(|| {
                    self.outbox.wait_for_room(|| self.interrupt.is_requested());
                });
            }
            self.outbox.push(Message {
                id: Some(self.id),
                event: Event::Output {
                    stream,
                    text: piece.to_owned(),
                },
            });
        }
    }

    /// Bytes that were printed beyond what is allowed.
    pub(crate) fn dropped(&self) -> u64 {
        self.allowance.dropped.load(Ordering::Acquire)
    }
}

impl OutputReceiver {
    /// Who hears what is printed here and now.
    pub(crate) fn current(py: Python<'_>) -> Self {
        let said = OF_THIS_THREAD.with_borrow(Clone::clone);
        said.unwrap_or_else(|| Sink::of_this_context(py).map_or(Self::Program, Self::Client))
    }

    /// Runs `code`, heard by this.
    pub(crate) fn lend<T>(self, code: impl FnOnce() -> T) -> T {
        let generation = fork_child::generation();
        let before = OF_THIS_THREAD.replace(Some(self));
        let result = code();
        // In a forked child `forget` has spoken.
        if generation == fork_child::generation() {
            OF_THIS_THREAD.set(before);
        }
        result
    }

    /// In a forked child: the evals are the parent's.
    pub(crate) fn forget() {
        OF_THIS_THREAD.set(None);
    }
}

impl Allowance {
    /// The part of `text` that may be sent. Called with the GIL held, which orders the calls.
    fn take<'a>(&self, text: &'a str) -> &'a str {
        let left = self.left.load(Ordering::Acquire);
        let length = usize::try_from(left).unwrap_or(usize::MAX);
        let (sent, rest) = text.split_at(text.floor_char_boundary(length));
        if !rest.is_empty() {
            self.dropped.fetch_add(rest.len() as u64, Ordering::AcqRel);
        }
        // What follows a cut is cut, too, even if it were shorter.
        let left = if rest.is_empty() {
            left - sent.len() as u64
        } else {
            0
        };
        self.left.store(left, Ordering::Release);
        sent
    }
}

/// A sink as the value of a context variable.
#[pyclass(frozen, name = "eval", module = "probing._probe")]
struct InContext(Sink);

/// `text` in parts that fit a message.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, tail) = rest.split_at(rest.floor_char_boundary(MAX_TEXT / 4));
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}
