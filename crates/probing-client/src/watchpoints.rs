//! Watchpoints: writes to some bytes of a process, seen from outside by debug registers.

pub(crate) mod proof;
pub(crate) mod writes;
