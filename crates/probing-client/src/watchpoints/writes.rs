//! Who writes to some bytes of a process, as it happens: seen from outside, by the processor.
//!
//! What the processor tells is exact: the thread, the moment, its registers and its stack, so its native calls. Python's frames are read
//! when we hear of it, some 100 microseconds later, and so are the bytes.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use probing_process::memory::{Memory as _, ProcessMemory};
use probing_process::procfs::processes::Process;
use probing_proto::message::breakpoints::{ObservedChange, SourceLocation, Storage};
use probing_proto::message::{Call, Eval, Event, Outcome};
use probing_proto::process::Pid;
use probing_proto::report::{FrameType, ReportedThread, WriteReport};
use probing_stacks::Caught;
use probing_watchpoint::{Bytes, StrayTraps, Watchpoint, Write};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{AgentError, ClientError, LocalError};
use crate::probe::connection::CONNECT_TIMEOUT;
use crate::probe::{Entry, EvalEnd, Probe};
use crate::stacks::access::{Access, Subject};
use crate::stacks::{self, Sources};
use crate::targets::target::Target;
use crate::watchpoints::proof::prove_once;

/// For an expression to be evaluated.
const EVALUATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Writes beyond this number in a second are not read: each takes us longer than the program.
const MAX_WRITES_PER_SECOND: usize = 1000;
const SECOND: Duration = Duration::from_secs(1);
/// How often we look whether the process is still there.
const LOOK: Duration = Duration::from_millis(200);

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchedMemory {
    /// Bytes from an address on; without a length as many as a register holds.
    Address { address: u64, length: Option<u64> },
    /// The first bytes of what an expression in `__main__` leads to: a tensor, or anything with a buffer.
    Storage {
        expression: String,
        length: Option<u64>,
    },
}

/// Bytes of one process that are watched until this is dropped.
#[derive(Debug)]
pub struct MemoryWatch {
    watchpoint: Watchpoint,
    bytes: Bytes,
    access: Access,
    /// None where the kernel lets us watch it, and not read it.
    memory: Option<ProcessMemory>,
    sources: Sources,
    /// Where changes are recorded, and the watched object is kept alive; none in a process without a probe.
    probe: Option<Probe>,
    name: String,
    /// The bytes as they were last seen.
    last: Option<String>,
    /// Since when, and how many.
    second: (Instant, usize),
    looks_away: bool,
    /// Whether the process must have a handler for stray traps.
    guards: bool,
    /// Where the process counts the stray traps that it drops, and how many it had dropped before.
    dropped: Option<(u64, u64)>,
}

/// What watches bytes, besides the kernel.
struct Watcher {
    probe: Option<Probe>,
    /// Where the process counts stray traps; none where it has no handler for them.
    dropped_at: Option<u64>,
    strays: StrayTraps,
    name: String,
}

impl Target {
    /// Watches bytes of it, when a process of our own has survived that, and with a probe in it that drops stray traps.
    /// Only who accepts those does without.
    pub fn writes(
        &self,
        watched: &WatchedMemory,
        entry: &Entry,
        strays: StrayTraps,
    ) -> Result<MemoryWatch, ClientError> {
        if let Self::Remote(remote) = self {
            let target = remote.to_string();
            return Err(ClientError::Agent(AgentError::WatchedThere { target }));
        }
        let at_address = match watched {
            WatchedMemory::Address { address, length } => Some(Bytes::at(*address, *length)?),
            WatchedMemory::Storage { .. } => None,
        };
        // One that cannot be seen from here has the pid of another process.
        let process = self.process()?;
        if strays == StrayTraps::Dropped {
            prove_once(process.pid)?;
        }
        let (mut probe, bytes, name) = match (watched, at_address) {
            (WatchedMemory::Storage { expression, length }, _) => {
                let mut probe = self.connect(entry)?.probe;
                let storage = storage(&mut probe, expression)?;
                let bytes = in_storage(&storage, *length)?;
                (Some(probe), bytes, expression.clone())
            }
            (WatchedMemory::Address { address, length }, at_address) => {
                let bytes = at_address.map_or_else(|| Bytes::at(*address, *length), Ok)?;
                let probe = match strays {
                    StrayTraps::Dropped => Some(self.connect(entry)?.probe),
                    StrayTraps::Accepted => {
                        let reached = self.connect(&Entry::Forbidden).ok();
                        reached.map(|reached| reached.probe)
                    }
                };
                (probe, bytes, format!("{address:#x}"))
            }
        };
        let guarded = probe.as_mut().map(Probe::guard_traps).transpose();
        let dropped_at = match strays {
            StrayTraps::Dropped => guarded?,
            StrayTraps::Accepted => guarded.ok().flatten(),
        };
        let observer = Watcher {
            probe,
            dropped_at,
            strays,
            name,
        };
        MemoryWatch::of(process, bytes, observer)
    }
}

