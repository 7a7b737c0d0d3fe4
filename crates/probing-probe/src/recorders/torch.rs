//! What a training with torch does, recorded: rows of `python.torch_trace` and `python.tensors`.
//!
//! `torch_api.rs` has torch tell when a module is called (`forward.rs`), a backward pass runs (`backward.rs`, `hooks.rs`) and an
//! optimizer steps (`steps.rs`), which is how steps are counted. What modules are called is found by `modules.rs`. What tensors hold is
//! looked at by `tensors.rs`, from memory (`numbers.rs`, `statistics.rs`) or by torch (`device_stats.rs`). All of it is reached
//! through `state.rs`. Where torch is not imported yet, `import_hook.rs` waits for it.
//!
//! Observed, never substituted: no tensor, module or optimizer of the program becomes another, and results are the same to
//! the last bit. A child of a fork records nothing of its own accord.

pub(crate) mod backward;
pub(crate) mod cuda;
pub(crate) mod device_stats;
pub(crate) mod forward;
pub(crate) mod hooks;
pub(crate) mod import_hook;
pub(crate) mod modules;
pub(crate) mod numbers;
pub(crate) mod self_arg;
pub(crate) mod state;
pub(crate) mod statistics;
pub(crate) mod steps;
pub(crate) mod tensors;
pub(crate) mod torch_api;

use probing_proto::env::PROBING_TORCH;
use probing_proto::message::recorders::Tracer;
use probing_proto::message::torch::{
    TensorKind, Tensors, TorchCall, TorchOptions, TorchState, TorchStatus, Trace,
};
use probing_proto::message::{Event, Failure};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use self::torch_api::Torch;
use crate::python::embedded;
use crate::recorders;
use crate::recording::step;
use crate::requests::request::Pending;
use crate::requests::subsystem::Subsystem;
use crate::requests::worker;

pub(crate) use self::statistics::Statistics;

/// Of how many steps one has its tensors looked at, when nothing else is said.
const TENSORS_EVERY: u32 = 100;

/// Does what a client asks, on a thread that has the GIL.
pub(crate) fn answer(
    py: Python<'_>,
    asked: &TorchCall,
    pending: Pending<'_>,
) -> Result<Event, Failure> {
    match asked {
        TorchCall::On(wanted) => {
            let before = state::state(py).map(|state| state.wanted.clone());
            on(py, wanted)?;
            pending.commit().inspect_err(|_| take_back(py, before))?;
        }
        TorchCall::Off => {
            pending.commit()?;
            forget_asked(py);
        }
        TorchCall::Status { since } => return Ok(Event::Torch(status(py, *since))),
    }
    Ok(Event::Torch(status(py, 0)))
}

/// Makes it what it was before a client asked for more, which gave that up.
fn take_back(py: Python<'_>, before: Option<TorchOptions>) {
    match (before, state::state(py)) {
        (None, state) => {
            drop(state);
            forget_asked(py);
        }
        (Some(before), Some(mut state)) => {
            state.wanted = before;
            state::apply(&state.in_effect());
        }
        (Some(_), None) => {}
    }
}

/// What the program's environment asks for, when the probe starts. What is wrong with it [`status`] tells who asks.
fn start(py: Python<'_>) {
    let Some(asked) = PROBING_TORCH.value() else {
        return;
    };
    let wanted = asked_for(&asked.to_string_lossy());
    if wanted != TorchOptions::default() {
        // What the program can import is not known yet.
        drop(begin(py, &wanted));
    }
}

/// Words that ask for something, or for nothing.
const KNOWN: [&str; 6] = ["0", "1", "trace", "tensors", "nan", "collectives"];
const NOT_INSTALLED: &str = "torch is not installed in this program's environment";

/// `1`, or words: `trace`, `tensors`, `nan`. Other words are for others.
fn asked_for(text: &str) -> TorchOptions {
    let mut wanted = TorchOptions::default();
    for word in text.split(',').map(str::trim) {
        match word {
            "1" | "trace" => wanted.trace = Some(Trace::default()),
            "tensors" => {
                wanted.tensors = Some(Tensors {
                    every: TENSORS_EVERY,
                    kinds: vec![TensorKind::Parameters, TensorKind::Gradients],
                    only: Vec::new(),
                });
            }
            "nan" => wanted.nan = true,
            _ => {}
        }
    }
    wanted
}

