//! The table of the hottest functions, of one target or of several.

use probing_proto::text::visible;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use probing_client::{Group, Members, Samples, TargetLabel};
use probing_engine::{UnreadTarget, missing_targets};
use serde_json::{Value, json};

/// A function as traces of one target saw it.
pub(super) struct TracedFunction {
    pid: u32,
    rank: Option<u32>,
    place: FunctionLocation,
    sums: Sums,
}

/// Where a function is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FunctionLocation {
    function: String,
    file: String,
    /// Of samples, the line that was seen most.
    line: Option<u64>,
}

/// Name and file of a function that samples saw.
type Function<'a> = (&'a str, &'a Path);

#[derive(Debug, Clone, Copy)]
struct Sums {
    calls: i64,
    total: i64,
    own: i64,
    least: i64,
    greatest: i64,
}

impl TracedFunction {
    pub(super) fn of(row: &[Value]) -> Option<Self> {
        let [
            pid,
            rank,
            function,
            file,
            line,
            calls,
            total,
            own,
            least,
            greatest,
        ] = row
        else {
            return None;
        };
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        Some(Self {
            pid: number(pid)?,
            rank: number(rank),
            place: FunctionLocation {
                function: function.as_str()?.to_owned(),
                file: file.as_str()?.to_owned(),
                line: Some(line.as_u64()?),
            },
            sums: Sums {
                calls: calls.as_i64()?,
                total: total.as_i64()?,
                own: own.as_i64()?,
                least: least.as_i64()?,
                greatest: greatest.as_i64()?,
            },
        })
    }
}

/// Of all samples, those in which a function ran itself, and those in which it was called.
#[derive(Debug, Clone, Copy, Default)]
struct Shares {
    own: u64,
    total: u64,
}

/// One line: a function, and the targets that it ran in.
struct Row<N> {
    place: FunctionLocation,
    numbers: N,
    targets: Vec<TargetLabel>,
}

enum Numbers {
    Traced(Vec<Row<Sums>>),
    Sampled {
        /// No trace tells.
        why: String,
        counted: u64,
        rows: Vec<Row<Shares>>,
    },
}

pub(super) struct Top {
    numbers: Numbers,
    /// Who was asked, when it is more than one.
    asked: Option<usize>,
    /// Those in which nothing was seen.
    quiet: Vec<TargetLabel>,
    /// Traces did not see all calls.
    is_in_part: bool,
}

impl Top {
    pub(super) fn of_traced(traced: Vec<TracedFunction>, members: &Members, most: usize) -> Self {
        let mut rows: Vec<Row<Sums>> = Vec::new();
        let mut places: HashMap<FunctionLocation, usize> = HashMap::new();
        let known: HashSet<&TargetLabel> = members.all.iter().map(|member| &member.who).collect();
        for one in traced {
            let by_rank = one
                .rank
                .map(TargetLabel::Rank)
                .filter(|who| known.contains(who));
            let who = by_rank.unwrap_or(TargetLabel::Pid(probing_proto::process::Pid(one.pid)));
            let place = *places.entry(one.place.clone()).or_insert_with(|| {
                rows.push(Row {
                    place: one.place,
                    numbers: Sums {
                        calls: 0,
                        total: 0,
                        own: 0,
                        ..one.sums
                    },
                    targets: Vec::new(),
                });
                rows.len() - 1
            });
            let row = &mut rows[place];
            row.numbers.add(one.sums);
            row.targets.push(who);
        }
        let quiet = quiet(&rows, members);
        rows.sort_by_key(|row| Reverse(row.numbers.own));
        rows.truncate(most);
        Self {
            numbers: Numbers::Traced(rows),
            asked: several(members),
            quiet,
            is_in_part: false,
        }
    }

