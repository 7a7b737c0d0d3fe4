//! Samples of a target elsewhere: its agent takes them, a second's worth at a time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use probing_proto::agent::{SampledFrame, SamplesReport, SamplesRequest};

use crate::agent::node::Node;
use crate::error::ClientError;
use crate::sampling::call_tree::FrameLocation;
use crate::sampling::samples::{Plan, Samples, SamplesEnd};
use crate::sampling::ticker::Stop;
use probing_proto::process::Pid;
use probing_stacks::Pause;

/// So long nobody sees how it goes on, and cannot end it.
const PIECE: Duration = Duration::from_secs(1);

pub(crate) fn sample(
    (node, pid): (&Node, Pid),
    plan: &Plan,
    stop: &Stop,
    mut on_reading: impl FnMut(&Samples),
) -> Result<Samples, ClientError> {
    let mut samples = Samples::none(pid, plan);
    let began = Instant::now();
    let mut left = plan.duration;
    while !left.is_zero() {
        if stop.is_asked() {
            samples.end = SamplesEnd::Stopped;
            break;
        }
        let piece = left.min(PIECE);
        let report = match node.samples(&request(pid, plan, piece)) {
            Err(error) if error.is_end() && samples.taken > 0 => {
                samples.end = SamplesEnd::TargetEnded;
                break;
            }
            report => report?,
        };
        left = left.saturating_sub(piece);
        samples.end = SamplesEnd::Done;
        let ended = report.target_ended;
        add(&mut samples, report);
        samples.took = began.elapsed();
        if ended {
            samples.end = SamplesEnd::TargetEnded;
            break;
        }
        on_reading(&samples);
    }
    samples.took = began.elapsed();
    Ok(samples)
}

fn request(pid: Pid, plan: &Plan, piece: Duration) -> SamplesRequest {
    SamplesRequest {
        pid,
        seconds: piece.as_secs_f64(),
        rate: plan.rate,
        thread: plan.thread.clone(),
        idle: plan.idle,
        threads: plan.threads,
        functions: plan.functions,
        pause: plan.pause == Pause::Moving,
    }
}

fn add(samples: &mut Samples, report: SamplesReport) {
    samples.note = report.note;
    samples.taken += report.taken;
    samples.missed += report.missed;
    samples.counted += report.counted;
    samples.torn += report.torn;
    samples.failed += report.failed;
    let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    samples.paused = samples.paused.max(seconds(report.paused_seconds));
    samples.cpu += seconds(report.cpu_seconds);
    samples.wanted_was_seen |= report.wanted_was_seen;
    samples.names = report.names;
    let places: Vec<FrameLocation> = report.places.into_iter().map(place).collect();
    for (stack, seen) in report.stacks {
        // An index that leads nowhere names nothing.
        let stack = stack.iter().filter_map(|index| places.get(*index).cloned());
        samples.calls.add_times(stack, seen);
    }
    samples.calls.add_cut(report.cut);
}

fn place(place: SampledFrame) -> FrameLocation {
    FrameLocation {
        func: place.func.into(),
        file: place.file.map(|file| Arc::from(Path::new(&file))),
        line: place.line,
    }
}

impl Samples {
    /// As an agent tells them.
    pub fn report(&self) -> SamplesReport {
        let told = |place: &FrameLocation| SampledFrame {
            func: place.func.to_string(),
            file: place.file.as_ref().map(|file| file.display().to_string()),
            line: place.line,
        };
        SamplesReport {
            note: self.note.clone(),
            taken: self.taken,
            missed: self.missed,
            counted: self.counted,
            torn: self.torn,
            failed: self.failed,
            paused_seconds: self.paused.as_secs_f64(),
            cpu_seconds: self.cpu.as_secs_f64(),
            wanted_was_seen: self.wanted_was_seen,
            target_ended: self.end == SamplesEnd::TargetEnded,
            names: self.names.clone(),
            places: self.calls.places().iter().map(told).collect(),
            stacks: self.calls.stacks().collect(),
            cut: self.calls.cut(),
        }
    }
}
