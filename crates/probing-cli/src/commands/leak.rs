//! `probing -t PID leak`: what grows.

mod growth;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use probing_client::{ClientError, Entry, Manner, Probe, Reached, Target};
use probing_proto::process::Pid;
use probing_proto::report::LeakReport;
use probing_proto::tracers::{Heap, Tracer, TracerCall};

use super::Aim;
use super::answers::Answers;
use crate::arguments::LeakArguments;
use crate::exit::{self, Status};
use crate::json;

/// From the first look to the last.
const INTERVALS: u32 = 6;
/// Between two looks whether somebody has pressed Ctrl-C.
const TICK: Duration = Duration::from_millis(50);
/// For bringing the probe in, and for answers that need the GIL.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn run(arguments: &LeakArguments, aim: &Aim) -> anyhow::Result<Status> {
    let watch = Watch {
        duration: arguments.duration,
        enough: Arc::default(),
    };
    let enough = Arc::clone(&watch.enough);
    ctrlc::set_handler(move || enough.store(true, Ordering::Release))?;
    if aim.targets.one().is_none() {
        return of_set(arguments, aim, watch);
    }
    let Reached { probe, attached } = aim.target()?.connect(&aim.entry)?;
    if let Some(report) = attached {
        super::say_attached(&probe, &report)?;
    }
    let seen = watch.see(probe, |at| progress(at, watch.duration))?;
    let report = growth::report(&seen, arguments.top);
    if arguments.json {
        json::print(&report)?;
        return Ok(exit::OK);
    }
    for line in growth::lines(&report) {
        writeln!(anstream::stdout(), "{line}")?;
    }
    say(&report)
}

fn of_set(arguments: &LeakArguments, aim: &Aim, watch: Watch) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let (entry, top) = (aim.entry.clone(), arguments.top);
    let manner = Manner {
        at_once: members.all.len(),
        ..Manner::within(arguments.duration + PATIENCE)
    };
    let answers = Answers::of(&members, manner, move |member| {
        watch_one(&watch, &member.target, &entry, top)
    });
    let status = answers.status();
    if arguments.json {
        json::print(&answers.report(|report| report))?;
        return Ok(status);
    }
    for (who, report) in answers.given() {
        for line in growth::lines(report) {
            writeln!(anstream::stdout(), "{who}: {line}")?;
        }
    }
    for line in answers.failures() {
        writeln!(anstream::stderr(), "{line}")?;
    }
    Ok(status)
}

fn watch_one(
    watch: &Watch,
    target: &Target,
    entry: &Entry,
    top: usize,
) -> anyhow::Result<LeakReport> {
    let seen = watch.see(target.connect(entry)?.probe, |_| {})?;
    Ok(growth::report(&seen, top))
}

/// What is not a line of the table.
fn say(report: &LeakReport) -> anyhow::Result<Status> {
    let mut words = anstream::stderr();
    if report.ended {
        writeln!(
            words,
            "the target ended meanwhile: this is what was seen before"
        )?;
    }
    if report.sites.is_empty() {
        writeln!(words, "nothing that Python allocated grows")?;
    }
    Ok(exit::OK)
}

/// How long to look, unless somebody has seen enough.
struct Watch {
    duration: Duration,
    enough: Arc<AtomicBool>,
}

/// What was seen of one target.
struct Seen {
    pid: Pid,
    heaps: Vec<Heap>,
    ended: bool,
}

impl Watch {
    /// Looks several times, at equal distances. A sampler that was off before is off again after it.
    fn see(
        &self,
        mut probe: Probe,
        mut progress: impl FnMut(Duration),
    ) -> Result<Seen, ClientError> {
        let switch = |probe: &mut Probe, on| {
            let tracer = Tracer::Heap;
            probe.tracer(TracerCall { tracer, on })
        };
        let was_on = switch(&mut probe, Some(true))?.was_on;
        let begun = Instant::now();
        let mut seen = Seen {
            pid: probe.hello().pid,
            heaps: vec![probe.heap()?],
            ended: false,
        };
        progress(Duration::ZERO);
        for interval in 1..=INTERVALS {
            let until = begun + self.duration * interval / INTERVALS;
            while Instant::now() < until && !self.is_enough() {
                progress(begun.elapsed().max(TICK));
                thread::sleep(TICK.min(until.saturating_duration_since(Instant::now())));
            }
            match probe.heap() {
                Ok(heap) => seen.heaps.push(heap),
                Err(error) if error.is_end() || matches!(error, ClientError::Gone) => {
                    seen.ended = true;
                    break;
                }
                Err(error) => return Err(error),
            }
            if self.is_enough() {
                break;
            }
        }
        if !was_on && !seen.ended {
            switch(&mut probe, Some(false))?;
        }
        Ok(seen)
    }

    fn is_enough(&self) -> bool {
        self.enough.load(Ordering::Acquire)
    }
}

/// A line when it has begun; then one that is drawn over itself, where someone can see it.
fn progress(at: Duration, total: Duration) {
    let (is_begin, total) = (at.is_zero(), total.as_secs_f64());
    // A terminal that is gone must not end the watch.
    if is_begin {
        writeln!(
            anstream::stderr(),
            "sampling allocations for {total:.1} s (Ctrl-C: enough)"
        )
        .ok();
    } else if io::stderr().is_terminal() {
        let at = at.as_secs_f64();
        write!(io::stderr(), "\r\x1b[2K{at:.0} of {total:.0} s\r").ok();
    }
}
