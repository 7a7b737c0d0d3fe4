//! torch itself: what we use of it, and how its functions tell us that they run.
//!
//! From Python 3.12 on three code objects are tapped: that of every call of a module, that around every optimizer's step, and
//! that around every backward pass. Nothing of torch is changed, so `torch.compile` sees what it always sees. Before 3.12 the
//! first and the last get other code, which calls what they had, and optimizers are hooked as torch offers.

use std::thread;
use std::time::{Duration, Instant};

use probing_proto::message::Failure;
use pyo3::Borrowed;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::eval::traceback::text_of;
use crate::python::call::call;
use crate::python::embedded::embedded;
use crate::python::frame;
use crate::python::interned::interned;
use crate::python::monitoring;
use crate::recorders::torch::{backward, forward, self_arg, steps};
use crate::trace::{self, EventContext, EventSet, Tap};

/// What we use of torch.
#[derive(Debug)]
pub(crate) struct Torch {
    pub(crate) module_class: Py<PyAny>,
    pub(crate) to_dlpack: Py<PyAny>,
    /// While one of these is entered, no class or mode of the program hears of what is asked of tensors.
    unheard: Py<PyAny>,
    pub(crate) cuda: Py<PyAny>,
    pub(crate) version: String,
    call: Py<PyAny>,
    pass: Py<PyAny>,
    /// The code around every optimizer's step.
    step: Py<PyAny>,
    is_monitored: bool,
    /// What `older.py` is to take back.
    older: Option<Py<PyAny>>,
}

/// How long to wait for a moment in which no optimizer is in its step, and how often to look.
const STEP_TIMEOUT: Duration = Duration::from_millis(500);
const STEP_INTERVAL: Duration = Duration::from_millis(1);

const STARTS_AND_RETURNS: EventSet = EventSet::STARTS.and(EventSet::RETURNS);

/// torch, if it has been imported, to its end.
pub(crate) fn imported(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    let modules = py.import("sys").ok()?.getattr("modules").ok()?;
    let torch = modules.cast::<PyDict>().ok()?.get_item("torch").ok()??;
    let spec = torch.getattr("__spec__").ok()?;
    let is_half = spec.getattr("_initializing");
    (!is_half.is_ok_and(|half| half.is_truthy().unwrap_or(false))).then_some(torch)
}

impl Torch {
    /// Finds what we need in it. An unusual torch lacks something.
    pub(crate) fn find(torch: &Bound<'_, PyAny>) -> Result<Self, Failure> {
        Self::found(torch).map_err(|error| {
            Failure::new(format!("this torch cannot be traced: {error}"))
                .with_hint("torch 2.1 and newer can")
        })
    }

    fn found(torch: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = torch.py();
        let module_class = torch.getattr("nn")?.getattr("Module")?;
        let autograd = torch.getattr("autograd")?;
        let graph = autograd.getattr("graph");
        let pass = graph
            .and_then(|graph| graph.getattr("_engine_run_backward"))
            .or_else(|_| autograd.getattr("backward"))?;
        let optimizer = torch.getattr("optim")?.getattr("Optimizer")?;
        let step = code_inside(&optimizer.getattr("profile_hook_step")?, "wrapper")?;
        let native = torch.getattr("_C")?;
        Ok(Self {
            to_dlpack: native.getattr("_to_dlpack")?.unbind(),
            unheard: native.getattr("DisableTorchFunction")?.unbind(),
            cuda: torch.getattr("cuda")?.unbind(),
            version: text_of(torch.getattr("__version__")?.str()?.as_any()),
            call: module_class.getattr("_call_impl")?.unbind(),
            pass: pass.unbind(),
            step: step.unbind(),
            is_monitored: monitoring::is_there(py),
            module_class: module_class.unbind(),
            older: None,
        })
    }

    /// From now on we are told.
    pub(crate) fn listen(&mut self, py: Python<'_>) -> Result<(), Failure> {
        if !self.is_monitored {
            self.older = Some(self.swapped(py).map_err(refused)?);
            return Ok(());
        }
        self_arg::prepare(py);
        trace::tap(self.call.bind(py), &Forward)?;
        trace::tap(self.pass.bind(py), &Backward)?;
        trace::tap(self.step.bind(py), &Step)
    }

    /// Puts our code into the places of torch's. Returns what takes it back.
    fn swapped(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let natives = natives(py)?;
        hook_optimizers(self.step.bind(py), natives)?;
        let parts = (self.call.bind(py), self.pass.bind(py), natives);
        call(&function(py, "swap")?, parts).map(Bound::unbind)
    }

