//! Inspection: values of local variables and live objects, in bounded words.

pub(crate) mod locals;
pub(crate) mod objects;
