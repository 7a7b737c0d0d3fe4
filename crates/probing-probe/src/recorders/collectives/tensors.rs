//! What is told of the tensors of an operation: shapes, type and size, without touching what they hold.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::python::interned::interned;
use crate::recorders::collectives::prehook_args::{DIMENSIONS, Sizes};
use crate::recorders::collectives::state;
use crate::recording::collective_symbol;

/// Tensors of an operation whose shapes are told.
const MAX_SHAPES: usize = 4;
/// Tensors of an operation that are looked at.
const MAX_TENSORS: usize = 256;
/// Types of numbers that are remembered; torch has some forty.
const MAX_TYPES: usize = 64;

/// Types of numbers that were met: there are few, and each is one object for ever.
#[derive(Default)]
struct Types(Vec<(Py<PyAny>, Type)>);

#[derive(Clone, Copy)]
struct Type {
    name: u32,
    /// Of one number.
    bytes: i64,
}

impl Types {
    fn of(&mut self, dtype: &Bound<'_, PyAny>) -> PyResult<Type> {
        if let Some((_, known)) = self.0.iter().find(|(held, _)| held.is(dtype)) {
            return Ok(*known);
        }
        let py = dtype.py();
        let words = dtype.str()?;
        let words = words.to_str()?;
        let met = Type {
            name: collective_symbol(py, words.strip_prefix("torch.").unwrap_or(words)),
            bytes: dtype.getattr(interned!(py, "itemsize"))?.extract()?,
        };
        if self.0.len() < MAX_TYPES {
            self.0.push((dtype.clone().unbind(), met));
        }
        Ok(met)
    }
}

/// Sizes of which the number of the text is remembered, by what they are.
#[derive(Default)]
struct Shapes([Option<Shape>; KEPT]);

const KEPT: usize = 16;

#[derive(Clone, Copy)]
struct Shape {
    of: Sizes,
    text: u32,
}

impl Shapes {
    fn of(&mut self, py: Python<'_>, sizes: Sizes) -> u32 {
        let mixed = sizes.sizes[..sizes.count]
            .iter()
            .fold(sizes.count as u64, |mixed, size| {
                (mixed ^ size.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            });
        let kept = &mut self.0[(mixed >> 60) as usize];
        match kept {
            Some(shape) if shape.of == sizes => shape.text,
            _ => {
                let text = collective_symbol(py, &in_words(&sizes.sizes[..sizes.count]));
                *kept = Some(Shape { of: sizes, text });
                text
            }
        }
    }
}

fn in_words(sizes: &[i64]) -> String {
    let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
    format!("[{}]", sizes.join(","))
}

/// What is known of types and shapes.
#[derive(Default)]
pub(crate) struct TensorCache {
    types: Types,
    /// By torch's numbers of them.
    numbered: Vec<Option<Type>>,
    shapes: Shapes,
}

impl TensorCache {
    /// What is told of one tensor, by its sizes and the number of its type. `None` for a type that was not met yet.
    pub(crate) fn told(&mut self, py: Python<'_>, (sizes, dtype): (Sizes, i32)) -> Option<Tensors> {
        let dtype = usize::try_from(dtype).ok()?;
        let dtype = (*self.numbered.get(dtype)?)?;
        Some(self.one(py, sizes, dtype))
    }

    fn one(&mut self, py: Python<'_>, sizes: Sizes, dtype: Type) -> Tensors {
        Tensors {
            shapes: self.shapes.of(py, sizes),
            dtype: Some(dtype.name),
            bytes: bytes_of(&sizes.sizes[..sizes.count], dtype),
        }
    }

    /// A tensor whose type has this number.
    fn meet(&mut self, number: i32, dtype: Type) {
        let place = usize::try_from(number).ok();
        if let Some(place) = place.filter(|place| *place < MAX_TYPES) {
            self.numbered.resize(MAX_TYPES, None);
            self.numbered[place] = Some(dtype);
        }
    }
}

/// What is told of all tensors of an operation.
#[derive(Default)]
pub(crate) struct Tensors {
    pub(crate) shapes: u32,
    pub(crate) dtype: Option<u32>,
    pub(crate) bytes: i64,
}

impl Tensors {
    /// As a barrier has them.
    pub(crate) fn none(py: Python<'_>) -> Self {
        Self {
            shapes: collective_symbol(py, ""),
            ..Self::default()
        }
    }
}

/// What is told of lists of tensors, or of lists of them: one for each rank. `None` when there are none.
/// `number` is that of their type, if it is known.
pub(crate) fn describe_tensors(
    tensors: &Bound<'_, PyAny>,
    number: Option<i32>,
) -> PyResult<Option<Tensors>> {
    let py = tensors.py();
    let tensors = tensors.cast::<PyList>()?;
    if tensors.is_empty() {
        return Ok(None);
    }
    let mut all = Vec::new();
    let one = (tensors.len() == 1)
        .then(|| tensors.get_item(0))
        .transpose()?;
    // Most operations are of one tensor.
    if let Some(tensor) = one.filter(|tensor| !tensor.is_instance_of::<PyList>()) {
        let dtype = tensor.getattr(interned!(py, "dtype"))?;
        let sizes = tensor.getattr(interned!(py, "shape"))?;
        let sizes = sizes.cast::<PyTuple>()?;
        if sizes.len() <= DIMENSIONS
            && let Some(mut state) = state(py)
        {
            let known = &mut state.known;
            let mut few = Sizes::default();
            for size in sizes.iter_borrowed() {
                few.sizes[few.count] = size.extract()?;
                few.count += 1;
            }
            let dtype = known.types.of(&dtype)?;
            if let Some(number) = number {
                known.meet(number, dtype);
            }
            return Ok(Some(known.one(py, few, dtype)));
        }
    }
    flatten(tensors, &mut all)?;
    let mut words = Vec::new();
    let mut told = Tensors::default();
    for tensor in &all {
        let sizes = tensor.getattr(interned!(py, "shape"))?;
        let sizes: Vec<i64> = sizes.extract()?;
        let dtype = tensor.getattr(interned!(py, "dtype"))?;
        let dtype = state(py).map(|mut state| state.known.types.of(&dtype));
        let Some(dtype) = dtype.transpose()? else {
            return Ok(None);
        };
        told.dtype.get_or_insert(dtype.name);
        told.bytes = told.bytes.saturating_add(bytes_of(&sizes, dtype));
        if words.len() < MAX_SHAPES {
            words.push(in_words(&sizes));
        }
    }
    told.shapes = collective_symbol(py, &words.join(" "));
    Ok((!all.is_empty()).then_some(told))
}

fn bytes_of(sizes: &[i64], dtype: Type) -> i64 {
    sizes
        .iter()
        .fold(dtype.bytes, |bytes, size| bytes.saturating_mul(*size))
}

fn flatten<'py>(tensors: &Bound<'py, PyList>, all: &mut Vec<Bound<'py, PyAny>>) -> PyResult<()> {
    for tensor in tensors {
        if all.len() >= MAX_TENSORS {
            break;
        }
        match tensor.cast::<PyList>() {
            Ok(inner) => flatten(inner, all)?,
            Err(_) => all.push(tensor),
        }
    }
    Ok(())
}
