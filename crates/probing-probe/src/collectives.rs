//! `python.collectives`: what the ranks of a job do together.
//!
//! torch calls a hook of ours before and after it issues each operation of a process group, those that DDP makes from C++
//! included. The row is written before the operation begins: the one that hangs, or that aborts the process, is the one that
//! is needed. A second row tells when it was seen to be done: when the call that waits for it returns, else at the next
//! operation, step or second. Nothing of the program's is wrapped, and nobody waits for an operation because of us.
//!
//! `door.py` is what is done to torch once; `sites.rs` tells which code of the program asked.

mod sites;

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use probing_proto::message::Failure;
use probing_proto::own::COLLECTIVES;
use probing_store::{Value, monotonic_nanos};
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyList, PyTuple};

use crate::eval;
use crate::forked;
use crate::guarded::call;
use crate::interned::interned;
use crate::recording;
use crate::step;
use crate::trace::{self, At, Tap, Wants};
use crate::worker;
use sites::{Site, Sites};

/// Operations that are waited for; of more, the oldest are not seen to be done.
const MOST_PENDING: usize = 1024;
/// Tensors of an operation whose shapes are told.
const MOST_SHAPES: usize = 4;
/// Tensors of an operation that are looked at.
const MOST_TENSORS: usize = 256;
const SECOND: Duration = Duration::from_secs(1);

static ON: AtomicBool = AtomicBool::new(false);
/// Null while it was never on. With the GIL held only.
static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// How many operations are pending, for the probe's thread.
static PENDING: AtomicU32 = AtomicU32::new(0);
/// Whether a thread looks already.
static LOOKING: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicU64 = AtomicU64::new(0);

struct State {
    generation: u32,
    watch: Py<PyAny>,
    sites: Sites,
    pending: VecDeque<Pending>,
    codes: Vec<Py<PyAny>>,
}

/// An operation that was issued, or is about to be.
struct Pending {
    begun_at: i64,
    row: Row,
    /// What torch gives for it, once it is issued.
    work: Option<Py<PyAny>>,
    thread: u32,
}

/// What is known of an operation before it begins.
#[derive(Clone)]
struct Row {
    group: String,
    rank: i64,
    size: i64,
    seq: Option<i64>,
    op: String,
    shapes: String,
    dtype: Option<String>,
    bytes: i64,
    root: Option<i64>,
    is_async: bool,
    step: Option<i64>,
    site: Option<Site>,
}

#[expect(unsafe_code, reason = "reached through an atomic pointer")]
fn state(_: Python<'_>) -> Option<&mut State> {
    // SAFETY: null or leaked by `begin`, and never freed. The GIL is held, and whoever has the reference calls nothing that
    // comes here again.
    let state = unsafe { STATE.load(Ordering::Acquire).as_mut() };
    state.filter(|state| state.generation == forked::generation())
}

/// Begins to record; false when it does already.
pub(crate) fn begin(py: Python<'_>) -> Result<bool, Failure> {
    if is_on() {
        return Ok(false);
    }
    crate::lifecycle::follow_forks();
    let failed = |error: PyErr| {
        Failure::new(format!("collectives cannot be traced: {error}"))
            .with_hint("torch 2.15 and newer have the hooks that are needed")
    };
    if state(py).is_none() {
        let watch = watch(py).map_err(failed)?;
        let state = Box::new(State {
            generation: forked::generation(),
            watch: watch.unbind(),
            sites: Sites::new(py),
            pending: VecDeque::new(),
            codes: Vec::new(),
        });
        STATE.store(Box::into_raw(state), Ordering::Release);
    }
    let Some(watch) = state(py).map(|state| state.watch.clone_ref(py)) else {
        return Ok(false);
    };
    ON.store(true, Ordering::Release);
    let begun = watch
        .bind(py)
        .getattr("begin")
        .and_then(|begin| call(&begin, ()));
    if let Err(error) = begun {
        ON.store(false, Ordering::Release);
        return Err(failed(error));
    }
    recording::make_room(py, &COLLECTIVES);
    Ok(true)
}

