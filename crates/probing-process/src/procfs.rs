//! Files of `/proc`: processes and threads as the kernel shows them.

pub mod maps;
pub mod processes;
pub mod status;
pub(crate) mod system_calls;
pub mod threads;
pub mod usage;
