//! Answers and failures of a set of targets, equal failures on one line.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use probing_client::{ClientError, FanOutLimits, Group, Member, Members, TargetLabel, fan_out};
use probing_engine::{ReadFailure, UnreadTarget, missing_targets};
use probing_proto::agent::MissingTarget;
use probing_proto::process::Pid;
use probing_proto::report::SetReport;

use crate::errors;
use crate::exit::{self, Status};

/// The answers of all members of a set.
pub(crate) struct MemberResults<'a, A> {
    members: &'a Members,
    /// In the order of the members.
    each: Vec<Result<A, Failure>>,
}

/// What went wrong with one target.
#[derive(Debug)]
struct Failure {
    who: TargetLabel,
    pid: Option<Pid>,
    message: String,
    hint: Option<String>,
    /// What a command that is for this target alone would end with.
    status: Status,
    /// It does not live any more.
    ended: bool,
}

impl Failure {
    fn of(member: &Member, error: &anyhow::Error) -> Self {
        let client_error = error.downcast_ref::<ClientError>();
        Self {
            ended: client_error.is_some_and(ClientError::is_end),
            who: member.who.clone(),
            pid: member.pid,
            message: errors::message(error),
            hint: errors::hint(error),
            status: exit::status_of(error),
        }
    }

    /// The same trouble of several has one text: it must not name the one process.
    fn without_pid(&self, text: &str) -> String {
        match self.pid {
            Some(pid) => text.replace(&pid.to_string(), "PID"),
            None => text.to_owned(),
        }
    }
}

impl<'a, A: Send + 'static> MemberResults<'a, A> {
    /// Asks all.
    pub(crate) fn of(
        members: &'a Members,
        manner: FanOutLimits,
        ask: impl Fn(&Member) -> anyhow::Result<A> + Send + Sync + 'static,
    ) -> Self {
        let answers = fan_out(&members.all, manner, ask);
        let each = answers
            .into_iter()
            .zip(&members.all)
            .map(|(answer, member)| {
                let answer = answer.unwrap_or_else(|| too_long(manner));
                answer.map_err(|error| Failure::of(member, &error))
            });
        Self {
            members,
            each: each.collect(),
        }
    }

    /// Asks those that answered once more, for something that follows from it.
    pub(crate) fn then<B: Send + 'static>(
        self,
        manner: FanOutLimits,
        ask: impl Fn(&TargetLabel, &A) -> anyhow::Result<B> + Send + Sync + 'static,
    ) -> MemberResults<'a, B>
    where
        A: Sync,
    {
        let (mut those, mut places, mut each) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (answer, member)) in self.each.into_iter().zip(&self.members.all).enumerate() {
            each.push(answer.map(|answer| {
                those.push((member.clone(), Arc::new(answer)));
                places.push(place);
            }));
        }
        let asked = fan_out(&those, manner, move |(member, answer)| {
            ask(&member.who, answer)
        });
        let mut each: Vec<Result<Option<B>, Failure>> = each
            .into_iter()
            .map(|answer| answer.map(|()| None))
            .collect();
        for ((place, answer), (member, _)) in places.into_iter().zip(asked).zip(&those) {
            let answer = answer.unwrap_or_else(|| too_long(manner));
            each[place] = answer
                .map(Some)
                .map_err(|error| Failure::of(member, &error));
        }
        let each = each.into_iter().map(Result::transpose);
        MemberResults {
            members: self.members,
            each: each.flatten().collect(),
        }
    }

    /// Those that came.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&TargetLabel, &A)> {
        let each = self.members.all.iter().zip(&self.each);
        each.filter_map(|(member, answer)| Some((&member.who, answer.as_ref().ok()?)))
    }

    /// Equal ones together, in the order of their first target.
    pub(crate) fn alike<'s, K: Hash + Eq>(
        &'s self,
        kind: impl Fn(&'s A) -> K,
    ) -> Vec<(Group, &'s A)> {
        let mut kinds: HashMap<K, usize> = HashMap::new();
        let mut groups: Vec<(Vec<&TargetLabel>, &A)> = Vec::new();
        for (who, answer) in self.given() {
            let group = *kinds.entry(kind(answer)).or_insert(groups.len());
            match groups.get_mut(group) {
                Some((them, _)) => them.push(who),
                None => groups.push((vec![who], answer)),
            }
        }
        let groups = groups.into_iter();
        groups
            .map(|(them, answer)| (them.into_iter().collect(), answer))
            .collect()
    }

    /// Those whose answer is such.
    pub(crate) fn those(&self, is_such: impl Fn(&A) -> bool) -> Group {
        let such = self.given().filter(|(_, answer)| is_such(answer));
        such.map(|(who, _)| who).collect()
    }

    /// How many came, of how many targets. A rank that nobody has is a target, too.
    pub(crate) fn count(&self) -> (usize, usize) {
        let missing = self.members.missing.count() as usize;
        (self.given().count(), self.each.len() + missing)
    }

    /// Whether none of them lives any more.
    pub(crate) fn all_ended(&self) -> bool {
        let ended =
            |answer: &Result<A, Failure>| answer.as_ref().is_err_and(|failure| failure.ended);
        self.each.iter().all(ended)
    }

    /// For what must be done on all: whether it was. A rank that nobody has cannot be reached.
    pub(crate) fn status(&self) -> Status {
        self.status_of(self.failed())
    }

    /// The same for what can be told of those that have ended, too.
    pub(crate) fn status_of_living(&self) -> Status {
        self.status_of(self.failed().filter(|failure| !failure.ended))
    }

    fn status_of<'s>(&self, failed: impl Iterator<Item = &'s Failure>) -> Status {
        let missing = (!self.members.missing.is_empty()).then_some(exit::UNREACHABLE);
        exit::of_several(failed.map(|failure| failure.status).chain(missing))
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        let failures: Vec<&Failure> = self.failed().collect();
        lines(&failures, self.members)
    }

    fn failed(&self) -> impl Iterator<Item = &Failure> {
        self.each.iter().filter_map(|answer| answer.as_ref().err())
    }

    /// The same for programs.
    pub(crate) fn missing(&self) -> Vec<MissingTarget> {
        let missing = |failure: &Failure| UnreadTarget {
            who: failure.who.clone(),
            pid: failure.pid,
            why: ReadFailure {
                message: failure.message.clone(),
                hint: failure.hint.clone(),
            },
        };
        let missing: Vec<UnreadTarget> = self.failed().map(missing).collect();
        missing_targets(&missing, self.members)
    }

    /// Each target with its report or its error.
    pub(crate) fn report<R>(self, report: impl Fn(A) -> R) -> SetReport<R> {
        let told = self.each.into_iter().map(|answer| match answer {
            Ok(answer) => Ok(report(answer)),
            Err(failure) => Err(failure.message),
        });
        self.members.report(told)
    }
}

