//! What tensors hold, told in numbers: every so many steps of what is watched, and the first that are not finite.
//!
//! Numbers in this process's memory are looked at here (`numbers.rs`); those of a GPU, and of kinds that only torch knows, by
//! operations of torch (`device_stats.rs`), whose results are fetched when they are there: nothing waits for a GPU.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use probing_proto::message::torch::{TensorKind, Tensors};
use probing_store::monotonic_nanos;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::breakpoints::tensors::is_tensor;
use crate::python::frame;
use crate::python::interned::interned;
use crate::recorders::torch::device_stats;
use crate::recorders::torch::forward::module_of;
use crate::recorders::torch::modules::Owner;
use crate::recorders::torch::numbers::Numbers;
use crate::recorders::torch::state;
use crate::recorders::torch::statistics::Statistics;
use crate::recording::step;
use crate::recording::{self, TensorRow};

/// Tensors of one value that are looked at.
const MAX_TENSORS: usize = 16;
/// How deep they may be in lists and dictionaries.
const MAX_DEPTH: usize = 3;
/// What is not finite goes on being so: the first findings tell where it came from.
const MAX_FINDINGS: usize = 64;

/// The number of the next finding of this process, however often it is watched.
static NEXT: AtomicI64 = AtomicI64::new(1);

/// What was found not to be finite.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Kind and name of each: it is told once.
    known: HashSet<(&'static str, String)>,
}

impl Findings {
    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// The number of a new one.
    fn add(&mut self, kind: &'static str, name: &str) -> Option<i64> {
        let is_new = self.known.len() < MAX_FINDINGS && self.known.insert((kind, name.to_owned()));
        is_new.then(|| NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What one tensor is in a row.
#[derive(Debug, Clone)]
pub(crate) struct Label {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) module: Arc<Owner>,
    pub(crate) step: Option<i64>,
}

impl Label {
    /// Counts that it is known whether this tensor is finite.
    pub(crate) fn is_looked_at(&self) {
        let number = state::next_look();
        self.module.last_look.store(number, Ordering::Relaxed);
    }
}

/// A tensor that was looked at.
#[derive(Debug, Clone)]
pub(crate) struct TensorStatistics {
    pub(crate) dtype: String,
    pub(crate) shape: String,
    pub(crate) device: String,
    pub(crate) statistics: Statistics,
}

/// Before an optimizer changes the parameters: they, and the gradients of its own, every so many steps. Of others, a thread may
/// be in their backward pass: torch assigns gradients there without a lock, so that to read one crashes the program.
pub(crate) fn before_step(optimizer: &Bound<'_, PyAny>) {
    let py = optimizer.py();
    let Some(wanted) = due(py) else {
        return;
    };
    let has = |kind| wanted.kinds.contains(&kind);
    let own = if has(TensorKind::Gradients) {
        parameters_of(optimizer).unwrap_or_default()
    } else {
        HashSet::new()
    };
    for (label, tensor) in parameters(py, &wanted.only) {
        if own.contains(&(tensor.as_ptr() as usize))
            && let Ok(gradient) = tensor.getattr(interned!(py, "grad"))
            && !gradient.is_none()
        {
            let kind = "gradient";
            record(
                &gradient,
                Label {
                    kind,
                    ..label.clone()
                },
            );
        }
        if has(TensorKind::Parameters) {
            record(&tensor, label);
        }
    }
}

/// The parameters that an optimizer changes, by their addresses.
fn parameters_of(optimizer: &Bound<'_, PyAny>) -> PyResult<HashSet<usize>> {
    let py = optimizer.py();
    let mut own = HashSet::new();
    for group in optimizer
        .getattr(interned!(py, "param_groups"))?
        .try_iter()?
    {
        for parameter in group?.get_item(interned!(py, "params"))?.try_iter()? {
            own.insert(parameter?.as_ptr() as usize);
        }
    }
    Ok(own)
}

/// After an optimizer's step: are the parameters finite still? And what the GPU has told meanwhile.
pub(crate) fn after_step(py: Python<'_>) {
    device_stats::collect(py);
    if !state::looks_for_nan() {
        return;
    }
    for (label, tensor) in parameters(py, &[]) {
        if let Some(seen) = look_for_nan(&tensor, &label)
            && !seen.statistics.are_sound()
        {
            find(py, &label, &seen, stepped_by(&label, &tensor));
        }
    }
}

/// What the optimizer has changed a parameter by.
fn stepped_by<'py>(
    label: &Label,
    parameter: &Bound<'py, PyAny>,
) -> Vec<(Label, Bound<'py, PyAny>)> {
    let kind = "gradient";
    let gradients = parameter.getattr(interned!(parameter.py(), "grad"));
    let labelled = |gradient| {
        (
            Label {
                kind,
                ..label.clone()
            },
            gradient,
        )
    };
    gradients.into_iter().map(labelled).collect()
}

/// A module has given a value.
pub(crate) fn after_call(frame: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) {
    let py = frame.py();
    let Some(module) = module_of(frame) else {
        return;
    };
    let Some(owner) =
        state::state(py).and_then(|state| Some(Arc::clone(&state.modules.get(&module)?.owner)))
    else {
        return;
    };
    let is_due = state::are_activations_due() && matches(&wanted_names(py), &owner.name);
    let label = Label {
        kind: "output",
        name: owner.name.clone(),
        module: owner,
        step: step::now(),
    };
    let why = if is_due {
        ReadReason::Due
    } else {
        ReadReason::Nan
    };
    for tensor in tensors_in(value) {
        let Some(seen) = look(&tensor, &label, why) else {
            continue;
        };
        if is_due {
            write(py, &label, &seen, None);
        }
        if !state::looks_for_nan() {
            continue;
        }
        label.is_looked_at();
        if !seen.statistics.are_sound() {
            find(py, &label, &seen, around(frame, &module, &label));
        }
    }
}

/// A gradient has been added to a parameter.
pub(crate) fn after_gradient(py: Python<'_>, number: usize, parameter: &Bound<'_, PyAny>) {
    let Some(hooked) = state::hooked(number, parameter) else {
        return;
    };
    let label = |kind| Label {
        kind,
        name: hooked.name.clone().into_string(),
        module: Arc::clone(&hooked.module),
        step: step::now(),
    };
    let Ok(gradient) = parameter.getattr(interned!(py, "grad")) else {
        return;
    };
    let gradients = label("gradient");
    if let Some(seen) = look_for_nan(&gradient, &gradients)
        && !seen.statistics.are_sound()
    {
        let context = vec![(label("parameter"), parameter.clone())];
        find(py, &gradients, &seen, context);
    }
}

/// Why a tensor is looked at: what comes later from a GPU is then a row, or one only if it is not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadReason {
    Due,
    Nan,
}

