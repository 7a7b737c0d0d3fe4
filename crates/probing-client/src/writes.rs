//! Who writes to some bytes of a process, as it happens: seen from outside, by the processor.
//!
//! What the processor tells is exact: the thread, the moment, its registers and its stack, so its native calls. Python's frames are read
//! when we hear of it, some 100 microseconds later, and so are the bytes.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use probing_process::memory::{Memory as _, ProcessMemory};
use probing_proto::message::{Call, Eval, Outcome};
use probing_proto::process::Pid;
use probing_proto::report::{FrameType, ReportedThread, WriteReport};
use probing_proto::stops::{Seen, Spot, Storage};
use probing_stacks::Caught;
use probing_watchpoint::{Bytes, Watchpoint, Write};
use rustix::time::{ClockId, clock_gettime};

use crate::access::{Access, Subject};
use crate::connection::PATIENCE;
use crate::error::ClientError;
use crate::probe::{EvalEnd, Probe};
use crate::stacks::{self, Sources};
use crate::target::{Entry, Target};

/// For an expression to be evaluated.
const EVALUATION: Duration = Duration::from_secs(10);
/// More than so many writes in a second are not looked at: each costs the program some microseconds.
const MOST: usize = 1000;
const SECOND: Duration = Duration::from_secs(1);
/// How often we look whether the process is still there.
const LOOK: Duration = Duration::from_millis(200);

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
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
pub struct Writes {
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
}

impl Target {
    /// Watches bytes of it. Only an expression needs a probe.
    pub fn writes(&self, watched: &Watched, entry: &Entry) -> Result<Writes, ClientError> {
        if let Self::Remote(remote) = self {
            let target = remote.to_string();
            return Err(ClientError::WatchedThere { target });
        }
        let subject = self.subject()?;
        let (probe, bytes, name) = match watched {
            Watched::Address { address, length } => {
                let bytes = Bytes::at(*address, *length)?;
                let reached = self.connect(&Entry::Forbidden).ok();
                let probe = reached.map(|reached| reached.probe);
                (probe, bytes, format!("{address:#x}"))
            }
            Watched::Storage { expression, length } => {
                let mut probe = self.connect(entry)?.probe;
                let storage = storage(&mut probe, expression)?;
                let bytes = in_storage(&storage, *length)?;
                (Some(probe), bytes, expression.clone())
            }
        };
        Writes::of(&subject, bytes, (probe, name))
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
    let none = |why: String| ClientError::NoStorage { why };
    let value = match probe.finish_eval(&eval, Some(EVALUATION), |_| ())? {
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
            let patience = EVALUATION;
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

impl Writes {
    fn of(
        subject: &Subject,
        bytes: Bytes,
        (probe, name): (Option<Probe>, String),
    ) -> Result<Self, ClientError> {
        if let Subject::Process(process) = subject {
            stacks::check_python(process)?;
        }
        let mut access = Access::to(subject)?;
        let ready = access.reader.expect_caught();
        access.checked(ready)?;
        let pid = access.pid;
        let mut writes = Self {
            watchpoint: Watchpoint::set(pid, bytes)?,
            bytes,
            sources: Sources::of(access.process()),
            access,
            memory: ProcessMemory::open(pid).ok(),
            probe,
            name,
            last: None,
            second: (Instant::now(), 0),
            looks_away: false,
        };
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

    /// Writes that could not be told, because they were too many at once.
    pub fn lost(&self) -> u64 {
        self.watchpoint.lost()
    }

    /// The next writes, in their order; none when the time is over. An error when the process has ended.
    pub fn next(&mut self, until: Option<Instant>) -> Result<Vec<WriteReport>, ClientError> {
        loop {
            if self.access.is_over() {
                let pid = self.pid();
                return Err(ClientError::Ended { pid });
            }
            self.look_again();
            let look = Instant::now() + LOOK;
            let writes = self
                .watchpoint
                .wait(Some(until.map_or(look, |until| until.min(look))))?;
            if !writes.is_empty() {
                return self.reports(writes);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(Vec::new());
            }
        }
    }

    /// Whether there were so many that the rest of the second is not looked at.
    pub fn looks_away(&self) -> bool {
        self.looks_away
    }

    fn look_again(&mut self) {
        let (since, _) = self.second;
        if since.elapsed() >= SECOND {
            self.second = (Instant::now(), 0);
            if std::mem::take(&mut self.looks_away) {
                self.watchpoint.look(true);
            }
        }
    }

    fn reports(&mut self, writes: Vec<Write>) -> Result<Vec<WriteReport>, ClientError> {
        self.second.1 += writes.len();
        if self.second.1 >= MOST && !self.looks_away {
            self.watchpoint.look(false);
            self.looks_away = true;
        }
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
        let seen = Seen {
            name: self.name.clone(),
            old: report.old.clone(),
            new: report.new.clone(),
            at: innermost(&report.thread),
            thread_id: report.thread.thread_id.unwrap_or(0),
            thread_name: report.thread.thread_name.clone().unwrap_or_default(),
        };
        if let Some(probe) = &mut self.probe
            && probe.ask(Call::Record(seen), PATIENCE).is_err()
        {
            self.probe = None;
        }
    }
}

/// The innermost Python frame.
fn innermost(thread: &ReportedThread) -> Option<Spot> {
    let mut frames = thread.frames.iter();
    let frame = frames.find(|frame| frame.frame_type == FrameType::Python)?;
    Some(Spot {
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
