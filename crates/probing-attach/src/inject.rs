//! Runs source by borrowing a thread for less than a millisecond.
//!
//! Stop one thread, have it map a block of memory (state B), write code and source into it, send the thread
//! through that code (state C) and let go. All waiting afterwards is done by reading words of the block; the
//! target needs nothing more from us, so we may be killed at any moment.

use std::io;
use std::time::{Duration, Instant};

use probing_process::error::ProcessError;
use probing_process::maps::Mapping;
use probing_process::threads::Tid;
use probing_process::urgent::Urgent;
use probing_proto::process::Pid;

use crate::arch::{self, Code, Gadgets, Plan};
use crate::block::{Block, Layout, NAP_NANOS, Way, at};
use crate::borrowed::Borrowed;
use crate::cpus::Cpus;
use crate::dtv::Storage;
use crate::error::{AttachError, During as _, Unsupported};
use crate::leftovers;
use crate::memory::Memory;
use crate::presence::Presence;
use crate::python::Python;
use crate::queue;
use crate::steps::Steps;
use crate::threads;
use crate::tracee::{Net, Tracee};
use crate::wrapper;

/// All that is known about the process before one of its threads is stopped.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) pid: Pid,
    pub(crate) memory: Memory,
    pub(crate) maps: Vec<Mapping>,
    pub(crate) python: Python,
    pub(crate) gadgets: Gadgets,
    pub(crate) steps: &'a Steps,
    pub(crate) started: Instant,
    pub(crate) main_ran_before: Duration,
    pub(crate) deadline: Instant,
    /// Where our thread may run while main does not.
    pub(crate) cpus: Option<Cpus>,
    /// Without it, others would take what we have in the target for left.
    pub(crate) presence: Option<Presence>,
}

impl Target<'_> {
    /// Where a block of ours belongs, so that others know it if we are killed.
    fn place(&self, size: u64) -> Option<u64> {
        self.presence.as_ref()?;
        leftovers::free_place(&self.maps, size)
    }

    /// How long main has run since we began to look. The kernel counts in ticks of some milliseconds.
    pub(crate) fn main_ran(&self) -> Duration {
        let ran = threads::cpu_time(self.pid, Tid::main_of(self.pid));
        ran.saturating_sub(self.main_ran_before)
    }
}

/// What one attempt came to.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The source ran; the borrowed thread was away for so long.
    Ran { paused: Duration },
    /// No thread could be borrowed; the target is untouched.
    NoThread { seen: String },
}

/// Tries every thread that `way` can use.
pub(crate) fn run(target: &Target<'_>, way: Way, text: &str) -> Result<Attempt, AttachError> {
    let pid = target.pid;
    let mut victims = match way {
        Way::Pending => {
            // Main stands still now and then until this is over: its CPU is the first that is free for us, unless we are
            // given any at once.
            if !Urgent::begin().is_first() {
                target.cpus.inspect(|cpus| _ = cpus.take());
            }
            vec![Tid::main_of(pid)]
        }
        Way::Thread | Way::Hijack => threads::callable(pid).during(pid, "list threads")?,
    };
    if way == Way::Hijack {
        victims.reverse(); // main first: it is the likeliest to have the GIL
    }
    let mut seen = String::from("none waits in a system call that may be interrupted");
    for tid in victims {
        let tracee = match Tracee::stop(target, tid) {
            Ok(tracee) => tracee,
            // It ended, or would not stop: there are others.
            Err(AttachError::Process(ProcessError::Ended { .. })) => continue,
            Err(AttachError::Process(ProcessError::Io { what, source, .. })) => {
                seen = format!("thread {tid}: cannot {what}: {source}");
                continue;
            }
            Err(error) => return Err(error),
        };
        target.steps.pass();
        if tracee.group_stop && way != Way::Hijack {
            return Err(AttachError::Stopped { pid });
        }
        if way != Way::Pending && !tracee.call.is_some_and(arch::is_safe_call) {
            seen = format!("thread {tid} moved on");
            continue;
        }
        match borrow(target, tracee, way, text)? {
            Some(borrowed) => return borrowed.wait(target),
            None => seen = format!("thread {tid} has too little stack"),
        }
    }
    Ok(Attempt::NoThread { seen })
}