/// Records what a tensor holds.
fn record(tensor: &Bound<'_, PyAny>, label: Label) {
    if let Some(seen) = look(tensor, &label, ReadReason::Due) {
        write(tensor.py(), &label, &seen, None);
    }
}

fn look_for_nan(tensor: &Bound<'_, PyAny>, label: &Label) -> Option<TensorStatistics> {
    look(tensor, label, ReadReason::Nan).inspect(|_| label.is_looked_at())
}

/// Looks at a tensor; `None` when that is not possible, or will be told later.
fn look(tensor: &Bound<'_, PyAny>, label: &Label, why: ReadReason) -> Option<TensorStatistics> {
    let py = tensor.py();
    if !is_tensor(tensor) {
        return None;
    }
    let tell = state::state(py)?.torch.as_ref()?.to_dlpack.clone_ref(py);
    match Numbers::of(tell.bind(py), tensor) {
        Some(numbers) => Some(TensorStatistics {
            dtype: numbers.dtype().to_owned(),
            shape: shown(numbers.shape()),
            device: "cpu".to_owned(),
            statistics: numbers.statistics(py),
        }),
        None => device_stats::look(tensor, label, why),
    }
}

/// Something is not finite. It is told once, with what it came from.
pub(crate) fn find(
    py: Python<'_>,
    label: &Label,
    seen: &TensorStatistics,
    context: Vec<(Label, Bound<'_, PyAny>)>,
) {
    let id = state::state(py).and_then(|mut state| state.findings.add(label.kind, &label.name));
    let Some(id) = id else {
        return;
    };
    write(py, label, seen, Some((id, "found")));
    for (label, tensor) in context {
        if let Some(seen) = look(&tensor, &label, ReadReason::Due) {
            write(py, &label, &seen, Some((id, "context")));
        }
    }
}

/// What a module was given, and its own parameters.
fn around<'py>(
    frame: &Bound<'py, PyAny>,
    module: &Bound<'py, PyAny>,
    label: &Label,
) -> Vec<(Label, Bound<'py, PyAny>)> {
    let py = frame.py();
    let mut all = Vec::new();
    for name in [interned!(py, "args"), interned!(py, "kwargs")] {
        if let Some(given) = frame::variable(frame, name) {
            let kind = "input";
            let inputs = tensors_in(&given).into_iter();
            all.extend(inputs.map(|tensor| {
                (
                    Label {
                        kind,
                        ..label.clone()
                    },
                    tensor,
                )
            }));
        }
    }
    if let Some(state) = state::state(py)
        && let Some(known) = state.modules.get(module)
    {
        for parameter in &known.parameters {
            let label = Label {
                kind: "parameter",
                name: parameter.name.clone().into_string(),
                ..label.clone()
            };
            all.extend(parameter.tensor(py).map(|tensor| (label, tensor)));
        }
    }
    all
}

