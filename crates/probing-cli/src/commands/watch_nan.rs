//! `probing watch-nan`: which value of a training was not finite first, in which step, and what it came from.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use probing_client::{ClientError, Entry, Manner, Members, Stop, Target, ask_each};
use probing_engine::{Engine, EngineError, JsonTable, Missing, Terms};
use probing_proto::report::{LookedAt, NanFinding, NanReport};
use probing_proto::torch::{TorchCall, Wanted};
use serde_json::Value;

use super::Aim;
use super::query::say_missing;
use crate::arguments::WatchNanArguments;
use crate::exit::{self, Status};
use crate::json;

/// How often the targets' rows are looked at.
const EVERY: Duration = Duration::from_millis(300);
/// After so many looks it is asked whether any target still lives.
const LIVES_EVERY: u32 = 10;
/// For bringing a probe in.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rows of findings: a process has at most some thousand.
const MOST_ROWS: usize = 100_000;
/// Findings that are told in full.
const IN_FULL: usize = 1;

const SQL: &str = "SELECT pid, rank, finding, role, step, kind, name, module, dtype, shape, device, \"count\", \
                   nan, inf, \"min\", \"max\", \"mean\", \"std\", norm, zero_share \
                   FROM python.tensors WHERE finding IS NOT NULL ORDER BY ts";

pub(crate) fn run(arguments: &WatchNanArguments, aim: &Aim) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let stop = Stop::default();
    let enough = stop.clone();
    ctrlc::set_handler(move || enough.ask())?;
    let mut waits = !arguments.recorded && begin(&members, &aim.entry)?;
    let engine = Engine::start()?;
    let mut polls = 1_u32;
    let until = arguments.patience.map(|patience| Instant::now() + patience);
    loop {
        let (found, missing) = recorded(&engine, &members)?;
        let is_over = stop.is_asked() || until.is_some_and(|until| Instant::now() >= until);
        if !found.is_empty() || !waits || is_over {
            say_missing(&missing, &members)?;
            return tell(&found, waits, arguments.json);
        }
        if polls.is_multiple_of(LIVES_EVERY) && !lives(&members) {
            waits = false;
        }
        polls += 1;
        stop.wait_until(Instant::now() + EVERY);
    }
}

/// Whether any of them does: what has ended tells nothing new.
fn lives(members: &Members) -> bool {
    let asked = ask_each(&members.all, Manner::within(PATIENCE), |member| {
        member.target.connect(&Entry::Forbidden)
    });
    let has_ended = |answer: &Option<Result<_, ClientError>>| matches!(answer, Some(Err(error)) if error.is_end());
    !asked.iter().all(has_ended)
}

/// Has the targets look. Whether any of them lives and does: what the others have recorded is still told.
fn begin(members: &Members, entry: &Entry) -> anyhow::Result<bool> {
    let entry = entry.clone();
    let asked = ask_each(&members.all, Manner::within(PATIENCE), move |member| {
        begin_in(&member.target, &entry)
    });
    let mut begun = false;
    for (answer, member) in asked.into_iter().zip(&members.all) {
        match answer {
            Some(Ok(words)) => {
                begun = true;
                for line in words {
                    writeln!(anstream::stderr(), "{line}")?;
                }
            }
            // Its rows are there all the same.
            Some(Err(error)) if is_end(&error) => {}
            Some(Err(error)) if members.all.len() == 1 => return Err(error),
            Some(Err(error)) => writeln!(anstream::stderr(), "{}: {error:#}", member.who)?,
            None => writeln!(anstream::stderr(), "{}: no answer in time", member.who)?,
        }
    }
    Ok(begun)
}

fn is_end(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<ClientError>()
        .is_some_and(ClientError::is_end)
}

fn begin_in(target: &Target, entry: &Entry) -> anyhow::Result<Vec<String>> {
    let mut reached = target.connect(entry)?;
    let wanted = Wanted {
        nan: true,
        ..Wanted::default()
    };
    reached.probe.torch(TorchCall::On(wanted))?;
    let attached = reached.attached;
    let words = attached.map(|report| super::attached(&reached.probe, &report));
    Ok(words.into_iter().collect())
}

/// What was found so far, in the order of time.
fn recorded(
    engine: &Engine,
    members: &Members,
) -> Result<(Vec<NanFinding>, Vec<Missing>), EngineError> {
    let answer = engine.blocking_ask(SQL, members, &Terms::default())?;
    let (table, summary) = answer.into_json(MOST_ROWS)?;
    Ok((findings(&table), summary.missing))
}

