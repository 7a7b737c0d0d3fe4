//! Python: the interpreter's structures, read from the target's memory.

pub(crate) mod code;
pub(crate) mod frames;
pub(crate) mod interpreter;
pub(crate) mod layout;
pub(crate) mod line_table;
pub(crate) mod objects;
pub(crate) mod thread_names;
pub(crate) mod thread_states;
