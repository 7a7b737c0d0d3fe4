//! Names of classes, which nothing of the program is asked for.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::call::call;
use crate::python::text::text_of;

/// The name of a value's class.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    name_of(value.get_type().as_any())
}

/// The name of a class, which no metaclass of the program's is asked for.
pub(crate) fn name_of(class: &Bound<'_, PyAny>) -> String {
    static NAME_OF: OnceLock<Option<Py<PyAny>>> = OnceLock::new();
    let py = class.py();
    let teller = NAME_OF.get_or_init(|| {
        let names = py.get_type::<PyType>().getattr("__dict__").ok()?;
        let getter = names.get_item("__name__").ok()?.getattr("__get__");
        getter.ok().map(Bound::unbind)
    });
    let name = teller
        .as_ref()
        .and_then(|it| call(it.bind(py), (class,)).ok());
    name.map_or_else(|| "object".to_owned(), |name| text_of(&name))
}
