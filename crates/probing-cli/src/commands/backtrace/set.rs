//! Stacks of several targets: all are read at the same time and merged.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::Duration;

use anyhow::ensure;
use probing_client::{Manner, Members, Merge, Tree, Who};
use probing_proto::report::{BacktraceReport, BacktracesReport, ReportedThread};

use super::tree;
use crate::arguments::BacktraceArguments;
use crate::commands::answers::Answers;
use crate::exit::{self, Status};
use crate::json;

/// Reading one process takes milliseconds, a second when its threads never stand still.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The merged stacks of threads with the same name.
pub(super) struct NamedTree {
    pub(super) threads: Vec<String>,
    pub(super) tree: Tree,
}

pub(super) fn run(arguments: &BacktraceArguments, members: &Members) -> anyhow::Result<Status> {
    ensure!(
        !arguments.reverse,
        "--reverse is for one target: the tree of several begins with the frames that they have in common"
    );
    ensure!(
        !arguments.locals || arguments.json,
        "--locals is for one target: the tree of several shows what they have in common; with --json there is all"
    );
    let wanted = arguments.clone();
    let answers = Answers::of(members, Manner::within(PATIENCE), move |member| {
        super::read(&wanted, &member.target)
    });
    let trees = merged(answers.given());
    let (read, all) = answers.count();
    let mut out = anstream::stdout();
    if arguments.json {
        let report = BacktracesReport {
            set: answers.report(|report| report),
            trees: trees.iter().map(tree::report).collect(),
        };
        json::print(&report)?;
    } else {
        let mut parts: Vec<String> = trees.iter().map(tree::text).collect();
        parts.extend(not_read(&answers.failures()));
        write!(out, "{}", parts.join("\n"))?;
    }
    say_how_many(read, all)
}

/// What could not be read, as the last part of an answer.
pub(super) fn not_read(failures: &[String]) -> Option<String> {
    (!failures.is_empty()).then(|| format!("Not read:\n  {}\n", failures.join("\n  ")))
}

pub(super) fn say_how_many(read: usize, all: usize) -> anyhow::Result<Status> {
    match read {
        _ if read == all => Ok(exit::OK),
        0 => {
            writeln!(
                anstream::stderr(),
                "error: none of {all} targets could be read"
            )?;
            Ok(exit::UNREACHABLE)
        }
        _ => {
            writeln!(
                anstream::stderr(),
                "warning: {read} of {all} targets were read"
            )?;
            Ok(exit::OK)
        }
    }
}

/// A tree for each name of a thread, main threads first; those that look alike are one.
fn merged<'a>(reports: impl Iterator<Item = (&'a Who, &'a BacktraceReport)>) -> Vec<NamedTree> {
    let mut names: Vec<String> = Vec::new();
    let mut merges: HashMap<String, Merge> = HashMap::new();
    for (who, report) in reports {
        for thread in &report.threads {
            let name = name(thread);
            if !merges.contains_key(&name) {
                names.push(name.clone());
            }
            merges.entry(name).or_default().add(who, thread);
        }
    }
    let mut trees: Vec<NamedTree> = Vec::new();
    for name in names {
        let Some(tree) = merges.remove(&name).and_then(Merge::tree) else {
            continue;
        };
        match trees.iter_mut().find(|known| known.tree == tree) {
            Some(known) => known.threads.push(name),
            None => trees.push(NamedTree {
                threads: vec![name],
                tree,
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
