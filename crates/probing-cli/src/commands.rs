//! One file per command: arguments → value → text.

pub(crate) mod completions;
pub(crate) mod detach;
pub(crate) mod eval;
pub(crate) mod list;
pub(crate) mod run;

use anyhow::Context as _;
use probing_client::{Probe, Target};

/// Connects to the target that the user named.
fn connect(target: Option<Target>) -> anyhow::Result<Probe> {
    let target = target.context("no target: name one with -t PID (`probing list` shows them)")?;
    Ok(target.connect()?)
}
