//! For tests: starts real targets on every Python found, runs the command, reads what both say.
//!
//! Nobody sleeps: a target prints `ready` when it is, and ends when its standard input does. Every wait has a deadline
//! far beyond what a loaded machine needs, so that it tells a hang and never a slow day.

mod command;
mod console;
mod docs;
mod obeyed;
mod process;
mod pythons;
mod sandbox;
mod screen;
mod socket;
mod switches;
mod target;
mod terminal;

pub use command::CommandResult;
pub use console::{Console, Step, console_blocks, needs_torch, scrubbed};
pub use docs::{Document, documents};
pub use obeyed::{EVIL, EVIL_SHOWN, evil_in, forged, obeyed};
pub use process::{Usage, wait_until};
pub use pythons::{Python, every_python, every_torch};
pub use sandbox::Sandbox;
pub use screen::Screen;
pub use socket::RawClient;
pub use switches::{Switch, Switchboard, Switching};
pub use target::{EndedTarget, Target, TargetBuilder};
pub use terminal::Terminal;

use std::path::PathBuf;
use std::time::Duration;

/// After this, something hangs. A launcher and its ranks load torch one after the other, 5 seconds of CPU each.
pub const DEADLINE: Duration = Duration::from_mins(3);

/// The checkout.
pub fn root() -> PathBuf {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    crates
        .ancestors()
        .nth(2)
        .map(PathBuf::from)
        .unwrap_or_default()
}
