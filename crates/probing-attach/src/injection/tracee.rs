//! One thread of the target, stopped and borrowed; given back on every path.
//!
//! At every instant its registers are one of three, and each goes home without us:
//!
//! * **A** its own; if a stop makes its system call answer EINTR, that is at once made an answer upon which the kernel
//!   calls again;
//! * **B** a system call and a return, in libc, with the stack pointer on a signal frame: the call runs, the return
//!   enters an `rt_sigreturn`, which puts everything back. Only taken to its end if we die;
//! * **C** the stub in memory of ours, which works and then restores everything by itself.
//!
//! From A to B to C are single system calls, which our death does not cut in two.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use probing_process::access::priority::PriorityBoost;
use probing_process::procfs::maps::Mapping;
use probing_process::procfs::status::Status;
use probing_process::procfs::threads::Tid;
use probing_proto::process::Pid;

use crate::arch::{self, Gadgets, Home, Regs};
use crate::error::{self, AttachError, During as _, Unsupported};
use crate::injection::epoll_wait::ThreadSnapshot;
use crate::injection::inject::Target;
use crate::injection::memory::Memory;
use crate::injection::ptrace::{self, Event};
use crate::injection::remote_block::{Block, PAGE, VECTOR_ROOM};
use crate::kill_points::Steps;

/// The longest and the shortest time that a thread may take to stop, if the deadline allows.
const MAX_STOP_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_STOP_TIMEOUT: Duration = Duration::from_millis(300);
/// How long a thread may stand still with its own registers. Whoever needs longer has lost its CPU: a hold is a fraction of a
/// millisecond's work.
pub(crate) const HOLD_TIMEOUT: Duration = Duration::from_millis(20);
/// How often a thread is held for one purpose.
pub(crate) const HOLDS: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TraceeState {
    /// Stopped, nothing changed.
    Untouched,
    /// Registers or mask are not its own.
    Borrowed,
    /// Not ours any more.
    Released,
}

#[derive(Debug)]
pub(crate) struct Tracee<'a> {
    pub(crate) tid: Tid,
    /// As it calls itself: another number inside a container.
    pub(crate) id_inside: u32,
    pub(crate) home: Home,
    pub(crate) call: Option<i64>,
    pub(crate) group_stop: bool,
    pub(crate) stopped_at: Instant,
    /// When it was seen to stand still. Until then it may have waited for a CPU itself.
    seen_at: Instant,
    /// When we asked it to stop, on the clock that the target reads.
    pub(crate) stopped_at_monotonic: Duration,
    pub(crate) mask: u64,
    pid: Pid,
    vectors: Vec<u8>,
    held: TraceeState,
    steps: &'a Steps,
    /// Until it is let go.
    _urgent: PriorityBoost,
}

/// What state B stands on: the frame on the thread's stack catches it if we die.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Net {
    gadgets: Gadgets,
    frame: u64,
}

impl Net {
    /// Where the thread's own stack is free.
    pub(crate) fn below(self) -> u64 {
        self.frame.saturating_sub(1024) & !63
    }
}

