//! Names of attributes that are interned without a release of the GIL.
//!
//! `pyo3::intern!` lets go of it when it makes one: whoever holds a lock then, or is in the middle of an
//! assignment, would meet another thread there.

macro_rules! interned {
    ($py:expr, $name:literal) => {{
        static NAME: std::sync::OnceLock<pyo3::Py<pyo3::types::PyString>> =
            std::sync::OnceLock::new();
        NAME.get_or_init(|| pyo3::types::PyString::intern($py, $name).unbind())
            .bind($py)
    }};
}

pub(crate) use interned;
