//! Values of local variables in the program's own words, each within its time.
//!
//! `repr` is code of the program: it may never end, raise, print, or wait in C where nothing interrupts it. So it runs on
//! a thread that can be left behind, while this one waits outside the interpreter and answers when the deadline comes,
//! with what there is by then: a value that is missing is told by its type, and why.

mod frames;
mod slots;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use probing_proto::message::{
    Event, Failure, FrameLocals, LocalValue, Locals, LocalsCall, MAX_TEXT, ThreadLocals,
};
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use self::frames::LocalsSnapshot;
use self::slots::UnknownLayout;
use crate::eval::stdout_capture;
use crate::inspect::elements;
use crate::process::fork_child;
use crate::python::call::{call, release, release_error};
use crate::python::current_thread::own_thread;
use crate::python::embedded::embedded;
use crate::python::immortal::Immortal;
use crate::python::signal_handlers;
use crate::python::text::text_of;
use crate::requests::interrupt::Interrupt;
use crate::requests::output_sink::{OutputReceiver, Sink};
use crate::requests::worker;

/// Of one value.
const VALUE_TIMEOUT: Duration = Duration::from_millis(200);
/// How long a value that is interrupted may take to end before its thread is left behind.
const INTERRUPT_TIMEOUT: Duration = Duration::from_millis(100);
/// Threads that may be left behind for one answer.
const MAX_LEFT_BEHIND: u32 = 4;
/// How often to look whether nobody wants the answer any more.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_TIMEOUT: Duration = Duration::from_mins(1);

/// Answers a client, on a thread of its own. `None` when the interpreter ends.
pub(crate) fn answer(sink: &Sink, asked: &LocalsCall) -> Option<Event> {
    let patience = Duration::from_millis(asked.deadline_millis).min(MAX_TIMEOUT);
    let deadline = Instant::now() + patience;
    let looked = stdout_capture::attached(OutputReceiver::Nobody, |py| {
        let look = || {
            let source = namespace(py)?;
            let words = call(
                &source.as_any().get_item("teller")?,
                (seconds(VALUE_TIMEOUT),),
            )?;
            let seen = frames::see(source, &asked.threads, own_thread())?;
            Ok((words.unbind(), seen))
        };
        if !sink.interrupt.begin() {
            return Err(String::new());
        }
        let looked: PyResult<_> = sink.interrupt.allow(py, look);
        looked.map_err(|error| error.to_string())
    })?;
    let interrupted = || Some(Event::Failed(Failure::new("interrupted")));
    let (words, mut seen) = match looked {
        Ok(looked) => looked,
        Err(_) if sink.interrupt.is_requested() => return interrupted(),
        Err(error) => return Some(Event::Failed(Failure::new(error))),
    };
    let values = std::mem::take(&mut seen.values);
    let (objects, kinds): (Vec<_>, Vec<_>) = values
        .into_iter()
        .map(|value| (value.object, value.kind))
        .unzip();
    let texts = Arc::new(Work::new(words, objects)).done_by(deadline, &sink.interrupt);
    if sink.interrupt.is_requested() {
        return interrupted();
    }
    Some(Event::Locals(composed(seen, &kinds, &texts)))
}

/// The names in `locals.py`.
fn namespace(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace = NAMESPACE.get_or_try_init(py, || {
        let namespace = embedded!(py, "locals.py")?;
        let scalar = Immortal::closure(py, c"scalar", |args| {
            let text = elements::scalar(&args.get_item(0)?);
            Ok(text.into_pyobject(args.py())?.unbind())
        })?;
        namespace.set_item("scalar", scalar.bind(py))?;
        Ok::<_, PyErr>(namespace.unbind())
    })?;
    Ok(namespace.bind(py))
}

/// A local variable of a frame, read without a trace; `None` when it is not bound or cannot be read.
pub(crate) fn variable<'py>(
    frame: &Bound<'py, PyAny>,
    code: &Bound<'py, PyAny>,
    name: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match frames::own_variable(frame, code, name)? {
        frames::NameBinding::Alone(value) => return Ok(value),
        frames::NameBinding::Nothing => return Ok(None),
        frames::NameBinding::Shared => {}
    }
    let variables = frames::variables(
        &frames::LocalsHelpers::new(namespace(frame.py())?)?,
        frame,
        code,
    )?;
    let mut variables = variables.unwrap_or_default().into_iter();
    Ok(variables
        .find(|(own, _)| own == name)
        .map(|(_, value)| value))
}

