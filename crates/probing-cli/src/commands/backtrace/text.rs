//! Stacks of one process as a terminal shows them.

use probing_proto::report::{
    BacktraceReport, FrameType, MissingFrames, ReportedFrame, ReportedLocal, ReportedThread,
    state_words,
};

use crate::terminal;
use probing_proto::text::visible;

/// Names of threads with one stack that are written out; of more, the first and the last.
const NAMES_SHOWN: usize = 4;
/// Of a line with a local variable, when the output goes elsewhere than to a terminal.
const LOCAL_WIDTH: usize = 200;

pub(in crate::commands) fn text(report: &BacktraceReport, reverse: bool) -> String {
    threads(&report.threads, reverse) + &held(report)
}

pub(crate) fn threads(threads: &[ReportedThread], reverse: bool) -> String {
    let (groups, width) = (folded(threads), local_width());
    // It may be megabytes, and a text that grows is copied again and again.
    let about = groups.iter().map(|group| length(group[0])).sum();
    let mut text = String::with_capacity(about);
    for group in &groups {
        if !text.is_empty() {
            text.push('\n');
        }
        push_group(&mut text, group, reverse, width);
    }
    text
}

/// About how many bytes it takes to tell of a thread.
fn length(thread: &ReportedThread) -> usize {
    const WORDS: usize = 40;
    let local = |local: &ReportedLocal| local.name.len() + local.value.len() + WORDS / 4;
    let frame = |frame: &ReportedFrame| {
        let source = frame.source.as_ref().map_or(0, |source| source.len());
        let locals = frame.locals.iter().flatten().map(local);
        frame.file.len() + frame.func.len() + source + WORDS + locals.sum::<usize>()
    };
    2 * WORDS + thread.frames.iter().map(frame).sum::<usize>()
}

/// Threads that have the same stack.
fn push_group(text: &mut String, threads: &[&ReportedThread], reverse: bool, width: usize) {
    let thread = threads[0];
    let (names, mut state) = (names(threads), state_words(&thread.state, thread.gil));
    if let Some(holder) = &thread.gil_holder {
        state.push_str(&format!(", which {} holds", visible::line(holder)));
    }
    let runs_thread = thread.runs_thread.as_ref();
    let runs_thread = runs_thread.map(|name| format!(", runs thread {}", visible::line(name)));
    let interpreter = thread.interpreter;
    let interpreter = interpreter.map(|number| format!(", runs interpreter {number}"));
    let runs: String = [runs_thread, interpreter].into_iter().flatten().collect();
    let order = if reverse { "first" } else { "last" };
    text.push_str(&format!(
        "{names}{runs}, {state} (most recent call {order})\n"
    ));
    let (inner, outer) = match thread.missing.map(|missing| (missing, gap(missing))) {
        Some((MissingFrames::Inner, gap)) => (gap, String::new()),
        Some((MissingFrames::Outer | MissingFrames::Native, gap)) => (String::new(), gap),
        None => Default::default(),
    };
    let groups = thread
        .frames
        .chunk_by(|one, other| is_unnamed(one) && is_unnamed(other) && one.file == other.file);
    if reverse {
        text.push_str(&inner);
        groups.for_each(|frames| push_frames(text, frames, width));
        text.push_str(&outer);
    } else {
        text.push_str(&outer);
        let groups: Vec<_> = groups.collect();
        let outermost_first = groups.into_iter().rev();
        outermost_first.for_each(|frames| push_frames(text, frames, width));
        text.push_str(&inner);
    }
}

/// Whoever asked for `--pause` wants to know what it cost.
fn held(report: &BacktraceReport) -> String {
    let held = match report.paused_seconds * 1e3 {
        0.0 => String::new(),
        millis => format!("\n(a thread was held for {millis:.2} ms to read its whole stack)\n"),
    };
    let without = match report.threads_without_native {
        0 => String::new(),
        1 => "(no native frames of 1 thread: it could not be copied while a thread was held)\n"
            .to_owned(),
        count => format!(
            "(no native frames of {count} threads: they could not be copied while a thread was held)\n"
        ),
    };
    held + &without
}

fn gap(missing: MissingFrames) -> String {
    let why = match missing {
        MissingFrames::Inner => "its stack changed during the read",
        MissingFrames::Outer => "callers could not be read",
        MissingFrames::Native => "some native calls could not be unwound",
    };
    format!("  … {why}\n")
}

/// A frame, or native ones that follow each other and have no names, which are told together.
fn push_frames(text: &mut String, frames: &[ReportedFrame], width: usize) {
    match frames {
        [first, _, ..] => {
            let (count, file) = (frames.len(), file_name(first));
            text.push_str(&format!(
                "  native {count} calls without names ({})\n",
                visible::line(file)
            ));
        }
        one => one.iter().for_each(|frame| push_frame(text, frame, width)),
    }
}

/// Its file does not say what the function is called.
fn is_unnamed(frame: &ReportedFrame) -> bool {
    frame.frame_type == FrameType::Native && frame.func.starts_with("0x")
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
            (&first.frames, &first.state, first.gil, first.interpreter)
                == (
                    &thread.frames,
                    &thread.state,
                    thread.gil,
                    thread.interpreter,
                )
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
    visible::line(&thread.title()).into_owned()
}

pub(super) fn frame(frame: &ReportedFrame) -> String {
    let mut text = String::new();
    push_frame(&mut text, frame, local_width());
    text
}

fn push_frame(text: &mut String, frame: &ReportedFrame, width: usize) {
    if is_unnamed(frame) {
        return text.push_str(&format!("  native {}\n", frame.func));
    }
    if frame.frame_type == FrameType::Native {
        let place = match (&frame.source_file, frame.lineno) {
            (Some(file), Some(line)) => {
                let name = file.rsplit('/').next().unwrap_or_default();
                format!("{name}:{line} in {}", file_name(frame))
            }
            _ => file_name(frame).to_owned(),
        };
        let (func, place) = (visible::line(&frame.func), visible::line(&place));
        return text.push_str(&match &*place {
            // Code that a compiler has made in the process is in no file.
            "" => format!("  native {func}\n"),
            place => format!("  native {func} ({place})\n"),
        });
    }
    let line = frame
        .lineno
        .map_or_else(|| "?".to_owned(), |line| line.to_string());
    for part in [
        "  File \"",
        &visible::line(&frame.file),
        "\", line ",
        &line,
        ", in ",
        &visible::line(&frame.func),
        "\n",
    ] {
        text.push_str(part);
    }
    if let Some(source) = &frame.source {
        text.extend(["    ", &visible::line(source), "\n"]);
    }
    push_locals(text, frame, width);
}

/// A line for each variable.
fn push_locals(text: &mut String, frame: &ReportedFrame, width: usize) {
    for local in frame.locals.iter().flatten() {
        let start = text.len();
        text.extend(["      ", &local.name, " = ", &local.value]);
        terminal::end_line(text, start, width);
    }
    if frame.more_locals > 0 {
        text.push_str(&format!("      … {} more\n", frame.more_locals));
    }
}

fn local_width() -> usize {
    match terminal::width() {
        usize::MAX => LOCAL_WIDTH,
        width => width,
    }
}
