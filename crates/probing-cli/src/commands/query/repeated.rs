//! `--every`: the same question again and again, until someone has seen enough.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use probing_client::{Pace, Stop};
use probing_engine::{EngineError, Format, Layout};
use probing_proto::text::timestamp::utc;

use crate::commands::answers::missing_lines;
use crate::commands::query::{QueryRunner, counted, said_whom_it_lacks};
use crate::commands::screen::{Screen, VisiblePart};
use crate::exit::{self, Status};
use crate::terminal;

pub(super) fn run(
    asker: &QueryRunner<'_>,
    sql: &str,
    every: Duration,
    stop: &Stop,
) -> anyhow::Result<Status> {
    let mut pace = Pace::new(every, stop);
    let is_text = matches!(asker.format(), Format::Text(_));
    let ended = if is_text && terminal::is_stdout_terminal() {
        in_place(asker, sql, every, &mut pace)
    } else {
        one_after_the_other(asker, sql, &mut pace)
    };
    match ended {
        Err(error) if !(stop.is_asked() && was_stopped(&error)) => Err(error),
        _ => Ok(exit::OK),
    }
}

fn was_stopped(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(EngineError::Stopped))
}

fn one_after_the_other(asker: &QueryRunner<'_>, sql: &str, pace: &mut Pace) -> anyhow::Result<()> {
    let mut is_first = true;
    while pace.wait().is_some() {
        let members = asker.aim.members()?;
        let answer = asker.answer(sql, &members)?;
        let mut out = asker.out()?;
        if matches!(asker.format(), Format::Text(_)) {
            let gap = if is_first { "" } else { "\n" };
            writeln!(out, "{gap}--- {}", now())?;
        }
        let written = answer.write(asker.format(), &mut out);
        drop(out);
        said_whom_it_lacks(written, &members)?;
        is_first = false;
    }
    Ok(())
}

/// On a screen of its own. The last rows stay when it goes.
fn in_place(
    asker: &QueryRunner<'_>,
    sql: &str,
    every: Duration,
    pace: &mut Pace,
) -> anyhow::Result<()> {
    let mut screen = Screen::new(VisiblePart::First);
    let mut last = String::new();
    let ended = loop {
        if screen.wait(pace)?.is_none() {
            break Ok(());
        }
        let members = asker.aim.members()?;
        let mut rows = Vec::new();
        let layout = Layout {
            width: Some(terminal::width()),
        };
        let written = asker
            .answer(sql, &members)
            .and_then(|answer| answer.write(Format::Text(layout), &mut rows));
        let summary = match written {
            Ok(summary) => summary,
            Err(error) => break Err(error),
        };
        last = String::from_utf8_lossy(&rows).into_owned();
        let seconds = every.as_secs_f64();
        let words = format!(
            "{}, {}, every {seconds} s (Ctrl-C exits)",
            counted(summary.rows),
            now()
        );
        screen.set_title(words);
        let lacks = missing_lines(&summary.missing, &members);
        let lacks: String = lacks.iter().map(|line| format!("\n{line}")).collect();
        screen.draw(&format!("{last}{lacks}"))?;
    };
    drop(screen);
    write!(terminal::stdout(), "{last}")?;
    Ok(ended?)
}

fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    utc(now.unwrap_or_default().as_nanos() as u64)
}