impl Probe {
    /// Has the process drop debug exceptions that arrive without their cause; where it counts them.
    fn guard_traps(&mut self) -> Result<u64, ClientError> {
        match self.ask(Call::GuardTraps, CONNECT_TIMEOUT)? {
            Event::Guarded { dropped_at } => Ok(dropped_at),
            _ => Err(self.misunderstood()),
        }
    }
}

/// Where the bytes of an expression's value are. The value is kept alive as long as the connection lasts.
fn storage(probe: &mut Probe, expression: &str) -> Result<Storage, ClientError> {
    let eval = Eval {
        keep: true,
        storage: true,
        ..Eval::of(expression)
    };
    let eval = probe.start_eval(eval)?;
    let none = |why: String| ClientError::Local(LocalError::NoStorage { why });
    let value = match probe.finish_eval(&eval, Some(EVALUATION_TIMEOUT), |_| ())? {
        EvalEnd::Evaluated(evaluated) => match evaluated.outcome {
            Outcome::Finished { value } => value,
            Outcome::Raised(raised) if raised.message.is_empty() => {
                return Err(none(raised.exception));
            }
            Outcome::Raised(raised) => {
                return Err(none(format!("{}: {}", raised.exception, raised.message)));
            }
            Outcome::SyntaxError { text } => return Err(none(text.trim_end().to_owned())),
        },
        EvalEnd::TimedOut(_) | EvalEnd::Stuck(_) => {
            let patience = EVALUATION_TIMEOUT;
            return Err(ClientError::TooLong { patience });
        }
    };
    let value = value.ok_or_else(|| none(format!("it is None: {expression}")))?;
    match serde_json::from_str(&value) {
        Ok(storage) => Ok(storage),
        // Another version tells its `repr`.
        Err(_) => Err(ClientError::OtherProtocol {
            theirs: probe.hello().protocol,
        }),
    }
}

/// An element, as far as a register holds it.
fn in_storage(storage: &Storage, length: Option<u64>) -> Result<Bytes, ClientError> {
    let element = storage.item.min(8).min(storage.bytes);
    let usual = Some(element).filter(|length| length.is_power_of_two());
    let usual = usual.filter(|length| storage.address.is_multiple_of(*length));
    Ok(Bytes::at(storage.address, length.or(usual))?)
}

impl MemoryWatch {
    fn of(process: Process, bytes: Bytes, watcher: Watcher) -> Result<Self, ClientError> {
        stacks::check_python(&process)?;
        let mut access = Access::to(&Subject::Process(Box::new(process)))?;
        let ready = access.reader.expect_caught();
        access.checked(ready)?;
        let pid = access.pid;
        let memory = ProcessMemory::open(pid).ok();
        let count = |at| Some((at, count_at(memory.as_ref()?, at)?));
        let dropped = watcher.dropped_at.and_then(count);
        let mut writes = Self {
            watchpoint: Watchpoint::set(pid, bytes, watcher.strays)?,
            bytes,
            sources: Sources::of(access.process()),
            access,
            memory,
            probe: watcher.probe,
            guards: watcher.strays == StrayTraps::Dropped,
            name: watcher.name,
            last: None,
            second: (Instant::now(), 0),
            looks_away: false,
            dropped,
        };
        // Its pid may have been given to another process before the registers were set.
        if writes.access.is_over() {
            return Err(ClientError::Ended { pid });
        }
        writes.last = writes.value();
        Ok(writes)
    }

    pub fn pid(&self) -> Pid {
        self.access.pid
    }

