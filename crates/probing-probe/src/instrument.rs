//! Instrumented code: how Python 3.10 and 3.11, which have no `sys.monitoring`, report events.

pub(crate) mod probe_call;
pub(crate) mod profile;
pub(crate) mod settrace;
pub(crate) mod sites;
pub(crate) mod trace_instrument;
