//! Conditions of breakpoints: simple ones are evaluated natively, others as compiled Python.
//!
//! Conditions. Simple ones are answered natively, without a Python frame: `name op constant`, `x.attr op constant`,
//! `len(x) op n`, `x is None`, and `and`, `or`, `not` of these. What cannot be told without running code of the
//! program (a property, a number of a class of its own) is left to the same condition as compiled Python.

mod reader;

use std::cmp::Ordering;

use probing_proto::message::Failure;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple};

use self::reader::{Constant, Operator, Tree};
use crate::breakpoints::expression::{Expression, Kind};
use crate::python::frame::{self, Names};
use crate::python::int_value;
use crate::python::symbols::symbols;

/// Beyond, a float does not hold every whole number.
const EXACT: i64 = 1 << 53;

/// Whether something is done.
pub(crate) struct Condition {
    native: Option<Native>,
    compiled: Expression,
}

/// A frame of a function, and what its variables are called.
pub(crate) type FrameNames<'a, 'py> = (&'a Bound<'py, PyAny>, &'a Names);

/// A condition that we can answer.
enum Native {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Compare(Subject, Operator, Value),
    IsNone(Subject),
}

/// What is looked at.
struct Subject {
    name: Py<PyString>,
    attributes: Vec<Py<PyString>>,
    length: bool,
}

enum Value {
    Int(i64),
    Float(f64),
    Text(Py<PyString>),
}

impl Condition {
    pub(crate) fn new(py: Python<'_>, source: &str) -> Result<Self, Failure> {
        Ok(Self {
            compiled: Expression::new(py, Kind::Condition, source)?,
            native: reader::read(source).map(|tree| Native::new(py, tree)),
        })
    }

    pub(crate) fn is_native(&self) -> bool {
        self.native.is_some()
    }

    /// Answers without running code of the program, if that can be.
    #[inline]
    pub(crate) fn known(&self, at: FrameNames<'_, '_>) -> Option<bool> {
        self.native.as_ref()?.holds(at)
    }

    /// As compiled Python.
    pub(crate) fn compiled(&self) -> &Expression {
        &self.compiled
    }

    /// Answers. May run code of the program.
    pub(crate) fn holds(&self, frame: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.compiled.value(frame)?.is_truthy()
    }
}

impl Native {
    fn new(py: Python<'_>, tree: Tree) -> Self {
        let all = |parts: Vec<Tree>| parts.into_iter().map(|part| Self::new(py, part)).collect();
        match tree {
            Tree::All(parts) => Self::All(all(parts)),
            Tree::Any(parts) => Self::Any(all(parts)),
            Tree::Not(part) => Self::Not(Box::new(Self::new(py, *part))),
            Tree::IsNone(subject) => Self::IsNone(Subject::new(py, subject)),
            Tree::Compare(subject, operator, constant) => {
                let value = match constant {
                    Constant::Int(value) => Value::Int(value),
                    Constant::Float(value) => Value::Float(value),
                    Constant::Text(value) => Value::Text(PyString::new(py, &value).unbind()),
                };
                Self::Compare(Subject::new(py, subject), operator, value)
            }
        }
    }

    /// `None` when only Python can tell.
    fn holds(&self, at: FrameNames<'_, '_>) -> Option<bool> {
        match self {
            Self::All(parts) => {
                for part in parts {
                    if !part.holds(at)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            Self::Any(parts) => {
                for part in parts {
                    if part.holds(at)? {
                        return Some(true);
                    }
                }
                Some(false)
            }
            Self::Not(part) => part.holds(at).map(|holds| !holds),
            Self::IsNone(subject) => subject.look(at, |found| Some(found.is_none())),
            Self::Compare(subject, operator, value) => subject.look(at, |found| {
                if subject.length {
                    return operator.holds(length(found)?, value);
                }
                compare(found, *operator, value)
            }),
        }
    }
}

impl Subject {
    fn new(py: Python<'_>, subject: reader::Subject) -> Self {
        let interned = |name: &String| PyString::intern(py, name).unbind();
        Self {
            name: interned(&subject.name),
            attributes: subject.attributes.iter().map(interned).collect(),
            length: subject.length,
        }
    }

    /// Looks at it. What looks runs nothing: a variable of the frame stays where it is meanwhile.
    #[inline]
    fn look<'py>(
        &self,
        at: FrameNames<'_, 'py>,
        look: impl FnOnce(&Bound<'py, PyAny>) -> Option<bool>,
    ) -> Option<bool> {
        let (frame, names) = at;
        if self.attributes.is_empty()
            && let Some(found) = names.borrowed(frame, self.name.bind(frame.py()))
        {
            return look(&found);
        }
        look(&self.find(at)?)
    }

    fn find<'py>(&self, (frame, names): FrameNames<'_, 'py>) -> Option<Bound<'py, PyAny>> {
        let py = frame.py();
        let name = self.name.bind(py);
        let own = names.variable(frame, name);
        let mut found = own.or_else(|| frame::global(frame, name))?;
        for attribute in &self.attributes {
            found = plain_attribute(&found, attribute.bind(py))?;
        }
        Some(found)
    }
}

impl Operator {
    fn holds(self, found: i64, value: &Value) -> Option<bool> {
        match value {
            Value::Int(value) => Some(self.accepts(Some(found.cmp(value)))),
            Value::Float(value) if found.abs() <= EXACT => {
                Some(self.accepts((found as f64).partial_cmp(value)))
            }
            _ => None,
        }
    }

    /// `None` is how a number compares with what is none.
    fn accepts(self, ordering: Option<Ordering>) -> bool {
        match (self, ordering) {
            (Self::NotEqual, None) => true,
            (_, None) => false,
            (Self::Equal, Some(ordering)) => ordering.is_eq(),
            (Self::NotEqual, Some(ordering)) => ordering.is_ne(),
            (Self::Less, Some(ordering)) => ordering.is_lt(),
            (Self::LessOrEqual, Some(ordering)) => ordering.is_le(),
            (Self::Greater, Some(ordering)) => ordering.is_gt(),
            (Self::GreaterOrEqual, Some(ordering)) => ordering.is_ge(),
        }
    }
}

/// Compares what has no code of the program's.
fn compare(found: &Bound<'_, PyAny>, operator: Operator, value: &Value) -> Option<bool> {
    if let Ok(number) = found.cast_exact::<PyFloat>() {
        let number = number.value();
        let ordering = match value {
            Value::Float(value) => number.partial_cmp(value),
            Value::Int(value) if value.abs() <= EXACT => number.partial_cmp(&(*value as f64)),
            _ => return None,
        };
        return Some(operator.accepts(ordering));
    }
    if found.is_exact_instance_of::<PyInt>() {
        return operator.holds(int_value::read_int(found)?, value);
    }
    if let Ok(flag) = found.cast_exact::<PyBool>() {
        return operator.holds(i64::from(flag.is_true()), value);
    }
    if let (Ok(text), Value::Text(value)) = (found.cast_exact::<PyString>(), value) {
        let ordering = text
            .to_str()
            .ok()?
            .cmp(value.bind(found.py()).to_str().ok()?);
        return Some(operator.accepts(Some(ordering)));
    }
    None
}

/// Of one of Python's own containers.
fn length(found: &Bound<'_, PyAny>) -> Option<i64> {
    let is_own = found.is_exact_instance_of::<PyList>()
        || found.is_exact_instance_of::<PyTuple>()
        || found.is_exact_instance_of::<PyDict>()
        || found.is_exact_instance_of::<PyString>()
        || found.is_exact_instance_of::<PySet>()
        || found.is_exact_instance_of::<PyFrozenSet>();
    is_own
        .then(|| found.len().ok())
        .flatten()
        .map(|length| length as i64)
}

/// An attribute that lies in the object itself; `None` when it may take code to get it.
#[expect(
    unsafe_code,
    reason = "asks the class what it has, without asking the program"
)]
fn plain_attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    let type_lookup = symbols().type_lookup?;
    let kind = object.get_type();
    // SAFETY: the GIL is held; the class lives as long as its object. What is looked up is borrowed and only compared.
    unsafe {
        let getter = ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_getattro);
        if getter != ffi::PyObject_GenericGetAttr as *mut _ {
            return None;
        }
        let of_class = type_lookup(kind.as_type_ptr(), name.as_ptr());
        if !of_class.is_null() && !is_slot(of_class) {
            return None;
        }
    }
    object.getattr(name).ok()
}

/// Whether what a class has is a place in its objects: `__slots__`.
#[expect(unsafe_code, reason = "looks at a borrowed object")]
unsafe fn is_slot(of_class: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's object is alive; its class is compared, nothing else.
    unsafe { ffi::Py_TYPE(of_class) == &raw mut ffi::PyMemberDescr_Type }
}
