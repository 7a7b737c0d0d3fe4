//! `probing attach`: brings the probe into targets.

use std::io::Write as _;
use std::time::Duration;

use probing_client::{ConnectedProbe, FanOutLimits};
use probing_proto::report::AttachedReport;

use crate::arguments::AttachArguments;
use crate::commands::TargetArgs;
use crate::commands::answers::MemberResults;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;
use probing_proto::text::visible;

/// Beyond the time that attaching may take by itself: for the files, and for the probe's first words.
const MARGIN: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &AttachArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
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
fn each(arguments: &AttachArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let entry = aim.entry.clone();
    let patience = arguments.timeout.saturating_add(MARGIN);
    let answers = MemberResults::of(&members, FanOutLimits::within(patience), move |member| {
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

fn words(ConnectedProbe { probe, attached }: &ConnectedProbe) -> String {
    let hello = probe.hello();
    match attached {
        Some(report) => crate::commands::attached(probe, report),
        None => format!(
            "the probe is in {} already (Python {})",
            hello.pid,
            visible::line(&hello.python)
        ),
    }
}

fn report(ConnectedProbe { probe, attached }: &ConnectedProbe) -> AttachedReport {
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