/// Ends it; false when it was not on.
pub(crate) fn end(py: Python<'_>) -> bool {
    if !ON.swap(false, Ordering::AcqRel) {
        return false;
    }
    poll(py);
    let Some((watch, codes)) = state(py).map(|state| {
        state.pending.clear();
        let codes = std::mem::take(&mut state.codes);
        (state.watch.clone_ref(py), codes)
    }) else {
        return true;
    };
    PENDING.store(0, Ordering::Release);
    for code in codes {
        trace::untap(code.bind(py), &Returned);
    }
    // What cannot be taken out does nothing any more.
    drop(watch.bind(py).getattr("end").and_then(|end| call(&end, ())));
    true
}

pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Acquire)
}

/// In a child of a fork, which has the parent's groups and must not use them.
pub(crate) fn after_fork() {
    ON.store(false, Ordering::Release);
    PENDING.store(0, Ordering::Release);
    LOOKING.store(false, Ordering::Release);
}

/// What one should know about it.
pub(crate) fn note(py: Python<'_>) -> Option<String> {
    poll(py);
    let watch = state(py).filter(|_| is_on())?.watch.clone_ref(py);
    let groups = watch
        .bind(py)
        .getattr("groups")
        .and_then(|groups| call(&groups, ()));
    let groups: usize = groups.ok()?.extract().ok()?;
    (groups == 0)
        .then(|| "no process group yet: operations are recorded as soon as there is one".to_owned())
}

/// When the probe's thread is to come by.
pub(crate) fn next_deadline() -> Option<Instant> {
    let waits = is_on() && PENDING.load(Ordering::Acquire) > 0;
    waits.then(|| Instant::now() + SECOND)
}

/// Has somebody look whether operations are done, where the program does not come by itself.
pub(crate) fn tick() {
    let now = monotonic_nanos().unsigned_abs();
    let is_due =
        is_on() && PENDING.load(Ordering::Acquire) > 0 && now >= NEXT.load(Ordering::Acquire);
    if !is_due || LOOKING.swap(true, Ordering::AcqRel) {
        return;
    }
    NEXT.store(now + SECOND.as_nanos() as u64, Ordering::Release);
    let started = worker::start(|| {
        worker::with_interpreter(poll);
        LOOKING.store(false, Ordering::Release);
    });
    if started.is_err() {
        LOOKING.store(false, Ordering::Release);
    }
}

/// Notes which operations are done by now.
pub(crate) fn poll(py: Python<'_>) {
    if PENDING.load(Ordering::Acquire) == 0 {
        return;
    }
    let Some(state) = state(py) else { return };
    // Taken out: asking torch may let others run, who may come here, too.
    let mut pending = std::mem::take(&mut state.pending);
    pending.retain(|operation| {
        let Some(work) = &operation.work else {
            return true;
        };
        let is_done = work
            .bind(py)
            .getattr(interned!(py, "is_completed"))
            .and_then(|ask| call(&ask, ()));
        if !is_done.is_ok_and(|done| done.is_truthy().unwrap_or(false)) {
            return true;
        }
        // Whether it went well torch tells only with a warning, on the program's standard error.
        let took = monotonic_nanos() - operation.begun_at;
        operation.row.write(py, operation.begun_at, Some(took));
        false
    });
    if let Some(state) = self::state(py) {
        let come_meanwhile = std::mem::replace(&mut state.pending, pending);
        state.pending.extend(come_meanwhile);
        PENDING.store(state.pending.len() as u32, Ordering::Release);
    }
}

