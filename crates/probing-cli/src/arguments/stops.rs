//! `probing stops`, `release`, `debug`: threads that have stopped

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
  probing -t 4242 release 1
  probing -t 4242 release all
  probing --ranks all release all

Whoever drives them hears of it. What is armed stays armed: `probing disarm`.")]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Numbers of stops, as `probing stops` shows them; or all
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
  probing -t 4242 debug                              at what has stopped, or stops next
  probing -t 4242 debug train.py:120 --if 'loss > 10'
  echo 'p loss, step' | probing -t 4242 debug train_step
  probing -t hang.probe debug                        look around in a capture

At a stop: n s c u d w p pp l ll b tbreak cl j unt r q and more, as in pdb; h lists them. An empty line repeats
the last step, anything else is Python in the frame, assignments too. q lets the program go on and disarms what
was armed here. Ctrl-C while it waits leaves, too. What was typed is kept in
~/.local/state/probing/debug_history.")]
pub(crate) struct DebugArguments {
    #[command(flatten)]
    pub(super) named: NamedTargets,

    /// Stop there: `FILE:LINE` or a function
    #[arg(value_name = "PLACE")]
    place: Option<CodeLocation>,

    #[command(flatten)]
    terms: BreakpointOptions,
}

impl DebugArguments {
    /// What is to be armed first.
    pub(crate) fn arm(&self) -> Option<SetBreakpoint> {
        let CodeLocation(place) = self.place.clone()?;
        Some(self.terms.arm(place, Action::Stop))
    }
}
