//! Sampled stacks of one target, counted as they come.

use std::time::Duration;

use probing_proto::message::threads::ThreadSelector;
use probing_proto::process::Pid;
use probing_stacks::{Frame, FrameGap, Gil, Options, Pause, State, ThreadStack};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{ClientError, LocalError, SelectionError};
use crate::labels::target_label::TargetLabel;
use crate::sampling::call_tree::{Calls, FrameLocation};
use crate::sampling::ticker::{Pace, Stop};
use crate::stacks;
use crate::stacks::access::{Access, Subject};

/// Stands for frames that a thread changed each time they were read.
const MOVING: &str = "[changed during the read]";
/// Stands for frames that are too many or could not be read.
const BEYOND: &str = "[further calls not read]";

/// What to sample, and how often.
#[derive(Debug, Clone)]
pub struct Plan {
    pub duration: Duration,
    /// Readings per second.
    pub rate: u32,
    /// Only this one; else all.
    pub thread: Option<ThreadSelector>,
    /// Also threads that sleep or wait.
    pub idle: bool,
    /// Each thread apart.
    pub threads: bool,
    /// All lines of a function together.
    pub functions: bool,
    pub pause: Pause,
}

/// What became of it.
#[derive(Debug)]
pub struct Samples {
    pub pid: Pid,
    /// What is to be said about how it was read.
    pub note: Option<String>,
    /// Between two readings.
    pub interval: Duration,
    /// Readings of all threads.
    pub taken: u64,
    /// Readings that were not made because the one before took too long.
    pub missed: u64,
    /// Stacks of threads that were counted.
    pub counted: u64,
    /// Stacks among them whose innermost frames changed while they were read: the others are counted.
    pub torn: u64,
    /// The longest that a thread was held.
    pub paused: Duration,
    /// Readings that gave nothing.
    pub failed: u64,
    /// Whether a thread that the plan asks for was ever there.
    pub wanted_was_seen: bool,
    /// Names of the threads of the last reading.
    pub names: Vec<String>,
    pub took: Duration,
    /// The time that sampling spent on a CPU.
    pub cpu: Duration,
    pub end: SamplesEnd,
    pub calls: Calls,
}

/// Why there are no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplesEnd {
    /// Time was up.
    Done,
    /// Somebody asked to stop.
    Stopped,
    /// The target ended.
    TargetEnded,
}

/// Samples a process until time is up, it ends, or `stop` is asked. Nothing runs in it.
pub(crate) fn sample(
    subject: &Subject,
    plan: &Plan,
    stop: &Stop,
    mut on_reading: impl FnMut(&Samples),
) -> Result<Samples, ClientError> {
    if let Subject::Process(process) = subject {
        stacks::check_python(process)?;
    }
    let mut access = Access::to(subject)?;
    let cpu = cpu_time();
    let mut samples = Samples::none(access.pid, plan);
    samples.note = access.note();
    let mut pace = Pace::new(samples.interval, stop);
    let options = Options {
        pause: plan.pause,
        ..Options::default()
    };
    while let Some(due) = pace.wait() {
        if due >= plan.duration {
            samples.end = SamplesEnd::Done;
            break;
        }
        samples.missed = pace.missed();
        let read = access.reader.read(&options);
        match access.checked(read) {
            Ok(snapshot) => {
                samples.paused = samples.paused.max(snapshot.paused);
                samples.add(&snapshot.threads, plan);
            }
            // It starts another program, or is about to end: the next reading tells.
            Err(ClientError::Local(LocalError::Stacks(_))) if !access.is_over() => {
                samples.failed += 1;
            }
            Err(error) if !error.is_end() && !access.is_over() => return Err(error),
            Err(_) => {
                samples.end = SamplesEnd::TargetEnded;
                break;
            }
        }
        samples.took = pace.elapsed();
        on_reading(&samples);
    }
    if samples.end == SamplesEnd::Done {
        let planned = plan
            .duration
            .as_nanos()
            .div_ceil(samples.interval.as_nanos()) as u64;
        samples.missed = planned.saturating_sub(samples.taken + samples.failed);
    }
    samples.took = pace.elapsed();
    samples.cpu = cpu_time().saturating_sub(cpu);
    Ok(samples)
}

impl Samples {
    /// Adds those of another process.
    pub(crate) fn add_all(&mut self, who: &TargetLabel, other: Self) {
        self.taken += other.taken;
        self.missed += other.missed;
        self.counted += other.counted;
        self.torn += other.torn;
        self.failed += other.failed;
        self.paused = self.paused.max(other.paused);
        self.took = self.took.max(other.took);
        // The time of this process: each has counted that of all.
        self.cpu = self.cpu.max(other.cpu);
        self.wanted_was_seen |= other.wanted_was_seen;
        self.names.extend(other.names);
        self.note = self.note.take().or(other.note);
        if other.end != SamplesEnd::TargetEnded {
            self.end = other.end;
        }
        self.calls
            .add_all(&FrameLocation::words(&who.to_string()), &other.calls);
    }

    /// That the thread that was to be sampled was not there.
    pub fn no_thread(&self, wanted: &ThreadSelector) -> ClientError {
        ClientError::Selection(SelectionError::NoThread {
            wanted: wanted.clone(),
            threads: self.names.clone(),
        })
    }

    pub(crate) fn none(pid: Pid, plan: &Plan) -> Self {
        Self {
            pid,
            note: None,
            interval: Duration::from_secs(1) / plan.rate.max(1),
            taken: 0,
            missed: 0,
            counted: 0,
            torn: 0,
            paused: Duration::ZERO,
            failed: 0,
            wanted_was_seen: false,
            names: Vec::new(),
            took: Duration::ZERO,
            cpu: Duration::ZERO,
            end: SamplesEnd::Stopped,
            calls: Calls::default(),
        }
    }

    fn add(&mut self, threads: &[ThreadStack], plan: &Plan) {
        self.taken += 1;
        self.names.clear();
        for thread in threads {
            self.names.push(stacks::title(thread));
            let wanted = plan.thread.as_ref();
            let is_wanted = wanted.is_none_or(|wanted| wanted.selects(stacks::names(thread)));
            self.wanted_was_seen |= is_wanted;
            if !is_wanted || (is_idle(thread) && !plan.idle) {
                continue;
            }
            self.counted += 1;
            self.torn += u64::from(thread.missing == FrameGap::Inner);
            self.calls.add(places(thread, plan));
        }
    }
}

/// Neither on a CPU nor keeping others from Python.
fn is_idle(thread: &ThreadStack) -> bool {
    thread.state != State::Running && thread.gil != Gil::Holds
}

/// A thread's stack, outermost first. What was not seen has a place, too.
fn places<'a>(
    thread: &'a ThreadStack,
    plan: &Plan,
) -> impl Iterator<Item = FrameLocation> + use<'a> {
    let functions = plan.functions;
    let name = plan
        .threads
        .then(|| FrameLocation::words(&stacks::title(thread)));
    let missing = |which, words| (thread.missing == which).then(|| FrameLocation::words(words));
    let place = move |frame: &Frame| FrameLocation {
        func: frame.func.clone(),
        file: Some(frame.file.clone()),
        line: frame.line.filter(|_| !functions),
    };
    name.into_iter()
        .chain(missing(FrameGap::Outer, BEYOND))
        .chain(thread.frames.iter().rev().map(place))
        .chain(missing(FrameGap::Inner, MOVING))
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
