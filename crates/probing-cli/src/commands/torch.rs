//! `probing torch on|off|status`: switches the recorder of torch.

use probing_client::{ClientError, ConnectedProbe, Entry, Target};
use probing_proto::message::torch::{MemoryRead, TorchCall, TorchState, TorchStatus};
use probing_proto::process::Pid;
use probing_proto::report::TorchReport;

use crate::arguments::TorchArguments;
use crate::commands::TargetArgs;
use crate::commands::fan_out::{self, CommandOutput};
use crate::exit::Status;

pub(crate) fn run(arguments: &TorchArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let call = arguments.call();
    fan_out::tell(aim, arguments.json(), move |target, entry| {
        asked(target, entry, &call)
    })
}

/// Without a probe, nothing is recorded.
fn asked(target: &Target, entry: &Entry, call: &TorchCall) -> anyhow::Result<Answered> {
    let ConnectedProbe {
        mut probe,
        attached,
    } = match target.connect(entry) {
        Err(ClientError::NoProbe { pid }) if !matches!(call, TorchCall::On(_)) => {
            return Ok(Answered {
                attached: None,
                pid: Some(pid),
                status: None,
            });
        }
        reached => reached?,
    };
    Ok(Answered {
        attached: attached.map(|report| crate::commands::attached(&probe, &report)),
        pid: Some(probe.hello().pid),
        status: Some(probe.torch(call.clone())?),
    })
}

struct Answered {
    attached: Option<String>,
    pid: Option<Pid>,
    /// None where there is no probe.
    status: Option<TorchStatus>,
}

impl CommandOutput for Answered {
    type Report = TorchReport;

    fn attached(&self) -> Option<&str> {
        self.attached.as_deref()
    }

    fn lines(&self) -> Vec<String> {
        let Some(status) = &self.status else {
            return vec!["off (the process has no probe)".to_owned()];
        };
        describe_status(status)
    }

    fn words(&self) -> Vec<String> {
        let note = self.status.iter().filter_map(|status| status.note.as_ref());
        note.map(|note| format!("note: {note}")).collect()
    }

    fn report(self) -> TorchReport {
        TorchReport {
            pid: self.pid,
            torch: self.status,
        }
    }
}

fn describe_status(status: &TorchStatus) -> Vec<String> {
    let version = status.version.as_deref();
    let torch = version.map_or_else(String::new, |version| format!(" (torch {version})"));
    let wanted = &status.options;
    let mut lines = vec![match status.state {
        TorchState::Off => format!("off{torch}"),
        TorchState::Waiting => "waiting for the program to import torch".to_owned(),
        TorchState::On => {
            let by = status.by.as_deref().unwrap_or("nothing");
            format!("on, by {by}{torch}")
        }
    }];
    if status.state == TorchState::Off {
        return lines;
    }
    if let Some(trace) = &wanted.trace {
        let memory = match trace.memory {
            MemoryRead::Never => "never read",
            MemoryRead::Step => "read once in a step",
            MemoryRead::Module => "read after each module",
        };
        let every = one_of(trace.every);
        lines.push(format!("trace: {every}; memory of a GPU {memory}"));
    }
    if let Some(tensors) = &wanted.tensors {
        let kinds: Vec<&str> = tensors.kinds.iter().map(|kind| kind.name()).collect();
        let only = match tensors.only.as_slice() {
            [] => String::new(),
            only => format!(", only {}", only.join(", ")),
        };
        let every = one_of(tensors.every);
        lines.push(format!("tensors: {every}; {}{only}", kinds.join(", ")));
    }
    if wanted.nan {
        lines.push(format!("nan: watched; {} found", status.findings));
    }
    if status.state == TorchState::Waiting {
        return lines;
    }
    lines.push(match &status.roots[..] {
        [] => "no model seen yet: models are found when they are called".to_owned(),
        roots => format!("models: {} ({} modules)", roots.join(", "), status.modules),
    });
    if let Some(step) = status.step {
        let counted = match status.counted_by.as_deref() {
            Some("program") => ", as the program counts".to_owned(),
            Some(optimizer) => format!(", counted by steps of {optimizer}"),
            None => String::new(),
        };
        lines.push(format!("step: {step}{counted}"));
    }
    lines
}

fn one_of(every: u32) -> String {
    match every {
        1 => "every step".to_owned(),
        every => format!("one of {every} steps"),
    }
}
