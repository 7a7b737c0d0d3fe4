//! `probing -t PID backtrace --tasks`: the asyncio tasks of one target, or of several one after the other.

mod text;

use std::io::Write as _;

use probing_client::{Manner, Members, Target};
use probing_proto::report::TasksReport;

use super::{query, set};
use crate::arguments::BacktraceArguments;
use crate::commands::answers::Answers;
use crate::exit::{self, Status};
use crate::json;

pub(super) fn one(arguments: &BacktraceArguments, target: &Target) -> anyhow::Result<Status> {
    let mut stacks = target.stacks(&query(arguments))?;
    let report = stacks.tasks()?;
    if let Some(note) = stacks.note() {
        writeln!(anstream::stderr(), "{note}")?;
    }
    let mut out = anstream::stdout();
    if arguments.json {
        json::print(&report)?;
    } else if let Some(words) = text::nothing(&report) {
        write!(anstream::stderr(), "{words}")?;
    } else {
        write!(out, "{}", text::text(&report, arguments.reverse))?;
    }
    Ok(exit::OK)
}

/// The tasks for people, or that there are none.
pub(super) fn words(report: &TasksReport) -> String {
    let nothing = text::nothing(report).map(str::to_owned);
    nothing.unwrap_or_else(|| text::text(report, false))
}

pub(super) fn several(arguments: &BacktraceArguments, members: &Members) -> anyhow::Result<Status> {
    let query = query(arguments);
    let answers = Answers::of(members, Manner::within(set::PATIENCE), move |member| {
        Ok(member.target.stacks(&query)?.tasks()?)
    });
    let (read, all) = answers.count();
    let mut out = anstream::stdout();
    if arguments.json {
        let report = answers.report(|report| report);
        json::print(&report)?;
    } else {
        let part =
            |(who, report)| format!("== {who} ==\n{}", text::text(report, arguments.reverse));
        let mut parts: Vec<String> = answers.given().map(part).collect();
        parts.extend(set::not_read(&answers.failures()));
        write!(out, "{}", parts.join("\n"))?;
    }
    set::say_how_many(read, all)
}
