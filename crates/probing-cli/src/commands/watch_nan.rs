//! `probing watch-nan`: which value of a training was not finite first, in which step, and what it came from.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use probing_client::{ClientError, Entry, Group, Manner, Members, Stop, Target, ask_each};
use probing_engine::{Engine, EngineError, JsonTable, Missing, Terms, missing_targets};
use probing_proto::agent::MissingTarget;
use probing_proto::report::{LookedAt, NanFinding, NanReport};
use probing_proto::torch::{TorchCall, Wanted};
use serde_json::Value;

use super::answers::Answers;
use super::query::say_missing;
use super::{Aim, say_attached_to};
use crate::arguments::WatchNanArguments;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;
use probing_proto::visible;

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
/// Those that follow, in a line each: what goes wrong makes all that comes after it wrong.
const IN_SHORT: usize = 12;

const SQL: &str = "SELECT host, pid, rank, finding, role, step, kind, name, module, dtype, shape, device, \"count\", \
                   nan, inf, \"min\", \"max\", \"mean\", \"std\", norm, zero_share \
                   FROM python.tensors WHERE finding IS NOT NULL ORDER BY ts";

pub(crate) fn run(arguments: &WatchNanArguments, aim: &Aim) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let mut begun = if arguments.recorded {
        Begun::default()
    } else {
        begin(&members, &aim.entry)?
    };
    let stop = Stop::default();
    let enough = stop.clone();
    ctrlc::set_handler(move || {
        // Who presses it once more does not wait for those that do not answer.
        if enough.is_asked() {
            exit::leave();
        }
        enough.ask();
    })?;
    let engine = Engine::start()?;
    let mut polls = 0_u32;
    let until = arguments.patience.map(|patience| Instant::now() + patience);
    loop {
        let (found, mut unread) = recorded(&engine, &members)?;
        let is_over = stop.is_asked() || until.is_some_and(|until| Instant::now() >= until);
        if !found.is_empty() || begun.watched.count() == 0 || is_over {
            unread.retain(|one| !begun.missing.iter().any(|known| known.pid == one.pid));
            say_missing(&unread, &members)?;
            begun.missing.extend(missing_targets(&unread, &members));
            return tell(found, begun, arguments.json);
        }
        if polls == 0 {
            let whom = several(&members).then(|| format!(" in {}", begun.watched));
            let whom = whom.unwrap_or_default();
            writeln!(
                terminal::stderr(),
                "watching outputs, gradients and parameters{whom} for the first NaN or Inf (Ctrl-C: enough)"
            )?;
        }
        polls += 1;
        if polls.is_multiple_of(LIVES_EVERY) && !lives(&members) {
            begun.watched = Group::default();
        }
        stop.wait_until(Instant::now() + EVERY);
    }
}

fn several(members: &Members) -> bool {
    members.all.len() > 1 || !members.missing.is_empty()
}

/// Whether any of them does: what has ended tells nothing new.
fn lives(members: &Members) -> bool {
    let asked = ask_each(&members.all, Manner::within(PATIENCE), |member| {
        member.target.connect(&Entry::Forbidden)
    });
    let has_ended = |answer: &Option<Result<_, ClientError>>| matches!(answer, Some(Err(error)) if error.is_end());
    !asked.iter().all(has_ended)
}

/// Who has begun to look.
#[derive(Default)]
struct Begun {
    watched: Group,
    missing: Vec<MissingTarget>,
    /// What went wrong with those that may have more to tell than was recorded.
    blindness: Option<Status>,
}

/// Has the targets look. What those that have ended recorded is told all the same.
fn begin(members: &Members, entry: &Entry) -> anyhow::Result<Begun> {
    let entry = entry.clone();
    if let ([only], false) = (members.all.as_slice(), several(members)) {
        let mut begun = Begun::default();
        match begin_in(&only.target, &entry) {
            Ok(attached) => {
                begun.watched = [&only.who].into_iter().collect();
                if let Some(line) = attached {
                    writeln!(terminal::stderr(), "{line}")?;
                }
            }
            Err(error) if is_end(&error) => {}
            Err(error) => return Err(error),
        }
        return Ok(begun);
    }
    let asked = Answers::of(members, Manner::within(PATIENCE), move |member| {
        begin_in(&member.target, &entry)
    });
    say_attached_to(&asked.those(Option::is_some))?;
    for line in asked.failures() {
        writeln!(terminal::stderr(), "{line}")?;
    }
    Ok(Begun {
        watched: asked.those(|_| true),
        missing: asked.missing(),
        blindness: Some(asked.status_of_living()).filter(|status| *status != exit::OK),
    })
}

fn is_end(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<ClientError>()
        .is_some_and(ClientError::is_end)
}

/// Tells when the probe had to be brought in for it.
fn begin_in(target: &Target, entry: &Entry) -> anyhow::Result<Option<String>> {
    let mut reached = target.connect(entry)?;
    let wanted = Wanted {
        nan: true,
        ..Wanted::default()
    };
    reached.probe.torch(TorchCall::On(wanted))?;
    let attached = reached.attached;
    Ok(attached.map(|report| super::attached(&reached.probe, &report)))
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
    // Two machines may have the same pid.
    let mut places: HashMap<(String, u64, u64), usize> = HashMap::new();
    for row in &table.rows {
        let row = Row {
            columns: &table.columns,
            values: row,
        };
        let id = (row.text("host"), row.count("pid"), row.count("finding"));
        let tensor = row.tensor();
        match places.get(&id) {
            Some(place) => found[*place].context.push(tensor),
            None if row.text("role") == "found" => {
                found.push(NanFinding {
                    pid: id.1,
                    rank: row.value("rank").as_u64(),
                    finding: id.2,
                    step: row.value("step").as_i64(),
                    tensor,
                    context: Vec::new(),
                });
                places.insert(id, found.len() - 1);
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

fn tell(found: Vec<NanFinding>, begun: Begun, is_json: bool) -> anyhow::Result<Status> {
    // That nothing was found is not said of those that nobody looked at.
    let status = begun.blindness.filter(|_| found.is_empty());
    let status = status.unwrap_or(exit::OK);
    if is_json {
        let missing = begun.missing;
        json::print(&NanReport { found, missing })?;
        return Ok(status);
    }
    if found.is_empty() {
        let words = if begun.watched.count() > 0 {
            "all values were finite so far; it goes on being watched until `probing torch off`"
        } else {
            "nothing that is not finite was recorded"
        };
        writeln!(terminal::stderr(), "{words}")?;
        return Ok(status);
    }
    let mut out = terminal::stdout();
    for finding in &found[..IN_FULL.min(found.len())] {
        for line in in_full(finding) {
            writeln!(out, "{line}")?;
        }
    }
    if found.len() > IN_FULL {
        writeln!(out, "then:")?;
    }
    for finding in found.iter().skip(IN_FULL).take(IN_SHORT) {
        writeln!(out, "  {}", headline(finding))?;
    }
    let more = found.len().saturating_sub(IN_FULL + IN_SHORT);
    if more > 0 {
        writeln!(out, "  and {more} more (all with --json)")?;
    }
    Ok(exit::OK)
}

/// `step 41: output of layers.2 has 8 NaN, 0 Inf of 256 (pid 4242)`
fn headline(finding: &NanFinding) -> String {
    let tensor = &finding.tensor;
    let name = visible::line(&tensor.name);
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
        "{step}{}{of} {name} has {} NaN, {} Inf of {} ({whose}pid {})",
        tensor.kind, tensor.nan, tensor.inf, tensor.count, finding.pid
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
        visible::line(&tensor.name).into_owned(),
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
