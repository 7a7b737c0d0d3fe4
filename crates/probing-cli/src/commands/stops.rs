//! `probing stops`, `release`: threads that have stopped at breakpoints.

use anyhow::bail;
use probing_client::{ClientError, Entry, Probe, Target};
use probing_proto::message::breakpoints::Stop;
use probing_proto::process::Pid;
use probing_proto::report::StopsReport;

use crate::arguments::{ResumeArguments, StopsArguments};
use crate::commands::TargetArgs;
use crate::commands::breakpoints::text;
use crate::commands::fan_out::{self, CommandOutput};
use crate::exit::Status;

pub(crate) fn run_list(arguments: &StopsArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    fan_out::tell(aim, arguments.json, |target, _| {
        let (pid, stops) = match reached(target)? {
            Ok(mut probe) => (probe.hello().pid, probe.stops()?),
            Err(pid) => (pid, Vec::new()),
        };
        let pid = Some(pid);
        Ok(StopListing(StopsReport { pid, stops }))
    })
}

pub(crate) fn run_resume(arguments: &ResumeArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let wanted = arguments.stops();
    fan_out::tell(aim, arguments.json, move |target, _| {
        let (pid, stops) = match reached(target)? {
            Ok(mut probe) => (probe.hello().pid, probe.release(wanted.clone())?),
            Err(pid) if wanted.is_empty() => (pid, Vec::new()),
            Err(_) => bail!("no thread is stopped: the process has no probe"),
        };
        let pid = Some(pid);
        Ok(ResumedStops(StopsReport { pid, stops }))
    })
}

/// The probe; else the pid of a process that has none.
fn reached(target: &Target) -> Result<Result<Probe, Pid>, ClientError> {
    match target.connect(&Entry::Forbidden) {
        Ok(reached) => Ok(Ok(reached.probe)),
        Err(ClientError::NoProbe { pid }) => Ok(Err(pid)),
        Err(error) => Err(error),
    }
}

/// Those that are stopped.
struct StopListing(StopsReport);

impl CommandOutput for StopListing {
    type Report = StopsReport;

    fn lines(&self) -> Vec<String> {
        self.0.stops.iter().map(text::stop).collect()
    }

    fn words(&self) -> Vec<String> {
        words(&self.0.stops, "no thread is stopped")
    }

    fn report(self) -> StopsReport {
        self.0
    }
}

/// The resumed ones.
struct ResumedStops(StopsReport);

impl CommandOutput for ResumedStops {
    type Report = StopsReport;

    fn lines(&self) -> Vec<String> {
        self.0.stops.iter().map(text::released).collect()
    }

    fn words(&self) -> Vec<String> {
        words(&self.0.stops, "no thread was stopped")
    }

    fn report(self) -> StopsReport {
        self.0
    }
}

fn words(stops: &[Stop], nothing: &str) -> Vec<String> {
    let nothing = stops.is_empty().then(|| nothing.to_owned());
    nothing.into_iter().collect()
}
