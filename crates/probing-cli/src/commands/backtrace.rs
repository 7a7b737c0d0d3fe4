//! `probing -t PID backtrace`: asks, keeps the threads that are wanted, prints.

mod text;

use std::io::Write as _;

use anyhow::{Context as _, bail};
use probing_proto::report::{BacktraceReport, ReportedThread};

use super::Aim;
use crate::arguments::BacktraceArguments;
use crate::exit::{self, Status};

pub(crate) fn run(arguments: &BacktraceArguments, aim: &Aim) -> anyhow::Result<Status> {
    let mut report = aim.target()?.stacks()?;
    choose(&mut report, arguments)?;
    let mut out = anstream::stdout();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{}", text::text(&report, arguments.reverse))?;
    }
    Ok(exit::OK)
}

/// Keeps the threads that were asked for.
fn choose(report: &mut BacktraceReport, arguments: &BacktraceArguments) -> anyhow::Result<()> {
    if let Some(wanted) = &arguments.thread {
        let names: Vec<String> = report.threads.iter().map(text::name).collect();
        report.threads.retain(|thread| is_named(thread, wanted));
        if report.threads.is_empty() {
            bail!(
                "no thread is called {wanted}; there are: {}",
                names.join(", ")
            );
        }
    } else if !arguments.all {
        report.threads.retain(|thread| thread.main);
        report
            .threads
            .first()
            .context("the main thread runs no Python now; `--all` shows the others")?;
    }
    Ok(())
}

fn is_named(thread: &ReportedThread, wanted: &str) -> bool {
    thread.thread_name.as_deref() == Some(wanted)
        || thread.ident.to_string() == wanted
        || thread.thread_id.is_some_and(|id| id.to_string() == wanted)
}
