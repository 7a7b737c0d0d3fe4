//! What the prompt shows, as text.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anstyle::AnsiColor;
use probing_proto::message::completion::{Completion, Description, Scope};
use probing_proto::message::threads::ThreadSelector;
use probing_proto::message::{Evaluated, Outcome};
use probing_proto::report::{BacktraceReport, ReportedFrame, ReportedThread};

use crate::commands::backtrace;
use crate::terminal;
use crate::terminal::Style;
use probing_proto::text::visible;

const ERROR: Style = Style::new().bold().coloured(AnsiColor::Red);
const HEAD: Style = Style::new().bold();

/// The value, or what went wrong.
pub(in crate::commands) fn outcome(evaluated: &Evaluated) -> io::Result<()> {
    match &evaluated.outcome {
        Outcome::Finished { value: None } => Ok(()),
        Outcome::Finished { value: Some(value) } => writeln!(terminal::stdout(), "{value}"),
        Outcome::Raised(raised) => write!(terminal::stderr(), "{}", painted(&raised.traceback)),
        Outcome::SyntaxError { text } => write!(terminal::stderr(), "{}", painted(text)),
    }
}

/// A traceback with its last line, the exception, in red.
fn painted(traceback: &str) -> String {
    let text = traceback.trim_end();
    let start = text.rfind('\n').map_or(0, |at| at + 1);
    format!("{}{ERROR}{}{ERROR:#}\n", &text[..start], &text[start..])
}

/// `train_step (train.py:42)`
pub(super) fn innermost(report: &BacktraceReport) -> String {
    let main = report.threads.iter().find(|thread| thread.main);
    main.map_or_else(|| "no Python code".to_owned(), place)
}

fn place(thread: &ReportedThread) -> String {
    let first = thread.frames.first();
    first.map_or_else(|| "no Python code".to_owned(), frame_place)
}

fn frame_place(frame: &ReportedFrame) -> String {
    let line = frame.lineno.map(|line| line.to_string());
    let line = line.as_deref().unwrap_or("?");
    let (func, file) = (visible::line(&frame.func), visible::line(&frame.file));
    format!("{func} ({file}:{line})")
}

/// Where code runs from now on; or why it cannot.
pub(super) fn scope(report: &BacktraceReport, scope: &Scope) -> Result<String, String> {
    let wanted = scope.thread.clone().map(ThreadSelector::from);
    let wanted = wanted.unwrap_or(ThreadSelector::Main);
    let Some(thread) = report
        .threads
        .iter()
        .find(|thread| wanted.selects(thread.names()))
    else {
        let names: Vec<String> = report.threads.iter().map(backtrace::text::name).collect();
        let names = names.join(", ");
        return Err(format!("no thread is named {wanted}; there are: {names}"));
    };
    let name = backtrace::text::name(thread);
    let Some(depth) = scope.frame else {
        return Ok(format!("thread {name}: in {}", place(thread)));
    };
    match thread.frames.get(depth as usize) {
        Some(frame) => Ok(format!("frame {depth} of {name}: {}", frame_place(frame))),
        None => Err(format!(
            "no frame {depth}: the stack of {name} has {}; %bt shows it, 0 is the innermost",
            thread.frames.len()
        )),
    }
}

/// One line for each thread; the one that was chosen is marked.
pub(super) fn threads(report: &BacktraceReport, chosen: Option<&ThreadSelector>) -> String {
    let mut text = String::new();
    for thread in &report.threads {
        let is_chosen = chosen.is_some_and(|chosen| chosen.selects(thread.names()));
        let mark = if is_chosen { "→" } else { " " };
        let id = thread
            .thread_id
            .map_or_else(|| "?".to_owned(), |id| id.to_string());
        let name = visible::line(thread.thread_name.as_deref().unwrap_or(""));
        // Writing to a String does not fail.
        writeln!(
            text,
            "{mark}{id:>8}  {name:<24} {:<16} {}",
            thread.state,
            place(thread)
        )
        .ok();
    }
    text
}

/// Names and what they are, in columns.
pub(super) fn names(names: &[Completion]) -> String {
    if names.is_empty() {
        return "only names of modules\n".to_owned();
    }
    let width = names
        .iter()
        .map(|name| visible::line(&name.text).chars().count())
        .max()
        .unwrap_or(0);
    names
        .iter()
        .map(|name| {
            let (name, kind) = (visible::line(&name.text), visible::line(&name.kind));
            format!("{name:<width$}  {kind}\n")
        })
        .collect()
}

/// What `?name` shows.
pub(super) fn description(name: &str, description: &Description) -> String {
    let mut text = String::new();
    let mut line = |head: &str, value: &str| {
        // Writing to a String does not fail.
        writeln!(text, "{HEAD}{head:<10}{HEAD:#} {value}").ok();
    };
    line("type", &visible::line(&description.kind));
    if let Some(signature) = &description.signature {
        line("signature", &visible::line(&format!("{name}{signature}")));
    }
    for (fact, value) in &description.facts {
        line(&visible::line(fact), &visible::line(value));
    }
    if let Some(file) = description.file.as_deref().map(visible::line) {
        match description.lineno {
            Some(lineno) => line("file", &format!("{file}:{lineno}")),
            None => line("file", &file),
        }
    }
    if let Some(doc) = &description.doc {
        line("doc", doc.replace('\n', "\n           ").trim_end());
    }
    text
}
