//! `probing memory`: switches the tracers of memory.

use probing_client::{ClientError, ConnectedProbe, Entry, Probe, Target};
use probing_proto::message::recorders::{Tracer, TracerCall, TracerState};
use probing_proto::process::Pid;
use probing_proto::report::TracersReport;

use crate::arguments::{MemoryArguments, Switch};
use crate::commands::TargetArgs;
use crate::commands::fan_out::{self, CommandOutput};
use crate::exit::Status;

pub(crate) fn run(arguments: &MemoryArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let (switch, no_heap) = (arguments.switch, arguments.no_heap);
    fan_out::tell(aim, arguments.json, move |target, entry| {
        let on = switch.on();
        let all = [Tracer::Memory, Tracer::Heap];
        let tracers = if no_heap { &all[..1] } else { &all[..] };
        let calls: Vec<TracerCall> = tracers
            .iter()
            .map(|&tracer| TracerCall {
                tracer,
                on,
                borrowed: false,
            })
            .collect();
        // What is not there cannot be on: nobody is let in for that.
        let entry = if switch == Switch::On {
            entry
        } else {
            &Entry::Forbidden
        };
        switched(target, entry, &calls)
    })
}

/// Switches tracers of one target.
pub(super) fn switched(
    target: &Target,
    entry: &Entry,
    calls: &[TracerCall],
) -> anyhow::Result<Switched> {
    let reached = match target.connect(entry) {
        Err(ClientError::NoProbe { pid }) if !calls.iter().any(|call| call.on == Some(true)) => {
            return Ok(Switched::without_probe(pid, calls));
        }
        reached => reached?,
    };
    let ConnectedProbe {
        mut probe,
        attached,
    } = reached;
    Ok(Switched {
        attached: attached.map(|report| crate::commands::attached(&probe, &report)),
        pid: probe.hello().pid,
        states: states(&mut probe, calls)?,
    })
}

fn states(probe: &mut Probe, calls: &[TracerCall]) -> Result<Vec<TracerState>, ClientError> {
    calls.iter().map(|call| probe.tracer(*call)).collect()
}

/// How tracers are now.
pub(super) struct Switched {
    attached: Option<String>,
    pid: Pid,
    states: Vec<TracerState>,
}

impl Switched {
    fn without_probe(pid: Pid, calls: &[TracerCall]) -> Self {
        let off = |call: &TracerCall| TracerState {
            tracer: call.tracer,
            on: false,
            was_on: false,
            note: None,
            job: None,
        };
        Self {
            attached: None,
            pid,
            states: calls.iter().map(off).collect(),
        }
    }
}

impl CommandOutput for Switched {
    type Report = TracersReport;

    fn attached(&self) -> Option<&str> {
        self.attached.as_deref()
    }

    fn lines(&self) -> Vec<String> {
        self.states.iter().map(line).collect()
    }

    fn words(&self) -> Vec<String> {
        let notes = self.states.iter().filter_map(|state| state.note.clone());
        notes.collect()
    }

    fn report(self) -> TracersReport {
        TracersReport {
            pid: Some(self.pid),
            tracers: self.states,
        }
    }
}

fn line(state: &TracerState) -> String {
    let (name, rows) = match state.tracer {
        Tracer::Memory => ("memory", "python.memory: every second, and at every step"),
        Tracer::Heap => (
            "heap",
            "python.heap: every ten seconds, by samples of allocations",
        ),
        Tracer::Collectives => (
            "collectives",
            "python.collectives: every collective operation",
        ),
        Tracer::Nan => ("nan", "python.tensors: NaN and Inf values"),
    };
    match (state.on, state.was_on) {
        (true, true) => format!("{name} is on; {rows}"),
        (true, false) => format!("{name} is on now; {rows}"),
        (false, true) => format!("{name} is off now"),
        (false, false) => format!("{name} is off"),
    }
}
