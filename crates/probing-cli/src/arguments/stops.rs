//! Arguments of `probing stops`, `resume` and `debug`.

use clap::Args;
use probing_proto::message::breakpoints::{Action, SetBreakpoint, StopId};

use crate::arguments::NamedTargets;
use crate::arguments::breakpoints::{BreakpointOptions, CodeLocation, IdSelector};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 stops
  probing --ranks all stops
  probing -t 4242 stops --json | jq '.stops[].frames[0]'")]
pub(crate) struct StopsArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 resume 1
  probing -t 4242 resume all
  probing --ranks all resume all

The controlling client of each stop is notified. Breakpoints stay set; `probing delete` deletes
them.")]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Resume these, by their numbers in `probing stops`
    #[arg(value_name = "ID|all", required = true)]
    pub(crate) which: Vec<IdSelector>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl ResumeArguments {
    pub(crate) fn stops(&self) -> Vec<StopId> {
        IdSelector::numbers(&self.which)
            .into_iter()
            .map(StopId)
            .collect()
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probing -t 4242 debug                              debug a stopped thread, or wait for one
  probing -t 4242 debug train.py:120 --if 'loss > 10'
  echo 'p loss, step' | probing -t 4242 debug train_step
  probing -t hang.probe debug                        debug a capture

The commands are those of pdb (n s c u d w p pp l ll b tbreak cl j unt r q and more); h lists them.
An empty line repeats the last step; anything else runs as Python in the frame, assignments
included. q resumes the program and deletes the breakpoints of this session; Ctrl-C while waiting
exits. The history is in ~/.local/state/probing/debug_history.")]
pub(crate) struct DebugArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Set a breakpoint first: `FILE:LINE` or a function
    #[arg(value_name = "PLACE")]
    place: Option<CodeLocation>,

    #[command(flatten)]
    terms: BreakpointOptions,
}

impl DebugArguments {
    /// The breakpoint to set first.
    pub(crate) fn request(&self) -> Option<SetBreakpoint> {
        let CodeLocation(place) = self.place.clone()?;
        Some(self.terms.request(place, Action::Stop))
    }
}
