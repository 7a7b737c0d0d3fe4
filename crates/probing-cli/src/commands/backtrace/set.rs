//! Stacks of several targets: all are read at the same time and merged.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::Duration;

use probing_client::{FanOutLimits, Members, Merge, TargetLabel, Tree};
use probing_proto::report::{BacktraceReport, BacktracesReport, ReportedThread};

use crate::arguments::BacktraceArguments;
use crate::commands::answers::MemberResults;
use crate::commands::backtrace::{repeated, say_notes, tree};
use crate::errors::CommandError;
use crate::exit::{self, Status};
use crate::{json, terminal};

/// Reading one process takes milliseconds, a second when its threads never stand still.
pub(super) const TARGET_TIMEOUT: Duration = Duration::from_secs(10);

/// The merged stacks of threads with the same name.
pub(super) struct NamedTree<'a> {
    pub(super) threads: Vec<String>,
    pub(super) tree: Tree,
    /// Whose locals are to be shown, in the order in which they were merged; none when not asked for.
    pub(super) stacks: Vec<&'a ReportedThread>,
}

pub(super) fn run(arguments: &BacktraceArguments, members: &Members) -> anyhow::Result<Status> {
    if let Some(times) = repeated::asked_for(arguments) {
        return repeated::several(arguments, members, times);
    }
    let answers = read(arguments, members);
    say_notes(&notes(&answers))?;
    let (read, all) = answers.count();
    if arguments.json {
        json::print(&report(answers))?;
    } else {
        terminal::print(&text(&answers, arguments))?;
    }
    say_how_many(read, all)
}

/// What all have to say.
pub(super) fn read<'a>(
    arguments: &BacktraceArguments,
    members: &'a Members,
) -> MemberResults<'a, BacktraceReport> {
    let wanted = arguments.clone();
    MemberResults::of(
        members,
        FanOutLimits::within(TARGET_TIMEOUT),
        move |member| Ok(crate::commands::backtrace::read(&wanted, &member.target)?),
    )
}

/// What is to be said about how they were read.
pub(super) fn notes(answers: &MemberResults<'_, BacktraceReport>) -> Vec<String> {
    let given = answers.given().map(|(_, report)| report);
    given.flat_map(|report| report.notes.clone()).collect()
}

pub(super) fn text(
    answers: &MemberResults<'_, BacktraceReport>,
    arguments: &BacktraceArguments,
) -> String {
    let trees = merged(answers.given(), arguments.locals);
    let text = |named: &NamedTree<'_>| tree::text(named, arguments.reverse);
    let mut parts: Vec<String> = trees.iter().map(text).collect();
    parts.extend(not_read(&answers.failures()));
    parts.join("\n")
}

pub(super) fn report(answers: MemberResults<'_, BacktraceReport>) -> BacktracesReport {
    let trees = merged(answers.given(), false);
    BacktracesReport {
        trees: trees.iter().map(tree::report).collect(),
        set: answers.report(|report| report),
    }
}

/// What could not be read, as the last part of an answer.
pub(super) fn not_read(failures: &[String]) -> Option<String> {
    (!failures.is_empty()).then(|| format!("Not read:\n  {}\n", failures.join("\n  ")))
}

pub(super) fn say_how_many(read: usize, all: usize) -> anyhow::Result<Status> {
    match read {
        _ if read == all => Ok(exit::OK),
        0 => {
            let message = format!("none of {all} targets could be read");
            Err(CommandError::new(exit::UNREACHABLE, message).into())
        }
        _ => {
            writeln!(
                terminal::stderr(),
                "warning: {read} of {all} targets were read"
            )?;
            Ok(exit::OK)
        }
    }
}

/// A tree for each name of a thread, main threads first; those that look alike are one.
fn merged<'a>(
    reports: impl Iterator<Item = (&'a TargetLabel, &'a BacktraceReport)>,
    locals: bool,
) -> Vec<NamedTree<'a>> {
    let mut names: Vec<String> = Vec::new();
    let mut merges: HashMap<String, (Merge, Vec<&ReportedThread>)> = HashMap::new();
    for (who, report) in reports {
        for thread in &report.threads {
            let name = name(thread);
            if !merges.contains_key(&name) {
                names.push(name.clone());
            }
            let (merge, stacks) = merges.entry(name).or_default();
            merge.add(who, thread);
            if locals {
                stacks.push(thread);
            }
        }
    }
    let mut trees: Vec<NamedTree<'_>> = Vec::new();
    for name in names {
        let Some((merge, stacks)) = merges.remove(&name) else {
            continue;
        };
        let Some(tree) = merge.tree() else {
            continue;
        };
        let alike = |known: &&mut NamedTree<'_>| !locals && known.tree == tree;
        match trees.iter_mut().find(alike) {
            Some(known) => known.threads.push(name),
            None => trees.push(NamedTree {
                threads: vec![name],
                tree,
                stacks,
            }),
        }
    }
    trees
}

/// What the thread is called in every target. Python numbers threads without a name as they come, in each differently.
fn name(thread: &ReportedThread) -> String {
    let Some(name) = &thread.thread_name else {
        return "without a name".to_owned();
    };
    let Some(numbered) = name.strip_prefix("Thread-") else {
        return name.clone();
    };
    let rest = numbered.trim_start_matches(|character: char| character.is_ascii_digit());
    if rest.len() < numbered.len() && (rest.is_empty() || rest.starts_with(" (")) {
        return format!("Thread-N{rest}");
    }
    name.clone()
}