/// Begins, or goes on with other settings, where torch is or can be imported.
fn on(py: Python<'_>, wanted: &TorchOptions) -> Result<(), Failure> {
    check_installed(py)?;
    begin(py, wanted)
}

/// Whether torch is imported, or can be.
pub(crate) fn check_installed(py: Python<'_>) -> Result<(), Failure> {
    embedded::prepare(py).map_err(|error| Failure::new(error.to_string()))?;
    if torch_api::imported(py).is_none() && !import_hook::may_come(py) {
        return Err(Failure::new(NOT_INSTALLED)
            .with_hint("`probing -t PID trace` records any function, without torch"));
    }
    Ok(())
}

/// Looks for NaN and Inf while a connection has borrowed that, beside what clients have asked for.
pub(crate) fn watch_nan(py: Python<'_>, wanted: bool) -> Result<(), Failure> {
    if wanted {
        check_installed(py)?;
        state::begin(py).ok_or_else(being_set_up)?.is_nan_borrowed = true;
        return attend(py);
    }
    let Some(mut state) = state::state(py) else {
        return Ok(());
    };
    state.is_nan_borrowed = false;
    state::apply(&state.in_effect());
    let is_idle = state.in_effect() == TorchOptions::default();
    drop(state);
    if is_idle {
        off(py);
    }
    Ok(())
}

/// Whether it is looked for NaN and Inf, whoever asked for it.
pub(crate) fn looks_for_nan() -> bool {
    state::looks_for_nan()
}

/// Ends what clients have asked for.
fn forget_asked(py: Python<'_>) {
    match state::state(py) {
        Some(mut state) if state.is_nan_borrowed => {
            state.wanted = TorchOptions::default();
            state::apply(&state.in_effect());
        }
        state => {
            drop(state);
            off(py);
        }
    }
}

fn being_set_up() -> Failure {
    Failure::new("torch is being set up by another thread").with_hint("try again")
}

fn begin(py: Python<'_>, wanted: &TorchOptions) -> Result<(), Failure> {
    {
        let mut state = state::begin(py).ok_or_else(being_set_up)?;
        let before = &mut state.wanted;
        before.trace = wanted.trace.clone().or(before.trace.take());
        before.tensors = wanted.tensors.clone().or(before.tensors.take());
        before.nan |= wanted.nan;
    }
    attend(py)
}

/// Has torch tell, now or when it is imported.
fn attend(py: Python<'_>) -> Result<(), Failure> {
    match torch_api::imported(py) {
        Some(torch) => listen(&torch),
        None => import_hook::wait(py),
    }
}

/// torch is there: has it tell.
fn listen(torch: &Bound<'_, PyAny>) -> Result<(), Failure> {
    let py = torch.py();
    let is_new = state::state(py).is_some_and(|state| state.torch.is_none());
    if is_new {
        let mut found = Torch::find(torch)?;
        found.listen(py).inspect_err(|_| found.leave(py))?;
        match state::state(py) {
            Some(mut state) => state.torch = Some(found),
            // Another thread has switched it off meanwhile.
            None => found.leave(py),
        }
    }
    if let Some(state) = state::state(py) {
        step::begin();
        state::apply(&state.in_effect());
    }
    Ok(())
}

/// Ends all of it.
fn off(py: Python<'_>) {
    import_hook::forget(py);
    let Some(state) = state::end(py) else {
        return;
    };
    let mut state = *state;
    if let Some(torch) = &mut state.torch {
        torch.leave(py);
    }
    for hook in std::mem::take(&mut state.hooks).into_all() {
        hook.remove(py);
    }
    drop(state);
    step::end();
}

/// What is recorded of torch, and the look for values that are not finite.
pub(crate) struct TorchSubsystem;

impl Subsystem for TorchSubsystem {
    fn start(&self, py: Python<'_>) {
        start(py);
    }

    fn after_fork(&self, _py: Python<'_>) {
        recorders::forget_demand(&[Tracer::Nan]);
    }

    fn leave(&self, py: Python<'_>) {
        off(py);
        recorders::end(py, &[Tracer::Nan]);
    }

    fn leave_soon(&self) {
        if state::is_used() {
            drop(worker::start(|| {
                worker::with_interpreter(|py| Self.leave(py));
            }));
        }
    }
}

