//! `probing leak`: finds the allocations that grow.

mod growth;

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use probing_client::{ClientError, ConnectedProbe, FanOutLimits, Group, Probe};
use probing_proto::message::recorders::{Heap, Tracer, TracerCall};
use probing_proto::process::Pid;
use probing_proto::report::LeakReport;

use crate::arguments::LeakArguments;
use crate::commands::TargetArgs;
use crate::commands::answers::MemberResults;
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;
use crate::terminal::own;

/// From the first look to the last.
const INTERVALS: u32 = 6;
/// The interval of checks for Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// For bringing the probe in, and for answers that need the GIL.
const TARGET_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn run(arguments: &LeakArguments, aim: &TargetArgs) -> anyhow::Result<Status> {
    let watch = Watch {
        duration: arguments.duration,
        enough: Arc::default(),
    };
    if aim.targets.one().is_none() {
        return of_set(arguments, aim, watch);
    }
    let ConnectedProbe { probe, attached } = aim.target()?.connect(&aim.entry)?;
    if let Some(report) = attached {
        crate::commands::say_attached(&probe, &report)?;
    }
    let watched = HeapWatch::begin(probe)?;
    watch.ends_by_ctrl_c()?;
    say_begin(watch.duration, "");
    let seen = watch.see(watched, |at| progress(at, watch.duration))?;
    clear_progress();
    let report = growth::report(&seen, arguments.top);
    if arguments.json {
        json::print(&report)?;
        return Ok(exit::OK);
    }
    for line in growth::lines(&report) {
        writeln!(terminal::stdout(), "{line}")?;
    }
    for line in words(&report) {
        writeln!(terminal::stderr(), "{line}")?;
    }
    Ok(exit::OK)
}

/// One of a set, when its first look has been taken.
struct StartedWatch {
    /// The probe had to be brought in for it.
    is_new: bool,
    /// Until it is watched.
    watched: Mutex<Option<HeapWatch>>,
}

fn of_set(arguments: &LeakArguments, aim: &TargetArgs, watch: Watch) -> anyhow::Result<Status> {
    let members = aim.members()?;
    let (entry, top, duration) = (aim.entry.clone(), arguments.top, arguments.duration);
    let at_once = members.all.len();
    let manner = |patience| FanOutLimits {
        at_once,
        ..FanOutLimits::within(patience)
    };
    // All begin before anybody is watched: those that do not answer are known then, and named at once.
    let begun = MemberResults::of(&members, manner(TARGET_TIMEOUT), move |member| {
        let ConnectedProbe { probe, attached } = member.target.connect(&entry)?;
        Ok(StartedWatch {
            is_new: attached.is_some(),
            watched: Mutex::new(Some(HeapWatch::begin(probe)?)),
        })
    });
    crate::commands::say_attached_to(&begun.those(|begun| begun.is_new))?;
    let failures = begun.failures();
    for line in &failures {
        writeln!(terminal::stderr(), "{line}")?;
    }
    let group: Group = begun.given().map(|(who, _)| who).collect();
    if group.count() > 0 {
        watch.ends_by_ctrl_c()?;
        say_begin(duration, &format!(" in {group}"));
    }
    let first = begun.given().next().map(|(who, _)| who.clone());
    let answers = begun.then(manner(duration + TARGET_TIMEOUT), move |who, begun| {
        let watched = begun
            .watched
            .lock()
            .ok()
            .and_then(|mut watched| watched.take());
        let seen = watch.see(watched.context("nothing is watched")?, |at| {
            if first.as_ref() == Some(who) {
                progress(at, duration);
            }
        })?;
        Ok(growth::report(&seen, top))
    });
    clear_progress();
    let status = answers.status();
    let later = answers.failures();
    if arguments.json {
        json::print(&answers.report(|report| report))?;
        return Ok(status);
    }
    for (who, report) in answers.given() {
        for line in growth::lines(report) {
            writeln!(
                terminal::stdout(),
                "{}",
                format!("{who}: {line}").trim_end()
            )?;
        }
        for line in words(report) {
            writeln!(terminal::stderr(), "{who}: {line}")?;
        }
    }
    for line in later.iter().filter(|line| !failures.contains(line)) {
        writeln!(terminal::stderr(), "{line}")?;
    }
    Ok(status)
}