impl Row {
    fn write(&self, py: Python<'_>, begun_at: i64, duration: Option<i64>) {
        recording::with_own(py, &COLLECTIVES, |table| {
            let writer = &mut table.writer;
            let mut symbol = |text: &str| Value::Symbol(writer.symbol(text));
            let number = |number: Option<i64>| number.map_or(Value::Null, Value::I64);
            let state = symbol(if duration.is_some() {
                "completed"
            } else {
                "enqueued"
            });
            let group = symbol(&self.group);
            let op = symbol(&self.op);
            let dtype = self.dtype.as_deref().map_or(Value::Null, &mut symbol);
            let shapes = symbol(&self.shapes);
            let [func, file, lineno] = match &self.site {
                Some(site) => [
                    symbol(&site.func),
                    symbol(&site.file),
                    Value::I64(site.lineno),
                ],
                None => [Value::Null, Value::Null, Value::Null],
            };
            let row = [
                state,
                group,
                Value::I64(self.rank),
                Value::I64(self.size),
                number(self.seq),
                op,
                shapes,
                dtype,
                Value::I64(self.bytes),
                number(self.root),
                Value::Bool(self.is_async),
                number(duration),
                Value::I64(i64::from(recording::thread_id())),
                func,
                file,
                lineno,
                number(self.step),
            ];
            table.append_at(begun_at, &row);
        });
    }
}

/// `Watch` of `door.py`, with what it calls.
fn watch(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let names = eval::namespace_of(py, include_str!("collectives/door.py"), "<probing>")?;
    let before = PyCFunction::new_closure(py, None, None, |args, _| make_before(args))?;
    let after = PyCFunction::new_closure(py, None, None, |args, _| make_after(args))?;
    let returned = PyCFunction::new_closure(py, None, None, |args, _| tap_returns(args))?;
    call(
        &names.as_any().get_item("Watch")?,
        (before, after, returned),
    )
}

/// A group, as `door.py` tells of it.
struct Group {
    name: String,
    rank: i64,
    size: i64,
    operations: Py<PyDict>,
}

impl Group {
    fn of(about: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (name, rank, size, operations) = about.extract::<(String, i64, i64, Py<PyDict>)>()?;
        Ok(Self {
            name,
            rank,
            size,
            operations,
        })
    }
}

/// The hook that torch calls before an operation of a group.
fn make_before(args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    let sequence = args.get_item(0)?.unbind();
    let group = Group::of(&args.get_item(1)?)?;
    let hook = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        let py = args.py();
        quietly(|| {
            if is_on()
                && let Ok(given) = args.get_item(0)
            {
                // What cannot be told is left out: an operation is not to fail by us.
                drop(begins(&group, sequence.bind(py), &given));
            }
        });
        py.None()
    };
    Ok(PyCFunction::new_closure(args.py(), None, None, hook)?
        .into_any()
        .unbind())
}

/// The one that it calls after it has issued it.
fn make_after(args: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    let group = Group::of(&args.get_item(0)?)?.name;
    let hook = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        let py = args.py();
        quietly(|| {
            if is_on()
                && let Ok(given) = args.get_item(0)
            {
                drop(issued(&group, &given));
            }
        });
        py.None()
    };
    Ok(PyCFunction::new_closure(args.py(), None, None, hook)?
        .into_any()
        .unbind())
}

/// No panic leaves the probe.
fn quietly(work: impl FnOnce()) {
    drop(panic::catch_unwind(AssertUnwindSafe(work)));
}

