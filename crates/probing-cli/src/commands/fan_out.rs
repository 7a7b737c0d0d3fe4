//! One question to one target or a set, with the answers as lines or JSON.

use std::io::Write as _;
use std::time::Duration;

use probing_client::{Entry, FanOutLimits, Target};
use serde::Serialize;

use crate::commands::answers::{MemberResults, labelled};
use crate::commands::{TargetArgs, say_attached_to};
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

/// For bringing the probe in, and for an answer that needs the GIL.
const TARGET_TIMEOUT: Duration = Duration::from_secs(30);

/// What one target answered.
pub(crate) trait CommandOutput: Send + 'static {
    type Report: Serialize;

    /// That the probe had to be brought in for it.
    fn attached(&self) -> Option<&str> {
        None
    }

    /// Data.
    fn lines(&self) -> Vec<String>;

    /// What a person should know besides.
    fn words(&self) -> Vec<String>;

    fn report(self) -> Self::Report;
}

/// Asks one target, or all of a set at the same time, and tells what they answer.
pub(crate) fn tell<A: CommandOutput>(
    aim: &TargetArgs,
    is_json: bool,
    ask: impl Fn(&Target, &Entry) -> anyhow::Result<A> + Send + Sync + 'static,
) -> anyhow::Result<Status> {
    if aim.targets.one().is_none() {
        return tell_set(aim, is_json, ask);
    }
    let told = ask(&aim.target()?, &aim.entry)?;
    if is_json {
        json::print(&told.report())?;
        return Ok(exit::OK);
    }
    let attached = told.attached().map(str::to_owned);
    for line in attached.into_iter().chain(told.words()) {
        writeln!(terminal::stderr(), "{line}")?;
    }
    for line in told.lines() {
        writeln!(terminal::stdout(), "{line}")?;
    }
    Ok(exit::OK)
}

fn tell_set<A: CommandOutput>(
    aim: &TargetArgs,
    is_json: bool,
    ask: impl Fn(&Target, &Entry) -> anyhow::Result<A> + Send + Sync + 'static,
) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let entry = aim.entry.clone();
    let answers = MemberResults::of(
        &members,
        FanOutLimits::within(TARGET_TIMEOUT),
        move |member| ask(&member.target, &entry),
    );
    let status = answers.status();
    if is_json {
        json::print(&answers.report(CommandOutput::report))?;
        return Ok(status);
    }
    say_attached_to(&answers.those(|told| told.attached().is_some()))?;
    write!(
        terminal::stderr(),
        "{}",
        together(&answers, CommandOutput::words)
    )?;
    write!(
        terminal::stdout(),
        "{}",
        together(&answers, CommandOutput::lines)
    )?;
    for line in answers.failures() {
        writeln!(terminal::stderr(), "{line}")?;
    }
    Ok(status)
}

/// Who has something to say, and what.
fn together<A: CommandOutput>(
    answers: &MemberResults<'_, A>,
    lines: impl Fn(&A) -> Vec<String>,
) -> String {
    let groups = answers.alike(&lines).into_iter();
    let groups = groups.map(|(who, answer)| (who, lines(answer)));
    let speaking = groups.filter(|(_, lines)| !lines.is_empty());
    speaking
        .map(|(who, lines)| labelled(&who, &lines.join("\n")))
        .collect()
}
