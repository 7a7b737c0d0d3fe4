//! `probing -t PID backtrace --tasks`: the asyncio tasks of one target, or of several one after the other.

mod text;

use std::io::Write as _;

use probing_client::{FanOutLimits, Members, Target};
use probing_proto::report::TasksReport;

use crate::arguments::BacktraceArguments;
use crate::commands::answers::MemberResults;
use crate::commands::backtrace::{query, repeated, set};
use crate::exit::{self, Status};
use crate::{json, terminal};

pub(super) fn run_one(arguments: &BacktraceArguments, target: &Target) -> anyhow::Result<Status> {
    if let Some(times) = repeated::asked_for(arguments) {
        return repeated::repeat_one(arguments, target, times);
    }
    let mut stacks = target.stacks(&query(arguments))?;
    let report = stacks.tasks()?;
    if let Some(note) = stacks.note() {
        writeln!(terminal::stderr(), "{note}")?;
    }
    if arguments.json {
        json::print(&report)?;
    } else if let Some(words) = text::nothing(&report) {
        write!(terminal::stderr(), "{words}")?;
    } else {
        terminal::print(&text::text(&report, arguments.reverse))?;
    }
    Ok(exit::OK)
}

/// The tasks for people, or that there are none.
pub(super) fn words(report: &TasksReport, reverse: bool) -> String {
    let nothing = text::nothing(report).map(str::to_owned);
    nothing.unwrap_or_else(|| text::text(report, reverse))
}

pub(super) fn several(arguments: &BacktraceArguments, members: &Members) -> anyhow::Result<Status> {
    if let Some(times) = repeated::asked_for(arguments) {
        return repeated::several(arguments, members, times);
    }
    let answers = read(arguments, members);
    let (read, all) = answers.count();
    if arguments.json {
        let report = answers.report(|report| report);
        json::print(&report)?;
    } else {
        terminal::print(&of_several(&answers, arguments.reverse))?;
    }
    set::say_how_many(read, all)
}

/// What all have to say.
pub(super) fn read<'a>(
    arguments: &BacktraceArguments,
    members: &'a Members,
) -> MemberResults<'a, TasksReport> {
    let query = query(arguments);
    MemberResults::of(
        members,
        FanOutLimits::within(set::TARGET_TIMEOUT),
        move |member| Ok(member.target.stacks(&query)?.tasks()?),
    )
}

pub(super) fn of_several(answers: &MemberResults<'_, TasksReport>, reverse: bool) -> String {
    let part = |(who, report)| format!("== {who} ==\n{}", text::text(report, reverse));
    let mut parts: Vec<String> = answers.given().map(part).collect();
    parts.extend(set::not_read(&answers.failures()));
    parts.join("\n")
}
