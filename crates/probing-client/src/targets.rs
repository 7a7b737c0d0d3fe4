//! Targets: the processes that a command line selects, and facts about each.

pub(crate) mod attach;
pub(crate) mod candidate;
pub(crate) mod list;
pub(crate) mod offered;
pub(crate) mod proc_info;
pub(crate) mod roles;
pub(crate) mod samples;
pub(crate) mod session;
pub(crate) mod set;
pub(crate) mod stacks;
pub(crate) mod stuck;
pub(crate) mod target;
