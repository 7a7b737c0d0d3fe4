//! Inspection: values of local variables and live objects, in bounded words.

pub(crate) mod elements;
pub(crate) mod format;
pub(crate) mod locals;
pub(crate) mod objects;
pub(crate) mod tensors;
pub(crate) mod variables;
