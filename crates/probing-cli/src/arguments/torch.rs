//! Arguments of `probing torch` and `watch-nan`.

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
  probing -t 4242 torch on                      record every module, backward pass and step
  probing -t 4242 torch on --rate 0.1           record one step in ten
  probing -t 4242 torch on --tensors 100        also record statistics of parameters and gradients
  probing --ranks all torch on                  record in every rank of a job
  probing -t 4242 torch status
  probing -t 4242 query \"SELECT module, stage, avg(duration) AS avg_time FROM python.torch_trace
    WHERE step > (SELECT max(step) - 5 FROM python.torch_trace)
    GROUP BY module, stage ORDER BY avg_time DESC LIMIT 10\"
  probing -t 4242 torch off

Rows are in python.torch_trace and python.tensors (docs/torch.md). PROBING_TORCH=1 records from the
start.")]
pub(crate) struct TorchArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    #[command(subcommand)]
    what: TorchCommand,
}

#[derive(Debug, Subcommand)]
enum TorchCommand {
    /// Record modules and optimizers, or change the settings
    On(TorchOnArguments),
    /// Stop recording
    Off(JsonArgs),
    /// Show what is recorded, the models and the current step
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
    /// Record this share of steps
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = share)]
    rate: u32,

    /// Read the memory of a GPU
    #[arg(
        long,
        value_name = "never|step|module",
        default_value = "step",
        hide_possible_values = true
    )]
    memory: MemoryReadArg,

    /// Record statistics of tensors every STEPS steps
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    tensors: Option<u32>,

    /// Record these tensors
    #[arg(
        long,
        value_name = "parameters|gradients|activations",
        hide_possible_values = true,
        value_delimiter = ',',
        default_value = "parameters,gradients",
        requires = "tensors"
    )]
    of: Vec<TensorKindArg>,

    /// Record tensors with these names (* = anything)
    #[arg(long, value_name = "NAME", requires = "tensors")]
    only: Vec<String>,

    #[command(flatten)]
    output: JsonArgs,
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

/// A share as "one in N".
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
            TorchCommand::On(on) => on.output.json,
            TorchCommand::Off(output) | TorchCommand::Status(output) => output.json,
        }
    }

    /// Whether the probe must be attached.
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
  probing -t 4242 watch-nan                 wait for the first NaN or Inf
  probing -t 4242 watch-nan --for 10m
  probing --ranks all watch-nan             wait for the first rank with one
  probing -t 4242 watch-nan --recorded      show recorded ones; also of a process that has ended

Module outputs, gradients and parameters are checked until `probing torch off`: about 4 numbers per
nanosecond and core in memory; on a GPU by operations of torch, without waiting for it.
PROBING_TORCH=nan checks from the start. Gradients that a scaler of mixed precision lets overflow on
purpose are also reported.")]
pub(crate) struct WatchNanArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Wait for at most TIME (10m, 30s) [default: no limit]
    #[arg(long = "for", value_name = "TIME", value_parser = some_seconds)]
    pub(crate) patience: Option<Duration>,

    /// Show recorded findings only, do not wait
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
    fn a_share_is_one_in_n() {
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
