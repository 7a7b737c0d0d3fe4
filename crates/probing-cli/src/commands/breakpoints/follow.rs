//! `--follow`: shows the hits of a breakpoint as they happen.
//!
//! Log lines and changes are data; stops and ends are words.

use std::io::{self, Write as _};
use std::thread;

use anyhow::Context as _;
use probing_client::{ClientError, ConnectedProbe, Entry, Member, Target};
use probing_proto::message::breakpoints::{BreakpointEvent, BreakpointId, SetBreakpoint};

use crate::commands::TargetArgs;
use crate::commands::breakpoints::text;
use crate::errors;
use crate::exit::{self, Status};
use crate::terminal;
use probing_proto::text::visible;

pub(super) fn run(arm: &SetBreakpoint, aim: &TargetArgs) -> anyhow::Result<Status> {
    ctrlc::set_handler(|| {
        // Nobody is left to tell when it cannot be written.
        writeln!(
            terminal::stderr(),
            "stopped following; the breakpoint stays set (`probing delete` deletes it)"
        )
        .ok();
        exit::leave();
    })?;
    let arm = arm.clone();
    each(aim, move |target, entry, whose| {
        follow(target, entry, &arm, whose)
    })
}

/// Does something with each target at the same time; what each says begins with its name, when there are several.
pub(super) fn each(
    aim: &TargetArgs,
    what: impl Fn(&Target, &Entry, &str) -> anyhow::Result<()> + Clone + Send + 'static,
) -> anyhow::Result<Status> {
    if aim.targets.one().is_some() {
        what(&aim.target()?, &aim.entry, "")?;
        return Ok(exit::OK);
    }
    let members = aim.members()?;
    let threads = members.all.iter().map(|member| {
        let (what, entry, member) = (what.clone(), aim.entry.clone(), member.clone());
        let done = move || {
            let Member { who, target, .. } = member;
            let outcome = what(&target, &entry, &format!("{who}: "));
            outcome.or_else(|error| {
                let hint = error.downcast_ref().and_then(ClientError::hint);
                writeln!(terminal::stderr(), "{who}: {}", errors::message(&error))?;
                hint.map_or(Ok(()), |hint| {
                    writeln!(terminal::stderr(), "  hint: {hint}")
                })?;
                anyhow::Ok(()).and(Err(error))
            })
        };
        thread::Builder::new().spawn(done)
    });
    let threads = threads
        .collect::<io::Result<Vec<_>>>()
        .context("cannot start a thread")?;
    let mut status = exit::OK;
    for thread in threads {
        if !matches!(thread.join(), Ok(Ok(()))) {
            status = exit::UNREACHABLE;
        }
    }
    Ok(status)
}

/// Sets the breakpoint and shows its hits, until it is deleted.
fn follow(target: &Target, entry: &Entry, arm: &SetBreakpoint, whose: &str) -> anyhow::Result<()> {
    let ConnectedProbe {
        mut probe,
        attached,
    } = target.connect(entry)?;
    if let Some(report) = attached {
        writeln!(
            terminal::stderr(),
            "{whose}{}",
            crate::commands::attached(&probe, &report)
        )?;
    }
    // First, so that nothing is missed.
    probe.follow(false)?;
    let point = probe.arm(arm.clone())?;
    let pid = probe.hello().pid;
    writeln!(terminal::stderr(), "{whose}{}", text::armed(&point))?;
    while let Some(news) = probe.next_news(None)? {
        match follow_line(&news, point.point) {
            Some(FollowLine::Data(line)) => {
                let mut out = terminal::stdout();
                writeln!(out, "{whose}{line}")?;
                out.flush()?;
            }
            Some(FollowLine::Stopped(line)) => {
                writeln!(
                    terminal::stderr(),
                    "{whose}{line}; debug it: probing -t {pid} debug"
                )?;
            }
            Some(FollowLine::Notice(line)) => writeln!(terminal::stderr(), "{whose}{line}")?,
            Some(FollowLine::End(line)) => {
                writeln!(terminal::stderr(), "{whose}{} {line}", text::name(&point))?;
                return Ok(());
            }
            None => {}
        }
    }
    Ok(())
}

enum FollowLine {
    Data(String),
    Stopped(String),
    Notice(String),
    /// Nothing more will come.
    End(String),
}

/// What is to be said about it, when it is about this point.
fn follow_line(news: &BreakpointEvent, of: BreakpointId) -> Option<FollowLine> {
    match news {
        BreakpointEvent::Logged {
            point, text, at, ..
        } if *point == of => {
            let line = format!("{}:{}: {text}", at.file, at.lineno);
            Some(FollowLine::Data(visible::line(&line).into_owned()))
        }
        BreakpointEvent::Changed {
            point,
            name,
            old,
            new,
            at,
            ..
        } if *point == of => {
            let change = text::change(name, old, new);
            let file = visible::line(&at.file);
            Some(FollowLine::Data(format!("{file}:{}: {change}", at.lineno)))
        }
        BreakpointEvent::Stopped { stop } if stop.why.point() == Some(of) => {
            let place = text::innermost(stop);
            let why = &stop.why;
            Some(FollowLine::Stopped(format!(
                "{} stopped in {place}: {why}",
                visible::line(&stop.thread_name)
            )))
        }
        BreakpointEvent::WentOn { stop, because } => {
            let because = text::because(*because);
            Some(FollowLine::Notice(format!(
                "stop {} resumed: {because}",
                stop.0
            )))
        }
        BreakpointEvent::Disarmed { point, reason } if *point == of => {
            Some(FollowLine::End(format!("deleted: {reason}")))
        }
        _ => None,
    }
}
