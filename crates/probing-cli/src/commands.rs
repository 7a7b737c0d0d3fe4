//! One file per command: arguments → value → text.

pub(crate) mod agent;
mod answers;
pub(crate) mod attach;
pub(crate) mod backtrace;
pub(crate) mod breakpoints;
pub(crate) mod capture;
pub(crate) mod clean;
pub(crate) mod collectives;
pub(crate) mod completions;
pub(crate) mod connect;
pub(crate) mod dap;
pub(crate) mod debug;
pub(crate) mod detach;
pub(crate) mod eval;
pub(crate) mod export;
mod fan_out;
pub(crate) mod flamegraph;
pub(crate) mod leak;
mod line_editor;
pub(crate) mod list;
pub(crate) mod memory;
pub(crate) mod query;
pub(crate) mod repl;
pub(crate) mod run;
mod screen;
pub(crate) mod stops;
pub(crate) mod top;
pub(crate) mod torch;
pub(crate) mod trace;
pub(crate) mod watch_nan;

use std::io::Write as _;

use anyhow::ensure;
use probing_client::{
    AttachReport, ConnectedProbe, Entry, Group, Members, Probe, Target, TargetSet,
};
use probing_proto::text::visible;

use crate::terminal;

/// The targets that the user named, and what to do when one has no probe.
#[derive(Debug)]
pub(crate) struct TargetArgs {
    pub(crate) targets: TargetSet,
    pub(crate) entry: Entry,
}

impl TargetArgs {
    /// The one target of a command that is for one.
    fn target(&self) -> anyhow::Result<Target> {
        self.check_named()?;
        Ok(self.targets.sole()?)
    }

    /// All targets of a command that is for several.
    fn members(&self) -> anyhow::Result<Members> {
        self.check_named()?;
        Ok(self.targets.members()?)
    }

    fn check_named(&self) -> anyhow::Result<()> {
        ensure!(
            !self.targets.is_empty(),
            "no target: name one with -t PID (`probing list` shows them)"
        );
        Ok(())
    }

    fn reach(&self) -> anyhow::Result<ConnectedProbe> {
        Ok(self.target()?.connect(&self.entry)?)
    }

    /// Connects, and says so when the probe had to be brought in first.
    fn connect(&self) -> anyhow::Result<Probe> {
        self.connect_to(&self.target()?)
    }

    /// The same for one that is known.
    fn connect_to(&self, target: &Target) -> anyhow::Result<Probe> {
        let ConnectedProbe { probe, attached } = target.connect(&self.entry)?;
        if let Some(report) = attached {
            say_attached(&probe, &report)?;
        }
        Ok(probe)
    }
}

fn say_attached(probe: &Probe, report: &AttachReport) -> std::io::Result<()> {
    writeln!(terminal::stderr(), "{}", attached(probe, report))
}

/// The same of several.
fn say_attached_to(those: &Group) -> std::io::Result<()> {
    if those.count() == 0 {
        return Ok(());
    }
    writeln!(terminal::stderr(), "attached to {those}")
}

fn attached(probe: &Probe, report: &AttachReport) -> String {
    let hello = probe.hello();
    format!(
        "attached to {} (Python {}, {}, paused {:.1} ms)",
        probe.process(),
        visible::line(&hello.python),
        report.strategy,
        report.paused.as_secs_f64() * 1e3
    )
}
