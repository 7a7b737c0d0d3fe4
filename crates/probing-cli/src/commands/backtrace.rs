//! `probing -t PID backtrace`: asks, keeps the threads that are wanted, prints.

mod repeated;
mod set;
mod tasks;
pub(crate) mod text;
mod tree;
mod variables;

use std::io::Write as _;

use anyhow::{Context as _, bail};
use probing_client::{Members, Pause, StackQuery, Target};
use probing_proto::report::{BacktraceReport, ReportedThread, TasksReport};

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
    if arguments.json {
        json::print(&report)?;
    } else {
        terminal::print(&text::text(&report, arguments.reverse))?;
    }
    Ok(exit::OK)
}

/// The threads of one target that were asked for.
fn read(arguments: &BacktraceArguments, target: &Target) -> anyhow::Result<BacktraceReport> {
    let (report, note) = read_with_note(arguments, target)?;
    if let Some(note) = note {
        writeln!(terminal::stderr(), "{note}")?;
    }
    Ok(report)
}

/// The asyncio tasks of one target, as text and as data, and what is to be said about them.
pub(super) fn tasks_with_note(
    arguments: &BacktraceArguments,
    target: &Target,
) -> anyhow::Result<(String, TasksReport, Option<String>)> {
    let mut stacks = target.stacks(&query(arguments))?;
    let report = stacks.tasks()?;
    Ok((tasks::words(&report, false), report, stacks.note()))
}

/// The same, and what is to be said about them.
pub(super) fn read_with_note(
    arguments: &BacktraceArguments,
    target: &Target,
) -> anyhow::Result<(BacktraceReport, Option<String>)> {
    let mut stacks = target.stacks(&query(arguments))?;
    let mut report = stacks.read()?;
    choose(&mut report, arguments)?;
    let told = if arguments.locals {
        target.tell_locals(&mut report)
    } else {
        Ok(())
    };
    let pid = report.pid;
    let values = told
        .err()
        .map(|error| format!("note: values of {pid} are those read from outside: {error}"));
    let notes: Vec<String> = stacks.note().into_iter().chain(values).collect();
    Ok((report, (!notes.is_empty()).then(|| notes.join("\n"))))
}

fn query(arguments: &BacktraceArguments) -> StackQuery {
    StackQuery {
        locals: arguments.locals,
        native: arguments.native,
        pause: if arguments.pause {
            Pause::Moving
        } else {
            Pause::Never
        },
    }
}

/// Keeps the threads that were asked for.
fn choose(report: &mut BacktraceReport, arguments: &BacktraceArguments) -> anyhow::Result<()> {
    if let Some(wanted) = &arguments.thread {
        let names: Vec<String> = report.threads.iter().map(text::name).collect();
        report.threads.retain(|thread| is_named(thread, wanted));
        if report.threads.is_empty() {
            bail!(
                "no thread is named {wanted}; there are: {}",
                names.join(", ")
            );
        }
    } else if !arguments.all {
        report.threads.retain(|thread| thread.main);
        report
            .threads
            .first()
            .context("the main thread runs no Python now; `--all` shows the others")?;
    }
    Ok(())
}

pub(super) fn is_named(thread: &ReportedThread, wanted: &str) -> bool {
    (thread.main && wanted == "main")
        || thread.thread_name.as_deref() == Some(wanted)
        || thread.ident.to_string() == wanted
        || thread.thread_id.is_some_and(|id| id.to_string() == wanted)
}
