//! `probing watch --addr` and `--storage`: shows writes to bytes of memory.
//!
//! Writes are data, all else is words.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use probing_client::{ClientError, Entry, MemoryWatch, Target};
use probing_proto::report::WriteReport;

use crate::arguments::BytesWatch;
use crate::commands::breakpoints::follow;
use crate::commands::{TargetArgs, backtrace};
use crate::exit::{self, Status};
use crate::json;
use crate::terminal;

pub(super) fn run(watch: &BytesWatch, aim: &TargetArgs) -> anyhow::Result<Status> {
    // The kernel forgets all of it when we end.
    ctrlc::set_handler(exit::leave)?;
    let watch = watch.clone();
    follow::each(aim, move |target, entry, whose| {
        tell(&watch, target, entry, whose)
    })
}

/// Tells of writes until the time is over or the process has ended.
fn tell(watch: &BytesWatch, target: &Target, entry: &Entry, whose: &str) -> anyhow::Result<()> {
    let mut writes = target.writes(&watch.watched, entry, watch.strays)?;
    let until = watch.time.map(|time| Instant::now() + time);
    writeln!(terminal::stderr(), "{whose}{}", watched(&writes))?;
    let (mut was_away, mut missed) = (false, Missed::default());
    loop {
        let reports = match writes.next(until) {
            Ok(reports) => reports,
            Err(error) if error.is_end() || matches!(error, ClientError::Ended { .. }) => {
                missed.say(&writes, whose)?;
                writeln!(terminal::stderr(), "{whose}the process has ended")?;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if reports.is_empty() {
            return missed.say(&writes, whose);
        }
        for report in &reports {
            if watch.json {
                writeln!(terminal::stdout(), "{}", json::line(report)?)?;
            } else {
                print(report, whose)?;
            }
            if watch.once {
                return Ok(());
            }
        }
        if writes.looks_away() && !was_away {
            writeln!(
                terminal::stderr(),
                "{whose}many writes: above 1000 per second they are counted only"
            )?;
        }
        was_away = writes.looks_away();
        missed.say(&writes, whose)?;
    }
}

/// Writes that were not told, as far as that was said.
#[derive(Debug, Default)]
struct Missed {
    lost: u64,
    strays: u64,
}

impl Missed {
    /// Says how many there were since the last time.
    fn say(&mut self, writes: &MemoryWatch, whose: &str) -> anyhow::Result<()> {
        if writes.lost() > self.lost {
            let more = writes.lost() - self.lost;
            writeln!(
                terminal::stderr(),
                "{whose}{more} more writes were not recorded: too many in a second"
            )?;
            self.lost = writes.lost();
        }
        if writes.strays() > self.strays {
            let more = writes.strays() - self.strays;
            writeln!(
                terminal::stderr(),
                "{whose}{more} more writes were not seen: their debug exceptions arrived without a cause (a defect of the \
                 hypervisor)"
            )?;
            self.strays = writes.strays();
        }
        Ok(())
    }
}

/// What is watched, and what is not seen.
fn watched(writes: &MemoryWatch) -> String {
    let (address, length) = (writes.address(), writes.length());
    let plural = if length == 1 { "" } else { "s" };
    let named = match writes.name() {
        name if name.starts_with("0x") => String::new(),
        name => format!(" of {name}"),
    };
    let now = writes
        .last()
        .map_or_else(String::new, |now| format!(", now {now}"));
    let unseen = if writes.sees_kernel() {
        ""
    } else {
        "; what the kernel writes for it (read, recv) is not seen without CAP_PERFMON"
    };
    let records = if writes.records() {
        "; recorded in python.variables"
    } else {
        ""
    };
    let left_out = match &*writes.left_out() {
        [] => String::new(),
        threads => format!(
            "; not seen in threads that block SIGTRAP: {}",
            threads.join(", ")
        ),
    };
    format!(
        "watching {length} byte{plural} at {address:#x}{named}{now}; cost: some microseconds for each write, nothing \
         elsewhere (debug registers){records}{unseen}{left_out}"
    )
}

fn print(report: &WriteReport, whose: &str) -> io::Result<()> {
    let told = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".to_owned());
    let by = if report.by_kernel {
        ", by the kernel"
    } else {
        ""
    };
    let later = Duration::from_nanos(report.python_later_nanos);
    let mut out = terminal::stdout();
    writeln!(
        out,
        "{whose}{:#x}: {} -> {}{by}; native frames of the write, Python's {later:.0?} later",
        report.address,
        told(&report.old),
        told(&report.new),
    )?;
    let thread = std::slice::from_ref(&report.thread);
    writeln!(out, "{}", backtrace::text::threads(thread, true))?;
    out.flush()
}
