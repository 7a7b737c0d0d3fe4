//! `probing -t PID backtrace --tasks`: the asyncio tasks of one target, or of several one after the other.

mod text;

use std::io::Write as _;

use probing_client::{FanOutLimits, Members, Target};
use probing_proto::report::TasksReport;

use crate::arguments::BacktraceArguments;
use crate::commands::answers::MemberResults;
use crate::commands::backtrace::{read_tasks, repeated, say_notes, set};
use crate::exit::{self, Status};
use crate::{json, terminal};

pub(super) fn run_one(arguments: &BacktraceArguments, target: &Target) -> anyhow::Result<Status> {
    if let Some(times) = repeated::asked_for(arguments) {
        return repeated::repeat_one(arguments, target, times);
    }
    let report = read_tasks(arguments, target)?;
    say_notes(&report.notes)?;
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
pub(crate) fn words(report: &TasksReport, reverse: bool) -> String {
    let nothing = text::nothing(report).map(str::to_owned);
    nothing.unwrap_or_else(|| text::text(report, reverse))
}

pub(super) fn several(arguments: &BacktraceArguments, members: &Members) -> anyhow::Result<Status> {
    if let Some(times) = repeated::asked_for(arguments) {
        return repeated::several(arguments, members, times);
    }
    let answers = read(arguments, members);
    say_notes(&notes(&answers))?;
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
    let wanted = arguments.clone();
    MemberResults::of(
        members,
        FanOutLimits::within(set::TARGET_TIMEOUT),
        move |member| Ok(read_tasks(&wanted, &member.target)?),
    )
}

/// What is to be said about how they were read.
pub(super) fn notes(answers: &MemberResults<'_, TasksReport>) -> Vec<String> {
    let given = answers.given().map(|(_, report)| report);
    given.flat_map(|report| report.notes.clone()).collect()
}

pub(super) fn of_several(answers: &MemberResults<'_, TasksReport>, reverse: bool) -> String {
    let part = |(who, report)| format!("== {who} ==\n{}", text::text(report, reverse));
    let mut parts: Vec<String> = answers.given().map(part).collect();
    parts.extend(set::not_read(&answers.failures()));
    parts.join("\n")
}
