//! What evaluated code prints goes to its client; what others print goes where it always went.
//!
//! `sys.stdout` stays the object it is, for everybody. While an eval runs, its `write` is a function that looks who
//! calls, and so is that of the bytes below it. So a logging handler that took hold of the stream long ago is covered,
//! too. A stream that does not let its `write` be set (or is `None`) is replaced for as long as the eval runs.
//!
//! In the same way the program's standard input stays the program's: evaluated code that reads it gets an `EOFError`.

use std::sync::Mutex;

use probing_proto::message::Stream;
use pyo3::exceptions::PyEOFError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyDict, PyMemoryView, PyString, PyTuple};

use crate::eval::output_sink::OutputReceiver;
use crate::eval::traceback::text_of;
use crate::python::call::{call, call_with};

/// Those that the program began with may be others than those it has now; handlers may hold either.
const OUTPUTS: [(&str, Stream); 4] = [
    ("stdout", Stream::Stdout),
    ("stderr", Stream::Stderr),
    ("__stdout__", Stream::Stdout),
    ("__stderr__", Stream::Stderr),
];
/// `input()` asks for the number of the file, to read it by itself.
const READS_OF_TEXT: [&str; 4] = ["read", "readline", "readlines", "fileno"];
const READS_OF_BYTES: [&str; 5] = ["read", "read1", "readline", "readinto", "peek"];

/// The streams that are tapped now, and how many evals need that.
struct Taps {
    evals: usize,
    tapped: Vec<TappedStream>,
}

static TAPS: Mutex<Taps> = Mutex::new(Taps {
    evals: 0,
    tapped: Vec::new(),
});

/// How a stream was tapped, to undo it.
enum TappedStream {
    /// Some of its methods were set.
    Set {
        stream: Py<PyAny>,
        methods: Vec<Method>,
    },
    /// `sys.<name>` was replaced.
    Replaced {
        name: &'static str,
        stream: Py<PyAny>,
        by: Py<PyAny>,
    },
}

/// A method that was set on an object; there may have been one set before.
struct Method {
    of: Py<PyAny>,
    name: &'static str,
    before: Option<Py<PyAny>>,
}

/// From now on evals may run; to be followed by [`untap`].
pub(crate) fn tap(py: Python<'_>) {
    change_taps(py, |taps| taps.add(py));
}

pub(crate) fn untap(py: Python<'_>) {
    change_taps(py, |taps| taps.remove(py));
}

/// In a forked child: the evals that tapped are the parent's.
pub(crate) fn after_fork(py: Python<'_>) {
    OutputReceiver::forget();
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
    /// A stream that cannot be tapped keeps what is printed to it.
    fn add(&mut self, py: Python<'_>) {
        self.evals += 1;
        for (name, kind) in OUTPUTS {
            drop(self.tap_output(py, name, kind));
        }
        drop(self.tap_input(py));
    }

    fn remove(&mut self, py: Python<'_>) {
        self.evals = self.evals.saturating_sub(1);
        if self.evals == 0 {
            self.undo(py);
        }
    }

    fn undo(&mut self, py: Python<'_>) {
        for tapped in self.tapped.drain(..) {
            tapped.undo(py);
        }
    }

    /// The stream `sys.<name>`, unless it is tapped already.
    fn untapped<'py>(
        &self,
        py: Python<'py>,
        name: &'static str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let stream = py.import("sys")?.getattr(name)?;
        let tapped = self.tapped.iter().any(|tapped| tapped.covers(&stream));
        Ok((!tapped).then_some(stream))
    }

    fn tap_output(&mut self, py: Python<'_>, name: &'static str, kind: Stream) -> PyResult<()> {
        let Some(stream) = self.untapped(py, name)? else {
            return Ok(());
        };
        if !stream.is_none()
            && let Ok(write) = Method::set(&stream, "write", StreamMethod::WriteText(kind))
        {
            let mut methods = vec![write];
            // Without the bytes below, text is still covered.
            drop(tap_bytes(&stream, kind, &mut methods));
            let stream = stream.unbind();
            self.tapped.push(TappedStream::Set { stream, methods });
        } else if !name.starts_with("__") {
            let original = stream.clone().unbind();
            let by = Bound::new(
                py,
                Replacement {
                    kind,
                    stream: original,
                },
            )?;
            py.import("sys")?.setattr(name, &by)?;
            self.tapped.push(TappedStream::Replaced {
                name,
                stream: stream.unbind(),
                by: by.into_any().unbind(),
            });
        }
        Ok(())
    }

    fn tap_input(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(stream) = self.untapped(py, "stdin")? else {
            return Ok(());
        };
        if !is_text_of_bytes(&stream)? {
            return Ok(());
        }
        let mut methods = Vec::new();
        let bytes = stream.getattr("buffer")?;
        let reads = READS_OF_TEXT.map(|name| (&stream, name));
        for (of, name) in reads
            .into_iter()
            .chain(READS_OF_BYTES.map(|name| (&bytes, name)))
        {
            // Not all of them have all.
            methods.extend(Method::set(of, name, StreamMethod::Read).ok());
        }
        let stream = stream.unbind();
        self.tapped.push(TappedStream::Set { stream, methods });
        Ok(())
    }
}

