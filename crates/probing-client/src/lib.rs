//! Finds the processes that can be looked at, and talks to the probes in them.
//!
//! Every wait has a deadline: a target that is stopped, hung or gone is an answer, too.

mod attach;
mod connection;
mod error;
mod list;
mod meeting;
mod package;
mod probe;
mod processes;
mod stacks;
mod target;

pub use error::ClientError;
pub use list::list;
pub use package::package_dir;
pub use probe::{Canceller, EvalEnd, Probe};
pub use target::{Entry, Reached, Target};

pub use probing_attach::{Options as AttachOptions, Report as AttachReport};
