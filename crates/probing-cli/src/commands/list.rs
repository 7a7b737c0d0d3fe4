//! `probing list`: lists Python processes and their probes.

use std::io::Write as _;
use std::sync::Arc;

use probing_agent::Settings;
use probing_client::{FanOutLimits, Node, Recording, fan_out};
use probing_proto::agent::{NodeReport, NodeTarget};
use probing_proto::process::Pid;
use probing_proto::report::{DeadProcess, ListedProcess, ProbeState, ProcessRole};
use probing_proto::tables::schema::Storage;

use crate::arguments::ListArguments;
use crate::commands::TargetArgs;
use crate::commands::answers::missing_lines;
use crate::errors;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;
use crate::terminal::Style;

pub(crate) fn run(arguments: &ListArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    if !aim.targets.nodes().is_empty() {
        return run_elsewhere(arguments, aim);
    }
    if arguments.dead {
        let dead = Recording::of_the_dead();
        let dead: Vec<DeadProcess> = dead.iter().map(Recording::report).collect();
        return show_dead(arguments, &dead);
    }
    let (processes, status) = chosen(probing_client::list(), aim)?;
    say_agents()?;
    if arguments.json {
        json::print(&processes)?;
        return Ok(status);
    }
    if processes.is_empty() {
        writeln!(terminal::stderr(), "no Python processes found")?;
        return Ok(status);
    }
    show(&table(&processes))?;
    Ok(status)
}

/// Those that are named by `-t` or `--ranks`; all, where none are. Ranks that nobody has are named.
fn chosen(
    mut processes: Vec<ListedProcess>,
    aim: &TargetArgs,
) -> anyhow::Result<(Vec<ListedProcess>, Status)> {
    if aim.targets.is_empty() {
        return Ok((processes, exit::OK));
    }
    let members = aim.members()?;
    for line in missing_lines(&[], &members) {
        writeln!(terminal::stderr(), "{line}")?;
    }
    let status = if members.missing.is_empty() {
        exit::OK
    } else {
        exit::UNREACHABLE
    };
    let mut pids = Vec::new();
    for member in members.all {
        let is_listed = |pid: &Pid| processes.iter().any(|process| process.pid == *pid);
        pids.push(match member.pid.filter(is_listed) {
            Some(pid) => pid,
            // Says why there is none.
            None => member.target.facts()?.pid,
        });
    }
    processes.retain(|process| pids.contains(&process.pid));
    Ok((processes, status))
}

/// Those on the machines of agents.
fn run_elsewhere(arguments: &ListArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let nodes = aim.targets.nodes();
    let (reports, status) = list_nodes(nodes, arguments.dead)?;
    if arguments.dead {
        let dead = reports.into_iter().flat_map(|(_, report)| report.dead);
        let shown = show_dead(arguments, &dead.collect::<Vec<DeadProcess>>())?;
        return Ok(if status == exit::OK { shown } else { status });
    }
    let named = reports.into_iter().flat_map(|(node, report)| {
        let node = (nodes.len() > 1).then(|| node.endpoint().to_string());
        let of_it = move |target| NodeTarget {
            node: node.clone(),
            ..target
        };
        report.targets.into_iter().map(of_it)
    });
    let targets: Vec<NodeTarget> = named.collect();
    if arguments.json {
        json::print(&targets)?;
        return Ok(status);
    }
    let nodes: Vec<Option<String>> = targets.iter().map(|target| target.node.clone()).collect();
    let processes: Vec<ListedProcess> = targets.into_iter().map(|target| target.process).collect();
    show(&beside(&nodes, table(&processes)))?;
    Ok(status)
}

/// An agent and what it says.
type NodeListing = (Arc<Node>, NodeReport);

/// What each of these agents says. One of several that is down is named, and fails only the command's status.
fn list_nodes(nodes: &[Arc<Node>], dead: bool) -> anyhow::Result<(Vec<NodeListing>, Status)> {
    // Each has its own deadline.
    let manner = FanOutLimits {
        at_once: 32,
        timeout: None,
    };
    let answers = fan_out(nodes, manner, move |node| node.targets(dead));
    let (mut said, mut status) = (Vec::new(), exit::OK);
    for (node, answer) in nodes.iter().zip(answers.into_iter().flatten()) {
        match answer {
            Err(error) if nodes.len() > 1 => {
                let (endpoint, error) = (node.endpoint(), anyhow::Error::from(error));
                writeln!(
                    terminal::stderr(),
                    "{endpoint}: {}",
                    errors::message(&error)
                )?;
                status = exit::UNREACHABLE;
            }
            answer => said.push((Arc::clone(node), answer?)),
        }
    }
    Ok((said, status))
}

/// The lines of a table, behind the node that each is of where there are several.
fn beside(nodes: &[Option<String>], lines: Vec<String>) -> Vec<String> {
    let width = nodes.iter().flatten().map(String::len).max();
    let Some(width) = width else { return lines };
    let first = std::iter::once("NODE");
    let nodes = first.chain(nodes.iter().map(|node| node.as_deref().unwrap_or_default()));
    let line = |(node, line): (&str, String)| format!("{node:<width$}  {line}");
    nodes.zip(lines).map(line).collect()
}

/// Names agents that programs asked for and that could not start.
fn say_agents() -> anyhow::Result<()> {
    for standing in probing_client::local_agents() {
        if let Some(trouble) = &standing.state.trouble {
            let port = standing.port;
            writeln!(
                terminal::stderr(),
                "note: no agent on port {port}: {trouble}"
            )?;
        }
    }
    for (pid, listen) in probing_client::wanted_agents() {
        let text = listen.to_string_lossy();
        if let Err(error) = Settings::listen(&text) {
            writeln!(
                terminal::stderr(),
                "note: no agent for PROBING_PORT={text} of process {pid}: {error}"
            )?;
        }
    }
    Ok(())
}

