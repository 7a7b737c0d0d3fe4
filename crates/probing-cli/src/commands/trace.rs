//! `probing trace`, `untrace`: functions that are followed in a target.

pub(crate) mod export;
mod perfetto;
mod rows;
mod spans;
mod text;

use anyhow::bail;
use probing_client::{ClientError, Entry, Reached, Target};
use probing_proto::process::Pid;
use probing_proto::report::TracesReport;
use probing_proto::trace::{Trace, TraceId, Traced};

use super::Aim;
use super::each::{self, Told};
use crate::arguments::{TraceArguments, Tracing, UntraceArguments};
use crate::exit::Status;

pub(crate) fn run(arguments: &TraceArguments, aim: &Aim) -> anyhow::Result<Status> {
    match arguments.wanted() {
        Tracing::Begin(wanted) => begin(wanted, arguments.json, aim),
        Tracing::List => each::tell(aim, arguments.json, |target, _| listed(target)),
        Tracing::Export(_) => bail!("the engine writes files of traces"),
    }
}

fn begin(wanted: Trace, is_json: bool, aim: &Aim) -> anyhow::Result<Status> {
    each::tell(aim, is_json, move |target, entry| {
        let Reached {
            mut probe,
            attached,
        } = target.connect(entry)?;
        let trace = probe.trace(wanted.clone())?;
        Ok(Shown {
            attached: attached.map(|report| super::attached(&probe, &report)),
            words: None,
            pid: Some(probe.hello().pid),
            lines: vec![text::begun(&trace)],
            traces: vec![trace],
        })
    })
}

/// What is traced. In a process without a probe, nothing is.
fn listed(target: &Target) -> anyhow::Result<Shown> {
    let (pid, traces) = match target.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { pid }) => (pid, Vec::new()),
        reached => {
            let mut probe = reached?.probe;
            (probe.hello().pid, probe.traces()?)
        }
    };
    Ok(Shown {
        attached: None,
        words: traces.is_empty().then(|| "nothing is traced".to_owned()),
        pid: Some(pid),
        lines: traces.iter().map(text::listed).collect(),
        traces,
    })
}

pub(crate) fn run_untrace(arguments: &UntraceArguments, aim: &Aim) -> anyhow::Result<Status> {
    let wanted = arguments.traces();
    each::tell(aim, arguments.json, move |target, _| {
        ended(target, wanted.clone())
    })
}

fn ended(target: &Target, wanted: Vec<TraceId>) -> anyhow::Result<Shown> {
    let (pid, traces) = match target.connect(&Entry::Forbidden) {
        Err(ClientError::NoProbe { .. }) if !wanted.is_empty() => {
            bail!("nothing is traced: there is no probe in it")
        }
        Err(ClientError::NoProbe { pid }) => (pid, Vec::new()),
        reached => {
            let mut probe = reached?.probe;
            (probe.hello().pid, probe.untrace(wanted)?)
        }
    };
    Ok(Shown {
        attached: None,
        words: traces.is_empty().then(|| "nothing was traced".to_owned()),
        pid: Some(pid),
        lines: traces.iter().map(text::ended).collect(),
        traces,
    })
}

/// Traces of one target.
struct Shown {
    attached: Option<String>,
    words: Option<String>,
    pid: Option<Pid>,
    lines: Vec<String>,
    traces: Vec<Traced>,
}

impl Told for Shown {
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
