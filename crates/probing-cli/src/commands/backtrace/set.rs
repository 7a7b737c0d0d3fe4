//! Stacks of several targets: all are read at the same time and merged.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::Duration;

use anyhow::ensure;
use probing_client::{ClientError, Member, Members, Merge, Tree, Who, ask_each};
use probing_proto::report::{BacktraceReport, BacktracesReport, ReportedThread, TargetReport};

use super::tree;
use crate::arguments::BacktraceArguments;
use crate::commands::failures::{self, Failure};
use crate::exit::{self, Status};

/// Reading one process takes milliseconds, a second when its threads never stand still.
const PATIENCE: Duration = Duration::from_secs(10);

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
    let wanted = arguments.clone();
    let answers = ask_each(&members.all, Some(PATIENCE), move |member: &Member| {
        super::read(&wanted, &member.target)
    });
    let answers: Vec<Result<BacktraceReport, Failure>> = answers
        .into_iter()
        .zip(&members.all)
        .map(|(answer, member)| {
            let patience = PATIENCE;
            let answer = answer.unwrap_or_else(|| Err(ClientError::TooLong { patience }.into()));
            answer.map_err(|error| Failure::of(member, &error))
        })
        .collect();
    let read = members.all.iter().zip(&answers);
    let read = read.filter_map(|(member, answer)| Some((&member.who, answer.as_ref().ok()?)));
    let trees = merged(read);
    let all_read = answers.iter().all(Result::is_ok) && members.missing.is_empty();
    let some_read = answers.iter().any(Result::is_ok);
    let mut out = anstream::stdout();
    if arguments.json {
        let report = report(members, answers, &trees);
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        let mut parts: Vec<String> = trees.iter().map(tree::text).collect();
        let failed: Vec<Failure> = answers.into_iter().filter_map(Result::err).collect();
        let failed = failures::lines(&failed, members);
        parts.extend(
            (!failed.is_empty()).then(|| format!("Not read:\n  {}\n", failed.join("\n  "))),
        );
        write!(out, "{}", parts.join("\n"))?;
    }
    say_how_many(members, all_read, some_read)
}

fn say_how_many(members: &Members, all_read: bool, some_read: bool) -> anyhow::Result<Status> {
    if all_read {
        return Ok(exit::OK);
    }
    let mut err = anstream::stderr();
    if some_read {
        writeln!(err, "warning: some of the targets could not be read")?;
        return Ok(exit::OK);
    }
    let count = members.all.len();
    writeln!(err, "error: none of the {count} targets could be read")?;
    Ok(exit::UNREACHABLE)
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

fn report(
    members: &Members,
    answers: Vec<Result<BacktraceReport, Failure>>,
    trees: &[NamedTree],
) -> BacktracesReport {
    let targets = members.all.iter().zip(answers).map(|(member, answer)| {
        let (report, error) = match answer {
            Ok(report) => (Some(report), None),
            Err(failure) => (None, Some(failure.message)),
        };
        TargetReport {
            target: member.target.to_string(),
            pid: member.pid,
            rank: member.rank,
            error,
            report,
        }
    });
    BacktracesReport {
        targets: targets.collect(),
        missing_ranks: (!members.missing.is_empty()).then(|| members.missing.to_string()),
        trees: trees.iter().map(tree::report).collect(),
    }
}
