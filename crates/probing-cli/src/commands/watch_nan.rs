//! `probing watch-nan`: finds the first NaN or Inf of a training, its step and its inputs.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use probing_client::{
    ClientError, ConnectedProbe, Entry, FanOutLimits, Group, Member, Members, Probe, Ranks, Stop,
    TargetLabel, fan_out,
};
use probing_engine::{
    Engine, EngineError, JsonTable, QueryLimits, ReadFailure, UnreadTarget, missing_targets,
};
use probing_proto::agent::MissingTarget;
use probing_proto::message::recorders::{Tracer, TracerCall};
use probing_proto::message::torch::TorchCall;
use probing_proto::process::Pid;
use probing_proto::report::{NanFinding, NanReport, TensorReading};
use serde_json::Value;

use crate::arguments::WatchNanArguments;
use crate::commands::answers::{MemberResults, missing_lines};
use crate::commands::query::say_missing;
use crate::commands::{TargetArgs, say_attached_to};
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;
use probing_proto::text::visible;

/// How often the targets' rows are looked at.
const EVERY: Duration = Duration::from_millis(300);
/// After so many looks the targets are asked how many modules they have looked at.
const COUNT_EVERY: u32 = 10;
/// For that.
const POLL_PATIENCE: Duration = Duration::from_secs(2);
/// For bringing a probe in.
const TARGET_TIMEOUT: Duration = Duration::from_secs(30);
/// Rows of findings: a process has at most some thousand.
const MAX_ROWS: usize = 100_000;
/// Findings that are told in full.
const IN_FULL: usize = 1;
/// Those that follow, in a line each: what goes wrong makes all that comes after it wrong.
const IN_SHORT: usize = 12;

const SQL: &str = "SELECT host, pid, rank, finding, role, step, counted_by, kind, name, module, class, file, lineno, dtype, shape, device, \"count\", \
                   nan, inf, \"min\", \"max\", \"mean\", \"std\", norm, zero_share \
                   FROM python.tensors WHERE finding IS NOT NULL ORDER BY ts";

pub(crate) fn run(arguments: &WatchNanArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let mut begun = if arguments.recorded {
        NanWatch::default()
    } else {
        begin(&members, &aim.entry)?
    };
    let found = watch(arguments, &members, &mut begun);
    let unasked = switch_off(&mut begun.watched)?;
    tell(found?, begun, &unasked, (&members, arguments.json))
}

/// Waits for the first finding, or for the end of what is watched.
fn watch(
    arguments: &WatchNanArguments,
    members: &Members,
    begun: &mut NanWatch,
) -> anyhow::Result<Vec<NanFinding>> {
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
        let have_ended = begun.watched.iter().all(|one| one.has_ended);
        let (found, mut unread) = recorded(&engine, members)?;
        let is_over = stop.is_asked() || until.is_some_and(|until| Instant::now() >= until);
        if !found.is_empty() || have_ended || is_over {
            // Findings are in the order of time, and each says who counts its step.
            unread.retain(|one| {
                !one.is_alignment() && !begun.missing.iter().any(|known| known.pid == one.pid)
            });
            say_missing(&unread, members)?;
            begun.missing.extend(missing_targets(&unread, members));
            return Ok(found);
        }
        if polls == 0 {
            let watched: Group = begun.watched.iter().map(|one| &one.who).collect();
            let whom = several(members).then(|| format!(" in {watched}"));
            let whom = whom.unwrap_or_default();
            writeln!(
                terminal::stderr(),
                "watching outputs, gradients and parameters{whom} for the first NaN or Inf (Ctrl-C exits)"
            )?;
        }
        polls += 1;
        if polls.is_multiple_of(COUNT_EVERY) {
            count(&mut begun.watched);
        }
        stop.wait_until(Instant::now() + EVERY);
    }
}

fn several(members: &Members) -> bool {
    members.all.len() > 1 || !members.missing.is_empty()
}

/// Asks how many modules were looked at meanwhile.
fn count(watched: &mut [Watched]) {
    let asked = fan_out(
        watched,
        FanOutLimits::within(POLL_PATIENCE),
        Watched::looked_at,
    );
    for (one, answer) in watched.iter_mut().zip(asked) {
        match answer {
            Some(Ok(modules)) => one.learn(modules),
            Some(Err(error)) => one.has_ended |= is_gone(&error),
            None => {}
        }
    }
}

