//! Arguments of `probing watch`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use probing_client::{StrayTraps, WatchedMemory as WatchedBytes};
use probing_proto::message::breakpoints::{Action, BreakpointLocation, SetBreakpoint};

use crate::arguments::NamedTargets;
use crate::arguments::breakpoints::{ActionArg, BreakpointOptions, OutputArgs, is_dotted};

/// Heading of the options for watched bytes.
const MEMORY: &str = "Memory";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 watch train_step:lr                  watch the local variable lr of train_step
  probing -t 4242 watch config.lr --stop               stop the thread that writes it
  probing -t 4242 watch \"cfg['lr']\" --if 'step > 100'
  probing -t 4242 watch module.NAME --follow           show each change as it happens
  probing -t 4242 watch model.fc1.weight --stats       watch a tensor and its statistics
  probing -t 4242 watch env:CUDA_VISIBLE_DEVICES
  probing -t 4242 watch --storage 'weight[3, 5]'       watch the bytes of an element
  probing -t 4242 watch --addr 0x7f0012345678 --len 4 --for 30s

Each change is a row of python.variables: old and new value, file, line, function, thread, time. The
answer names the mechanism and its cost: from Python 3.12 on, only code that writes a variable runs
slower; tensors, items of lists and __slots__ are compared at each line.

Bytes of memory (--addr, --storage) are watched by debug registers until Ctrl-C. Thread, time and
native frames are those of the write; Python frames are read right after it, and their delay is
shown. The probe first installs a SIGTRAP handler, which stays: without the handler, a debug
exception that a hypervisor corrupts ends the target (--unsafe-debug-registers sets them without
it).")]
pub(crate) struct WatchArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    #[command(flatten)]
    watched: WatchSubject,

    #[command(flatten)]
    terms: BreakpointOptions,

    /// Also do this at each change
    #[arg(
        long,
        value_name = "record|stop|log:TEXT|snapshot",
        default_value = "record"
    )]
    action: ActionArg,

    /// Stop the thread that writes: --action stop
    #[arg(long, conflicts_with = "action")]
    stop: bool,

    /// Also record statistics of a tensor
    #[arg(long)]
    stats: bool,

    /// Watch 1, 2, 4 or 8 BYTES [default: one element]
    #[arg(long, value_name = "BYTES", requires = "bytes", help_heading = MEMORY)]
    len: Option<u64>,

    /// Set debug registers even if that may end the target
    #[arg(long, requires = "bytes", help_heading = MEMORY)]
    unsafe_debug_registers: bool,

    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

/// Options that watched bytes do not have: the probe runs nothing in the program then.
const INSIDE: [&str; 9] = [
    "condition",
    "hits",
    "all_threads",
    "on_disconnect",
    "stop_timeout",
    "action",
    "stop",
    "stats",
    "follow",
];

/// One of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct WatchSubject {
    /// Watch `FUNCTION:NAME` (local), `env:NAME`, or a path from `__main__` or a module
    #[arg(value_name = "VARIABLE")]
    variable: Option<Variable>,

    /// Watch the bytes at ADDRESS
    #[arg(long, value_name = "ADDRESS", group = "bytes", conflicts_with_all = INSIDE, help_heading = MEMORY)]
    addr: Option<Address>,

    /// Watch the first element of the tensor or array EXPR (in `__main__`)
    #[arg(long, value_name = "EXPR", group = "bytes", conflicts_with_all = INSIDE, help_heading = MEMORY)]
    storage: Option<String>,
}

/// A watchpoint, set by the probe or in debug registers.
pub(crate) enum Watching {
    Breakpoint(Box<SetBreakpoint>),
    Bytes(BytesWatch),
}

/// Bytes, and the options of their watchpoint.
#[derive(Debug, Clone)]
pub(crate) struct BytesWatch {
    pub(crate) watched: WatchedBytes,
    pub(crate) time: Option<Duration>,
    /// Whether the target has to survive debug exceptions that arrive without their cause.
    pub(crate) strays: StrayTraps,
    /// Until the first write.
    pub(crate) once: bool,
    pub(crate) json: bool,
}

impl WatchArguments {
    /// None without anything to watch, which the definition of the arguments rules out.
    pub(crate) fn watching(&self) -> Option<Watching> {
        let length = self.len;
        let bytes = |watched| {
            Some(Watching::Bytes(BytesWatch {
                watched,
                time: self.terms.ttl.filter(|time| !time.is_zero()),
                strays: if self.unsafe_debug_registers {
                    StrayTraps::Accepted
                } else {
                    StrayTraps::Dropped
                },
                once: self.terms.once,
                json: self.shown.json,
            }))
        };
        let Variable(place) = match &self.watched {
            WatchSubject {
                addr: Some(Address(address)),
                ..
            } => {
                let address = *address;
                return bytes(WatchedBytes::Address { address, length });
            }
            WatchSubject {
                storage: Some(expression),
                ..
            } => {
                let expression = expression.clone();
                return bytes(WatchedBytes::Storage { expression, length });
            }
            WatchSubject { variable, .. } => variable.clone()?,
        };
        let action = if self.stop {
            Action::Stop
        } else {
            self.action.0.clone()
        };
        Some(Watching::Breakpoint(Box::new(SetBreakpoint {
            stats: self.stats,
            ..self.terms.request(place, action)
        })))
    }
}

/// A variable that is watched by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable(pub(crate) BreakpointLocation);

impl FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = text.strip_prefix("env:") {
            if name.is_empty() || name.contains('=') {
                return Err(format!("not env:NAME: {text}"));
            }
            let name = name.to_owned();
            return Ok(Self(BreakpointLocation::Environment { name }));
        }
        if let Some((function, name)) = text.split_once(':')
            && is_dotted(function)
        {
            if !is_dotted(name) || name.contains('.') {
                return Err(format!("not FUNCTION:NAME: {text}"));
            }
            let (function, name) = (function.to_owned(), name.to_owned());
            return Ok(Self(BreakpointLocation::Local { function, name }));
        }
        let path = text.trim().to_owned();
        if !path.starts_with(|letter: char| letter.is_alphabetic() || letter == '_') {
            return Err(format!("not a variable: {text}"));
        }
        Ok(Self(BreakpointLocation::Value { path }))
    }
}

/// `0x7f0012345678`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address(u64);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed
            .map(Self)
            .map_err(|error| format!("not an address (0x7f0012345678): {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_for_a_local_or_for_what_a_path_leads_to() {
        let value = |path: &str| {
            let path = path.to_owned();
            Ok(Variable(BreakpointLocation::Value { path }))
        };
        let local = Variable(BreakpointLocation::Local {
            function: "Trainer.step".to_owned(),
            name: "lr".to_owned(),
        });
        assert_eq!("Trainer.step:lr".parse(), Ok(local));
        let environment = Variable(BreakpointLocation::Environment {
            name: "PATH".to_owned(),
        });
        assert_eq!("env:PATH".parse(), Ok(environment));
        for path in [
            "lr",
            "model.fc1.weight",
            "os.environ['A:B']",
            "layers[0].bias",
        ] {
            assert_eq!(path.parse(), value(path));
        }
        for wrong in ["", "f:", "f:a.b", "3", "'x'", "env:", "env:A=B"] {
            assert!(wrong.parse::<Variable>().is_err(), "{wrong}");
        }
        assert_eq!("0x10".parse(), Ok(Address(16)));
        assert_eq!("32".parse(), Ok(Address(32)));
        for wrong in ["", "0x", "0x10:8", "x"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
