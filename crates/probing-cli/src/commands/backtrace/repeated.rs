//! `--watch` and `--dump`: the same stacks again and again, until there are enough or the target ends.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use probing_client::{ClientError, Pace, Stacks, Stop, Target};
use probing_proto::report::BacktraceReport;

use super::screen::{self, Screen};
use super::{choose, text};
use crate::arguments::BacktraceArguments;
use crate::exit::{self, Status};

/// How often, and how many of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    every: Duration,
    /// `None`: until someone has seen enough.
    most: Option<u64>,
}

pub(super) fn asked_for(arguments: &BacktraceArguments) -> Option<Times> {
    match (arguments.watch, arguments.dump) {
        (Some(every), _) => Some(Times { every, most: None }),
        (None, Some(_)) => Some(Times {
            every: arguments.every,
            most: arguments.dump,
        }),
        (None, None) => None,
    }
}

pub(super) fn run(
    arguments: &BacktraceArguments,
    target: &Target,
    times: Times,
) -> anyhow::Result<Status> {
    let stacks = &mut target.stacks(&super::query(arguments))?;
    if let Some(note) = stacks.note() {
        writeln!(anstream::stderr(), "{note}")?;
    }
    let stop = Stop::default();
    let asked = stop.clone();
    ctrlc::set_handler(move || asked.ask())?;
    let lives = arguments.watch.is_some() && !arguments.json && io::stdout().is_terminal();
    let end = if lives {
        watch(arguments, stacks, times.every, &stop)?
    } else {
        dump(arguments, stacks, times, &stop)?
    };
    if let End::Ended { shown } = end {
        writeln!(
            anstream::stderr(),
            "process {} has ended after {shown} readings",
            stacks.pid()
        )?;
    }
    Ok(match end {
        End::Ended { shown } if times.most.is_some_and(|most| shown < most) => exit::UNREACHABLE,
        End::Interrupted if times.most.is_some() => exit::INTERRUPTED,
        _ => exit::OK,
    })
}

enum End {
    Done,
    Interrupted,
    /// The target.
    Ended {
        shown: u64,
    },
}

/// One reading, as far as it was asked for. A target that starts another program is told and tried again.
fn reading(
    arguments: &BacktraceArguments,
    stacks: &mut Stacks,
    is_first: bool,
) -> anyhow::Result<Result<BacktraceReport, String>> {
    let read = stacks
        .read()
        .map_err(anyhow::Error::from)
        .and_then(|mut report| choose(&mut report, arguments).map(|()| report));
    match read {
        Ok(report) => Ok(Ok(report)),
        Err(error) if is_first || is_end(&error) => Err(error),
        Err(error) => Ok(Err(format!("{error:#}"))),
    }
}

fn is_end(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<ClientError>()
        .is_some_and(ClientError::is_end)
}

/// Each after the other, with its time.
fn dump(
    arguments: &BacktraceArguments,
    stacks: &mut Stacks,
    times: Times,
    stop: &Stop,
) -> anyhow::Result<End> {
    let mut out = anstream::stdout();
    let mut pace = Pace::new(times.every, stop);
    let mut shown = 0;
    while times.most.is_none_or(|most| shown < most) {
        if pace.wait().is_none() {
            return Ok(End::Interrupted);
        }
        match reading(arguments, stacks, shown == 0) {
            Ok(Ok(report)) if arguments.json => {
                writeln!(out, "{}", serde_json::to_string(&report)?)?;
            }
            Ok(Ok(report)) => {
                let gap = if shown > 0 { "\n" } else { "" };
                let time = utc(report.taken_at_nanos);
                write!(
                    out,
                    "{gap}--- {time}\n{}",
                    text::text(&report, arguments.reverse)
                )?;
            }
            Ok(Err(words)) => writeln!(anstream::stderr(), "error: {words}")?,
            Err(error) if shown > 0 && is_end(&error) => return Ok(End::Ended { shown }),
            Err(error) => return Err(error),
        }
        out.flush()?;
        shown += 1;
    }
    Ok(End::Done)
}

/// In place, on a screen of its own. What a target that ended was last seen at stays when the screen goes.
fn watch(
    arguments: &BacktraceArguments,
    stacks: &mut Stacks,
    every: Duration,
    stop: &Stop,
) -> anyhow::Result<End> {
    let mut pace = Pace::new(every, stop);
    let mut screen = Screen::new(screen::Kept::of(arguments.all, arguments.reverse));
    let (mut shown, mut last) = (0, String::new());
    let end = loop {
        if screen.wait(&mut pace)?.is_none() {
            break End::Interrupted;
        }
        let text = match reading(arguments, stacks, shown == 0) {
            Ok(Ok(report)) => {
                let time = utc(report.taken_at_nanos);
                screen.set_title(format!(
                    "process {}, {time}, every {} s (Ctrl-C ends)",
                    stacks.pid(),
                    every.as_secs_f64()
                ));
                last = text::text(&report, arguments.reverse);
                last.clone()
            }
            // A process that ends has threads without stacks first.
            Ok(Err(words)) => format!("error: {words}\n"),
            Err(error) if shown > 0 && is_end(&error) => break End::Ended { shown },
            Err(error) => return Err(error),
        };
        screen.draw(&text)?;
        shown += 1;
    };
    drop(screen);
    if let End::Ended { .. } = end {
        write!(anstream::stdout(), "{last}")?;
    }
    Ok(end)
}

/// `2026-11-15T23:52:23.123Z`
fn utc(nanos: u64) -> String {
    let (seconds, millis) = (nanos / 1_000_000_000, nanos / 1_000_000 % 1000);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    // Years that begin in March have their odd day at the end; 400 of them have always the same number of days.
    let days = seconds / 86400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era * 400 + year + carry;
    let second = seconds % 60;
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_as_everywhere() {
        let check = |seconds: u64, text| assert_eq!(utc(seconds * 1_000_000_000), text);
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_400, "2000-02-29T00:00:00.000Z");
        check(951_868_799, "2000-02-29T23:59:59.000Z");
        check(1_704_067_199, "2023-12-31T23:59:59.000Z");
        check(1_709_251_200, "2024-03-01T00:00:00.000Z");
        check(4_107_542_400, "2100-03-01T00:00:00.000Z");
        assert_eq!(utc(1_234_567_890), "1970-01-01T00:00:01.234Z");
    }
}