/// Ends what this command began, and no more. Those that could not be asked what they looked at.
fn switch_off(watched: &mut [Watched]) -> anyhow::Result<Vec<UnreadTarget>> {
    let asked = fan_out(watched, FanOutLimits::within(TARGET_TIMEOUT), |one| {
        (one.looked_at(), one.probe().tracer(nan(false)))
    });
    let mut unasked = Vec::new();
    for (one, answer) in watched.iter_mut().zip(asked) {
        let patience = TARGET_TIMEOUT;
        let too_long = || ClientError::TooLong { patience };
        let (modules, switched) = answer.unwrap_or_else(|| (Err(too_long()), Err(too_long())));
        match modules {
            Ok(modules) => one.learn(modules),
            Err(error) => unasked.push(one.missing(error)),
        }
        match switched {
            // Nothing is left of it.
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => writeln!(
                terminal::stderr(),
                "warning: {}: cannot switch off the watch for NaN: {error}\n  hint: the watch ends with this command; `probing torch status` shows it",
                one.who
            )?,
        }
    }
    Ok(unasked)
}

/// Whether the process has ended, or its probe has left it.
fn is_gone(error: &ClientError) -> bool {
    error.is_end() || matches!(error, ClientError::Gone)
}

/// A target that looks for NaN for as long as this command is connected to it.
#[derive(Clone)]
struct Watched {
    who: TargetLabel,
    pid: Option<Pid>,
    probe: Arc<Mutex<Probe>>,
    /// How often it had looked before.
    since: u64,
    /// How many modules it has looked at since, when it was last asked.
    modules: u64,
    has_ended: bool,
}

impl Watched {
    fn probe(&self) -> MutexGuard<'_, Probe> {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looked_at(&self) -> Result<u64, ClientError> {
        let since = self.since;
        let status = self.probe().torch(TorchCall::Status { since })?;
        Ok(status.looked_at)
    }

    /// Modules that are gone were looked at all the same.
    fn learn(&mut self, modules: u64) {
        self.modules = self.modules.max(modules);
    }

    fn missing(&self, error: ClientError) -> UnreadTarget {
        let mut why = ReadFailure::from(error);
        why.message = format!("unknown what was checked: {}", why.message);
        UnreadTarget {
            who: self.who.clone(),
            pid: self.pid,
            why,
        }
    }
}

/// Who has begun to look.
#[derive(Default)]
struct NanWatch {
    watched: Vec<Watched>,
    missing: Vec<MissingTarget>,
    /// What went wrong with those that may have more to tell than was recorded.
    blindness: Option<Status>,
}

/// Has the targets look. What those that have ended recorded is told all the same.
fn begin(members: &Members, entry: &Entry) -> anyhow::Result<NanWatch> {
    let entry = entry.clone();
    if let ([only], false) = (members.all.as_slice(), several(members)) {
        let mut begun = NanWatch::default();
        match begin_in(only, &entry) {
            Ok(Started { attached, watched }) => {
                begun.watched.push(watched);
                if let Some(line) = attached {
                    writeln!(terminal::stderr(), "{line}")?;
                }
            }
            Err(error) if is_end(&error) => {}
            Err(error) => return Err(error),
        }
        return Ok(begun);
    }
    let asked = MemberResults::of(
        members,
        FanOutLimits::within(TARGET_TIMEOUT),
        move |member| begin_in(member, &entry),
    );
    say_attached_to(&asked.those(|started| started.attached.is_some()))?;
    for line in asked.failures() {
        writeln!(terminal::stderr(), "{line}")?;
    }
    Ok(NanWatch {
        watched: asked
            .given()
            .map(|(_, started)| started.watched.clone())
            .collect(),
        missing: asked.missing(),
        blindness: Some(asked.status_of_living()).filter(|status| *status != exit::OK),
    })
}

fn is_end(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<ClientError>()
        .is_some_and(ClientError::is_end)
}

/// One that looks from now on.
struct Started {
    /// What is said when the probe had to be brought in for it.
    attached: Option<String>,
    watched: Watched,
}