/// So much of `rss` beside Python's heap, and more than of that, is no chance.
const ELSEWHERE_BYTES: i64 = 16 << 20;
const ELSEWHERE: &str = "rss grows by more than Python's heap: memory of tensors, arrays or native code, whose allocations are not recorded";
const COUNT_TENSORS: &str = "hint: count live tensors by shape: `probing -t PID eval 'import gc, torch, collections; \
     collections.Counter((type(o).__name__, *o.shape) for o in gc.get_objects() if issubclass(type(o), torch.Tensor)).most_common(5)'`";

/// What is not a line of the table.
fn words(report: &LeakReport) -> Vec<&'static str> {
    let ended = "the target ended meanwhile: these are the results until then";
    let nothing = if report.heap_growth > 0 {
        "no allocation of Python grows more than by chance: sample longer with --for"
    } else {
        "nothing that Python allocated grows"
    };
    let known = report.heap_growth.max(0);
    let elsewhere = report.rss_growth.unwrap_or(0) - known;
    let is_elsewhere = elsewhere >= ELSEWHERE_BYTES.max(known);
    let words = [
        report.ended.then_some(ended),
        report.sites.is_empty().then_some(nothing),
        is_elsewhere.then_some(ELSEWHERE),
        is_elsewhere.then_some(COUNT_TENSORS),
    ];
    words.into_iter().flatten().collect()
}

/// How long to sample, unless Ctrl-C ends it.
struct Watch {
    duration: Duration,
    enough: Arc<AtomicBool>,
}

/// One target whose allocations are sampled, for as long as this command is connected to it.
struct HeapWatch {
    probe: Probe,
    begun: Instant,
    first: Heap,
}

impl HeapWatch {
    fn begin(mut probe: Probe) -> Result<Self, ClientError> {
        probe.tracer(sampler(true))?;
        Ok(Self {
            first: probe.heap()?,
            begun: Instant::now(),
            probe,
        })
    }
}

fn sampler(on: bool) -> TracerCall {
    TracerCall {
        tracer: Tracer::Heap,
        on: Some(on),
        borrowed: true,
    }
}

/// What was seen of one target.
struct HeapHistory {
    pid: Pid,
    heaps: Vec<Heap>,
    ended: bool,
}

impl Watch {
    /// From now on: who presses it once more does not wait for those that do not answer.
    fn ends_by_ctrl_c(&self) -> Result<(), ctrlc::Error> {
        let enough = Arc::clone(&self.enough);
        ctrlc::set_handler(move || {
            if enough.swap(true, Ordering::AcqRel) {
                exit::leave();
            }
        })
    }

    /// Looks several times, at equal distances.
    fn see(
        &self,
        watched: HeapWatch,
        mut progress: impl FnMut(Duration),
    ) -> Result<HeapHistory, ClientError> {
        let HeapWatch {
            mut probe,
            begun,
            first,
        } = watched;
        let mut seen = HeapHistory {
            pid: probe.hello().pid,
            heaps: vec![first],
            ended: false,
        };
        for interval in 1..=INTERVALS {
            let until = begun + self.duration * interval / INTERVALS;
            while Instant::now() < until && !self.is_enough() {
                progress(begun.elapsed());
                thread::sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now())));
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
        if !seen.ended {
            probe.tracer(sampler(false))?;
        }
        Ok(seen)
    }

    fn is_enough(&self) -> bool {
        self.enough.load(Ordering::Acquire)
    }
}

/// Says that it has begun, and how it is ended.
fn say_begin(total: Duration, of: &str) {
    let total = total.as_secs_f64();
    // A terminal that is gone must not end the watch.
    writeln!(
        terminal::stderr(),
        "sampling allocations{of} for {total:.1} s (Ctrl-C ends sampling)"
    )
    .ok();
}

/// To the line's beginning, and clear the line.
const OVER: &str = "\x1b[G\x1b[2K";

/// A line that is drawn over itself, where someone can see it.
fn progress(at: Duration, total: Duration) {
    if terminal::is_stderr_terminal() {
        let (at, total) = (at.as_secs_f64(), total.as_secs_f64());
        let over = own(OVER);
        write!(terminal::stderr(), "{over}{at:.0} of {total:.0} s").ok();
    }
}

/// Takes that line away.
fn clear_progress() {
    if terminal::is_stderr_terminal() {
        write!(terminal::stderr(), "{}", own(OVER)).ok();
    }
}
