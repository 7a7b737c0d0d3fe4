//! `probing break`, `watch`, `breakpoints` and `delete`: sets, lists and deletes breakpoints.

mod follow;
pub(crate) mod text;
mod writes;

use anyhow::{Context as _, bail};
use probing_client::{ClientError, ConnectedProbe, Entry, Target};
use probing_proto::message::breakpoints::{Breakpoint, BreakpointId, SetBreakpoint};
use probing_proto::process::Pid;
use probing_proto::report::BreakpointsReport;

use crate::arguments::{
    BreakArguments, BreakpointsArguments, DeleteArguments, OutputArgs, WatchArguments, Watching,
};
use crate::commands::TargetArgs;
use crate::commands::fan_out::{self, CommandOutput};
use crate::exit::Status;

pub(crate) fn run_break(arguments: &BreakArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    arm(arguments.request(), arguments.shown, aim)
}

pub(crate) fn run_watch(arguments: &WatchArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    match arguments.watching().context("nothing to watch")? {
        Watching::Breakpoint(this) => arm(*this, arguments.shown, aim),
        Watching::Bytes(watch) => writes::run(&watch, aim),
    }
}

fn arm(arm: SetBreakpoint, shown: OutputArgs, aim: &TargetArgs) -> anyhow::Result<Status> {
    if shown.follow {
        return follow::run(&arm, aim);
    }
    fan_out::tell(aim, shown.json, move |target, entry| {
        let ConnectedProbe {
            mut probe,
            attached,
        } = target.connect(entry)?;
        let point = probe.arm(arm.clone())?;
        Ok(CreatedBreakpoint {
            attached: attached.map(|report| crate::commands::attached(&probe, &report)),
            pid: probe.hello().pid,
            point,
        })
    })
}

pub(crate) fn run_list(
    arguments: &BreakpointsArguments,
    aim: &TargetArgs,
) -> anyhow::Result<Status> {
    fan_out::tell(aim, arguments.json, |target, _| listed(target))
}

/// The breakpoints that are set. A process without a probe has none.
fn listed(target: &Target) -> anyhow::Result<BreakpointListing> {
    let reached = match target.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { pid }) => {
            let (pid, points) = (Some(pid), Vec::new());
            return Ok(BreakpointListing { pid, points });
        }
        reached => reached,
    };
    let mut probe = reached?.probe;
    Ok(BreakpointListing {
        pid: Some(probe.hello().pid),
        points: probe.points()?,
    })
}

pub(crate) fn run_delete(arguments: &DeleteArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let wanted = arguments.points();
    fan_out::tell(aim, arguments.json, move |target, _| {
        disarmed(target, wanted.clone())
    })
}

fn disarmed(target: &Target, wanted: Vec<BreakpointId>) -> anyhow::Result<DeletedBreakpoints> {
    let reached = match target.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { .. }) if !wanted.is_empty() => {
            bail!("no breakpoints are set: the process has no probe")
        }
        Err(ClientError::NoProbe { pid }) => {
            let (pid, points) = (Some(pid), Vec::new());
            return Ok(DeletedBreakpoints { pid, points });
        }
        reached => reached,
    };
    let mut probe = reached?.probe;
    Ok(DeletedBreakpoints {
        pid: Some(probe.hello().pid),
        points: probe.disarm(wanted)?,
    })
}

/// A breakpoint that was set.
struct CreatedBreakpoint {
    attached: Option<String>,
    pid: Pid,
    point: Breakpoint,
}

impl CommandOutput for CreatedBreakpoint {
    type Report = BreakpointsReport;

    fn attached(&self) -> Option<&str> {
        self.attached.as_deref()
    }

    fn lines(&self) -> Vec<String> {
        vec![text::armed(&self.point)]
    }

    fn words(&self) -> Vec<String> {
        Vec::new()
    }

    fn report(self) -> BreakpointsReport {
        BreakpointsReport {
            pid: Some(self.pid),
            points: vec![self.point],
        }
    }
}

/// The breakpoints that are set.
struct BreakpointListing {
    pid: Option<Pid>,
    points: Vec<Breakpoint>,
}

impl CommandOutput for BreakpointListing {
    type Report = BreakpointsReport;

    fn lines(&self) -> Vec<String> {
        self.points.iter().map(text::listed).collect()
    }

    fn words(&self) -> Vec<String> {
        let nothing = self.points.is_empty();
        nothing
            .then(|| "no breakpoints are set".to_owned())
            .into_iter()
            .collect()
    }

    fn report(self) -> BreakpointsReport {
        let Self { pid, points } = self;
        BreakpointsReport { pid, points }
    }
}

/// The breakpoints that were deleted.
struct DeletedBreakpoints {
    pid: Option<Pid>,
    points: Vec<Breakpoint>,
}

impl CommandOutput for DeletedBreakpoints {
    type Report = BreakpointsReport;

    fn lines(&self) -> Vec<String> {
        self.points.iter().map(text::disarmed).collect()
    }

    fn words(&self) -> Vec<String> {
        let nothing = self.points.is_empty();
        nothing
            .then(|| "no breakpoints were set".to_owned())
            .into_iter()
            .collect()
    }

    fn report(self) -> BreakpointsReport {
        let Self { pid, points } = self;
        BreakpointsReport { pid, points }
    }
}
