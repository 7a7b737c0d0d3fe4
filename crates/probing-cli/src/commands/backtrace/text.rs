//! Stacks of one process as a terminal shows them.

use probing_proto::report::{
    BacktraceReport, GilState, MissingFrames, ReportedFrame, ReportedThread,
};

use crate::terminal;

/// Names of threads with one stack that are written out; of more, the first and the last.
const NAMES_SHOWN: usize = 4;
/// Of a line with a local variable, when the output goes elsewhere than to a terminal.
const LOCAL_WIDTH: usize = 200;

pub(in crate::commands) fn text(report: &BacktraceReport, reverse: bool) -> String {
    threads(&report.threads, reverse) + &held(report)
}

pub(crate) fn threads(threads: &[ReportedThread], reverse: bool) -> String {
    let order = if reverse { "first" } else { "last" };
    let groups: Vec<String> = folded(threads)
        .iter()
        .map(|threads| {
            let thread = threads[0];
            let head = format!(
                "{}, {} (most recent call {order})\n",
                names(threads),
                state(&thread.state, thread.gil)
            );
            let mut frames = lines(&thread.frames);
            match thread.missing.map(|missing| (missing, gap(missing))) {
                Some((MissingFrames::Inner, gap)) => frames.insert(0, gap),
                Some((MissingFrames::Outer | MissingFrames::Native, gap)) => frames.push(gap),
                None => {}
            }
            if !reverse {
                frames.reverse();
            }
            head + &frames.concat()
        })
        .collect();
    groups.join("\n")
}

/// Whoever asked for `--pause` wants to know what it cost.
fn held(report: &BacktraceReport) -> String {
    match report.paused_seconds * 1e3 {
        0.0 => String::new(),
        millis => format!("\n(a thread was held for {millis:.2} ms to be seen whole)\n"),
    }
}

fn gap(missing: MissingFrames) -> String {
    let why = match missing {
        MissingFrames::Inner => "it moves too fast to be seen whole",
        MissingFrames::Outer => "what called this could not be read",
        MissingFrames::Native => "not all native calls could be followed",
    };
    format!("  … {why}\n")
}

/// One text for each frame; native ones that follow each other and have no names are told together.
fn lines(frames: &[ReportedFrame]) -> Vec<String> {
    let alike = |one: &ReportedFrame, other: &ReportedFrame| {
        is_unnamed(one) && is_unnamed(other) && one.file == other.file
    };
    let groups = frames.chunk_by(alike);
    groups
        .map(|group| match group {
            [first, _, ..] => {
                let count = group.len();
                format!(
                    "  native {count} calls without names ({})\n",
                    file_name(first)
                )
            }
            one => one.iter().map(frame).collect(),
        })
        .collect()
}

/// Its file does not say what the function is called.
fn is_unnamed(frame: &ReportedFrame) -> bool {
    frame.frame_type == "Native" && frame.func.starts_with("0x")
}

fn file_name(frame: &ReportedFrame) -> &str {
    frame.file.rsplit('/').next().unwrap_or_default()
}

/// Threads with the same stack and state together, in the order of their first.
fn folded(threads: &[ReportedThread]) -> Vec<Vec<&ReportedThread>> {
    let mut groups: Vec<Vec<&ReportedThread>> = Vec::new();
    for thread in threads {
        let same = |group: &&mut Vec<&ReportedThread>| {
            let first = group[0];
            (&first.frames, &first.state, first.gil) == (&thread.frames, &thread.state, thread.gil)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(thread),
            None => groups.push(vec![thread]),
        }
    }
    groups
}

fn names(threads: &[&ReportedThread]) -> String {
    let all: Vec<String> = threads.iter().map(|thread| name(thread)).collect();
    match all.as_slice() {
        [one] => format!("Thread {one}"),
        few if few.len() <= NAMES_SHOWN => format!("{} threads: {}", few.len(), few.join(", ")),
        [first, .., last] => format!("{} threads: {first} … {last}", all.len()),
        [] => String::new(),
    }
}

pub(crate) fn name(thread: &ReportedThread) -> String {
    let id = thread
        .thread_id
        .map_or_else(|| "?".to_owned(), |id| id.to_string());
    match &thread.thread_name {
        Some(name) => format!("{name} ({id})"),
        None => id,
    }
}

pub(crate) fn state(state: &str, gil: GilState) -> String {
    let place = match state {
        state @ ("running" | "asleep" | "stopped") => state.to_owned(),
        call => format!("waits in {call}"),
    };
    match gil {
        GilState::Holds => format!("holds the GIL, {place}"),
        GilState::Waits => "waits for the GIL".to_owned(),
        GilState::Free => place,
    }
}

pub(super) fn frame(frame: &ReportedFrame) -> String {
    if is_unnamed(frame) {
        return format!("  native {}\n", frame.func);
    }
    if frame.frame_type == "Native" {
        let place = match (&frame.source_file, frame.lineno) {
            (Some(file), Some(line)) => {
                let name = file.rsplit('/').next().unwrap_or_default();
                format!("{name}:{line} in {}", file_name(frame))
            }
            _ => file_name(frame).to_owned(),
        };
        return format!("  native {} ({place})\n", frame.func);
    }
    let line = frame
        .lineno
        .map_or_else(|| "?".to_owned(), |line| line.to_string());
    let source = frame
        .source
        .as_ref()
        .map_or_else(String::new, |source| format!("    {source}\n"));
    format!(
        "  File \"{}\", line {line}, in {}\n{source}{}",
        frame.file,
        frame.func,
        locals(frame)
    )
}

/// A line for each variable.
fn locals(frame: &ReportedFrame) -> String {
    let width = match terminal::width() {
        usize::MAX => LOCAL_WIDTH,
        width => width,
    };
    let mut lines = String::new();
    for local in frame.locals.iter().flatten() {
        let line = format!("      {} = {}", local.name, local.value);
        lines += &terminal::on_one_line(&line, width);
        lines.push('\n');
    }
    if frame.more_locals > 0 {
        lines += &format!("      … {} more\n", frame.more_locals);
    }
    lines
}
