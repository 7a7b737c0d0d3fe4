//! `probing clean`: removes recorded rows of ended processes.

use std::io::Write as _;

use anyhow::Context as _;
use probing_client::Recording;
use probing_proto::report::{CleanReport, DeadProcess};

use crate::arguments::CleanArguments;
use crate::commands::list::size;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

pub(crate) fn run(arguments: &CleanArguments) -> anyhow::Result<Status> {
    let mut removed = Vec::new();
    for recording in probing_client::beyond(arguments.limits()) {
        let told = recording.report();
        if arguments.dry_run || remove(&recording)? {
            removed.push(told);
        }
    }
    let report = CleanReport {
        dry_run: arguments.dry_run,
        bytes: removed.iter().map(|process| process.bytes).sum(),
        removed,
    };
    if arguments.json {
        json::print(&report)?;
    } else {
        let mut out = terminal::stdout();
        for process in &report.removed {
            writeln!(out, "{}", line(process, report.dry_run))?;
        }
        writeln!(terminal::stderr(), "{}", sum(&report))?;
    }
    Ok(exit::OK)
}

fn remove(recording: &Recording) -> anyhow::Result<bool> {
    probing_client::remove(recording)
        .with_context(|| format!("cannot remove {}", recording.rings.display()))
}

fn line(process: &DeadProcess, dry_run: bool) -> String {
    let verb = if dry_run { "would remove" } else { "removed" };
    let rows: usize = process.tables.iter().map(|table| table.rows).sum();
    format!(
        "{verb} {}: {rows} rows, {}  {}",
        process.pid,
        size(process.bytes),
        process.command.join(" ")
    )
}

fn sum(report: &CleanReport) -> String {
    let (count, bytes) = (report.removed.len(), size(report.bytes));
    match (count, report.dry_run) {
        (0, _) => "no ended process has recorded rows to remove".to_owned(),
        (_, true) => format!("{bytes} of {count} ended processes would be removed"),
        (_, false) => format!("{bytes} of {count} ended processes removed"),
    }
}