fn findings(table: &JsonTable) -> Vec<NanFinding> {
    let mut found: Vec<NanFinding> = Vec::new();
    let mut places: HashMap<(u64, u64), usize> = HashMap::new();
    for row in &table.rows {
        let row = Row {
            columns: &table.columns,
            values: row,
        };
        let id = (row.count("pid"), row.count("finding"));
        let tensor = row.tensor();
        match places.get(&id) {
            Some(place) => found[*place].context.push(tensor),
            None if row.text("role") == "found" => {
                places.insert(id, found.len());
                found.push(NanFinding {
                    pid: id.0,
                    rank: row.value("rank").as_u64(),
                    finding: id.1,
                    step: row.value("step").as_i64(),
                    tensor,
                    context: Vec::new(),
                });
            }
            // The ring has lost what it belongs to.
            None => {}
        }
    }
    found
}

/// One row, by the names of its columns.
struct Row<'a> {
    columns: &'a [String],
    values: &'a [Value],
}

impl Row<'_> {
    fn value(&self, name: &str) -> &Value {
        let place = self.columns.iter().position(|column| column == name);
        place.map_or(&Value::Null, |place| &self.values[place])
    }

    fn count(&self, name: &str) -> u64 {
        self.value(name).as_u64().unwrap_or(0)
    }

    fn text(&self, name: &str) -> String {
        self.value(name).as_str().unwrap_or_default().to_owned()
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.value(name).as_f64()
    }

    fn tensor(&self) -> LookedAt {
        LookedAt {
            kind: self.text("kind"),
            name: self.text("name"),
            module: self.text("module"),
            dtype: self.text("dtype"),
            shape: self.text("shape"),
            device: self.text("device"),
            count: self.count("count"),
            nan: self.count("nan"),
            inf: self.count("inf"),
            min: self.number("min"),
            max: self.number("max"),
            mean: self.number("mean"),
            std: self.number("std"),
            norm: self.number("norm"),
            zero_share: self.number("zero_share"),
        }
    }
}

fn tell(found: &[NanFinding], waited: bool, is_json: bool) -> anyhow::Result<Status> {
    if is_json {
        let found = found.to_vec();
        json::print(&NanReport { found })?;
        return Ok(exit::OK);
    }
    if found.is_empty() {
        let words = if waited {
            "all values were finite so far; it goes on being watched until `probing torch off`"
        } else {
            "nothing that is not finite was recorded"
        };
        writeln!(anstream::stderr(), "{words}")?;
        return Ok(exit::OK);
    }
    let mut out = anstream::stdout();
    for finding in &found[..IN_FULL.min(found.len())] {
        for line in in_full(finding) {
            writeln!(out, "{line}")?;
        }
    }
    if found.len() > IN_FULL {
        writeln!(out, "then:")?;
    }
    for finding in &found[IN_FULL.min(found.len())..] {
        writeln!(out, "  {}", headline(finding))?;
    }
    Ok(exit::OK)
}

/// `step 41: output of layers.2 has 8 NaN, 0 Inf of 256 (pid 4242)`
fn headline(finding: &NanFinding) -> String {
    let tensor = &finding.tensor;
    let step = finding
        .step
        .map_or_else(String::new, |step| format!("step {step}: "));
    let whose = finding
        .rank
        .map_or_else(String::new, |rank| format!("rank {rank}, "));
    let of = match tensor.kind.as_str() {
        "parameter" => "",
        _ => " of",
    };
    format!(
        "{step}{}{of} {} has {} NaN, {} Inf of {} ({whose}pid {})",
        tensor.kind, tensor.name, tensor.nan, tensor.inf, tensor.count, finding.pid
    )
}

fn in_full(finding: &NanFinding) -> Vec<String> {
    let mut lines = vec![headline(finding)];
    let head = [
        "", "name", "shape", "NaN", "Inf", "min", "max", "mean", "std",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.push(cells(&finding.tensor));
    rows.extend(finding.context.iter().map(cells));
    let width = |place: usize| {
        let lengths = rows.iter().map(|row| row[place].chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths: [usize; 9] = std::array::from_fn(width);
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate();
        let line: Vec<String> = cells
            .map(|(place, (cell, width))| match place {
                0..=2 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        lines.push(format!("  {}", line.join("  ")).trim_end().to_owned());
    }
    lines
}

fn cells(tensor: &LookedAt) -> [String; 9] {
    let number = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), short);
    [
        tensor.kind.clone(),
        tensor.name.clone(),
        format!("{} {}", tensor.shape, tensor.dtype),
        tensor.nan.to_string(),
        tensor.inf.to_string(),
        number(tensor.min),
        number(tensor.max),
        number(tensor.mean),
        number(tensor.std),
    ]
}

/// Four digits.
fn short(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-3..1e5).contains(&size) {
        return format!("{number:.3e}");
    }
    format!("{number:.4}")
}