fn status(py: Python<'_>, since: u64) -> TorchStatus {
    let mut status = status_of_now(py, since);
    status.note = misspelt().or_else(|| {
        let is_missing = status.state == TorchState::Waiting && check_installed(py).is_err();
        is_missing.then(|| NOT_INSTALLED.to_owned())
    });
    status
}

/// What the program's environment asks for in words that nobody knows.
fn misspelt() -> Option<String> {
    let asked = PROBING_TORCH.value()?;
    let asked = asked.to_string_lossy();
    let words = asked.split(',').map(str::trim);
    let unknown = words.filter(|word| !word.is_empty() && !KNOWN.contains(word));
    let unknown: Vec<&str> = unknown.collect();
    let [_, known @ ..] = KNOWN;
    (!unknown.is_empty()).then(|| {
        format!(
            "{} has unknown words: {}; known are {}",
            PROBING_TORCH.name,
            unknown.join(", "),
            known.join(", ")
        )
    })
}

fn status_of_now(py: Python<'_>, since: u64) -> TorchStatus {
    let version = torch_api::imported(py)
        .and_then(|torch| torch.getattr("__version__").ok()?.str().ok())
        .map(|version| crate::eval::traceback::text_of(version.as_any()));
    let state = state::state(py);
    let Some(state) = state.as_ref() else {
        return TorchStatus {
            state: TorchState::Off,
            version,
            options: TorchOptions::default(),
            by: None,
            step: step::now(),
            counted_by: None,
            roots: Vec::new(),
            modules: 0,
            findings: 0,
            looks: state::looks(),
            looked_at: 0,
            note: None,
        };
    };
    let counted_by = if step::is_told() {
        Some("program".to_owned())
    } else {
        state.counter.class.clone()
    };
    TorchStatus {
        state: match state.torch {
            Some(_) => TorchState::On,
            None => TorchState::Waiting,
        },
        version: state
            .torch
            .as_ref()
            .map(|torch| torch.version.clone())
            .or(version),
        options: state.in_effect(),
        by: state.torch.as_ref().map(|torch| torch.by().to_owned()),
        step: step::now(),
        counted_by,
        roots: state.modules.roots.clone(),
        modules: state.modules.count() as u64,
        findings: state.findings.count() as u64,
        looks: state::looks(),
        looked_at: state.modules.looked_at(since) as u64,
        note: None,
    }
}

/// Puts the functions into the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(torch, module)?)?;
    module.add_function(wrap_pyfunction!(tensor_statistics, module)?)
}

/// Do what a message asks for (as JSON), and give the answer (as JSON).
#[pyfunction]
fn torch(py: Python<'_>, asked: &str) -> PyResult<String> {
    let asked: TorchCall =
        serde_json::from_str(asked).map_err(|error| PyValueError::new_err(error.to_string()))?;
    match answer(py, &asked, Pending::of_program()) {
        Ok(Event::Torch(status)) => serde_json::to_string(&status)
            .map_err(|error| PyRuntimeError::new_err(error.to_string())),
        Err(failure) => {
            let hint = failure.hint.map(|hint| format!("\nhint: {hint}"));
            let words = format!("{}{}", failure.error, hint.unwrap_or_default());
            Err(PyRuntimeError::new_err(words))
        }
        Ok(_) => Err(PyRuntimeError::new_err("no answer")),
    }
}

/// What a tensor in this process's memory holds: counts, then least, greatest, mean, deviation and norm.
#[pyfunction]
fn tensor_statistics(tensor: &Bound<'_, PyAny>) -> PyResult<Option<StatisticsTuple>> {
    let py = tensor.py();
    let tell = py.import("torch")?.getattr("_C")?.getattr("_to_dlpack")?;
    Ok(numbers::Numbers::of(&tell, tensor).map(|numbers| {
        let told = numbers.statistics(py);
        let counts = (told.count, told.nan, told.inf, told.zero);
        let finite = told.finite;
        (
            counts,
            finite.map(|it| (it.min, it.max, it.mean, it.std, it.norm)),
        )
    }))
}

type StatisticsTuple = (
    (u64, u64, u64, u64),
    Option<(f64, f64, f64, Option<f64>, f64)>,
);