impl<'a> Tracee<'a> {
    /// Stops `tid`.
    ///
    /// One that does not (it waits in the kernel where no signal reaches it: `vfork`, a dead disk) stays ours until
    /// our thread ends. It never notices.
    pub(crate) fn stop(target: &Target<'a>, tid: Tid) -> Result<Self, AttachError> {
        let (pid, steps) = (target.pid, target.steps);
        let left = target.deadline.saturating_duration_since(Instant::now());
        let patience = left.clamp(MIN_STOP_TIMEOUT, MAX_STOP_TIMEOUT);
        let id_inside = Status::of_thread(pid, tid).map_or(tid.0, |status| status.id_inside);
        let look = ThreadSnapshot::at(pid, tid); // before we wake it
        let urgent = PriorityBoost::begin();
        seize(pid, tid)?;
        steps.pass();
        let (stopped_at, stopped_at_monotonic) = (Instant::now(), ptrace::monotonic_now());
        let stop = match stop_seized(tid, patience, steps) {
            Ok(stop) => stop,
            Err(source) if source.kind() == io::ErrorKind::TimedOut => {
                let seen = format!("thread {tid} waits uninterruptibly");
                return Err(AttachError::NoThread { pid, seen });
            }
            Err(source) => {
                // If this fails too the kernel lets go when our thread ends, which is soon.
                _ = ptrace::detach(tid);
                return Err(source).during(pid, "stop a thread");
            }
        };
        let seen_at = Instant::now();
        let read = || -> io::Result<(Regs, u64, Vec<u8>)> {
            let vectors = ptrace::register_set(tid, arch::VECTOR_SET, VECTOR_ROOM)?;
            let mut regs = ptrace::regs(tid)?;
            arch::complete(&mut regs, look.place);
            Ok((regs, ptrace::signal_mask(tid)?, vectors))
        };
        let prepared = read().and_then(|(regs, mask, vectors)| {
            // A process that was stopped by a signal had its wait interrupted by that.
            let waited = if stop.of_process {
                None
            } else {
                look.waited(stopped_at, stop.count)
            };
            let abort = sequence_abort(tid, arch::pc_of(&regs), &target.memory);
            let home = arch::home(&regs, waited, abort, |at| read_time(&target.memory, at));
            if let Some(resumed) = &home.resumed {
                ptrace::set_regs(tid, resumed)?;
            }
            steps.pass();
            Ok((home, arch::call_of(&regs), mask, vectors))
        });
        let (home, call, mask, vectors) = match prepared {
            Ok(prepared) => prepared,
            Err(source) => {
                _ = ptrace::detach(tid);
                return Err(source).during(pid, "read registers");
            }
        };
        Ok(Self {
            tid,
            id_inside,
            home,
            call,
            group_stop: stop.of_process,
            stopped_at,
            seen_at,
            stopped_at_monotonic,
            mask,
            pid,
            vectors,
            held: TraceeState::Untouched,
            steps,
            _urgent: urgent,
        })
    }

    /// Whether it has stood still for too long: dropped, it goes home and on.
    pub(crate) fn is_late(&self) -> bool {
        self.seen_at.elapsed() > HOLD_TIMEOUT
    }

    /// Whether the kernel keeps a second stack for this thread, which our signal frame is not on.
    pub(crate) fn has_shadow_stack(&self) -> bool {
        ptrace::register_set(self.tid, arch::SHADOW_STACK_SET, 8).is_ok()
    }

    /// Whether it may still have to do with a block: something points there, in its registers or on its stack, or that
    /// cannot be told, because it is on another stack than a main thread has.
    ///
    /// Of the stack the newest part will do: nothing in the block calls what goes deeper, and what a signal handler has
    /// interrupted lies in front of it.
    pub(crate) fn may_return_to(&self, block: &Block, target: &Target<'_>) -> bool {
        const NEWEST: u64 = 0x40000;
        let regs = &self.home.regs;
        let (stack, start) = (arch::stack_of(regs), arch::below_red_zone(regs));
        let is_mains = |mapping: &&Mapping| mapping.contains(stack) && mapping.path == "[stack]";
        let newest = target.maps.iter().find(is_mains).and_then(|own| {
            let len = (own.end - start).min(NEWEST);
            target.memory.read_vec(start, len as usize).ok()
        });
        // The frame for state B has all registers.
        let frame = arch::frame(&self.home, self.mask, &self.vectors, 0);
        let is_clear = |bytes: Vec<u8>| !block.is_pointed_to(&bytes);
        !(newest.is_some_and(is_clear) && frame.is_some_and(|frame| is_clear(frame.bytes)))
    }