/// Processes that have ended and whose recorded rows are still there.
fn show_dead(arguments: &ListArguments, dead: &[DeadProcess]) -> anyhow::Result<Status> {
    if arguments.json {
        json::print(&dead)?;
    } else if dead.is_empty() {
        writeln!(
            terminal::stderr(),
            "no ended process has recorded rows here"
        )?;
    } else {
        show(&dead_table(dead))?;
        say_unreadable(dead)?;
    }
    Ok(exit::OK)
}

/// Whose rows this version cannot read.
fn say_unreadable(dead: &[DeadProcess]) -> anyhow::Result<()> {
    let mut out = terminal::stderr();
    for process in dead {
        for table in &process.unreadable {
            let (pid, error, hint) = (process.pid, &table.error, &table.hint);
            writeln!(out, "warning: process {pid}: {error}\n  hint: {hint}")?;
        }
    }
    Ok(())
}

fn show(lines: &[String]) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    let width = terminal::width();
    for (index, line) in lines.iter().enumerate() {
        let style = if index == 0 {
            Style::new().bold()
        } else {
            Style::new()
        };
        let line = terminal::on_one_line(line, width);
        writeln!(out, "{style}{line}{style:#}")?;
    }
    Ok(())
}

fn dead_table(dead: &[DeadProcess]) -> Vec<String> {
    let head = [
        "PID", "RANK", "PYTHON", "LAST ROW", "SIZE", "COMMAND", "TABLES",
    ];
    let row = |process: &DeadProcess| {
        let tables: Vec<String> = process
            .tables
            .iter()
            .map(|table| format!("{} ({})", table.name, table.rows))
            .chain(
                process
                    .unreadable
                    .iter()
                    .map(|table| format!("{} (?)", table.name)),
            )
            .collect();
        [
            process.pid.to_string(),
            or_dash(process.rank),
            process.python.clone().unwrap_or_else(|| "?".to_owned()),
            age(process.age_seconds),
            size(process.bytes),
            process.command.join(" "),
            tables.join(", "),
        ]
    };
    let rows: Vec<[String; 7]> = std::iter::once(head.map(str::to_owned))
        .chain(dead.iter().map(row))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let [pids, ranks, pythons, ages, sizes] = std::array::from_fn(width);
    let line = |[pid, rank, python, age, size, command, tables]: &[String; 7]| {
        format!(
            "{pid:>pids$}  {rank:>ranks$}  {python:<pythons$}  {age:>ages$}  {size:>sizes$}  {tables}  {command}"
        )
    };
    rows.iter().map(line).collect()
}

/// `512 B`, `1.5 KB`, `32 MB`
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
    }
}

fn or_dash(rank: Option<u32>) -> String {
    rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string())
}

fn table(processes: &[ListedProcess]) -> Vec<String> {
    let head = ["PID", "RANK", "PYTHON", "PROBE", "AGE", "ROLE", "COMMAND"].map(str::to_owned);
    let mut rows: Vec<[String; 7]> = processes.iter().map(row).collect();
    rows.insert(0, head);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let [pids, ranks, pythons, probes, ages, roles] = std::array::from_fn(width);
    let line = |[pid, rank, python, probe, age, role, command]: &[String; 7]| {
        format!(
            "{pid:>pids$}  {rank:>ranks$}  {python:<pythons$}  {probe:<probes$}  {age:>ages$}  {role:<roles$}  {command}"
        )
    };
    rows.iter().map(line).collect()
}

fn row(process: &ListedProcess) -> [String; 7] {
    let role = process.role.map(|role| match role {
        ProcessRole::Launcher => "launcher",
        ProcessRole::Worker => "worker",
        ProcessRole::Child => "child",
    });
    [
        process.pid.to_string(),
        or_dash(process.rank),
        process.python.clone().unwrap_or_else(|| "?".to_owned()),
        probe(process),
        age(process.age_seconds),
        role.unwrap_or("-").to_owned(),
        process.command.join(" "),
    ]
}

fn probe(process: &ListedProcess) -> String {
    let state = match process.probe {
        ProbeState::None => "none",
        ProbeState::Running => "running",
        ProbeState::Silent => "silent",
        ProbeState::Left => "left",
        ProbeState::Forbidden => "forbidden",
    };
    let heap_only = matches!(process.recording, Some(Storage::Heap { .. }));
    let at_breakpoint = match process.stops {
        1 => "1 thread at a breakpoint".to_owned(),
        stops => format!("{stops} threads at breakpoints"),
    };
    let notes: Vec<&str> = [
        (process.stopped, "stopped"),
        (process.stops > 0, at_breakpoint.as_str()),
        (heap_only, "heap only"),
    ]
    .into_iter()
    .filter_map(|(is, note)| is.then_some(note))
    .collect();
    if notes.is_empty() {
        state.to_owned()
    } else {
        format!("{state} ({})", notes.join(", "))
    }
}

/// The two largest units: `59s`, `3m 20s`, `2h 5m`, `9d 4h`.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_its_two_largest_units() {
        let check = |seconds, text| assert_eq!(age(seconds), text);
        check(0, "0s");
        check(200, "3m 20s");
        check(7500, "2h 5m");
        check(792_000, "9d 4h");
    }
}
