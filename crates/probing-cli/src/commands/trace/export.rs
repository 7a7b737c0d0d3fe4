//! `probing trace --export`: writes recorded rows for viewers of traces.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use probing_client::Members;
use probing_engine::{Engine, Format, QueryLimits};
use probing_proto::speedscope::{Evented, SpeedscopeFile, SpeedscopeFrame};
use serde_json::json;

use crate::arguments::{TraceArguments, TraceFormat, Tracing};
use crate::commands::TargetArgs;
use crate::commands::query::said_whom_it_lacks;
use crate::commands::trace::perfetto;
use crate::commands::trace::rows::{self, Edge, Kind, Row, SQL, THREADS_SQL, Threads, edges};
use crate::commands::trace::spans::{First, PlacedSpan, spans};
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

pub(crate) fn run(arguments: &TraceArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let (Tracing::Export(format), Some(path)) = (arguments.wanted(), &arguments.output) else {
        bail!("no file: --export FORMAT -o FILE");
    };
    let members = aim.members()?;
    let engine = Engine::start()?;
    let mut csv = Vec::new();
    let answer = engine.blocking_ask(SQL, &members, &QueryLimits::default())?;
    said_whom_it_lacks(answer.write(Format::Csv, &mut csv), &members)?;
    let rows = rows::parsed(std::str::from_utf8(&csv)?, &threads(&engine, &members));
    if rows.is_empty() {
        bail!(
            "nothing was traced: `probing trace FUNCTION` starts a trace, which records its calls"
        );
    }
    let bytes = match format {
        TraceFormat::Perfetto => perfetto::file(&rows),
        TraceFormat::Chrome => json::line(&chrome(&rows))?.into_bytes(),
        TraceFormat::Speedscope => json::line(&speedscope(&rows, path))?.into_bytes(),
    };
    fs::write(path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    if is_json && format == TraceFormat::Perfetto {
        writeln!(
            terminal::stderr(),
            "note: Perfetto's native format is not JSON, although the file is named so; `--export chrome` writes JSON"
        )?;
    }
    let viewer = match format {
        TraceFormat::Perfetto | TraceFormat::Chrome => "https://ui.perfetto.dev",
        TraceFormat::Speedscope => "https://www.speedscope.app",
    };
    writeln!(
        terminal::stdout(),
        "{}: {} events, {} bytes; open it at {viewer}",
        path.display(),
        rows.len(),
        bytes.len()
    )?;
    Ok(exit::OK)
}

/// How threads are called. Those that are gone, and of processes that are, have no names.
fn threads(engine: &Engine, members: &Members) -> Threads {
    let mut csv = Vec::new();
    let answer = engine.blocking_ask(THREADS_SQL, members, &QueryLimits::default());
    if let Ok(answer) = answer
        && answer.write(Format::Csv, &mut csv).is_ok()
    {
        return Threads::parsed(&String::from_utf8_lossy(&csv));
    }
    Threads::default()
}

/// The format of Chrome's trace events: times in microseconds since the first. (Since 1970 they would be told by quarters of
/// one: numbers in JSON are floats.) What has not ended has a beginning only.
fn chrome(rows: &[Row]) -> serde_json::Value {
    let mut events = names(rows);
    let first = rows.iter().map(began).min().unwrap_or_default();
    let micros = |nanos: i64| nanos as f64 / 1000.0;
    let common = |row: &Row, phase: &str, at: i64| {
        let mut event = json!({
            "name": row.name, "ph": phase, "pid": row.pid, "tid": row.thread, "ts": micros(at - first),
        });
        let mut notes = serde_json::Map::new();
        if !row.file.is_empty() {
            notes.insert("file".to_owned(), row.file.clone().into());
            notes.insert("line".to_owned(), row.line.into());
        }
        let numbers = [
            ("step", row.step),
            ("span", row.span),
            ("parent", row.parent),
        ];
        for (name, number) in numbers {
            notes.extend(number.map(|number| (name.to_owned(), number.into())));
        }
        if row.kind == Kind::Failed {
            notes.insert("left by".to_owned(), "an exception".into());
        }
        event["cat"] = if row.file.is_empty() {
            "span"
        } else {
            "function"
        }
        .into();
        event["args"] = notes.into();
        event
    };
    for row in rows {
        match (row.kind, row.took) {
            (Kind::End | Kind::Failed | Kind::Line, Some(took)) => {
                let mut event = common(row, "X", began(row));
                event["dur"] = micros(took).into();
                events.push(event);
            }
            (Kind::Event, _) => {
                let mut event = common(row, "i", row.at);
                event["s"] = "t".into();
                events.push(event);
            }
            _ => {}
        }
    }
    for row in still_open(rows) {
        events.push(common(row, "B", row.at));
    }
    for PlacedSpan { row, ended, lane } in spans(rows, First::SpansAmongCalls) {
        if lane > 0 {
            // What overlaps others of its thread is on a track of its own, which its number stands for.
            let id = format!("{}.{lane}", row.thread);
            for (phase, at) in [("b", Some(row.at)), ("e", ended)] {
                let Some(at) = at else { continue };
                let mut event = common(row, phase, at);
                event["id"] = id.clone().into();
                events.push(event);
            }
        } else if let Some(ended) = ended {
            let mut event = common(row, "X", row.at);
            event["dur"] = micros(ended - row.at).into();
            events.push(event);
        } else {
            events.push(common(row, "B", row.at));
        }
    }
    json!({"traceEvents": events, "displayTimeUnit": "ns"})
}

/// Which process is which rank, for those who look at several, and what threads are called.
fn names(rows: &[Row]) -> Vec<serde_json::Value> {
    let mut processes = BTreeMap::new();
    let mut threads = BTreeMap::new();
    for row in rows {
        processes.extend(row.whose.as_deref().map(|name| (row.pid, name)));
        let name = row.thread_name.as_deref();
        threads.extend(name.map(|name| ((row.pid, row.thread), name)));
    }
    let process = |(pid, name): (u32, &str)| json!({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}});
    let thread = |((pid, tid), name): ((u32, u32), &str)| json!({"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}});
    let threads = threads.into_iter().map(thread);
    processes.into_iter().map(process).chain(threads).collect()
}

/// When what a row tells of began, as far as it knows.
fn began(row: &Row) -> i64 {
    match (row.kind, row.took) {
        (Kind::End | Kind::Failed, Some(took)) => row.at - took,
        _ => row.at,
    }
}

/// Calls that had not ended.
fn still_open(rows: &[Row]) -> Vec<&Row> {
    let mut open: HashMap<(u32, u32), Vec<&Row>> = HashMap::new();
    for edge in edges(rows) {
        match edge {
            Edge::Open(row) => open.entry((row.pid, row.thread)).or_default().push(row),
            Edge::Close(_, row) => {
                open.entry((row.pid, row.thread)).or_default().pop();
            }
        }
    }
    let mut open: Vec<&Row> = open.into_values().flatten().collect();
    open.sort_by_key(|row| row.at);
    open
}

/// Calls of each thread, as events. What has not ended ends with the last row.
fn speedscope(rows: &[Row], path: &Path) -> SpeedscopeFile {
    let mut frames: Vec<SpeedscopeFrame> = Vec::new();
    let mut numbers: HashMap<(String, String, u32), usize> = HashMap::new();
    let mut number = |row: &Row| {
        let key = (row.name.clone(), row.file.clone(), row.line);
        *numbers.entry(key).or_insert_with(|| {
            frames.push(SpeedscopeFrame {
                name: row.name.clone(),
                file: Some(row.file.clone()),
                line: Some(row.line),
            });
            frames.len() - 1
        })
    };
    let first = rows.first().map_or(0, |row| row.at);
    let last = rows.last().map_or(0, |row| row.at);
    let mut threads: Vec<((u32, u32), Evented)> = Vec::new();
    for edge in edges(rows) {
        let (row, at, opens) = match edge {
            Edge::Open(row) => (row, row.at, true),
            Edge::Close(at, row) => (row, at, false),
        };
        let key = (row.pid, row.thread);
        let place = threads.iter().position(|(known, _)| *known == key);
        let place = place.unwrap_or_else(|| {
            let process = match &row.whose {
                Some(whose) => whose.to_string(),
                None => format!("process {}", row.pid),
            };
            let name = match &row.thread_name {
                Some(name) => format!("{name} of {process}"),
                None => format!("thread {} of {process}", row.thread),
            };
            threads.push((key, Evented::new(name, last - first)));
            threads.len() - 1
        });
        let frame = number(row);
        let profile = &mut threads[place].1;
        if opens {
            profile.open(frame, at - first);
        } else {
            profile.close(frame, at - first);
        }
    }
    let name = path
        .file_stem()
        .map(|name| name.to_string_lossy().into_owned());
    let profiles = threads.into_iter().map(|(_, profile)| profile.ended());
    SpeedscopeFile::evented(name.unwrap_or_default(), frames, profiles.collect())
}