/// A variable that is a function's alone, by its place among `co_varnames`.
#[inline]
pub(crate) fn slot<'py>(
    frame: &Bound<'py, PyAny>,
    code: usize,
    index: usize,
) -> Result<Option<Bound<'py, PyAny>>, UnknownLayout> {
    slots::read_slot(frame, code, index)
}

/// The same for a look that is over before the thread goes on; `None` also where frames are laid out otherwise.
#[inline]
pub(crate) fn slot_borrowed<'a, 'py>(
    frame: &'a Bound<'py, PyAny>,
    code: usize,
    index: usize,
) -> Option<Borrowed<'a, 'py, PyAny>> {
    slots::read_slot_borrowed(frame, code, index)
}

/// Frames of one thread with values that are told without running any code of the program.
pub(crate) fn describe_frames(frames: &[Bound<'_, PyAny>]) -> PyResult<Vec<FrameLocals>> {
    let Some(first) = frames.first() else {
        return Ok(Vec::new());
    };
    signal_handlers::kept_out(first.py(), || told_quietly(first.py(), frames))
}

fn told_quietly(py: Python<'_>, frames: &[Bound<'_, PyAny>]) -> PyResult<Vec<FrameLocals>> {
    let source = namespace(py)?;
    let words = call(&source.as_any().get_item("quiet_teller")?, ())?;
    let mut seen = frames::see_these(source, frames)?;
    let values = std::mem::take(&mut seen.values);
    let kinds: Vec<String> = values.iter().map(|value| value.kind.clone()).collect();
    let texts: Vec<Text> = values
        .into_iter()
        .map(|value| match call(&words, (value.object,)) {
            Ok(text) => Text::Said(text_of(&text)),
            Err(_) => Text::NotAsked,
        })
        .collect();
    let told = composed(seen, &kinds, &texts);
    Ok(told.threads.into_iter().flat_map(|it| it.frames).collect())
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// What became of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Text {
    Said(String),
    /// By its class.
    Raised(String),
    Endless,
    NotAsked,
}

impl Text {
    /// For what was raised outside of a `repr`, or when the time was over.
    fn of_error(py: Python<'_>, error: PyErr, interrupt: &Interrupt) -> Self {
        let kind = error.get_type(py).name().map(|name| text_of(name.as_any()));
        release_error(py, error);
        match kind {
            Ok(kind) if !interrupt.is_requested() => Self::Raised(kind),
            _ => Self::Endless,
        }
    }

    fn shown(&self, kind: &str) -> String {
        match self {
            Self::Said(text) => text.clone(),
            Self::Raised(exception) => format!("<{kind}, whose repr raised {exception}>"),
            Self::Endless => {
                let patience = seconds(VALUE_TIMEOUT);
                format!("<{kind}, whose repr did not end within {patience} s>")
            }
            Self::NotAsked => format!("<{kind}, not shown: out of time>"),
        }
    }
}

/// Values that are put into words by one thread at a time, and what came of it.
struct Work {
    words: Py<PyAny>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: VecDeque<(usize, Py<PyAny>)>,
    texts: Vec<Text>,
    current: Option<Current>,
    /// The value that was last asked again: `locals.py` knows now which part of it does not end.
    again: Option<usize>,
    /// Which thread works, by number; others were left behind.
    turn: u32,
    over: bool,
}

/// The value that is being put into words.
struct Current {
    index: usize,
    value: Py<PyAny>,
    since: Instant,
    interrupt: Arc<Interrupt>,
}