    /// From now on we are not.
    pub(crate) fn leave(&mut self, py: Python<'_>) {
        if let Some(taken) = self.older.take() {
            let back = function(py, "take_back");
            // It fails only when the interpreter ends.
            drop(back.and_then(|back| call(&back, (taken,))));
        }
        if self.is_monitored {
            trace::untap(self.call.bind(py), &Forward);
            trace::untap(self.pass.bind(py), &Backward);
            trace::untap(self.step.bind(py), &Step);
        }
    }

    /// What has classes and modes of the program not hear of what is asked of tensors, until it is dropped.
    pub(crate) fn unheard<'py>(&self, py: Python<'py>) -> Option<HooksDisabled<'py>> {
        let unheard = self.unheard.bind(py).call0().ok()?;
        unheard.call_method0(interned!(py, "__enter__")).ok()?;
        Some(HooksDisabled(unheard))
    }

    /// How it is told.
    pub(crate) fn by(&self) -> &'static str {
        if self.is_monitored {
            "sys.monitoring"
        } else {
            "code in the place of torch's"
        }
    }
}

pub(crate) struct HooksDisabled<'py>(Bound<'py, PyAny>);

impl Drop for HooksDisabled<'_> {
    fn drop(&mut self) {
        let py = self.0.py();
        let nothing = (py.None(), py.None(), py.None());
        // A function of torch's own, which sets a flag.
        drop(self.0.call_method1(interned!(py, "__exit__"), nothing));
    }
}

fn refused(error: PyErr) -> Failure {
    Failure::new(format!("torch cannot be traced: {error}"))
}

/// A function that a function makes.
fn code_inside<'py>(function: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let constants = function.getattr("__code__")?.getattr("co_consts")?;
    for constant in constants.cast::<PyTuple>()? {
        if let Ok(found) = constant.getattr(interned!(py, "co_name"))
            && text_of(&found) == name
        {
            return Ok(constant);
        }
    }
    Err(pyo3::exceptions::PyAttributeError::new_err(format!(
        "no function {name} around steps of optimizers"
    )))
}

/// A function of `older.py`.
fn function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static OWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let own = OWN.get_or_try_init(py, || {
        embedded!(py, "torch_instrument.py").map(Bound::unbind)
    })?;
    own.bind(py).as_any().get_item(name)
}

/// A call of a module.
struct Forward;

impl Tap for Forward {
    fn wants(&self) -> EventSet {
        STARTS_AND_RETURNS
    }

    fn started(&self, at: EventContext<'_, '_>) {
        let py = at.code.py();
        if let Some((module, frame)) = self_arg::of_call(py, || interned!(py, "self")) {
            forward::began(py, at.nanos, &module, frame);
        }
    }

    fn returned(&self, at: EventContext<'_, '_>, value: Borrowed<'_, '_, PyAny>) {
        let py = at.code.py();
        if let Some(frame) = self_arg::frame_of_call(py) {
            forward::ended(py, at.nanos, frame, value);
        }
    }
}

/// A backward pass.
struct Backward;

impl Tap for Backward {
    fn wants(&self) -> EventSet {
        STARTS_AND_RETURNS
    }

    fn started(&self, at: EventContext<'_, '_>) {
        backward::began(at.code.py(), at.nanos);
    }

    fn returned(&self, at: EventContext<'_, '_>, _: Borrowed<'_, '_, PyAny>) {
        backward::ended(at.code.py(), at.nanos);
    }
}

/// A step of an optimizer.
struct Step;

impl Step {
    /// The optimizer, which is the first argument, and the frame.
    fn optimizer(py: Python<'_>) -> Option<(Bound<'_, PyAny>, usize)> {
        let (arguments, frame) = self_arg::of_call(py, || interned!(py, "args"))?;
        let optimizer = arguments.cast::<PyTuple>().ok()?.get_item(0).ok()?;
        Some((optimizer, frame))
    }
}

impl Tap for Step {
    fn wants(&self) -> EventSet {
        STARTS_AND_RETURNS
    }

    fn started(&self, at: EventContext<'_, '_>) {
        let py = at.code.py();
        if let Some((optimizer, frame)) = Self::optimizer(py) {
            steps::began(&optimizer, frame, || self_arg::frames_around(py), at.nanos);
        }
    }

