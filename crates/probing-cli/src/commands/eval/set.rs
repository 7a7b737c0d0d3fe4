//! `probing eval` on several targets, all at the same time, with equal results grouped.

use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use probing_client::{
    Canceller, ClientError, ConnectedProbe, Entry, FanOutLimits, Group, Members, SelectionError,
    Target,
};
use probing_proto::message::Stream;
use probing_proto::report::EvalReport;

use crate::arguments::EvalArguments;
use crate::commands::answers::{MemberResults, labelled};
use crate::commands::eval::Code;
use crate::commands::{TargetArgs, say_attached_to};
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

/// Beyond the time that the code has: for bringing the probe in, and for what does not end when interrupted.
const MARGIN: Duration = Duration::from_secs(15);

/// Those that run the code, when they are several. They must be meant expressly: code can change them.
pub(super) fn several(
    arguments: &EvalArguments,
    aim: &TargetArgs,
) -> anyhow::Result<Option<Members>> {
    if aim.targets.one().is_some() {
        return Ok(None);
    }
    let members = aim.members()?;
    // The only one that an agent offers is plainly meant.
    let is_only = !aim.targets.nodes().is_empty() && members.all.len() == 1;
    if !aim.targets.is_by_rank() && !arguments.all && !is_only {
        let group = members.all.iter().map(|member| &member.who).collect();
        return Err(ClientError::Selection(SelectionError::NotExplicit { group }).into());
    }
    let is_one = members.all.len() == 1 && members.missing.is_empty() && !arguments.json;
    Ok((!is_one).then_some(members))
}

/// What became of the code on one target.
struct Done {
    report: EvalReport,
    status: Status,
    attached: bool,
}

pub(super) fn run(
    arguments: &EvalArguments,
    members: &Members,
    entry: Entry,
    code: Code,
) -> anyhow::Result<Status> {
    let running = Running::default();
    running.cancel_on_interrupt()?;
    let manner = FanOutLimits {
        // Code may wait for the same code elsewhere, as collective operations do.
        at_once: members.all.len(),
        timeout: code.timeout.map(|timeout| timeout.saturating_add(MARGIN)),
    };
    let these = running.clone();
    let answers = MemberResults::of(members, manner, move |member| {
        these.run(&member.target, &entry, &code)
    });
    let status = running.status(&answers);
    if arguments.json {
        let report = answers.report(|done| done.report);
        json::print(&report)?;
        return Ok(status);
    }
    say_attached_to(&answers.those(|done| done.attached))?;
    for (who, done) in answers.alike(kind) {
        tell(&who, &done.report)?;
    }
    for line in answers.failures() {
        writeln!(terminal::stderr(), "{line}")?;
    }
    Ok(status)
}

/// The evals that run now, to be interrupted together.
#[derive(Debug, Clone, Default)]
struct Running(Arc<Mutex<Evals>>);

#[derive(Debug, Default)]
struct Evals {
    interrupted: bool,
    all: Vec<Canceller>,
}

impl Running {
    fn evals(&self) -> std::sync::MutexGuard<'_, Evals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, target: &Target, entry: &Entry, code: &Code) -> anyhow::Result<Done> {
        let ConnectedProbe { probe, attached } = target.connect(entry)?;
        let running = crate::commands::eval::Running::start(target.clone(), probe, code.clone())?;
        let eval = running.eval.clone();
        let interrupted = {
            let mut evals = self.evals();
            evals.all.push(eval.clone());
            evals.interrupted
        };
        if interrupted {
            eval.cancel()?;
        }
        let (report, status) = running.finished()?;
        Ok(Done {
            report,
            status,
            attached: attached.is_some(),
        })
    }

    /// The first Ctrl-C interrupts the code on all and waits for their answers, the second leaves at once.
    fn cancel_on_interrupt(&self) -> anyhow::Result<()> {
        let running = self.clone();
        ctrlc::set_handler(move || {
            let mut evals = running.evals();
            if evals.interrupted {
                crate::exit::leave();
            }
            evals.interrupted = true;
            for eval in &evals.all {
                // A target that cannot be told any more is gone, which is its answer.
                eval.cancel().ok();
            }
        })?;
        Ok(())
    }

    fn status(&self, answers: &MemberResults<'_, Done>) -> Status {
        if self.evals().interrupted {
            return exit::INTERRUPTED;
        }
        let ended = answers.given().map(|(_, done)| done.status);
        exit::of_several(ended.chain([answers.status()]))
    }
}

/// What makes two results the same.
fn kind(done: &Done) -> (bool, &str, Option<&str>, Option<String>) {
    let report = &done.report;
    let exception = report.exception.as_ref();
    (
        report.timed_out,
        report.output.as_str(),
        report.value.as_deref(),
        exception.map(|exception| without_numbers(&exception.traceback)),
    )
}

/// Every target counts its own evals: `File "<eval 4>"` is the same code as `File "<eval 7>"` elsewhere.
fn without_numbers(traceback: &str) -> String {
    let mut parts = traceback.split("File \"<eval ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("File \"<eval");
        text.push_str(part.trim_start_matches(|character: char| character.is_ascii_digit()));
    }
    text
}

fn tell(who: &Group, report: &EvalReport) -> io::Result<()> {
    let value = report.value.as_deref().unwrap_or_default();
    let printed = match (report.output.as_str(), value) {
        (output, "") => output.to_owned(),
        (output, value) if output.is_empty() || output.ends_with('\n') => {
            format!("{output}{value}")
        }
        (output, value) => format!("{output}\n{value}"),
    };
    let trouble = match &report.exception {
        _ if report.timed_out => {
            let reason = report.stuck.as_ref().map(|stuck| stuck.reason.as_str());
            let reason = reason.unwrap_or("the code was interrupted");
            Some(format!("timed out: {reason}"))
        }
        Some(exception) => Some(without_numbers(&exception.traceback)),
        None => None,
    };
    if !printed.is_empty() {
        let mut out = terminal::of_code(Stream::Stdout);
        write!(out, "{}", labelled(who, &printed))?;
        out.flush()?;
    }
    match trouble {
        Some(trouble) => write!(terminal::stderr(), "{}", labelled(who, &trouble)),
        None if printed.is_empty() => writeln!(terminal::stderr(), "{who}: done"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracebacks_are_compared_without_the_number_of_the_eval() {
        let traceback =
            "  File \"<eval 12>\", line 3, in <module>\n  File \"<eval 7>\", line 1, in f\n";
        assert_eq!(
            without_numbers(traceback),
            "  File \"<eval>\", line 3, in <module>\n  File \"<eval>\", line 1, in f\n"
        );
        assert_eq!(without_numbers("no file"), "no file");
    }
}
