//! What evaluated code prints goes to its client; what other threads print goes where it always went.
//!
//! `sys.stdout` stays the object it is, for everybody. While an eval runs, its `write` is a function that looks who
//! calls. So a logging handler that took hold of the stream long ago is covered, too. A stream that does not let its
//! `write` be set (or is `None`) is replaced for as long as the eval runs.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::Mutex;

use probing_proto::message::{Event, MAX_TEXT, Message, RequestId, Stream};
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyCFunction, PyDict, PyString, PyTuple};

use crate::guarded::{call, call_with};
use crate::interrupt::Interrupt;
use crate::outbox::Outbox;
use crate::traceback::text_of;

const STREAMS: [(&str, Stream); 2] = [("stdout", Stream::Stdout), ("stderr", Stream::Stderr)];

/// Where the output of one eval goes.
#[derive(Debug, Clone)]
pub(crate) struct Sink {
    pub(crate) id: RequestId,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) interrupt: Arc<Interrupt>,
}

/// Who hears what this thread's code prints.
#[derive(Debug, Clone)]
pub(crate) enum Ear {
    Client(Sink),
    Nobody,
}

thread_local! {
    /// Set while this thread runs code for a client.
    static EAR: RefCell<Option<Ear>> = const { RefCell::new(None) };
}

/// The streams whose `write` is ours now, and how many evals need that.
struct Taps {
    evals: usize,
    tapped: Vec<Tapped>,
}

static TAPS: Mutex<Taps> = Mutex::new(Taps {
    evals: 0,
    tapped: Vec::new(),
});

/// How a stream was tapped, to undo it.
enum Tapped {
    /// Its `write` was set; there may have been one set before.
    Written {
        stream: Py<PyAny>,
        before: Option<Py<PyAny>>,
    },
    /// `sys.<name>` was replaced.
    Replaced {
        name: &'static str,
        stream: Py<PyAny>,
        by: Py<PyAny>,
    },
}

/// Runs `code` on this thread with its output going to `ear`.
pub(crate) fn captured<T>(py: Python<'_>, ear: Ear, code: impl FnOnce() -> T) -> T {
    change_taps(py, |taps| taps.add(py));
    EAR.set(Some(ear));
    let result = code();
    EAR.set(None);
    change_taps(py, |taps| taps.remove(py));
    result
}

/// In a forked child: the evals that tapped are the parent's.
pub(crate) fn after_fork(py: Python<'_>) {
    EAR.set(None);
    // Locked only if the fork came in the middle of tapping; then the taps stay, and pass everything on.
    if let Ok(mut taps) = TAPS.try_lock() {
        taps.evals = 0;
        taps.undo(py);
    }
}

fn change_taps(py: Python<'_>, change: impl FnOnce(&mut Taps)) {
    if let Ok(mut taps) = TAPS.lock_py_attached(py) {
        change(&mut taps);
    }
}

impl Taps {
    fn add(&mut self, py: Python<'_>) {
        self.evals += 1;
        for (name, kind) in STREAMS {
            // A stream that cannot be tapped keeps what is printed to it.
            if let Ok(Some(tapped)) = self.tap(py, name, kind) {
                self.tapped.push(tapped);
            }
        }
    }

    fn remove(&mut self, py: Python<'_>) {
        self.evals = self.evals.saturating_sub(1);
        if self.evals == 0 {
            self.undo(py);
        }
    }

    fn undo(&mut self, py: Python<'_>) {
        for tapped in self.tapped.drain(..) {
            // The program may have changed its streams meanwhile; then there is nothing to undo.
            drop(tapped.undo(py));
        }
    }

