//! `probing torch`, `watch-nan`: what a training does, and where its numbers go wrong

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use probing_proto::message::torch::{
    MemoryRead, TensorKind, Tensors, TorchCall, TorchOptions, Trace,
};

use crate::arguments::NamedTargets;
use crate::arguments::amounts::some_seconds;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 torch on                      every module, backward pass and step
  probing -t 4242 torch on --rate 0.1           of one step in ten
  probing -t 4242 torch on --tensors 100        and statistics of parameters and gradients
  probing --ranks all torch on                  in every rank of a job
  probing -t 4242 torch status
  probing -t 4242 query \"SELECT module, stage, avg(duration) AS avg_time FROM python.torch_trace
    WHERE step > (SELECT max(step) - 5 FROM python.torch_trace) GROUP BY module, stage ORDER BY avg_time DESC LIMIT 10\"
  probing -t 4242 torch off

Rows are in python.torch_trace and python.tensors. PROBING_TORCH=1 begins with the program. See docs/torch.md.")]
pub(crate) struct TorchArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    #[command(subcommand)]
    what: TorchCommand,
}

#[derive(Debug, Subcommand)]
enum TorchCommand {
    /// Record what modules and optimizers do; again, with other settings
    On(TorchOnArguments),
    /// Record nothing of torch any more
    Off(JsonArgs),
    /// Tell what is recorded, which models were seen, and which step the training is in
    Status(JsonArgs),
}

#[derive(Debug, Args)]
struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct TorchOnArguments {
    /// The share of steps that are recorded: 0.1 is one in ten
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = share)]
    rate: u32,

    /// How often the memory of a GPU is read
    #[arg(long, value_name = "WHEN", default_value = "step")]
    memory: MemoryReadArg,

    /// Every so many steps, record statistics of tensors, too
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    tensors: Option<u32>,

    /// Statistics of what
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        default_value = "parameters,gradients",
        requires = "tensors"
    )]
    of: Vec<TensorKindArg>,

    /// Statistics of those whose names are like this, where * is anything
    #[arg(long, value_name = "NAME", requires = "tensors")]
    only: Vec<String>,

    #[command(flatten)]
    told: JsonArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MemoryReadArg {
    Never,
    Step,
    Module,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TensorKindArg {
    Parameters,
    Gradients,
    Activations,
}

/// A share as "one of so many".
fn share(text: &str) -> Result<u32, String> {
    let share: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if share > 0.0 && share <= 1.0 {
        Ok((1.0 / share).round().min(f64::from(u32::MAX)) as u32)
    } else {
        Err("must be more than 0 and at most 1".to_owned())
    }
}

impl TorchArguments {
    pub(crate) fn json(&self) -> bool {
        match &self.what {
            TorchCommand::On(on) => on.told.json,
            TorchCommand::Off(told) | TorchCommand::Status(told) => told.json,
        }
    }

    /// Whether a process without a probe may be left so.
    pub(crate) fn needs_probe(&self) -> bool {
        matches!(self.what, TorchCommand::On(_))
    }

    pub(crate) fn call(&self) -> TorchCall {
        match &self.what {
            TorchCommand::On(on) => TorchCall::On(on.wanted()),
            TorchCommand::Off(_) => TorchCall::Off,
            TorchCommand::Status(_) => TorchCall::Status { since: 0 },
        }
    }
}

impl TorchOnArguments {
    fn wanted(&self) -> TorchOptions {
        let memory = match self.memory {
            MemoryReadArg::Never => MemoryRead::Never,
            MemoryReadArg::Step => MemoryRead::Step,
            MemoryReadArg::Module => MemoryRead::Module,
        };
        let kinds = self.of.iter().map(|kind| match kind {
            TensorKindArg::Parameters => TensorKind::Parameters,
            TensorKindArg::Gradients => TensorKind::Gradients,
            TensorKindArg::Activations => TensorKind::Activations,
        });
        TorchOptions {
            trace: Some(Trace {
                every: self.rate,
                memory,
            }),
            tensors: self.tensors.map(|every| Tensors {
                every,
                kinds: kinds.collect(),
                only: self.only.clone(),
            }),
            nan: false,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 watch-nan                 wait for the first value that is not finite, and tell where it came from
  probing -t 4242 watch-nan --for 10m
  probing --ranks all watch-nan             whichever rank is first
  probing -t 4242 watch-nan --recorded      what was found so far; also of a process that has ended

What every module gives is looked at, every gradient and every parameter, until `probing torch off`: numbers in memory at
some 4 per nanosecond and core; those of a GPU by operations of torch, without waiting for it. PROBING_TORCH=nan begins
with the program. Gradients that a scaler of mixed precision lets overflow on purpose are found, too.")]
pub(crate) struct WatchNanArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Wait at most so long (10m, 30s); without it, until one is found
    #[arg(long = "for", value_name = "TIME", value_parser = some_seconds)]
    pub(crate) patience: Option<Duration>,

    /// Tell what was found so far, begin nothing and wait for nothing
    #[arg(long, conflicts_with = "patience")]
    pub(crate) recorded: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_of_so_many() {
        for (text, every) in [
            ("1", 1),
            ("0.5", 2),
            ("0.1", 10),
            ("0.34", 3),
            ("1e-4", 10_000),
        ] {
            assert_eq!(share(text), Ok(every), "{text}");
        }
        for wrong in ["0", "-1", "2", "nan", "", "ten"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