/// From A over B to C. `None`: no room on its stack for the signal frame.
fn borrow(
    target: &Target<'_>,
    mut tracee: Tracee<'_>,
    way: Way,
    text: &str,
) -> Result<Option<Borrowed>, AttachError> {
    let pid = target.pid;
    if tracee.has_shadow_stack() {
        let what = Unsupported::ShadowStack;
        return Err(AttachError::NotSupported { pid, what });
    }
    let storage = match way {
        Way::Pending => {
            Storage::read(&tracee.home, &target.memory).during(pid, "read thread-local storage")?
        }
        Way::Thread | Way::Hijack => Storage::default(),
    };
    let Some(net) = tracee.spread_net(target.gadgets, &target.maps, &target.memory)? else {
        return Ok(None);
    };
    target.steps.pass();
    let layout = Layout::new(way, text.len(), storage.len());
    let place = target.place(layout.total);
    let block = map(&mut tracee, net, layout, place).map_err(|error| match error {
        AttachError::Process(ProcessError::Io { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            let what = Unsupported::NewCode;
            AttachError::NotSupported { pid, what }
        }
        error => error,
    })?;
    let code = arch::assemble(&Plan {
        functions: &target.python.functions,
        gadgets: target.gadgets,
        start: block.start,
        layout,
        own_stack: net.below(),
    });
    fill(target, &block, &code, text)
        .and_then(|()| storage.write(&block, target.python.version, &target.memory))
        .and_then(|()| write_context(&block, &tracee, &target.memory))
        .during(pid, "write memory")
        .or_else(|error| unmap(&mut tracee, net, &block).and(Err(error)))?;
    target.steps.pass();
    enter(tracee, block, &code).map(Some)
}

/// State C.
fn enter(tracee: Tracee<'_>, block: Block, code: &Code) -> Result<Borrowed, AttachError> {
    let stack = block.start + block.layout.stub_stack;
    let regs = arch::regs_for_stub(&tracee.home, code.stub, stack, block.context());
    let mut borrowed = Borrowed {
        block,
        tid: tracee.tid,
        home_stack: arch::stack_of(&tracee.home.regs),
        since: tracee.stopped_at,
        since_monotonic: tracee.stopped_at_monotonic,
        running: None,
    };
    if tracee.group_stop {
        borrowed.running = Some(tracee.enter_held(&regs)?);
    } else {
        tracee.enter(&regs)?;
    }
    Ok(borrowed)
}

/// Memory for the block, readable and executable; the stub makes all but the code writable instead. We write to it as
/// it is, like a debugger.
fn map(
    tracee: &mut Tracee<'_>,
    net: Net,
    layout: Layout,
    place: Option<u64>,
) -> Result<Block, AttachError> {
    let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let there = anonymous | libc::MAP_FIXED_NOREPLACE as u64;
    let read_run = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let mut map = |start, flags| {
        let arguments = [start, layout.total, read_run, flags, u64::MAX, 0];
        tracee.call(net, arch::MMAP, arguments, "map memory")
    };
    // Where another attach knows it for one of ours, if that can be.
    let start = match place {
        Some(place) => map(place, there).or_else(|_taken| map(0, anonymous))?,
        None => map(0, anonymous)?,
    };
    Ok(Block { start, layout })
}

/// Takes a queued call back that main has not made, and the block with it. False: main is at it, or has been.
pub(crate) fn take_back(target: &Target<'_>, block: &Block) -> Result<bool, AttachError> {
    let pid = target.pid;
    let mut main = Tracee::stop(target, Tid::main_of(pid))?;
    if main.group_stop || main.may_return_to(block, target) {
        return Ok(false);
    }
    // Main stands still, so these words do, too.
    let status = block.status(&target.memory).during(pid, "read memory")?;
    if status.caller != 0 || status.helper_alive || status.queued != Some(true) {
        return Ok(false);
    }
    let Some(net) = main.spread_net(target.gadgets, &target.maps, &target.memory)? else {
        return Ok(false);
    };
    let is_out = queue::empty(target, block, status.interpreter).during(pid, "write memory")?;
    if is_out {
        unmap(&mut main, net, block)?;
    }
    Ok(is_out)
}

fn unmap(tracee: &mut Tracee<'_>, net: Net, block: &Block) -> Result<u64, AttachError> {
    let all = [block.start, block.layout.total, 0, 0, 0, 0];
    tracee.call(net, arch::MUNMAP, all, "unmap memory")
}

/// Unmaps blocks that nobody is in any more. Main may do that wherever it is: it is a system call only.
pub(crate) fn unmap_from_outside(target: &Target<'_>, blocks: &[Block]) -> Result<(), AttachError> {
    let pid = target.pid;
    let main = Tid::main_of(pid);
    let waiting = threads::callable(pid).during(pid, "list threads")?;
    for tid in waiting.into_iter().chain([main]) {
        let mut tracee = Tracee::stop(target, tid)?;
        if (tid == main || tracee.call.is_some_and(arch::is_safe_call))
            && let Some(net) = tracee.spread_net(target.gadgets, &target.maps, &target.memory)?
        {
            for block in blocks {
                unmap(&mut tracee, net, block)?;
            }
            return Ok(());
        }
    }
    Ok(())
}

fn write_context(block: &Block, tracee: &Tracee<'_>, memory: &Memory) -> io::Result<()> {
    let home = &tracee.home;
    let mut context = vec![0; at::END as usize];
    let mut put = |at: u32, bytes: &[u8]| {
        context[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    };
    put(at::REGISTERS, &arch::regs_bytes(&home.regs));
    for (at, value) in [
        (at::MASK, tracee.mask),
        (at::INTERRUPTED_RESULT, home.interrupted.0),
        (at::INTERRUPTED_PC, home.interrupted.1),
        (at::OWN_STACK, arch::below_red_zone(&home.regs)),
        (at::BORROWED, u64::from(tracee.id_inside)),
        (at::WAY, block.layout.way.word()),
        (at::EVERY_SIGNAL, u64::MAX),
        (at::NAP + 8, NAP_NANOS),
        (at::FLOAT_CONTROL, arch::FLOAT_CONTROL),
    ] {
        put(at, &value.to_le_bytes());
    }
    put(at::NAME, wrapper::RESULT.as_bytes());
    memory.write(block.context(), &context)
}

/// Writes what does not depend on the thread that is borrowed.
fn fill(target: &Target<'_>, block: &Block, code: &Code, text: &str) -> io::Result<()> {
    target.memory.write(block.start, &code.bytes)?;
    // The memory is fresh, so the text ends in a zero.
    target.memory.write(block.word(at::SOURCE), text.as_bytes())
}