    /// Taps `sys.<name>`, unless another eval has done so.
    fn tap(&self, py: Python<'_>, name: &'static str, kind: Stream) -> PyResult<Option<Tapped>> {
        let sys = py.import("sys")?;
        let stream = sys.getattr(name)?;
        if self.tapped.iter().any(|tapped| tapped.covers(&stream)) {
            return Ok(None);
        }
        if !stream.is_none()
            && let Ok(before) = set_write(&stream, kind)
        {
            return Ok(Some(Tapped::Written {
                stream: stream.unbind(),
                before,
            }));
        }
        let by = Bound::new(
            py,
            Replacement {
                kind,
                stream: stream.clone().unbind(),
            },
        )?;
        sys.setattr(name, &by)?;
        Ok(Some(Tapped::Replaced {
            name,
            stream: stream.unbind(),
            by: by.into_any().unbind(),
        }))
    }
}

impl Tapped {
    fn covers(&self, stream: &Bound<'_, PyAny>) -> bool {
        match self {
            Self::Written { stream: tapped, .. } | Self::Replaced { by: tapped, .. } => {
                tapped.is(stream)
            }
        }
    }

    fn undo(&self, py: Python<'_>) -> PyResult<()> {
        match self {
            Self::Written {
                stream,
                before: Some(before),
            } => stream.setattr(py, "write", before),
            Self::Written {
                stream,
                before: None,
            } => stream.bind(py).delattr("write"),
            Self::Replaced { name, stream, by } => {
                let sys = py.import("sys")?;
                if sys.getattr(*name)?.is(by) {
                    sys.setattr(*name, stream)?;
                }
                Ok(())
            }
        }
    }
}

/// Puts our `write` on the stream; returns what was set on it before.
fn set_write(stream: &Bound<'_, PyAny>, kind: Stream) -> PyResult<Option<Py<PyAny>>> {
    let py = stream.py();
    let before = stream
        .getattr("__dict__")?
        .cast_into::<PyDict>()?
        .get_item("write")?
        .map(Bound::unbind);
    let original = stream.getattr("write")?.unbind();
    let write = PyCFunction::new_closure(
        py,
        Some(c"write"),
        None,
        move |args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>| {
            let py = args.py();
            match sent(py, kind, args) {
                Some(length) => Ok(length.into_pyobject(py)?.into_any().unbind()),
                None => call_with(original.bind(py), args.clone(), kwargs).map(Bound::unbind),
            }
        },
    )?;
    stream.setattr("write", write)?;
    Ok(before)
}

/// Stands in for a stream whose `write` cannot be set.
#[pyclass(frozen)]
struct Replacement {
    kind: Stream,
    stream: Py<PyAny>,
}

#[pymethods]
impl Replacement {
    #[pyo3(signature = (*args))]
    fn write(&self, args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let py = args.py();
        match sent(py, self.kind, args) {
            Some(length) => Ok(length.into_pyobject(py)?.into_any().unbind()),
            None if self.stream.is_none(py) => Ok(py.None()),
            None => {
                let write = self.stream.bind(py).getattr("write")?;
                call_with(&write, args.clone(), None).map(Bound::unbind)
            }
        }
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        if !self.stream.is_none(py) {
            call(&self.stream.bind(py).getattr("flush")?, ())?;
        }
        Ok(())
    }

    fn __getattr__(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        self.stream.getattr(py, name)
    }
}

/// Sends the text to whom this thread's code prints for; `None` when there is nobody such, or it is no text.
fn sent(py: Python<'_>, stream: Stream, args: &Bound<'_, PyTuple>) -> Option<usize> {
    let ear = EAR.with_borrow(Clone::clone)?;
    let argument = args.get_item(0).ok()?;
    let text = text_of(argument.cast::<PyString>().ok()?.as_any());
    let length = text.chars().count();
    let Ear::Client(sink) = ear else {
        return Some(length);
    };
    for piece in pieces(&text) {
        if !sink.outbox.has_room() {
            py.detach(|| sink.outbox.wait_for_room(|| sink.interrupt.is_requested()));
        }
        sink.outbox.push(Message {
            id: Some(sink.id),
            event: Event::Output {
                stream,
                text: piece.to_owned(),
            },
        });
    }
    Some(length)
}

/// `text` in parts that fit a message.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, tail) = rest.split_at(rest.floor_char_boundary(MAX_TEXT / 4));
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}
