//! One question for one target or for all of a set: the answer of each in lines, or as JSON.

use std::io::Write as _;
use std::time::Duration;

use probing_client::{Entry, Manner, Target};
use serde::Serialize;

use super::Aim;
use super::answers::Answers;
use crate::exit::{self, Status};
use crate::json;

/// For bringing the probe in, and for an answer that needs the GIL.
const PATIENCE: Duration = Duration::from_secs(30);

/// What one target answered.
pub(crate) trait Told: Send + 'static {
    type Report: Serialize;

    /// Data.
    fn lines(&self) -> Vec<String>;

    /// What a person should know besides.
    fn words(&self) -> Vec<String>;

    fn report(self) -> Self::Report;
}

/// Asks one target, or all of a set at the same time, and tells what they answer.
pub(crate) fn tell<A: Told>(
    aim: &Aim,
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
    for line in told.words() {
        writeln!(anstream::stderr(), "{line}")?;
    }
    for line in told.lines() {
        writeln!(anstream::stdout(), "{line}")?;
    }
    Ok(exit::OK)
}

fn tell_set<A: Told>(
    aim: &Aim,
    is_json: bool,
    ask: impl Fn(&Target, &Entry) -> anyhow::Result<A> + Send + Sync + 'static,
) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let entry = aim.entry.clone();
    let answers = Answers::of(&members, Manner::within(PATIENCE), move |member| {
        ask(&member.target, &entry)
    });
    let status = answers.status();
    if is_json {
        json::print(&answers.report(Told::report))?;
        return Ok(status);
    }
    for (who, told) in answers.given() {
        for line in told.words() {
            writeln!(anstream::stderr(), "{who}: {line}")?;
        }
        for line in told.lines() {
            writeln!(anstream::stdout(), "{who}: {line}")?;
        }
    }
    for line in answers.failures() {
        writeln!(anstream::stderr(), "{line}")?;
    }
    Ok(status)
}
