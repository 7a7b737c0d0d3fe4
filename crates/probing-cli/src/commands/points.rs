//! `probing break`, `watch`, `breakpoints`, `disarm`: what is armed in a target.

mod follow;
pub(crate) mod text;
mod writes;

use anyhow::{Context as _, bail};
use probing_client::{ClientError, Entry, Reached, Target};
use probing_proto::process::Pid;
use probing_proto::report::PointsReport;
use probing_proto::stops::{Arm, Point, PointId};

use super::Aim;
use super::each::{self, Told};
use crate::arguments::{
    BreakArguments, BreakpointsArguments, DisarmArguments, Shown, WatchArguments, Watching,
};
use crate::exit::Status;

pub(crate) fn run_break(arguments: &BreakArguments, aim: &Aim) -> anyhow::Result<Status> {
    arm(arguments.arm(), arguments.shown, aim)
}

pub(crate) fn run_watch(arguments: &WatchArguments, aim: &Aim) -> anyhow::Result<Status> {
    match arguments.watching().context("nothing to watch")? {
        Watching::Point(this) => arm(*this, arguments.shown, aim),
        Watching::Bytes(watch) => writes::run(&watch, aim),
    }
}

fn arm(arm: Arm, shown: Shown, aim: &Aim) -> anyhow::Result<Status> {
    if shown.follow {
        return follow::run(&arm, aim);
    }
    each::tell(aim, shown.json, move |target, entry| {
        let Reached {
            mut probe,
            attached,
        } = target.connect(entry)?;
        let point = probe.arm(arm.clone())?;
        Ok(Armed {
            attached: attached.map(|report| super::attached(&probe, &report)),
            pid: probe.hello().pid,
            point,
        })
    })
}

pub(crate) fn run_list(arguments: &BreakpointsArguments, aim: &Aim) -> anyhow::Result<Status> {
    each::tell(aim, arguments.json, |target, _| listed(target))
}

/// What is armed. In a process without a probe, nothing is.
fn listed(target: &Target) -> anyhow::Result<Listed> {
    let reached = match target.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { pid }) => {
            let (pid, points) = (Some(pid), Vec::new());
            return Ok(Listed { pid, points });
        }
        reached => reached,
    };
    let mut probe = reached?.probe;
    Ok(Listed {
        pid: Some(probe.hello().pid),
        points: probe.points()?,
    })
}

pub(crate) fn run_disarm(arguments: &DisarmArguments, aim: &Aim) -> anyhow::Result<Status> {
    let wanted = arguments.points();
    each::tell(aim, arguments.json, move |target, _| {
        disarmed(target, wanted.clone())
    })
}

fn disarmed(target: &Target, wanted: Vec<PointId>) -> anyhow::Result<Disarmed> {
    let reached = match target.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { .. }) if !wanted.is_empty() => {
            bail!("nothing is armed: there is no probe in it")
        }
        Err(ClientError::NoProbe { pid }) => {
            let (pid, points) = (Some(pid), Vec::new());
            return Ok(Disarmed { pid, points });
        }
        reached => reached,
    };
    let mut probe = reached?.probe;
    Ok(Disarmed {
        pid: Some(probe.hello().pid),
        points: probe.disarm(wanted)?,
    })
}

/// What was armed.
struct Armed {
    attached: Option<String>,
    pid: Pid,
    point: Point,
}

impl Told for Armed {
    type Report = PointsReport;

    fn attached(&self) -> Option<&str> {
        self.attached.as_deref()
    }

    fn lines(&self) -> Vec<String> {
        vec![text::armed(&self.point)]
    }

    fn words(&self) -> Vec<String> {
        Vec::new()
    }

    fn report(self) -> PointsReport {
        PointsReport {
            pid: Some(self.pid),
            points: vec![self.point],
        }
    }
}

/// What is armed.
struct Listed {
    pid: Option<Pid>,
    points: Vec<Point>,
}

impl Told for Listed {
    type Report = PointsReport;

    fn lines(&self) -> Vec<String> {
        self.points.iter().map(text::listed).collect()
    }

    fn words(&self) -> Vec<String> {
        let nothing = self.points.is_empty();
        nothing
            .then(|| "nothing is armed".to_owned())
            .into_iter()
            .collect()
    }

    fn report(self) -> PointsReport {
        let Self { pid, points } = self;
        PointsReport { pid, points }
    }
}

/// What is armed no more.
struct Disarmed {
    pid: Option<Pid>,
    points: Vec<Point>,
}

impl Told for Disarmed {
    type Report = PointsReport;

    fn lines(&self) -> Vec<String> {
        self.points.iter().map(text::disarmed).collect()
    }

    fn words(&self) -> Vec<String> {
        let nothing = self.points.is_empty();
        nothing
            .then(|| "nothing was armed".to_owned())
            .into_iter()
            .collect()
    }

    fn report(self) -> PointsReport {
        let Self { pid, points } = self;
        PointsReport { pid, points }
    }
}
