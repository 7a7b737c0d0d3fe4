//! `probing list`

use std::io::Write as _;

use anstyle::Style;
use probing_proto::report::{ListedProcess, ProbeState};

use crate::arguments::ListArguments;
use crate::exit::{self, Status};

/// Longest command line shown; `--json` has it whole.
const LONGEST_COMMAND: usize = 80;

pub(crate) fn run(arguments: &ListArguments) -> anyhow::Result<Status> {
    let processes = probing_client::list();
    let mut out = anstream::stdout();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&processes)?)?;
    } else if processes.is_empty() {
        writeln!(
            anstream::stderr(),
            "no Python process is running that can be seen from here"
        )?;
    } else {
        write!(out, "{}", table(&processes))?;
    }
    Ok(exit::OK)
}

fn table(processes: &[ListedProcess]) -> String {
    let head = ["PID", "RANK", "PYTHON", "PROBE", "AGE", "COMMAND"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head)
        .chain(processes.iter().map(row))
        .collect();
    let widths: [usize; 5] = std::array::from_fn(|column| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    });
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let style = if index == 0 {
            Style::new().bold()
        } else {
            Style::new()
        };
        let [pid, rank, python, probe, age, command] = row;
        let [pids, ranks, pythons, probes, ages] = widths;
        text.push_str(&format!(
            "{style}{pid:>pids$}  {rank:>ranks$}  {python:<pythons$}  {probe:<probes$}  {age:>ages$}  {command}{style:#}\n"
        ));
    }
    text
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
        shortened(&process.command.join(" ")),
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

/// On one line, whatever the program's arguments contain.
fn shortened(command: &str) -> String {
    let mut line: String = command
        .chars()
        .take(LONGEST_COMMAND)
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect();
    if command.chars().count() > LONGEST_COMMAND {
        line.push('…');
    }
    line
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

    #[test]
    fn a_command_stays_on_one_line() {
        assert_eq!(shortened("python -c a\nb"), "python -c a b");
        assert_eq!(
            shortened(&"x".repeat(100)).chars().count(),
            LONGEST_COMMAND + 1
        );
    }
}
