//! `probing top`: the hottest functions, by traces or by sampled stacks.

mod table;

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use probing_client::{Members, Pace, Pause, Plan, Stop, sample_each};
use probing_engine::{Engine, EngineError, QueryLimits, UnreadTarget};
use probing_proto::text::timestamp::utc;

use self::table::{Top, TracedFunction};
use crate::arguments::TopArguments;
use crate::commands::TargetArgs;
use crate::commands::answers::missing_lines;
use crate::commands::screen::{self, Screen, VisiblePart};
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

/// Sums become rows once a second: those of a look may come that much later.
const LATE: Duration = Duration::from_millis(1500);
/// Readings of stacks in a second.
const RATE: u32 = 100;
/// Sums that are added up: a row for each function of each target.
const MAX_ROWS: usize = 100_000;

pub(crate) fn run(arguments: &TopArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let stop = Stop::default();
    let asked = stop.clone();
    ctrlc::set_handler(move || {
        // Who asks again does not want to wait for a look that takes its time.
        if asked.is_asked() {
            screen::leave();
            exit::leave();
        }
        asked.ask();
    })?;
    let engine = Engine::start()?;
    let looker = TopSampler {
        engine,
        aim,
        arguments,
        stop: stop.clone(),
    };
    if arguments.once {
        let look = looker.look()?;
        if arguments.json {
            json::print(&look.top.report(&look.missing, &look.members))?;
        } else {
            write!(terminal::stdout(), "{}", look.top.text())?;
            for line in look.warnings() {
                writeln!(terminal::stderr(), "{line}")?;
            }
        }
        return Ok(exit::OK);
    }
    // A look without a trace takes as long as it samples: the pace is then that of the looks.
    let mut pace = Pace::new(arguments.span(), &stop);
    if terminal::is_stdout_terminal() {
        let mut screen = Screen::new(VisiblePart::First);
        while screen.wait(&mut pace)?.is_some() {
            let look = looker.look()?;
            if stop.is_asked() {
                break;
            }
            screen.set_title(format!("{} (Ctrl-C exits)", now()));
            screen.draw(&look.on_screen())?;
        }
    } else {
        while pace.wait().is_some() {
            let look = looker.look()?;
            writeln!(terminal::stdout(), "--- {}\n{}", now(), look.on_screen())?;
        }
    }
    Ok(exit::OK)
}

fn now() -> String {
    utc(nanos_now() as u64)
}

fn nanos_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as i64
}

/// What is asked for, again and again.
struct TopSampler<'a> {
    engine: Engine,
    aim: &'a TargetArgs,
    arguments: &'a TopArguments,
    stop: Stop,
}

/// What was seen, and of whom nothing was.
struct TopSnapshot {
    top: Top,
    members: Members,
    missing: Vec<UnreadTarget>,
}

impl TopSnapshot {
    fn warnings(&self) -> Vec<String> {
        missing_lines(&self.missing, &self.members)
    }

    /// Words beside the table: whoever watches a screen sees nothing else.
    fn on_screen(&self) -> String {
        let warnings: String = self
            .warnings()
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        self.top.text() + &warnings
    }
}

impl TopSampler<'_> {
    fn look(&self) -> anyhow::Result<TopSnapshot> {
        let members = self.aim.members()?;
        if self.arguments.thread.is_some() {
            // Sums of traces are those of all threads.
            return self.sampled(members, "one thread was asked for");
        }
        let (traced, missing) = match self.traced(&members) {
            Ok((traced, _)) if traced.is_empty() => {
                return self.sampled(members, "no traced call was recorded");
            }
            Ok(seen) => seen,
            // Its stacks are there all the same.
            Err(error @ EngineError::Blind { .. }) => {
                return self.sampled(members, &error.to_string());
            }
            Err(error) => return Err(error.into()),
        };
        let top = Top::of_traced(traced, &members, self.arguments.functions).without(&missing);
        Ok(TopSnapshot {
            top: top.in_part(self.is_muted(&members)?),
            members,
            missing,
        })
    }

    /// On the clock of rows.
    fn begin(&self) -> i64 {
        let since = self.arguments.span() + LATE;
        nanos_now() - since.as_nanos() as i64
    }

    /// Whether traces did not see all calls just now, because that would have cost too much.
    fn is_muted(&self, members: &Members) -> Result<bool, EngineError> {
        let begin = self.begin();
        let sql = format!(
            "WITH budgets AS (SELECT pid, trace, max(arrow_cast(ts, 'Int64')) FILTER (WHERE action = 'mute') AS muted, \
             coalesce(max(arrow_cast(ts, 'Int64')) FILTER (WHERE action = 'resume'), 0) AS resumed \
             FROM python.probe_budget GROUP BY pid, trace) \
             SELECT count(*) FROM budgets WHERE (muted > resumed OR resumed > {begin}) AND trace IN \
             (SELECT trace FROM python.trace_stats WHERE arrow_cast(ts, 'Int64') > {begin})"
        );
        let answer = self
            .engine
            .blocking_ask(&sql, members, &QueryLimits::default())?;
        let (table, _) = answer.into_json(1)?;
        let count = table.rows.first().and_then(|row| row.first()?.as_u64());
        Ok(count.is_some_and(|count| count > 0))
    }

    /// What traces have seen just now.
    fn traced(
        &self,
        members: &Members,
    ) -> Result<(Vec<TracedFunction>, Vec<UnreadTarget>), EngineError> {
        let begin = self.begin();
        let sql = format!(
            "SELECT pid, rank, func, file, lineno, sum(calls) AS calls, sum(total_ns) AS total, sum(self_ns) AS own, \
             min(min_ns) AS least, max(max_ns) AS greatest FROM python.trace_stats \
             WHERE arrow_cast(ts, 'Int64') > {begin} GROUP BY pid, rank, func, file, lineno \
             ORDER BY own DESC LIMIT {MAX_ROWS}"
        );
        let answer = self
            .engine
            .blocking_ask(&sql, members, &QueryLimits::default())?;
        let (table, summary) = answer.into_json(MAX_ROWS)?;
        let rows = table.rows.iter().filter_map(|row| TracedFunction::of(row));
        Ok((rows.collect(), summary.missing))
    }

    /// `why` no trace tells.
    fn sampled(&self, members: Members, why: &str) -> anyhow::Result<TopSnapshot> {
        let plan = Plan {
            duration: self.arguments.span(),
            rate: RATE,
            thread: self.arguments.thread.clone(),
            idle: false,
            threads: false,
            functions: false,
            pause: Pause::Never,
        };
        let (samples, failures) = sample_each(&members.all, &plan, &self.stop, |_| {});
        let Some(samples) = samples else {
            let first = failures.into_iter().next();
            return Err(first.map_or_else(
                || anyhow::anyhow!("no target to show"),
                |(_, error)| anyhow::Error::from(error),
            ))
            .with_context(|| format!("{why}, and stacks cannot be sampled"));
        };
        if let Some(wanted) = &self.arguments.thread
            && !samples.wanted_was_seen
            && samples.taken > 0
        {
            return Err(samples.no_thread(wanted).into());
        }
        let missing = failures.into_iter().map(|(member, error)| UnreadTarget {
            who: member.who,
            pid: member.pid,
            why: error.into(),
        });
        let missing: Vec<UnreadTarget> = missing.collect();
        Ok(TopSnapshot {
            top: Top::of_samples(&samples, (&members, why), self.arguments.functions)
                .without(&missing),
            missing,
            members,
        })
    }
}
