//! `probing -t PID backtrace`: reads the stacks of the threads that are wanted, and prints them.

mod repeated;
mod set;
pub(crate) mod tasks;
pub(crate) mod text;
mod tree;
mod variables;

use std::io::Write as _;

use probing_client::{ClientError, LocalValues, Members, Pause, StackQuery, Target};
use probing_proto::message::threads::ThreadFilter;
use probing_proto::report::{BacktraceReport, TasksReport};

use crate::arguments::BacktraceArguments;
use crate::commands::TargetArgs;
use crate::exit::{self, Status};
use crate::{json, terminal};

type One = fn(&BacktraceArguments, &Target) -> anyhow::Result<Status>;
type Several = fn(&BacktraceArguments, &Members) -> anyhow::Result<Status>;

pub(crate) fn run(arguments: &BacktraceArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let (one, several): (One, Several) = if arguments.tasks {
        (tasks::run_one, tasks::several)
    } else {
        (run_one, set::run)
    };
    if let Some(target) = aim.targets.one() {
        return one(arguments, &target);
    }
    let members = aim.members()?;
    match members.all.as_slice() {
        // What `--json` prints hangs on what was asked for, not on how many happen to be there.
        [only] if members.missing.is_empty() && !arguments.json => one(arguments, &only.target),
        _ => several(arguments, &members),
    }
}

fn run_one(arguments: &BacktraceArguments, target: &Target) -> anyhow::Result<Status> {
    if let Some(times) = repeated::asked_for(arguments) {
        return repeated::repeat_one(arguments, target, times);
    }
    let report = read(arguments, target)?;
    say_notes(&report.notes)?;
    if arguments.json {
        json::print(&report)?;
    } else {
        terminal::print(&text::text(&report, arguments.reverse))?;
    }
    Ok(exit::OK)
}

/// Says what a user should know about how stacks were read.
fn say_notes(notes: &[String]) -> std::io::Result<()> {
    for note in notes {
        writeln!(terminal::stderr(), "{note}")?;
    }
    Ok(())
}

/// The threads of one target that were asked for.
pub(super) fn read(
    arguments: &BacktraceArguments,
    target: &Target,
) -> Result<BacktraceReport, ClientError> {
    target.stacks(&query(arguments))?.read()
}

/// The asyncio tasks of one target.
pub(super) fn read_tasks(
    arguments: &BacktraceArguments,
    target: &Target,
) -> Result<TasksReport, ClientError> {
    target.stacks(&query(arguments))?.tasks()
}

fn query(arguments: &BacktraceArguments) -> StackQuery {
    StackQuery {
        threads: ThreadFilter::new(arguments.all, arguments.thread.clone()),
        locals: if arguments.locals {
            LocalValues::FromProbe
        } else {
            LocalValues::Omitted
        },
        native: arguments.native,
        pause: Pause::when_moving(arguments.pause),
        probe_threads: false,
    }
}