    /// Writes the signal frame for state B below the thread's stack pointer. `None`: there is no room.
    pub(crate) fn spread_net(
        &self,
        gadgets: Gadgets,
        maps: &[Mapping],
        memory: &Memory,
    ) -> Result<Option<Net>, AttachError> {
        let pid = self.pid;
        let size = self.vectors.len();
        let what = Unsupported::VectorState { size };
        let frame = arch::frame(&self.home, self.mask, &self.vectors, gadgets.restorer)
            .ok_or(AttachError::NotSupported { pid, what })?;
        // The kernel does not grow a stack for writes from outside.
        let stack = arch::stack_of(&self.home.regs);
        let has_room = |mapping: &Mapping| {
            mapping.writable && mapping.start + PAGE <= frame.address && stack <= mapping.end
        };
        if !maps.iter().any(has_room) {
            return Ok(None);
        }
        memory
            .write(frame.address, &frame.bytes)
            .during(pid, "write the signal frame")?;
        Ok(Some(Net {
            gadgets,
            frame: frame.address,
        }))
    }

    /// State B: makes one system call.
    pub(crate) fn call(
        &mut self,
        net: Net,
        number: u64,
        arguments: [u64; 6],
        what: &'static str,
    ) -> Result<u64, AttachError> {
        let regs = arch::regs_for_call(&self.home, net.gadgets, net.frame, number, arguments);
        self.held = TraceeState::Borrowed;
        let result = ptrace::set_regs(self.tid, &regs)
            .and_then(|()| {
                self.steps.pass();
                // After the registers: from now on every way home restores the mask.
                ptrace::set_signal_mask(self.tid, u64::MAX)?;
                self.run_to_call_stop()?; // it begins
                self.run_to_call_stop()?; // it ends
                ptrace::regs(self.tid)
            })
            .during(self.pid, what)?;
        arch::call_result(&result)
            .map_err(io::Error::from_raw_os_error)
            .during(self.pid, what)
    }

    fn run_to_call_stop(&self) -> io::Result<()> {
        let mut signal = 0;
        loop {
            self.steps.pass();
            ptrace::resume_to_call(self.tid, signal)?;
            self.steps.pass();
            match wait(self.tid, MAX_STOP_TIMEOUT)? {
                Event::Call => return Ok(()),
                // SIGSTOP cannot be blocked: it takes effect when we let go.
                Event::Signal(number) => signal = number,
                _ => signal = 0,
            }
        }
    }

    /// State C, and goodbye: from here on the thread comes home alone.
    pub(crate) fn enter(mut self, regs: &Regs) -> Result<(), AttachError> {
        ptrace::set_regs(self.tid, regs).during(self.pid, "set registers")?;
        self.steps.pass();
        self.held = TraceeState::Released;
        ptrace::detach(self.tid).during(self.pid, "let a thread go")?;
        self.steps.pass();
        Ok(())
    }

    /// State C of a thread whose process is stopped: it runs as long as we hold it.
    pub(crate) fn enter_held(mut self, regs: &Regs) -> Result<Running, AttachError> {
        ptrace::set_regs(self.tid, regs).during(self.pid, "set registers")?;
        self.steps.pass();
        self.held = TraceeState::Released;
        ptrace::resume(self.tid, 0).during(self.pid, "let a thread run")?;
        Ok(Running { tid: self.tid })
    }
}

impl Drop for Tracee<'_> {
    /// The mask first: if we die in between, the frame brings the registers. The other way round the thread would
    /// keep all signals blocked. Failures mean that the thread is gone, or runs: then the kernel lets go of it
    /// when our thread ends.
    fn drop(&mut self) {
        if self.held == TraceeState::Borrowed {
            _ = ptrace::set_signal_mask(self.tid, self.mask);
            _ = ptrace::set_regs(self.tid, &self.home.regs);
        }
        if self.held != TraceeState::Released {
            _ = ptrace::detach(self.tid);
        }
    }
}

/// A thread of a stopped process that we let run; dropped, it stops again with the others.
#[derive(Debug)]
pub(crate) struct Running {
    tid: Tid,
}

