//! `probing -t PID attach`

use std::io::Write as _;

use probing_client::Reached;
use probing_proto::report::AttachedReport;

use super::Aim;
use crate::arguments::AttachArguments;
use crate::exit::{self, Status};

pub(crate) fn run(arguments: &AttachArguments, aim: &Aim) -> anyhow::Result<Status> {
    let Reached { probe, attached } = aim.reach()?;
    let hello = probe.hello();
    if arguments.json {
        let report = AttachedReport {
            pid: hello.pid,
            python: hello.python.clone(),
            probe: hello.probe.clone(),
            strategy: attached.as_ref().map(|report| report.strategy.to_string()),
            paused_seconds: attached.as_ref().map(|report| report.paused.as_secs_f64()),
            took_seconds: attached.as_ref().map(|report| report.took.as_secs_f64()),
        };
        writeln!(
            anstream::stdout(),
            "{}",
            serde_json::to_string_pretty(&report)?
        )?;
    } else if let Some(report) = attached {
        super::say_attached(&probe, &report)?;
    } else {
        writeln!(
            anstream::stderr(),
            "the probe is in {} already (Python {})",
            hello.pid,
            hello.python
        )?;
    }
    Ok(exit::OK)
}