    pub(super) fn of_samples(
        samples: &Samples,
        (members, why): (&Members, &str),
        most: usize,
    ) -> Self {
        let places = samples.calls.places();
        let names: HashMap<String, &TargetLabel> = members
            .all
            .iter()
            .map(|member| (member.who.to_string(), &member.who))
            .collect();
        // By function; its lines tell where in it most was seen.
        let function = |index: usize| {
            let place = places.get(index)?;
            Some((&*place.func, place.file.as_deref()?))
        };
        let mut all: HashMap<Function<'_>, (Shares, HashSet<&TargetLabel>)> = HashMap::new();
        let mut lines: HashMap<Function<'_>, HashMap<u32, Shares>> = HashMap::new();
        for (stack, count) in samples.calls.stacks() {
            // Each target's calls are below one that is its name.
            let who = stack.first().and_then(|first| {
                let name = places.get(*first)?;
                names.get(&*name.func).copied()
            });
            let each: HashSet<Function<'_>> = stack.iter().filter_map(|at| function(*at)).collect();
            for function in each {
                let (shares, targets) = all.entry(function).or_default();
                shares.total += count;
                targets.extend(who);
            }
            for index in &stack {
                let line = places.get(*index).and_then(|place| place.line);
                if let (Some(function), Some(line)) = (function(*index), line) {
                    lines
                        .entry(function)
                        .or_default()
                        .entry(line)
                        .or_default()
                        .total += count;
                }
            }
            if let Some(innermost) = stack.last().and_then(|at| function(*at)) {
                all.entry(innermost).or_default().0.own += count;
                let line = stack.last().and_then(|at| places.get(*at)?.line);
                if let Some(line) = line {
                    lines
                        .entry(innermost)
                        .or_default()
                        .entry(line)
                        .or_default()
                        .own += count;
                }
            }
        }
        let hottest = |function: &Function<'_>| {
            let lines = lines.get(function)?.iter();
            let most = lines.max_by_key(|(line, seen)| (seen.own, seen.total, Reverse(**line)));
            most.map(|(line, _)| u64::from(*line))
        };
        let mut rows: Vec<Row<Shares>> = all
            .into_iter()
            .map(|(function, (numbers, targets))| Row {
                place: FunctionLocation {
                    function: function.0.to_owned(),
                    file: function.1.display().to_string(),
                    line: hottest(&function),
                },
                numbers,
                targets: targets.into_iter().cloned().collect(),
            })
            .collect();
        rows.sort_by(|one, other| {
            let key = |row: &Row<Shares>| (row.numbers.own, row.numbers.total);
            key(other)
                .cmp(&key(one))
                .then_with(|| one.place.function.cmp(&other.place.function))
        });
        let quiet = quiet(&rows, members);
        rows.truncate(most);
        Self {
            numbers: Numbers::Sampled {
                why: why.to_owned(),
                counted: samples.counted,
                rows,
            },
            asked: several(members),
            quiet,
            is_in_part: false,
        }
    }

    fn how(&self) -> String {
        match &self.numbers {
            Numbers::Traced(_) if self.is_in_part => {
                "by python.trace_stats: a part of the calls, throttled to the budget of traces \
                 (`probing trace --list`)"
                    .to_owned()
            }
            Numbers::Traced(_) => "by python.trace_stats: every traced call".to_owned(),
            Numbers::Sampled { why, counted, .. } => {
                let of = self
                    .asked
                    .map_or_else(String::new, |count| format!(" of {count} targets"));
                format!("{why}: by {counted} samples of stacks{of}, from outside")
            }
        }
    }

    /// Those of whom nothing is known are no news that are told twice.
    pub(super) fn without(mut self, missing: &[UnreadTarget]) -> Self {
        let is_missing = |who: &TargetLabel| missing.iter().any(|one| one.who == *who);
        self.quiet.retain(|who| !is_missing(who));
        self
    }

    pub(super) fn in_part(mut self, is_in_part: bool) -> Self {
        self.is_in_part = is_in_part;
        self
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![self.how()];
        let quiet: Group = self.quiet.iter().collect();
        if self.asked.is_some() && quiet.count() > 0 {
            lines.push(match &self.numbers {
                Numbers::Traced(_) => format!(
                    "no call was recorded in {quiet}: nothing is traced or called there (`probing trace --list`)"
                ),
                Numbers::Sampled { .. } => format!("nothing ran in {quiet}"),
            });
        }
        let rows = match &self.numbers {
            Numbers::Traced(rows) => {
                let head = [("self", 10), ("total", 10), ("calls", 10), ("a call", 10)];
                self.lines(&head, rows, |sums| {
                    let each = sums.total.checked_div(sums.calls).unwrap_or(0);
                    vec![
                        time(sums.own),
                        time(sums.total),
                        sums.calls.to_string(),
                        time(each),
                    ]
                })
            }
            Numbers::Sampled { counted, rows, .. } => {
                let share =
                    |count: u64| format!("{:.1}%", 100.0 * count as f64 / (*counted).max(1) as f64);
                self.lines(&[("self", 7), ("total", 7)], rows, |shares| {
                    vec![share(shares.own), share(shares.total)]
                })
            }
        };
        lines.extend(rows);
        lines.join("\n") + "\n"
    }

    /// The head and the rows. In front of each of several targets' stands whose it is.
    fn lines<N>(
        &self,
        head: &[(&str, usize)],
        rows: &[Row<N>],
        cells: impl Fn(&N) -> Vec<String>,
    ) -> Vec<String> {
        let group = |row: &Row<N>| row.targets.iter().collect::<Group>().to_string();
        let groups: Vec<String> = match self.asked {
            Some(_) => rows.iter().map(group).collect(),
            None => vec![String::new(); rows.len()],
        };
        let wide = groups.iter().map(|group| group.chars().count()).max();
        let wide = wide.filter(|wide| *wide > 0).map_or(0, |wide| wide + 2);
        let aligned = |cells: Vec<String>| -> String {
            let cells = cells.into_iter().zip(head);
            let cells: Vec<String> = cells
                .map(|(cell, (_, width))| format!("{cell:>width$}"))
                .collect();
            cells.join(" ")
        };
        let names = head.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut lines = vec![format!("{:wide$}{}  function", "", aligned(names))];
        lines.extend(rows.iter().zip(groups).map(|(row, group)| {
            let FunctionLocation {
                function,
                file,
                line,
            } = &row.place;
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            let numbers = aligned(cells(&row.numbers));
            let (function, file) = (visible::line(function), visible::line(file));
            format!("{group:wide$}{numbers}  {function} ({file}{line})")
        }));
        lines
    }

    pub(super) fn report(&self, missing: &[UnreadTarget], members: &Members) -> Value {
        let (by, mut functions): (&str, Vec<Value>) = match &self.numbers {
            Numbers::Traced(rows) => ("trace", rows.iter().map(|row| {
                let (place, sums) = (&row.place, &row.numbers);
                json!({
                    "func": place.function, "file": place.file, "lineno": place.line, "calls": sums.calls,
                    "total_ns": sums.total, "self_ns": sums.own, "min_ns": sums.least, "max_ns": sums.greatest,
                })
            }).collect()),
            Numbers::Sampled { counted, rows, .. } => ("samples", rows.iter().map(|row| {
                let share = |count: u64| count as f64 / (*counted).max(1) as f64;
                json!({
                    "func": row.place.function, "file": row.place.file,
                    "self_share": share(row.numbers.own), "total_share": share(row.numbers.total),
                })
            }).collect()),
        };
        let mut report = json!({"by": by});
        if self.is_in_part {
            report["in_part"] = true.into();
        }
        if self.asked.is_some() {
            for (function, targets) in functions.iter_mut().zip(self.targets()) {
                let group: Group = targets.iter().collect();
                function["ranks"] = (!group.ranks.is_empty())
                    .then(|| group.ranks.to_string())
                    .into();
                function["pids"] = json!(group.pids);
            }
            report["missing"] = json!(missing_targets(missing, members));
        }
        report["functions"] = functions.into();
        report
    }

    /// Of each row.
    fn targets(&self) -> Vec<&[TargetLabel]> {
        match &self.numbers {
            Numbers::Traced(rows) => rows.iter().map(|row| &*row.targets).collect(),
            Numbers::Sampled { rows, .. } => rows.iter().map(|row| &*row.targets).collect(),
        }
    }
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.total += other.total;
        self.own += other.own;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
    }
}

/// Those that no row is about.
fn quiet<N>(rows: &[Row<N>], members: &Members) -> Vec<TargetLabel> {
    let seen: HashSet<&TargetLabel> = rows.iter().flat_map(|row| &row.targets).collect();
    let all = members.all.iter().map(|member| &member.who);
    all.filter(|who| !seen.contains(who)).cloned().collect()
}

/// How many they are, if several; one that is missing is one of them.
fn several(members: &Members) -> Option<usize> {
    let is_one = members.all.len() == 1 && members.missing.is_empty();
    (!is_one).then_some(members.all.len())
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
