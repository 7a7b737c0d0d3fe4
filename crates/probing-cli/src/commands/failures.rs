//! Targets of a set that did not do as asked: those with the same trouble on one line.

use probing_client::{ClientError, Group, Member, Members, Who};
use probing_proto::process::Pid;

/// What went wrong with one target.
#[derive(Debug)]
pub(crate) struct Failure {
    who: Who,
    pid: Option<Pid>,
    pub(crate) message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn of(member: &Member, error: &anyhow::Error) -> Self {
        let hint = error.downcast_ref().and_then(ClientError::hint);
        Self {
            who: member.who.clone(),
            pid: member.pid,
            message: format!("{error:#}"),
            hint,
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

/// One line for each kind of trouble, and one with what to do about it.
pub(crate) fn lines(failures: &[Failure], members: &Members) -> Vec<String> {
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
        lines.push(format!("{group}: {message}"));
        lines.extend(hint.map(|hint| format!("  hint: {hint}")));
    }
    if !members.missing.is_empty() {
        let ranks = members.missing.to_string();
        let word = if members.missing.count() == 1 {
            "rank"
        } else {
            "ranks"
        };
        lines.push(format!("{word} {ranks}: no process here has it"));
        let hint = "it has ended, or runs on another machine; `probing list` shows who is here";
        lines.push(format!("  hint: {hint}"));
    }
    lines
}
