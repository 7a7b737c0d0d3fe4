//! `probing list`

use std::io::Write as _;

use anstyle::Style;
use probing_proto::report::{ListedProcess, ProbeState};

use crate::arguments::ListArguments;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

pub(crate) fn run(arguments: &ListArguments) -> anyhow::Result<Status> {
    let processes = probing_client::list();
    let mut out = anstream::stdout();
    if arguments.json {
        json::print(&processes)?;
        return Ok(exit::OK);
    }
    if processes.is_empty() {
        writeln!(
            anstream::stderr(),
            "no Python process can be seen from here"
        )?;
        return Ok(exit::OK);
    }
    let width = terminal::width();
    for (index, line) in table(&processes).iter().enumerate() {
        let style = if index == 0 {
            Style::new().bold()
        } else {
            Style::new()
        };
        writeln!(
            out,
            "{style}{}{style:#}",
            terminal::on_one_line(line, width)
        )?;
    }
    Ok(exit::OK)
}

fn table(processes: &[ListedProcess]) -> Vec<String> {
    let head = ["PID", "RANK", "PYTHON", "PROBE", "AGE", "COMMAND"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head)
        .chain(processes.iter().map(row))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let [pids, ranks, pythons, probes, ages] = std::array::from_fn(width);
    let line = |[pid, rank, python, probe, age, command]: &[String; 6]| {
        format!(
            "{pid:>pids$}  {rank:>ranks$}  {python:<pythons$}  {probe:<probes$}  {age:>ages$}  {command}"
        )
    };
    rows.iter().map(line).collect()
}

fn row(process: &ListedProcess) -> [String; 6] {
    [
        process.pid.to_string(),
        process
            .rank
            .map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
        process.python.clone().unwrap_or_else(|| "?".to_owned()),
        probe(process),
        age(process.age_seconds),
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
    if process.stopped {
        format!("{state} (stopped)")
    } else {
        state.to_owned()
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
