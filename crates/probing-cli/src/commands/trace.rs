//! `probing trace`, `untrace`: functions that are followed in a target.

pub(crate) mod export;
mod perfetto;
mod rows;
mod spans;
mod text;

use anyhow::bail;
use probing_client::{ClientError, ConnectedProbe, Entry, Target};
use probing_proto::message::trace::{Trace, TraceId, TraceStatus};
use probing_proto::process::Pid;
use probing_proto::report::TracesReport;

use crate::arguments::{TraceArguments, Tracing, UntraceArguments};
use crate::commands::TargetArgs;
use crate::commands::fan_out::{self, CommandOutput};
use crate::exit::Status;

pub(crate) fn run(arguments: &TraceArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    match arguments.wanted() {
        Tracing::Begin(wanted) => begin(wanted, arguments.json, aim),
        Tracing::List => fan_out::tell(aim, arguments.json, |target, _| listed(target)),
        Tracing::Export(_) => bail!("the engine writes files of traces"),
    }
}

fn begin(wanted: Trace, is_json: bool, aim: &TargetArgs) -> anyhow::Result<Status> {
    fan_out::tell(aim, is_json, move |target, entry| {
        let ConnectedProbe {
            mut probe,
            attached,
        } = target.connect(entry)?;
        let trace = probe.trace(wanted.clone())?;
        Ok(TraceListing {
            attached: attached.map(|report| crate::commands::attached(&probe, &report)),
            words: None,
            pid: Some(probe.hello().pid),
            lines: vec![text::begun(&trace)],
            traces: vec![trace],
        })
    })
}

/// What is traced. In a process without a probe, nothing is.
fn listed(target: &Target) -> anyhow::Result<TraceListing> {
    let (pid, traces) = match target.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { pid }) => (pid, Vec::new()),
        reached => {
            let mut probe = reached?.probe;
            (probe.hello().pid, probe.traces()?)
        }
    };
    Ok(TraceListing {
        attached: None,
        words: traces.is_empty().then(|| "nothing is traced".to_owned()),
        pid: Some(pid),
        lines: traces.iter().map(text::listed).collect(),
        traces,
    })
}

pub(crate) fn run_untrace(
    arguments: &UntraceArguments,
    aim: &TargetArgs,
) -> anyhow::Result<Status> {
    let wanted = arguments.traces();
    fan_out::tell(aim, arguments.json, move |target, _| {
        ended(target, wanted.clone())
    })
}

fn ended(target: &Target, wanted: Vec<TraceId>) -> anyhow::Result<TraceListing> {
    let (pid, traces) = match target.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { .. }) if !wanted.is_empty() => {
            bail!("nothing is traced: the process has no probe")
        }
        Err(ClientError::NoProbe { pid }) => (pid, Vec::new()),
        reached => {
            let mut probe = reached?.probe;
            (probe.hello().pid, probe.untrace(wanted)?)
        }
    };
    Ok(TraceListing {
        attached: None,
        words: traces.is_empty().then(|| "nothing was traced".to_owned()),
        pid: Some(pid),
        lines: traces.iter().map(text::ended).collect(),
        traces,
    })
}

/// Traces of one target.
struct TraceListing {
    attached: Option<String>,
    words: Option<String>,
    pid: Option<Pid>,
    lines: Vec<String>,
    traces: Vec<TraceStatus>,
}

impl CommandOutput for TraceListing {
    type Report = TracesReport;

    fn attached(&self) -> Option<&str> {
        self.attached.as_deref()
    }

    fn lines(&self) -> Vec<String> {
        self.lines.clone()
    }

    fn words(&self) -> Vec<String> {
        self.words.iter().cloned().collect()
    }

    fn report(self) -> TracesReport {
        TracesReport {
            pid: self.pid,
            traces: self.traces,
        }
    }
}