/// `ranks 0-6: 0.1`; what has several lines stands below who said it.
pub(crate) fn labelled(who: &Group, text: &str) -> String {
    let lines: Vec<&str> = text.trim_end_matches('\n').split('\n').collect();
    match lines.as_slice() {
        [line] => format!("{who}: {line}\n"),
        lines => format!("{who}:\n  {}\n", lines.join("\n  ")),
    }
}

/// What is said of one that has not answered in time.
fn too_long<A>(manner: FanOutLimits) -> anyhow::Result<A> {
    let patience = manner.timeout.unwrap_or_default();
    Err(ClientError::TooLong { patience }.into())
}

/// The same for those whose rows an answer lacks.
pub(crate) fn missing_lines(missing: &[UnreadTarget], members: &Members) -> Vec<String> {
    let failure = |missing: &UnreadTarget| Failure {
        who: missing.who.clone(),
        pid: missing.pid,
        message: missing.why.message.clone(),
        hint: missing.why.hint.clone(),
        status: exit::UNREACHABLE,
        ended: false,
    };
    let failures: Vec<Failure> = missing.iter().map(failure).collect();
    lines(&failures.iter().collect::<Vec<_>>(), members)
}

/// One line for each kind of trouble, and one with what to do about it.
fn lines(failures: &[&Failure], members: &Members) -> Vec<String> {
    let mut kinds: Vec<(String, Vec<&Failure>)> = Vec::new();
    for failure in failures {
        let kind = failure.without_pid(&failure.message);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, failures)) => failures.push(failure),
            None => kinds.push((kind, vec![failure])),
        }
    }
    let mut lines = Vec::new();
    for (kind, failures) in kinds {
        let group: Group = failures.iter().map(|failure| &failure.who).collect();
        let (message, hint) = match failures.as_slice() {
            [only] => (only.message.clone(), only.hint.clone()),
            several => {
                let hint = several[0].hint.as_ref();
                (kind, hint.map(|hint| several[0].without_pid(hint)))
            }
        };
        lines.push(crate::errors::continued(&format!("{group}: {message}")));
        lines.extend(hint.map(|hint| crate::errors::continued(&format!("  hint: {hint}"))));
    }
    if !members.missing.is_empty() {
        let ranks = members.missing.to_string();
        let word = if members.missing.count() == 1 {
            "rank"
        } else {
            "ranks"
        };
        lines.push(format!("{word} {ranks}: no process here has it"));
        let hint = "it has ended, or runs on another machine; `probing list` shows the ranks of this machine";
        lines.push(format!("  hint: {hint}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_stands_beside_its_target_and_several_below() {
        let who = [TargetLabel::Rank(0), TargetLabel::Rank(1)]
            .iter()
            .collect();
        assert_eq!(labelled(&who, "0.1"), "ranks 0-1: 0.1\n");
        assert_eq!(labelled(&who, "a\nb\n"), "ranks 0-1:\n  a\n  b\n");
    }
}