fn begin_in(member: &Member, entry: &Entry) -> anyhow::Result<Started> {
    let ConnectedProbe {
        mut probe,
        attached,
    } = member.target.connect(entry)?;
    let before = probe.torch(TorchCall::Status { since: 0 })?;
    probe.tracer(nan(true))?;
    Ok(Started {
        attached: attached.map(|report| crate::commands::attached(&probe, &report)),
        watched: Watched {
            who: member.who.clone(),
            pid: member.pid,
            probe: Arc::new(Mutex::new(probe)),
            since: before.looks,
            modules: 0,
            has_ended: false,
        },
    })
}

/// Borrowed: what others have switched on stays on, and a command that is killed leaves nothing on.
fn nan(on: bool) -> TracerCall {
    TracerCall {
        tracer: Tracer::Nan,
        on: Some(on),
        borrowed: true,
    }
}

/// What was found so far, in the order of time.
fn recorded(
    engine: &Engine,
    members: &Members,
) -> Result<(Vec<NanFinding>, Vec<UnreadTarget>), EngineError> {
    let answer = engine.blocking_ask(SQL, members, &QueryLimits::default())?;
    let (table, summary) = answer.into_json(MAX_ROWS)?;
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
                    counted_by: row.word("counted_by"),
                    class: row.word("class"),
                    file: row.word("file"),
                    lineno: row.value("lineno").as_u64(),
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
        self.word(name).unwrap_or_default()
    }

    fn word(&self, name: &str) -> Option<String> {
        self.value(name).as_str().map(str::to_owned)
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.value(name).as_f64()
    }

    fn tensor(&self) -> TensorReading {
        TensorReading {
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

fn tell(
    found: Vec<NanFinding>,
    begun: NanWatch,
    unasked: &[UnreadTarget],
    (members, is_json): (&Members, bool),
) -> anyhow::Result<Status> {
    let was_watched = !begun.watched.is_empty();
    // Ranks that nobody has are told already.
    let members = Members {
        all: members.all.clone(),
        missing: Ranks::default(),
    };
    let modules: u64 = begun.watched.iter().map(|one| one.modules).sum();
    // That nothing was found is not said of those that nobody looked at.
    let status = begun.blindness.filter(|_| found.is_empty());
    let status = status.unwrap_or(exit::OK);
    if is_json {
        let mut missing = begun.missing;
        missing.extend(missing_targets(unasked, &members));
        json::print(&NanReport {
            found,
            modules: (was_watched && unasked.is_empty()).then_some(modules),
            missing,
        })?;
        return Ok(status);
    }
    if found.is_empty() {
        for line in missing_lines(unasked, &members) {
            writeln!(terminal::stderr(), "{line}")?;
        }
        let words = if was_watched {
            looked_at(modules, unasked.is_empty())
        } else {
            "no NaN or Inf was recorded".to_owned()
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

/// What is said of so many modules in which nothing was found; of all that were looked at, or at least of these.
fn looked_at(modules: u64, are_all: bool) -> String {
    let noun = if modules == 1 { "module" } else { "modules" };
    match (modules, are_all) {
        (0, true) => "nothing was checked: no model was called meanwhile".to_owned(),
        (0, false) => "no NaN or Inf was recorded".to_owned(),
        (_, true) => format!("all values of {modules} {noun} were finite"),
        (_, false) => format!("all values of {modules} {noun} were finite, as far as is known"),
    }
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

/// `in Linear.forward at …/linear.py:130; steps are counted by the optimizer since recording began`
fn whereabouts(finding: &NanFinding) -> Option<String> {
    let class = finding.class.as_deref().map(visible::line);
    let code = finding.file.as_deref().zip(finding.lineno);
    let place = match (class, code) {
        (Some(class), Some((file, line))) => {
            let file = visible::line(file);
            Some(format!("in {class}.forward at {file}:{line}"))
        }
        (Some(class), None) => Some(format!("in a {class}, whose forward is not Python code")),
        (None, _) => None,
    };
    let step = match finding.counted_by.as_deref() {
        Some("program") => Some("the step is the program's own"),
        Some(_) => Some("steps are counted by the optimizer since recording began"),
        None => None,
    };
    let parts: Vec<&str> = place.as_deref().into_iter().chain(step).collect();
    (!parts.is_empty()).then(|| format!("  {}", parts.join("; ")))
}

fn in_full(finding: &NanFinding) -> Vec<String> {
    let mut lines = vec![headline(finding)];
    lines.extend(whereabouts(finding));
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

fn cells(tensor: &TensorReading) -> [String; 9] {
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