    /// As it was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> u64 {
        self.bytes.address()
    }

    pub fn length(&self) -> usize {
        self.bytes.length()
    }

    /// The bytes as they were last seen.
    pub fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Whether writes that the kernel makes for the process are seen, too.
    pub fn sees_kernel(&self) -> bool {
        self.watchpoint.sees_kernel()
    }

    /// Whether changes are recorded in the process.
    pub fn records(&self) -> bool {
        self.probe.is_some()
    }

    /// Writes that were not told, because they were too many; as of the last count.
    pub fn lost(&self) -> u64 {
        self.watchpoint.lost()
    }

    /// Writes that could not be told, because their debug exceptions arrived without their cause.
    pub fn strays(&self) -> u64 {
        let now = |(at, before)| Some(count_at(self.memory.as_ref()?, at)?.saturating_sub(before));
        self.dropped.and_then(now).unwrap_or(0)
    }

    /// Names of the program's threads whose writes are not seen, because they block SIGTRAP.
    pub fn left_out(&self) -> Vec<String> {
        self.watchpoint.left_out()
    }

    /// The next writes, in their order; none when the time is over. An error when the process has ended.
    pub fn next(&mut self, until: Option<Instant>) -> Result<Vec<WriteReport>, ClientError> {
        loop {
            if self.access.is_over() {
                let pid = self.pid();
                self.watchpoint.skip();
                return Err(ClientError::Ended { pid });
            }
            self.look_again()?;
            let look = Instant::now() + LOOK;
            let look = until.map_or(look, |until| until.min(look));
            if self.looks_away {
                let (since, _) = self.second;
                let wait = (since + SECOND).min(look);
                thread::sleep(wait.saturating_duration_since(Instant::now()));
            } else {
                let writes = self.watchpoint.wait(Some(look))?;
                if !writes.is_empty() {
                    return self.reports(writes);
                }
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                self.watchpoint.skip();
                return Ok(Vec::new());
            }
        }
    }

    /// Whether there were so many that the rest of the second is passed over.
    pub fn looks_away(&self) -> bool {
        self.looks_away
    }

    fn look_again(&mut self) -> Result<(), ClientError> {
        let (since, _) = self.second;
        if since.elapsed() >= SECOND {
            self.second = (Instant::now(), 0);
            self.watchpoint.check()?;
            // The kernel tells that there is a handler, not whose.
            if let Some(probe) = self.probe.as_mut().filter(|_| self.guards) {
                probe.guard_traps()?;
            }
            if std::mem::take(&mut self.looks_away) {
                self.watchpoint.skip();
            }
        }
        Ok(())
    }

    fn reports(&mut self, writes: Vec<Write>) -> Result<Vec<WriteReport>, ClientError> {
        self.second.1 += writes.len();
        self.looks_away |= self.second.1 >= MAX_WRITES_PER_SECOND;
        let mut reports = Vec::new();
        for write in writes {
            let report = self.report(write)?;
            self.record(&report);
            reports.push(report);
        }
        Ok(reports)
    }

    fn report(&mut self, write: Write) -> Result<WriteReport, ClientError> {
        let caught = Caught {
            tid: write.tid,
            pc: write.pc,
            registers: write.registers,
            stack: write.stack,
        };
        let read = self.access.reader.caught(&caught);
        let (stack, read_at) = self.access.checked(read)?;
        let thread = stacks::reported(stack, &mut self.sources);
        let new = self.value();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let ago = Duration::from_nanos(monotonic().saturating_sub(write.at_nanos));
        Ok(WriteReport {
            pid: self.pid(),
            address: self.address(),
            length: self.length(),
            at_nanos: since_1970
                .unwrap_or_default()
                .saturating_sub(ago)
                .as_nanos() as u64,
            old: std::mem::replace(&mut self.last, new.clone()),
            new,
            by_kernel: write.by_kernel,
            python_later_nanos: ago.saturating_sub(read_at.elapsed()).as_nanos() as u64,
            thread,
        })
    }

    /// The bytes as one number.
    fn value(&self) -> Option<String> {
        let memory = self.memory.as_ref()?;
        let bytes = memory.read(self.address(), self.length())?;
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(&bytes);
        Some(format!("{:#x}", u64::from_le_bytes(number)))
    }

    /// A row of `python.variables`. A probe that has gone takes none, and the writes are told all the same.
    fn record(&mut self, report: &WriteReport) {
        let seen = ObservedChange {
            name: self.name.clone(),
            old: report.old.clone(),
            new: report.new.clone(),
            at: innermost(&report.thread),
            thread_id: report.thread.thread_id.unwrap_or(0),
            thread_name: report.thread.thread_name.clone().unwrap_or_default(),
        };
        if let Some(probe) = &mut self.probe
            && probe.ask(Call::Record(seen), CONNECT_TIMEOUT).is_err()
        {
            self.probe = None;
        }
    }
}

/// A number of the process.
fn count_at(memory: &ProcessMemory, address: u64) -> Option<u64> {
    let bytes = memory.read(address, size_of::<u64>())?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The innermost Python frame.
fn innermost(thread: &ReportedThread) -> Option<SourceLocation> {
    let mut frames = thread.frames.iter();
    let frame = frames.find(|frame| frame.frame_type == FrameType::Python)?;
    Some(SourceLocation {
        func: frame.func.to_string(),
        file: frame.file.to_string(),
        lineno: frame.lineno.unwrap_or(0),
    })
}

fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_element_of_a_storage_is_watched() {
        let length = |address, item, asked| {
            let storage = Storage {
                address,
                bytes: 1024,
                item,
                kind: "Tensor".to_owned(),
            };
            in_storage(&storage, asked).unwrap().length()
        };
        assert_eq!(length(0x1000, 4, None), 4);
        assert_eq!(length(0x1000, 1, None), 1);
        assert_eq!(length(0x1000, 4, Some(8)), 8);
        // Complex numbers, and structures, are more than a register holds.
        assert_eq!(length(0x1000, 16, None), 8);
        assert_eq!(length(0x1000, 12, None), 8);
        assert_eq!(length(0x1002, 6, None), 2);
    }
}
