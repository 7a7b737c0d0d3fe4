//! Injection: source that a borrowed thread of the target runs.

pub(crate) mod epoll_wait;
pub(crate) mod gadgets;
pub(crate) mod hijacked_thread;
pub(crate) mod inject;
pub(crate) mod leftovers;
pub(crate) mod memory;
pub(crate) mod pending_calls;
pub(crate) mod presence;
pub(crate) mod ptrace;
pub(crate) mod remote_block;
pub(crate) mod seccomp;
pub(crate) mod thread_choice;
pub(crate) mod thread_storage;
pub(crate) mod tracee;