pub(crate) fn write(
    py: Python<'_>,
    label: &Label,
    seen: &TensorStatistics,
    finding: Option<(i64, &str)>,
) {
    let row = TensorRow {
        step: label.step,
        kind: label.kind,
        name: &label.name,
        module: &label.module.name,
        class: &label.module.class.name,
        forward: (label.module.class.forward.as_ref()).map(|(file, line)| (file.as_str(), *line)),
        dtype: &seen.dtype,
        shape: &seen.shape,
        device: &seen.device,
        statistics: seen.statistics,
        finding,
    };
    recording::tensor_row(py, monotonic_nanos(), &row);
}

/// What is asked for, if it is in this step.
fn due(py: Python<'_>) -> Option<Tensors> {
    let step = step::now().unwrap_or(0);
    let state = state::state(py)?;
    let tensors = state.wanted.tensors.as_ref()?;
    state::is_due(tensors.every, step).then(|| tensors.clone())
}

fn wanted_names(py: Python<'_>) -> Vec<String> {
    state::state(py)
        .and_then(|state| Some(state.wanted.tensors.as_ref()?.only.clone()))
        .unwrap_or_default()
}

/// Parameters of all models, those of these names.
fn parameters<'py>(py: Python<'py>, only: &[String]) -> Vec<(Label, Bound<'py, PyAny>)> {
    let step = step::now();
    let Some(state) = state::state(py) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for module in state.modules.all() {
        for parameter in &module.parameters {
            if !matches(only, &parameter.name) {
                continue;
            }
            let label = Label {
                kind: "parameter",
                name: parameter.name.clone().into_string(),
                module: Arc::clone(&module.owner),
                step,
            };
            all.extend(parameter.tensor(py).map(|tensor| (label, tensor)));
        }
    }
    // One that two modules share is one.
    let mut seen = HashSet::new();
    all.retain(|(_, tensor)| seen.insert(tensor.as_ptr() as usize));
    all
}

/// Tensors in a value, in lists, tuples and dictionaries, too.
fn tensors_in<'py>(value: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let mut found = Vec::new();
    gather(value, MAX_DEPTH, &mut found);
    found
}

fn gather<'py>(value: &Bound<'py, PyAny>, depth: usize, found: &mut Vec<Bound<'py, PyAny>>) {
    if found.len() >= MAX_TENSORS {
        return;
    }
    if is_tensor(value) {
        found.push(value.clone());
        return;
    }
    if depth == 0 {
        return;
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        for item in tuple.iter().take(MAX_TENSORS) {
            gather(&item, depth - 1, found);
        }
    } else if let Ok(list) = value.cast::<PyList>() {
        for item in list.iter().take(MAX_TENSORS) {
            gather(&item, depth - 1, found);
        }
    } else if let Ok(dict) = value.cast::<PyDict>() {
        for (_, item) in dict.iter().take(MAX_TENSORS) {
            gather(&item, depth - 1, found);
        }
    }
}

/// Whether a name is one of these, where `*` is anything. All are, where none is named.
fn matches(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|pattern| is_like(pattern, name))
}

fn is_like(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(place) => rest = &rest[place + part.len()..],
            None => return false,
        }
    }
    true
}

/// `(8, 4)`
pub(crate) fn shown(shape: &[i64]) -> String {
    let sizes: Vec<String> = shape.iter().map(i64::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    format!("({}{comma})", sizes.join(", "))
}