impl Running {
    /// Passes on signals that arrived for it.
    pub(crate) fn attend(&self) {
        match ptrace::poll(self.tid) {
            Ok(Event::Signal(signal)) => _ = ptrace::resume(self.tid, signal),
            Ok(Event::Call | Event::Interrupted | Event::GroupStop) => {
                _ = ptrace::resume(self.tid, 0);
            }
            _ => {}
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if stop_seized(self.tid, MAX_STOP_TIMEOUT, &Steps::default()).is_ok() {
            _ = ptrace::detach(self.tid);
        }
    }
}

/// How a thread came to stand still.
#[derive(Debug, Clone, Copy)]
struct Stop {
    /// The whole process was stopped already.
    of_process: bool,
    /// How often it stopped until it stood.
    count: u64,
}

/// Stops a seized thread.
fn stop_seized(tid: Tid, patience: Duration, steps: &Steps) -> io::Result<Stop> {
    ptrace::interrupt(tid)?;
    let mut count = 0;
    loop {
        count += 1;
        steps.pass();
        let signal = match wait(tid, patience)? {
            Event::Interrupted => {
                return Ok(Stop {
                    of_process: false,
                    count,
                });
            }
            Event::GroupStop => {
                return Ok(Stop {
                    of_process: true,
                    count,
                });
            }
            // It was faster: let the thread have it, our stop follows.
            Event::Signal(signal) => signal,
            _ => 0,
        };
        ptrace::resume(tid, signal)?;
    }
}

/// Waits for the next event, asleep: a spinning waiter would keep the CPU from the thread it waits for.
fn wait(tid: Tid, patience: Duration) -> io::Result<Event> {
    let started = Instant::now();
    loop {
        match ptrace::poll(tid)? {
            Event::None => {}
            Event::Ended => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            event => return Ok(event),
        }
        let waited = started.elapsed();
        if waited > patience {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(nap(waited));
    }
}

/// Short at first, then considerate.
///
/// It must grow at once: the thread that we wait for may share our CPU, and does not get anywhere in a sleep that is
/// shorter than two switches between threads.
pub(crate) fn nap(waited: Duration) -> Duration {
    let longest = if waited.as_millis() < 50 { 200 } else { 1000 };
    (waited / 2).clamp(Duration::from_micros(5), Duration::from_micros(longest))
}

/// A `timespec` of the target.
fn read_time(memory: &Memory, address: u64) -> Option<Duration> {
    let [seconds, nanos] = [0, 8].map(|at| memory.read_u64(address + at).ok());
    Some(Duration::from_secs(seconds?).saturating_add(Duration::from_nanos(nanos?)))
}

/// Inside a restartable sequence (tcmalloc, jemalloc) a signal would send the thread to an abort handler; coming
/// back into its middle unnoticed would corrupt per-CPU data. Gives that handler's address.
fn sequence_abort(tid: Tid, pc: u64, memory: &Memory) -> Option<u64> {
    let sequence = memory.read_u64(ptrace::rseq_area(tid)? + 8).ok()?;
    if sequence == 0 {
        return None;
    }
    let [start, length, abort] = [8, 16, 24].map(|at| memory.read_u64(sequence + at).unwrap_or(0));
    (pc.wrapping_sub(start) < length).then_some(abort)
}

/// A refusal may come from another tracer that is gone when we look for it: only the third one counts.
fn seize(pid: Pid, tid: Tid) -> Result<(), AttachError> {
    let mut attempt = 1;
    loop {
        let Err(source) = ptrace::seize(tid) else {
            return Ok(());
        };
        if let Some(tracer) = Status::of_thread(pid, tid).and_then(|status| status.tracer()) {
            return Err(AttachError::AlreadyTraced { pid, tracer });
        }
        if attempt == 3 || source.raw_os_error() != Some(libc::EPERM) {
            return Err(error::explained(pid, "trace a thread", source));
        }
        attempt += 1;
        thread::sleep(Duration::from_millis(1));
    }
}