fn begins(group: &Group, sequence: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = given.py();
    let begun_at = monotonic_nanos();
    let name = given.getattr(interned!(py, "name"))?;
    let number = call(&name.getattr(interned!(py, "__int__"))?, ())?;
    let op = group.operations.bind(py).get_item(number)?;
    let op = op.map_or_else(|| Ok("unknown".to_owned()), |op| op.extract())?;
    // Operations between two ranks have no number that others know.
    let is_between_two = matches!(&*op, "send" | "recv");
    let seq = if is_between_two {
        None
    } else {
        call(sequence, ())?.extract().ok()
    };
    let mut tensors = Tensors::default();
    tensors.add(&given.getattr(interned!(py, "input_tensors"))?)?;
    if tensors.count == 0 {
        tensors.add(&given.getattr(interned!(py, "output_tensors"))?)?;
    }
    // Each look at what torch gives costs 150 ns and more: only where it says something.
    let has_root = matches!(&*op, "broadcast" | "reduce" | "scatter" | "gather");
    let root: i64 = if has_root {
        given.getattr(interned!(py, "root"))?.extract()?
    } else {
        -1
    };
    let site = state(py).and_then(|state| state.sites.here(py));
    let row = Row {
        group: group.name.clone(),
        rank: group.rank,
        size: group.size,
        seq,
        op,
        shapes: tensors.shapes,
        dtype: tensors.dtype,
        bytes: tensors.bytes,
        root: (root >= 0).then_some(root),
        is_async: given.getattr(interned!(py, "async_op"))?.is_truthy()?,
        step: step::now(),
        site,
    };
    row.write(py, begun_at, None);
    poll(py);
    if let Some(state) = state(py) {
        if state.pending.len() >= MOST_PENDING {
            state.pending.pop_front();
        }
        state.pending.push_back(Pending {
            begun_at,
            row,
            work: None,
            thread: recording::thread_id(),
        });
        PENDING.store(state.pending.len() as u32, Ordering::Release);
    }
    Ok(())
}

/// Keeps what torch gives for an operation, until it is done.
fn issued(group: &str, given: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = given.py();
    let work = given.getattr(interned!(py, "work"))?;
    let work = (!work.is_none()).then(|| work.unbind());
    // It is the one that this thread began last.
    let thread = recording::thread_id();
    if let Some(state) = state(py)
        && let Some(operation) = state.pending.iter_mut().rev().find(|operation| {
            operation.thread == thread && operation.work.is_none() && operation.row.group == group
        })
    {
        operation.work = work;
    }
    Ok(())
}

/// What is told of the tensors of an operation.
#[derive(Default)]
struct Tensors {
    count: usize,
    shapes: String,
    dtype: Option<String>,
    bytes: i64,
}

impl Tensors {
    fn add(&mut self, tensors: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = tensors.py();
        for tensor in tensors.cast::<PyList>()?.iter().take(MOST_TENSORS) {
            // Groups of tensors: one for each rank.
            if tensor.is_instance_of::<PyList>() {
                self.add(&tensor)?;
                continue;
            }
            if self.dtype.is_none() {
                let dtype = tensor.getattr(interned!(py, "dtype"))?.str()?;
                let dtype = dtype.to_str()?;
                self.dtype = Some(dtype.strip_prefix("torch.").unwrap_or(dtype).to_owned());
            }
            if self.count < MOST_SHAPES {
                self.add_shape(&tensor.getattr(interned!(py, "shape"))?)?;
            }
            self.count += 1;
            self.bytes += tensor.getattr(interned!(py, "nbytes"))?.extract::<i64>()?;
        }
        Ok(())
    }

    fn add_shape(&mut self, shape: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.count > 0 {
            self.shapes.push(' ');
        }
        self.shapes.push('[');
        for (place, size) in shape.cast::<PyTuple>()?.iter().enumerate() {
            if place > 0 {
                self.shapes.push(',');
            }
            self.shapes.push_str(&size.extract::<i64>()?.to_string());
        }
        self.shapes.push(']');
        Ok(())
    }
}

/// Taps the functions that wait for their operations, from Python 3.12 on: when they return it is done.
fn tap_returns(args: &Bound<'_, PyTuple>) -> PyResult<()> {
    let py = args.py();
    for code in args.get_item(0)?.cast::<PyList>()? {
        // Before 3.12 it is seen a little later that they are done.
        if trace::tap(&code, &Returned).is_ok()
            && let Some(state) = state(py)
        {
            state.codes.push(code.unbind());
        }
    }
    Ok(())
}

struct Returned;

impl Tap for Returned {
    fn wants(&self) -> Wants {
        Wants::RETURNS
    }

    fn returned(&self, at: At<'_, '_>, _: Borrowed<'_, '_, PyAny>) {
        quietly(|| poll(at.code.py()));
    }
}
