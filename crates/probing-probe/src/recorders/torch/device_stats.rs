//! Statistics of tensors on devices, and of kinds that only torch reads.
//!
//! Tensors whose numbers are not in this process's memory, or of kinds that only torch knows: a few operations of
//! torch look at them, on the stream that computes them. Results of a GPU are copied without waiting, and read when
//! they are there.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::python::call::call;
use crate::python::embedded::embedded;
use crate::python::gil_cell::GilCell;
use crate::python::signal_handlers;
use crate::recorders::torch::statistics::{Finite, Statistics};
use crate::recorders::torch::tensors::{self, Label, ReadReason, TensorStatistics};

/// Results that may be awaited.
const MAX_AWAITED: usize = 4096;

/// What a GPU is to tell.
struct PendingStatistics {
    label: Label,
    why: ReadReason,
    told: TensorInfo,
    pending: Py<PyAny>,
}

/// How a tensor looks, without its numbers.
#[derive(Debug, Clone)]
struct TensorInfo {
    dtype: String,
    shape: String,
    device: String,
    count: u64,
}

static AWAITED: GilCell<Vec<PendingStatistics>> = GilCell::new(Vec::new());

/// `None` when that is not possible, or will be told later.
pub(crate) fn look(
    tensor: &Bound<'_, PyAny>,
    label: &Label,
    why: ReadReason,
) -> Option<TensorStatistics> {
    let py = tensor.py();
    let begun = signal_handlers::given_aside(py, || call(&function(py, "begin")?, (tensor,)))?;
    let (dtype, shape, device, count, pending): (String, Vec<i64>, String, u64, Py<PyAny>) =
        begun.extract().ok()?;
    let told = TensorInfo {
        dtype,
        shape: tensors::shown(&shape),
        device,
        count,
    };
    if let Some(numbers) = numbers(pending.bind(py)) {
        return Some(told.seen(&numbers));
    }
    let mut awaited = AWAITED.try_borrow_mut(py)?;
    if awaited.len() < MAX_AWAITED {
        awaited.push(PendingStatistics {
            label: label.clone(),
            why,
            told,
            pending,
        });
    }
    None
}

/// Records what has been told meanwhile.
pub(crate) fn collect(py: Python<'_>) {
    let Some(waiting) = AWAITED
        .try_borrow_mut(py)
        .map(|mut it| std::mem::take(&mut *it))
    else {
        return;
    };
    let mut left = Vec::new();
    for one in waiting {
        let Some(numbers) = numbers(one.pending.bind(py)) else {
            left.push(one);
            continue;
        };
        let seen = one.told.seen(&numbers);
        if one.why == ReadReason::Nan {
            one.label.is_looked_at();
        }
        match one.why {
            ReadReason::Due => tensors::write(py, &one.label, &seen, None),
            ReadReason::Nan if !seen.statistics.are_sound() => {
                tensors::find(py, &one.label, &seen, Vec::new());
            }
            ReadReason::Nan => {}
        }
    }
    if let Some(mut awaited) = AWAITED.try_borrow_mut(py) {
        left.append(&mut awaited);
        *awaited = left;
    }
}

/// The numbers, if they are there.
fn numbers(pending: &Bound<'_, PyAny>) -> Option<[f64; 8]> {
    let py = pending.py();
    let ended = signal_handlers::given_aside(py, || call(&function(py, "end")?, (pending,)))?;
    ended.extract::<Option<[f64; 8]>>().ok()?
}

impl TensorInfo {
    fn seen(&self, numbers: &[f64; 8]) -> TensorStatistics {
        let &[finite, nan, zero, min, max, mean, variance, squared] = numbers;
        let at_all = finite > 0.0;
        let statistics = Statistics {
            count: self.count,
            nan: nan as u64,
            inf: self.count.saturating_sub(nan as u64 + finite as u64),
            zero: zero as u64,
            finite: at_all.then(|| Finite {
                min,
                max,
                mean,
                std: (finite > 1.0).then(|| variance.max(0.0).sqrt()),
                norm: squared.sqrt(),
            }),
        };
        TensorStatistics {
            dtype: self.dtype.clone(),
            shape: self.shape.clone(),
            device: self.device.clone(),
            statistics,
        }
    }
}

/// A function of `elsewhere.py`.
fn function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static OWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let own = OWN.get_or_try_init(py, || embedded!(py, "device_stats.py").map(Bound::unbind))?;
    own.bind(py).as_any().get_item(name)
}
