//! This process as the kernel sees it: forks, signals, memory and files, without the interpreter.

pub(crate) mod credentials;
pub(crate) mod daemon;
pub(crate) mod fork_child;
pub(crate) mod fork_guard;
pub(crate) mod own_key;
pub(crate) mod per_process;
pub(crate) mod read_file;
pub(crate) mod read_memory;
pub(crate) mod signal_mask;
