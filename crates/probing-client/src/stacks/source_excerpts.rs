//! Source of the functions on a stack, kept for readers without the files.

use std::collections::{BTreeMap, BTreeSet};

use probing_proto::capture::Excerpt;
use probing_proto::report::{BacktraceReport, ReportedFrame};
use probing_proto::text::function_lines;

/// Lines before and behind a place.
const AROUND: u32 = 20;
/// Of a line, in bytes.
const MAX_LINE_BYTES: usize = 400;

/// What `read` gives of the files that the frames are in.
pub(crate) fn read_excerpts(
    report: &BacktraceReport,
    mut read: impl FnMut(&str) -> Option<String>,
) -> Vec<Excerpt> {
    let mut places: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let frames = report.threads.iter().flat_map(|thread| &thread.frames);
    for frame in frames {
        if let Some(line) = frame.lineno {
            places.entry(file(frame)).or_default().insert(line);
        }
    }
    let mut excerpts = Vec::new();
    for (file, places) in places {
        let Some(text) = read(file) else {
            continue;
        };
        let text: Vec<String> = text.lines().map(str::to_owned).collect();
        let around = |line: &u32| {
            let (first, last) = function_lines::kept(&text, *line, AROUND);
            first..=last
        };
        let kept: BTreeSet<u32> = places.iter().flat_map(around).collect();
        let mut next = 0;
        for number in kept {
            let Some(line) = text.get((number as usize).wrapping_sub(1)) else {
                continue;
            };
            if number != next {
                excerpts.push(Excerpt {
                    file: file.to_owned(),
                    first: number,
                    lines: Vec::new(),
                });
            }
            let line = &line[..line.floor_char_boundary(MAX_LINE_BYTES)];
            if let Some(excerpt) = excerpts.last_mut() {
                excerpt.lines.push(line.to_owned());
            }
            next = number + 1;
        }
    }
    excerpts
}

/// The file that the line is in.
fn file(frame: &ReportedFrame) -> &str {
    frame.source_file.as_deref().unwrap_or(&frame.file)
}

#[cfg(test)]
mod tests {
    use probing_proto::process::Pid;
    use probing_proto::report::{FrameType, GilState, ReadMethod, ReportedThread};

    use super::*;

    fn frame(file: &str, line: u32) -> ReportedFrame {
        ReportedFrame {
            func: "f".into(),
            file: file.into(),
            lineno: Some(line),
            depth: 0,
            frame_type: FrameType::Python,
            address: None,
            source_file: None,
            source: None,
            locals: None,
            more_locals: 0,
        }
    }

    #[test]
    fn lines_that_are_near_each_other_are_one_piece() {
        let thread = ReportedThread {
            thread_id: None,
            ident: 1,
            thread_name: None,
            daemon: None,
            main: true,
            state: "running".into(),
            gil: GilState::Free,
            gil_holder: None,
            interpreter: None,
            runs_thread: None,
            complete: true,
            missing: None,
            frames: vec![
                frame("a", 3),
                frame("a", 30),
                frame("a", 200),
                frame("gone", 1),
            ],
        };
        let report = BacktraceReport {
            pid: Pid(1),
            python: "3.12".into(),
            threads: vec![thread],
            taken_at_nanos: 0,
            took_seconds: 0.0,
            paused_seconds: 0.0,
            threads_without_native: 0,
            read: ReadMethod::Outside,
            notes: Vec::new(),
        };
        let text = |file: &str| {
            (file == "a").then(|| (1..=210).map(|line| format!("  line {line}\n")).collect())
        };
        let excerpts = read_excerpts(&report, text);
        let shape: Vec<(u32, usize)> = excerpts
            .iter()
            .map(|excerpt| (excerpt.first, excerpt.lines.len()))
            .collect();
        assert_eq!(shape, [(1, 50), (180, 31)]);
        assert_eq!(excerpts[1].lines[20], "  line 200");
    }
}