impl Work {
    fn new(words: Py<PyAny>, objects: Vec<Py<PyAny>>) -> Self {
        Self {
            words,
            state: Mutex::new(State {
                texts: vec![Text::NotAsked; objects.len()],
                waiting: objects.into_iter().enumerate().collect(),
                current: None,
                again: None,
                turn: 0,
                over: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits, without the GIL, until all values are told, time is up, or nobody wants them any more.
    fn done_by(self: &Arc<Self>, deadline: Instant, wanted: &Interrupt) -> Vec<Text> {
        self.start_turn(0);
        let mut state = self.state();
        while !state.over && Instant::now() < deadline && !wanted.is_requested() {
            let spent = state.current.as_ref().map(|now| now.since.elapsed());
            if spent.is_some_and(|spent| spent > VALUE_TIMEOUT + INTERRUPT_TIMEOUT) {
                state.leave_behind();
                if state.turn > MAX_LEFT_BEHIND {
                    break;
                }
                let turn = state.turn;
                drop(state);
                self.start_turn(turn);
                state = self.state();
            } else if spent.is_some_and(|spent| spent > VALUE_TIMEOUT)
                && let Some(current) = &state.current
                && !current.interrupt.is_requested()
            {
                current.interrupt.request();
            }
            let pause = POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now()));
            state = match self.changed.wait_timeout(state, pause) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        state.leave_behind();
        let texts = std::mem::take(&mut state.texts);
        let unused = std::mem::take(&mut state.waiting);
        drop(state);
        give_back(unused);
        texts
    }

    /// Starts the thread that has this turn.
    fn start_turn(self: &Arc<Self>, turn: u32) {
        let work = Arc::clone(self);
        if worker::start(move || work.run(turn)).is_err() {
            // Without a thread all values are told by their types.
            self.end(turn);
        }
    }

    fn run(&self, turn: u32) {
        let generation = fork_child::generation();
        let is_child = || generation != fork_child::generation();
        stdout_capture::attached(OutputReceiver::Nobody, |py| {
            while let Some((index, value, interrupt)) = self.next(py, turn) {
                let said = interrupt.allow(py, || {
                    call(self.words.bind(py), (&value,)).map(|text| text_of(&text))
                });
                // A `repr` that forks: the rest is the parent's.
                if is_child() {
                    return;
                }
                let text = match said {
                    Ok(text) => Text::Said(text),
                    Err(error) => Text::of_error(py, error, &interrupt),
                };
                self.put(turn, index, text);
                release(value);
            }
        });
        if !is_child() {
            self.end(turn);
        }
    }

    fn next<'py>(
        &self,
        py: Python<'py>,
        turn: u32,
    ) -> Option<(usize, Bound<'py, PyAny>, Arc<Interrupt>)> {
        let mut state = self.state();
        if state.turn != turn {
            return None;
        }
        let (index, value) = state.waiting.pop_front()?;
        let interrupt = Arc::<Interrupt>::default();
        interrupt.begin();
        state.current = Some(Current {
            index,
            value: value.clone_ref(py),
            since: Instant::now(),
            interrupt: Arc::clone(&interrupt),
        });
        Some((index, value.into_bound(py), interrupt))
    }

    fn put(&self, turn: u32, index: usize, text: Text) {
        let mut state = self.state();
        if state.turn == turn {
            state.texts[index] = text;
            // The worker has a reference of its own, so the object does not end here.
            state.current = None;
        }
    }

    fn end(&self, turn: u32) {
        let mut state = self.state();
        if state.turn == turn {
            state.over = true;
            self.changed.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whoever works now comes back too late, if ever. The next turn is another's.
    fn leave_behind(&mut self) {
        if let Some(current) = self.current.take() {
            self.texts[current.index] = Text::Endless;
            current.interrupt.request();
            if self.again.replace(current.index) != Some(current.index) {
                self.waiting.push_front((current.index, current.value));
            }
        }
        self.turn += 1;
    }
}

/// Lets go of objects of the program, which takes the GIL; so nobody waits for it.
fn give_back(objects: VecDeque<(usize, Py<PyAny>)>) {
    if objects.is_empty() {
        return;
    }
    let leave = move || {
        stdout_capture::attached(OutputReceiver::Nobody, |py| {
            for (_, object) in objects {
                release(object.into_bound(py));
            }
        });
    };
    // Without a thread they go with the next one that takes the GIL.
    drop(worker::start(leave));
}

fn composed(seen: LocalsSnapshot, kinds: &[String], texts: &[Text]) -> Locals {
    let mut room = MAX_TEXT;
    let mut value = |(name, index): (String, usize)| {
        let kind = &kinds[index];
        let text = texts[index].shown(kind);
        let left = room.checked_sub(text.len());
        room = left.unwrap_or(room);
        LocalValue {
            name,
            kind: kind.clone(),
            value: left.map_or_else(|| "…".to_owned(), |_| text),
        }
    };
    let mut frame = |frame: frames::Frame| FrameLocals {
        func: frame.func,
        file: frame.file,
        lineno: frame.line,
        locals: frame
            .variables
            .map(|variables| variables.into_iter().map(&mut value).collect()),
        more: frame.more,
    };
    let threads = seen
        .threads
        .into_iter()
        .map(|(ident, frames)| ThreadLocals {
            ident,
            frames: frames.into_iter().map(&mut frame).collect(),
        });
    Locals {
        threads: threads.collect(),
    }
}
