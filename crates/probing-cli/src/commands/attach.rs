//! `probing -t PID attach`

use std::io::Write as _;
use std::time::Duration;

use probing_client::{Manner, Reached};
use probing_proto::report::AttachedReport;

use super::Aim;
use super::answers::Answers;
use crate::arguments::AttachArguments;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;
use probing_proto::visible;

/// Beyond the time that attaching may take by itself: for the files, and for the probe's first words.
const MARGIN: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &AttachArguments, aim: &Aim) -> anyhow::Result<Status> {
    if aim.targets.one().is_none() {
        return each(arguments, aim);
    }
    let reached = aim.reach()?;
    if arguments.json {
        json::print(&report(&reached))?;
    } else {
        writeln!(terminal::stderr(), "{}", words(&reached))?;
    }
    Ok(exit::OK)
}

/// Into all of a set at the same time.
fn each(arguments: &AttachArguments, aim: &Aim) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let entry = aim.entry.clone();
    let patience = arguments.timeout.saturating_add(MARGIN);
    let answers = Answers::of(&members, Manner::within(patience), move |member| {
        Ok(member.target.connect(&entry)?)
    });
    let status = answers.status();
    if arguments.json {
        let reports = answers.report(|reached| report(&reached));
        json::print(&reports)?;
    } else {
        let mut err = terminal::stderr();
        for (who, reached) in answers.given() {
            writeln!(err, "{who}: {}", words(reached))?;
        }
        for line in answers.failures() {
            writeln!(err, "{line}")?;
        }
    }
    Ok(status)
}

fn words(Reached { probe, attached }: &Reached) -> String {
    let hello = probe.hello();
    match attached {
        Some(report) => super::attached(probe, report),
        None => format!(
            "the probe is in {} already (Python {})",
            hello.pid,
            visible::line(&hello.python)
        ),
    }
}

fn report(Reached { probe, attached }: &Reached) -> AttachedReport {
    let hello = probe.hello();
    AttachedReport {
        pid: hello.pid,
        python: hello.python.clone(),
        probe: hello.probe.clone(),
        strategy: attached.as_ref().map(|report| report.strategy.to_string()),
        paused_seconds: attached.as_ref().map(|report| report.paused.as_secs_f64()),
        took_seconds: attached.as_ref().map(|report| report.took.as_secs_f64()),
    }
}
