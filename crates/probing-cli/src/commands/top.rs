//! `probing -t PID top`: the functions in which the targets spend their time, by what is traced, else by sampling.

use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use probing_client::{Members, Pace, Pause, Plan, Samples, Stop, sample_each};
use probing_engine::{Engine, EngineError, Terms};
use probing_proto::clock::utc;
use serde_json::{Value, json};

use super::Aim;
use super::screen::{Kept, Screen};
use crate::arguments::TopArguments;
use crate::exit::{self, Status};
use crate::json;

/// Sums become rows once a second: those of a look may come that much later.
const LATE: Duration = Duration::from_millis(1500);
/// Readings of stacks in a second.
const RATE: u32 = 100;

pub(crate) fn run(arguments: &TopArguments, aim: &Aim) -> anyhow::Result<Status> {
    let stop = Stop::default();
    let asked = stop.clone();
    ctrlc::set_handler(move || asked.ask())?;
    let engine = Engine::start()?;
    let looker = Looker {
        engine,
        aim,
        arguments,
        stop: stop.clone(),
    };
    if arguments.once {
        let top = looker.look()?;
        if arguments.json {
            json::print(&top.report())?;
        } else {
            write!(anstream::stdout(), "{}", top.text())?;
        }
        return Ok(exit::OK);
    }
    // A look without a trace takes as long as it samples: the pace is then that of the looks.
    let mut pace = Pace::new(arguments.every, &stop);
    if io::stdout().is_terminal() {
        let mut screen = Screen::new(Kept::First);
        while screen.wait(&mut pace)?.is_some() {
            let top = looker.look()?;
            if stop.is_asked() {
                break;
            }
            screen.set_title(format!("{} (Ctrl-C ends)", now()));
            screen.draw(&top.text())?;
        }
    } else {
        while pace.wait().is_some() {
            let top = looker.look()?;
            writeln!(anstream::stdout(), "--- {}\n{}", now(), top.text())?;
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
struct Looker<'a> {
    engine: Engine,
    aim: &'a Aim,
    arguments: &'a TopArguments,
    stop: Stop,
}

impl Looker<'_> {
    fn look(&self) -> anyhow::Result<Top> {
        let members = self.aim.members()?;
        match self.traced(&members) {
            Ok(traced) if traced.is_empty() => self.sampled(&members, "nothing is traced"),
            Ok(traced) => Ok(Top::Traced(traced)),
            // Its stacks are there all the same.
            Err(error @ EngineError::Blind { .. }) => self.sampled(&members, &error.to_string()),
            Err(error) => Err(error.into()),
        }
    }

    /// What traces have seen just now.
    fn traced(&self, members: &Members) -> Result<Vec<Traced>, EngineError> {
        let since = self.arguments.every + LATE;
        let begin = nanos_now() - since.as_nanos() as i64;
        let sql = format!(
            "SELECT function, file, lineno, sum(calls) AS calls, sum(total_ns) AS total, sum(self_ns) AS own, \
             min(min_ns) AS least, max(max_ns) AS greatest FROM python.trace_stats \
             WHERE arrow_cast(ts, 'Int64') > {begin} GROUP BY function, file, lineno \
             ORDER BY own DESC LIMIT {}",
            self.arguments.functions
        );
        let answer = self.engine.blocking_ask(&sql, members, &Terms::default())?;
        let (table, _) = answer.into_json(self.arguments.functions)?;
        let rows = table.rows.iter().filter_map(|row| Traced::of(row));
        Ok(rows.collect())
    }

    /// `why` no trace tells.
    fn sampled(&self, members: &Members, why: &str) -> anyhow::Result<Top> {
        let plan = Plan {
            duration: self.arguments.every,
            rate: RATE,
            thread: None,
            idle: false,
            threads: false,
            functions: true,
            pause: Pause::Never,
        };
        let (samples, failures) = sample_each(&members.all, &plan, &self.stop, |_| {});
        let Some(samples) = samples else {
            let first = failures.into_iter().next();
            return Err(first.map_or_else(
                || anyhow::anyhow!("there is nothing to look at"),
                |(_, error)| anyhow::Error::from(error),
            ))
            .with_context(|| format!("{why}, and its stacks cannot be sampled"));
        };
        let most = self.arguments.functions;
        Ok(Top::Sampled(sampled(&samples, most, why.to_owned())))
    }
}

/// A function as traces saw it.
struct Traced {
    function: String,
    file: String,
    line: u64,
    calls: i64,
    total: i64,
    own: i64,
    least: i64,
    greatest: i64,
}

impl Traced {
    fn of(row: &[Value]) -> Option<Self> {
        let [function, file, line, calls, total, own, least, greatest] = row else {
            return None;
        };
        Some(Self {
            function: function.as_str()?.to_owned(),
            file: file.as_str()?.to_owned(),
            line: line.as_u64()?,
            calls: calls.as_i64()?,
            total: total.as_i64()?,
            own: own.as_i64()?,
            least: least.as_i64()?,
            greatest: greatest.as_i64()?,
        })
    }
}

/// A function as samples saw it.
struct Seen {
    function: String,
    file: String,
    /// Of all samples, those in which it ran itself, and those in which it was called.
    own: u64,
    total: u64,
}

struct Sampled {
    /// Why no trace tells.
    why: String,
    counted: u64,
    functions: Vec<Seen>,
}

enum Top {
    Traced(Vec<Traced>),
    Sampled(Sampled),
}

fn sampled(samples: &Samples, most: usize, why: String) -> Sampled {
    let places = samples.calls.places();
    let mut all: HashMap<usize, (u64, u64)> = HashMap::new();
    for (stack, count) in samples.calls.stacks() {
        let each: HashSet<usize> = stack.iter().copied().collect();
        for place in each {
            all.entry(place).or_default().1 += count;
        }
        if let Some(innermost) = stack.last() {
            all.entry(*innermost).or_default().0 += count;
        }
    }
    let mut functions: Vec<Seen> = all
        .into_iter()
        .filter_map(|(place, (own, total))| {
            let place = places.get(place)?;
            let file = place.file.as_ref()?;
            Some(Seen {
                function: place.func.to_string(),
                file: file.display().to_string(),
                own,
                total,
            })
        })
        .collect();
    functions.sort_by(|one, other| {
        (other.own, other.total, &one.function).cmp(&(one.own, one.total, &other.function))
    });
    functions.truncate(most);
    Sampled {
        why,
        counted: samples.counted,
        functions,
    }
}

impl Top {
    fn how(&self) -> String {
        match self {
            Self::Traced(_) => "by python.trace_stats: every call that traces saw".to_owned(),
            Self::Sampled(sampled) => format!(
                "{}: by {} samples of stacks, from outside",
                sampled.why, sampled.counted
            ),
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![self.how()];
        match self {
            Self::Traced(functions) => {
                lines.push(format!(
                    "{:>10} {:>10} {:>10} {:>10}  function",
                    "self", "total", "calls", "a call"
                ));
                lines.extend(functions.iter().map(|it| {
                    let each = it.total.checked_div(it.calls).unwrap_or(0);
                    format!(
                        "{:>10} {:>10} {:>10} {:>10}  {} ({}:{})",
                        time(it.own),
                        time(it.total),
                        it.calls,
                        time(each),
                        it.function,
                        it.file,
                        it.line
                    )
                }));
            }
            Self::Sampled(sampled) => {
                lines.push(format!("{:>7} {:>7}  function", "self", "total"));
                let share = |count: u64| 100.0 * count as f64 / sampled.counted.max(1) as f64;
                lines.extend(sampled.functions.iter().map(|it| {
                    let (own, total) = (share(it.own), share(it.total));
                    format!("{own:>6.1}% {total:>6.1}%  {} ({})", it.function, it.file)
                }));
            }
        }
        lines.join("\n") + "\n"
    }

    fn report(&self) -> Value {
        let functions: Vec<Value> = match self {
            Self::Traced(functions) => functions
                .iter()
                .map(|it| {
                    json!({
                        "function": it.function, "file": it.file, "line": it.line, "calls": it.calls,
                        "total_ns": it.total, "self_ns": it.own, "min_ns": it.least, "max_ns": it.greatest,
                    })
                })
                .collect(),
            Self::Sampled(sampled) => sampled
                .functions
                .iter()
                .map(|it| {
                    let share = |count: u64| count as f64 / sampled.counted.max(1) as f64;
                    json!({
                        "function": it.function, "file": it.file,
                        "self_share": share(it.own), "total_share": share(it.total),
                    })
                })
                .collect(),
        };
        let by = match self {
            Self::Traced(_) => "trace",
            Self::Sampled(_) => "samples",
        };
        json!({"by": by, "functions": functions})
    }
}

/// `1.23 ms`
fn time(nanos: i64) -> String {
    let value = nanos as f64;
    match nanos {
        ..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.2} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}
