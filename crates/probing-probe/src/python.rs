//! The interpreter: what every subsystem uses of it, from calls to code objects.

pub(crate) mod call;
pub(crate) mod code_search;
pub(crate) mod compile;
pub(crate) mod current_thread;
pub(crate) mod embedded;
pub(crate) mod exc_info;
pub(crate) mod frame;
pub(crate) mod gc_walk;
pub(crate) mod gil_cell;
pub(crate) mod ignored_code;
pub(crate) mod immortal;
pub(crate) mod import_finder;
pub(crate) mod int_value;
pub(crate) mod interned;
pub(crate) mod main_thread_name;
pub(crate) mod monitoring;
pub(crate) mod recursion;
pub(crate) mod signal_handlers;
pub(crate) mod source_lines;
pub(crate) mod symbols;
pub(crate) mod thread_state;
pub(crate) mod weak;