/// The bytes below a text stream. Text that the program has printed and not yet flushed lies in the text stream: when
/// evaluated code flushes it, it is still the program's.
fn tap_bytes(stream: &Bound<'_, PyAny>, kind: Stream, methods: &mut Vec<Method>) -> PyResult<()> {
    if is_text_of_bytes(stream)? {
        methods.push(Method::set(stream, "flush", StreamMethod::Flush)?);
        methods.push(Method::set(
            &stream.getattr("buffer")?,
            "write",
            StreamMethod::WriteBytes(kind),
        )?);
    }
    Ok(())
}

/// Whether it is what Python itself opens; the program's own classes are not asked for more than `write`.
fn is_text_of_bytes(stream: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = stream.py().import("_io")?.getattr("TextIOWrapper")?;
    Ok(stream.get_type().is(&class))
}

impl TappedStream {
    fn covers(&self, stream: &Bound<'_, PyAny>) -> bool {
        match self {
            Self::Set { stream: tapped, .. } | Self::Replaced { by: tapped, .. } => {
                tapped.is(stream)
            }
        }
    }

    /// The program may have changed its streams meanwhile; then there is nothing to undo.
    fn undo(self, py: Python<'_>) {
        match self {
            Self::Set { methods, .. } => {
                for method in methods {
                    drop(method.undo(py));
                }
            }
            Self::Replaced { name, stream, by } => {
                let undo = || -> PyResult<()> {
                    let sys = py.import("sys")?;
                    if sys.getattr(name)?.is(&by) {
                        sys.setattr(name, stream)?;
                    }
                    Ok(())
                };
                drop(undo());
            }
        }
    }
}

/// What a method that was set does instead of the one that it stands for.
#[derive(Debug, Clone, Copy)]
enum StreamMethod {
    /// Text of an eval goes to its client.
    WriteText(Stream),
    WriteBytes(Stream),
    /// There is nothing of an eval to be flushed: what is, is the program's.
    Flush,
    /// Evaluated code has no input.
    Read,
}

impl Method {
    fn set(of: &Bound<'_, PyAny>, name: &'static str, does: StreamMethod) -> PyResult<Self> {
        let py = of.py();
        let before = of
            .getattr("__dict__")?
            .cast_into::<PyDict>()?
            .get_item(name)?
            .map(Bound::unbind);
        let original = of.getattr(name)?.unbind();
        let method = Bound::new(py, ReplacedMethod { original, does })?;
        of.setattr(name, method)?;
        let of = of.clone().unbind();
        Ok(Self { of, name, before })
    }

    fn undo(self, py: Python<'_>) -> PyResult<()> {
        match self.before {
            Some(before) => self.of.setattr(py, self.name, before),
            None => self.of.bind(py).delattr(self.name),
        }
    }
}

/// A method that was set.
#[pyclass(frozen, module = "probing._probe")]
struct ReplacedMethod {
    original: Py<PyAny>,
    does: StreamMethod,
}

#[pymethods]
impl ReplacedMethod {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let original = self.original.bind(args.py());
        self.does.instead_of(original, args, kwargs)
    }
}

impl StreamMethod {
    fn instead_of<'py>(
        self,
        original: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let call_original = || call_with(original, args.clone(), kwargs);
        let written = match self {
            Self::WriteText(stream) => sent(stream, text, args),
            Self::WriteBytes(stream) => sent(stream, bytes, args),
            Self::Flush => return OutputReceiver::Program.lend(call_original),
            Self::Read if !matches!(OutputReceiver::current(py), OutputReceiver::Program) => {
                return Err(PyEOFError::new_err("evaluated code has no standard input"));
            }
            Self::Read => None,
        };
        match written {
            Some(length) => Ok(length.into_pyobject(py)?.into_any()),
            None => call_original(),
        }
    }
}

/// What was written, as text and as the length that `write` tells; `None` if it is of another type.
type Reading = fn(&Bound<'_, PyAny>) -> Option<(String, usize)>;

fn text(written: &Bound<'_, PyAny>) -> Option<(String, usize)> {
    let text = text_of(written.cast::<PyString>().ok()?.as_any());
    let length = text.chars().count();
    Some((text, length))
}

fn bytes(written: &Bound<'_, PyAny>) -> Option<(String, usize)> {
    let view = PyMemoryView::from(written).ok()?;
    let bytes: Vec<u8> = view.call_method0("tobytes").ok()?.extract().ok()?;
    Some((String::from_utf8_lossy(&bytes).into_owned(), bytes.len()))
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
        match sent(self.kind, text, args) {
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
            let flush = self.stream.bind(py).getattr("flush")?;
            OutputReceiver::Program.lend(|| call(&flush, ()))?;
        }
        Ok(())
    }

    fn __getattr__(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        self.stream.getattr(py, name)
    }
}

/// Gives it to whoever hears it; the length that `write` tells. `None` when that is the program, or it cannot be read.
fn sent(stream: Stream, reading: Reading, args: &Bound<'_, PyTuple>) -> Option<usize> {
    let ear = OutputReceiver::current(args.py());
    if matches!(ear, OutputReceiver::Program) {
        return None;
    }
    let (text, length) = reading(&args.get_item(0).ok()?)?;
    if let OutputReceiver::Client(sink) = ear {
        sink.print(args.py(), stream, &text);
    }
    Some(length)
}
