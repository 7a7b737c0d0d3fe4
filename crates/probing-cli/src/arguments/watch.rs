//! `probing watch`: what is told when it changes

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use probing_client::{StrayTraps, WatchedMemory as WatchedBytes};
use probing_proto::message::breakpoints::{Action, BreakpointLocation, SetBreakpoint};

use crate::arguments::NamedTargets;
use crate::arguments::breakpoints::{ActionArg, BreakpointOptions, OutputArgs, is_dotted};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 watch train_step:lr                  the local variable lr of train_step
  probing -t 4242 watch config.lr --stop               who writes it stops
  probing -t 4242 watch \"cfg['lr']\" --if 'step > 100'
  probing -t 4242 watch module.NAME --follow           as it happens
  probing -t 4242 watch model.fc1.weight --stats       a tensor: changed in place, or another one
  probing -t 4242 watch env:CUDA_VISIBLE_DEVICES
  probing -t 4242 watch --storage 'weight[3, 5]'       who writes to this element, native code too
  probing -t 4242 watch --addr 0x7f0012345678 --len 4 --for 30s

Each change is a row of python.variables: old and new value, file, line, function, thread, time. The answer says
what it costs: from Python 3.12 on a variable costs only who writes it; tensors, items of lists and __slots__ are
compared at each line.

Bytes of memory (--addr, --storage) are watched from outside, by the processor, until Ctrl-C: thread, time and native
frames are those of the write; Python's frames are read right after it, and it is said how much later. The probe
first installs a SIGTRAP handler, which stays: without it, a debug exception that a hypervisor corrupts ends the target.")]
pub(crate) struct WatchArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    #[command(flatten)]
    watched: WatchSubject,

    #[command(flatten)]
    terms: BreakpointOptions,

    /// What is done, besides keeping the change in python.variables
    #[arg(
        long,
        value_name = "record|stop|log:TEXT|snapshot",
        default_value = "record"
    )]
    action: ActionArg,

    /// The thread that changes it stops: --action stop
    #[arg(long, conflicts_with = "action")]
    stop: bool,

    /// Tell of tensors how small, large and spread their numbers are, too
    #[arg(long)]
    stats: bool,

    /// Of --addr and --storage: how many bytes, 1, 2, 4 or 8; without it one element, or as many as can be
    #[arg(long, value_name = "BYTES", requires = "bytes")]
    len: Option<u64>,

    /// Set debug registers for --addr and --storage also where that is not known to be safe: a debug exception that the
    /// hypervisor corrupts ends the target by SIGTRAP
    #[arg(long, requires = "bytes")]
    unsafe_debug_registers: bool,

    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

/// What bytes cannot be watched with: nothing of ours runs in the program then.
const INSIDE: [&str; 9] = [
    "condition",
    "hits",
    "all_threads",
    "gone",
    "hold",
    "action",
    "stop",
    "stats",
    "follow",
];

/// One of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct WatchSubject {
    /// `FUNCTION:NAME` for a local variable, `env:NAME` for one of the environment; else a name of `__main__` or of a
    /// module, with attributes and items
    #[arg(value_name = "VARIABLE")]
    variable: Option<Variable>,

    /// Bytes of memory: who writes to them, whatever code it is
    #[arg(long, value_name = "ADDRESS", group = "bytes", conflicts_with_all = INSIDE)]
    addr: Option<Address>,

    /// The bytes of a tensor or an array that this expression gives in `__main__`: its first element
    #[arg(long, value_name = "EXPR", group = "bytes", conflicts_with_all = INSIDE)]
    storage: Option<String>,
}

/// What is to be watched: by the probe, or by the processor.
pub(crate) enum Watching {
    Point(Box<SetBreakpoint>),
    Bytes(BytesWatch),
}

/// Bytes, and how they are watched.
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
        Some(Watching::Point(Box::new(SetBreakpoint {
            stats: self.stats,
            ..self.terms.arm(place, action)
        })))
    }
}

/// What is watched by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable(pub(crate) BreakpointLocation);

impl FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = text.strip_prefix("env:") {
            if name.is_empty() || name.contains('=') {
                return Err(format!("a variable of the environment is env:NAME: {text}"));
            }
            let name = name.to_owned();
            return Ok(Self(BreakpointLocation::Environment { name }));
        }
        if let Some((function, name)) = text.split_once(':')
            && is_dotted(function)
        {
            if !is_dotted(name) || name.contains('.') {
                return Err(format!("a local variable is FUNCTION:NAME: {text}"));
            }
            let (function, name) = (function.to_owned(), name.to_owned());
            return Ok(Self(BreakpointLocation::Local { function, name }));
        }
        let path = text.trim().to_owned();
        if !path.starts_with(|letter: char| letter.is_alphabetic() || letter == '_') {
            return Err(format!("a variable begins with a name: {text}"));
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
            .map_err(|error| format!("an address is a number, as in 0x7f0012345678: {error}"))
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