    fn returned(&self, at: EventContext<'_, '_>, _: Borrowed<'_, '_, PyAny>) {
        if let Some((optimizer, frame)) = Self::optimizer(at.code.py()) {
            steps::ended(&optimizer, frame, at.nanos);
        }
    }
}

/// Gives torch our hooks of every optimizer's step, once: they stay. Not while a thread may be going through those that are
/// there, as it would fail.
fn hook_optimizers(step: &Bound<'_, PyAny>, natives: &Bound<'_, PyTuple>) -> PyResult<()> {
    let py = step.py();
    let wanted = call(&function(py, "optimizer_hooks")?, (natives,))?;
    let wanted: Vec<(Bound<'_, PyAny>, u64, Bound<'_, PyAny>)> = wanted.extract()?;
    let until = Instant::now() + STEP_TIMEOUT;
    loop {
        // Nobody is in the middle of what is empty.
        let are_empty = wanted
            .iter()
            .all(|(hooks, ..)| hooks.is_empty().unwrap_or(false));
        if are_empty || !is_running(step)? {
            break;
        }
        if Instant::now() > until {
            return Err(PyRuntimeError::new_err(
                "an optimizer is in its step for too long, during which its hooks cannot change",
            ));
        }
        py.detach(|| thread::sleep(STEP_INTERVAL));
    }
    // The GIL is ours since it was looked.
    for (hooks, number, hook) in wanted {
        hooks.set_item(number, hook)?;
    }
    Ok(())
}

/// Whether a thread runs this code.
fn is_running(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let frames = code.py().import("sys")?.getattr("_current_frames")?;
    for frame in call(&frames, ())?.cast::<PyDict>()?.values() {
        let mut next = Some(frame);
        while let Some(frame) = next {
            if frame::code_of(&frame).is(code) {
                return Ok(true);
            }
            next = frame::caller_of(&frame);
        }
    }
    Ok(false)
}

/// What the code in the place of torch's calls.
fn natives(py: Python<'_>) -> PyResult<&Bound<'_, PyTuple>> {
    static NATIVES: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let natives = NATIVES.get_or_try_init(py, || {
        let functions = [
            wrap_pyfunction!(call_began, py)?,
            wrap_pyfunction!(call_ended, py)?,
            wrap_pyfunction!(pass_began, py)?,
            wrap_pyfunction!(pass_ended, py)?,
            wrap_pyfunction!(step_began, py)?,
            wrap_pyfunction!(step_ended, py)?,
        ];
        PyTuple::new(py, functions).map(Bound::unbind)
    })?;
    Ok(natives.bind(py))
}

/// No panic leaves the probe.
fn quietly(work: impl FnOnce()) {
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)));
}

#[pyfunction]
fn call_began(module: &Bound<'_, PyAny>) {
    quietly(|| {
        let py = module.py();
        if let Some(frame) = frame::current(py) {
            let nanos = probing_store::monotonic_nanos();
            forward::began(py, nanos, module, frame.as_ptr() as usize);
        }
    });
}

#[pyfunction]
fn call_ended(value: &Bound<'_, PyAny>) {
    quietly(|| {
        let py = value.py();
        if let Some(frame) = frame::current(py) {
            let nanos = probing_store::monotonic_nanos();
            forward::ended(py, nanos, frame.as_ptr() as usize, value.as_borrowed());
        }
    });
}

#[pyfunction]
fn pass_began(py: Python<'_>) {
    quietly(|| backward::began(py, probing_store::monotonic_nanos()));
}

#[pyfunction]
fn pass_ended(py: Python<'_>) {
    quietly(|| backward::ended(py, probing_store::monotonic_nanos()));
}

/// Called by a hook of an optimizer, which its step calls.
#[pyfunction]
fn step_began(optimizer: &Bound<'_, PyAny>) {
    quietly(|| {
        let hook = frame::current(optimizer.py());
        if let Some(frame) = hook.and_then(|hook| frame::caller_of(&hook)) {
            let nanos = probing_store::monotonic_nanos();
            let address = frame.as_ptr() as usize;
            steps::began(
                optimizer,
                address,
                || self_arg::objects_around(&frame),
                nanos,
            );
        }
    });
}

#[pyfunction]
fn step_ended(optimizer: &Bound<'_, PyAny>) {
    quietly(|| {
        let hook = frame::current(optimizer.py());
        if let Some(frame) = hook.and_then(|hook| frame::caller_of(&hook)) {
            let address = frame.as_ptr() as usize;
            steps::ended(optimizer, address, probing_store::monotonic_nanos());
        }
    });
}
