//! Values of locals that the probe of a target adds to those that were read from outside.

use std::time::Duration;

use probing_proto::message::{FrameLocals, LocalValue, Locals};
use probing_proto::report::{
    BacktraceReport, FrameType, ReportedFrame, ReportedLocal, ReportedThread,
};

use crate::error::ClientError;
use crate::probe::Probe;

/// The ident of a thread that Python does not know.
const NOT_PYTHONS: u64 = 0;
/// For the probe to answer.
const DEADLINE: Duration = Duration::from_secs(1);

/// Asks the probe about the threads of the report. On an error the report is as it was.
pub(crate) fn ask(probe: &mut Probe, report: &mut BacktraceReport) -> Result<(), ClientError> {
    let idents = report.threads.iter().map(|thread| thread.ident);
    let threads: Vec<u64> = idents.filter(|ident| *ident != NOT_PYTHONS).collect();
    if threads.is_empty() {
        return Ok(());
    }
    let told = probe.locals(threads, DEADLINE)?;
    merge(&mut report.threads, told);
    Ok(())
}

/// Takes the values of frames that are the same in both. The target may have gone on in between: from the outermost
/// frame inwards, the first that is at another place was left meanwhile, and all within it.
fn merge(threads: &mut [ReportedThread], told: Locals) {
    for told in told.threads {
        let mut threads = threads.iter_mut();
        let Some(thread) = threads.find(|thread| thread.ident == told.ident) else {
            continue;
        };
        let outermost_first = thread.frames.iter_mut().rev();
        let of_python = outermost_first.filter(|frame| frame.frame_type == FrameType::Python);
        for (frame, told) in of_python.zip(told.frames.into_iter().rev()) {
            if !is_same(frame, &told) {
                break;
            }
            if let Some(locals) = told.locals {
                frame.locals = Some(locals.into_iter().map(reported).collect());
                frame.more_locals = told.more;
            }
        }
    }
}

fn is_same(frame: &ReportedFrame, told: &FrameLocals) -> bool {
    *frame.func == *told.func && *frame.file == *told.file && frame.lineno == told.lineno
}

fn reported(local: LocalValue) -> ReportedLocal {
    ReportedLocal {
        name: local.name.into(),
        value: local.value.into(),
        kind: Some(local.kind.into()),
    }
}

#[cfg(test)]
mod tests {
    use probing_proto::message::ThreadLocals;
    use probing_proto::report::GilState;

    use super::*;

    /// Frames by function and line, innermost first, with a value that was read from outside.
    fn thread(frames: &[(&str, u32)]) -> ReportedThread {
        let frame = |(depth, (func, line)): (usize, &(&str, u32))| ReportedFrame {
            func: (*func).into(),
            file: "a.py".into(),
            lineno: Some(*line),
            depth,
            frame_type: FrameType::Python,
            address: None,
            source_file: None,
            source: None,
            locals: Some(vec![ReportedLocal {
                name: "x".into(),
                value: "outside".into(),
                kind: None,
            }]),
            more_locals: 0,
        };
        ReportedThread {
            thread_id: None,
            ident: 7,
            thread_name: None,
            daemon: None,
            main: true,
            state: "running".to_owned(),
            gil: GilState::Free,
            gil_holder: None,
            interpreter: None,
            runs_thread: None,
            complete: true,
            missing: None,
            frames: frames.iter().enumerate().map(frame).collect(),
        }
    }

    fn told(ident: u64, frames: &[(&str, u32)]) -> Locals {
        let frame = |(func, line): &(&str, u32)| FrameLocals {
            func: (*func).to_owned(),
            file: "a.py".to_owned(),
            lineno: Some(*line),
            locals: Some(vec![LocalValue {
                name: "x".to_owned(),
                kind: "X".to_owned(),
                value: "probe".to_owned(),
            }]),
            more: 0,
        };
        let frames = frames.iter().map(frame).collect();
        Locals {
            threads: vec![ThreadLocals { ident, frames }],
        }
    }

    #[track_caller]
    fn check(outside: &[(&str, u32)], inside: Locals, values: &[&str]) {
        let mut threads = [thread(outside)];
        merge(&mut threads, inside);
        let frames = threads[0].frames.iter();
        let found: Vec<&str> = frames
            .map(|frame| frame.locals.as_ref().unwrap()[0].value.as_ref())
            .collect();
        assert_eq!(found, values);
    }

    #[test]
    fn values_are_taken_from_the_probe_as_far_as_the_stacks_are_the_same() {
        let stack = [("inner", 3), ("middle", 2), ("outer", 1)];
        check(&stack, told(7, &stack), &["probe"; 3]);
        check(&stack, told(8, &stack), &["outside"; 3]);
        let moved = [("inner", 4), ("middle", 2), ("outer", 1)];
        check(&stack, told(7, &moved), &["outside", "probe", "probe"]);
        // The same function at the same line, but called by another line: another call of it.
        let again = [("inner", 3), ("middle", 9), ("outer", 1)];
        check(&stack, told(7, &again), &["outside", "outside", "probe"]);
        let returned = [("middle", 2), ("outer", 1)];
        check(&stack, told(7, &returned), &["outside", "probe", "probe"]);
        check(&returned, told(7, &stack), &["probe"; 2]);
    }
}
