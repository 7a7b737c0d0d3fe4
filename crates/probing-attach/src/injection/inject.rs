//! Runs source by borrowing a thread for less than a millisecond.
//!
//! Stop one thread, have it map a block of memory (state B), write code and source into it, send the thread
//! through that code (state C) and let go. All waiting afterwards is done by reading words of the block; the
//! target needs nothing more from us, so we may be killed at any moment.

use std::io;
use std::time::{Duration, Instant};

use probing_process::access::priority::PriorityBoost;
use probing_process::cpus::Cpus;
use probing_process::error::ProcessError;
use probing_process::procfs::maps::Mapping;
use probing_process::procfs::threads::Tid;
use probing_proto::process::Pid;

use crate::arch::{self, Code, Gadgets, Plan};
use crate::error::{AttachError, During as _, Unsupported};
use crate::injection::hijacked_thread::Borrowed;
use crate::injection::leftovers;
use crate::injection::memory::Memory;
use crate::injection::pending_calls;
use crate::injection::presence::Presence;
use crate::injection::remote_block::{Block, Layout, NAP_NANOS, StubKind, at};
use crate::injection::thread_choice;
use crate::injection::thread_storage::Storage;
use crate::injection::tracee::{HOLD_TIMEOUT, HOLDS, Net, Tracee};
use crate::kill_points::Steps;
use crate::python::Python;
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
        let ran = thread_choice::cpu_time(self.pid, Tid::main_of(self.pid));
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
pub(crate) fn run(target: &Target<'_>, way: StubKind, text: &str) -> Result<Attempt, AttachError> {
    let pid = target.pid;
    let mut victims = match way {
        StubKind::Pending => {
            // Main stands still now and then until this is over: its CPU is the first that is free for us, unless we are
            // given any at once.
            if !PriorityBoost::begin().is_first() {
                target.cpus.inspect(|cpus| _ = cpus.take());
            }
            vec![Tid::main_of(pid)]
        }
        StubKind::Thread | StubKind::Hijack => {
            thread_choice::callable(pid).during(pid, "list threads")?
        }
    };
    if way == StubKind::Hijack {
        victims.reverse(); // main first: it is the likeliest to have the GIL
    }
    let mut mapped = Vec::new();
    let attempt = match borrow_any(target, &victims, (way, text), &mut mapped) {
        Ok(Ok(borrowed)) => borrowed.wait(target),
        Ok(Err(seen)) => Ok(Attempt::NoThread { seen }),
        Err(error) => Err(error),
    };
    if !mapped.is_empty() {
        // Nothing depends on it: if it fails, the next attach does it.
        _ = unmap_from_outside(target, &mapped);
    }
    attempt
}

/// Borrows the first of these threads that can be, or tells why none can. One that is held for too long is let go and held
/// again; a block that it had mapped by then is put into `mapped`.
fn borrow_any(
    target: &Target<'_>,
    victims: &[Tid],
    (way, text): (StubKind, &str),
    mapped: &mut Vec<Block>,
) -> Result<Result<Borrowed, String>, AttachError> {
    let pid = target.pid;
    let mut seen = String::from("none waits in a system call that may be interrupted");
    for &tid in victims {
        for _ in 0..HOLDS {
            let tracee = match Tracee::stop(target, tid) {
                Ok(tracee) => tracee,
                // It ended, or would not stop: there are others.
                Err(AttachError::Process(ProcessError::Ended { .. })) => break,
                Err(AttachError::Process(ProcessError::Io { what, source, .. })) => {
                    seen = format!("thread {tid}: cannot {what}: {source}");
                    break;
                }
                Err(error) => return Err(error),
            };
            target.steps.pass();
            if tracee.group_stop && way != StubKind::Hijack {
                return Err(AttachError::Stopped { pid });
            }
            if way != StubKind::Pending && !tracee.call.is_some_and(arch::is_safe_call) {
                seen = format!("thread {tid} left its system call");
                break;
            }
            match borrow(target, tracee, (way, text), mapped)? {
                Loan::Made(borrowed) => return Ok(Ok(borrowed)),
                Loan::NoStack => {
                    seen = format!("thread {tid} has too little stack");
                    break;
                }
                Loan::Late => seen = held_too_long(tid),
            }
        }
    }
    Ok(Err(seen))
}

/// Why a thread was let go each time.
pub(crate) fn held_too_long(tid: Tid) -> String {
    let millis = HOLD_TIMEOUT.as_millis();
    format!(
        "thread {tid} was released after {millis} ms each time, because this command got no CPU"
    )
}

/// What came of holding a thread.
enum Loan {
    Made(Borrowed),
    /// There is no room on its stack for the signal frame.
    NoStack,
    /// It was held for too long, and goes on.
    Late,
}

/// From A over B to C.
fn borrow(
    target: &Target<'_>,
    mut tracee: Tracee<'_>,
    (way, text): (StubKind, &str),
    mapped: &mut Vec<Block>,
) -> Result<Loan, AttachError> {
    let pid = target.pid;
    if tracee.has_shadow_stack() {
        let what = Unsupported::ShadowStack;
        return Err(AttachError::NotSupported { pid, what });
    }
    let storage = match way {
        StubKind::Pending => {
            Storage::read(&tracee.home, &target.memory).during(pid, "read thread-local storage")?
        }
        StubKind::Thread | StubKind::Hijack => Storage::default(),
    };
    let Some(net) = tracee.spread_net(target.gadgets, &target.maps, &target.memory)? else {
        return Ok(Loan::NoStack);
    };
    target.steps.pass();
    let layout = Layout::new(way, text.len(), storage.len());
    let place = target.place(layout.total);
    // The last moment at which the thread still has its own registers.
    if tracee.is_late() {
        return Ok(Loan::Late);
    }
    let block = map(&mut tracee, net, layout, place).map_err(|error| match error {
        AttachError::Process(ProcessError::Io { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            let what = Unsupported::NewCode;
            AttachError::NotSupported { pid, what }
        }
        error => error,
    })?;
    if tracee.is_late() {
        mapped.push(block); // the thread goes home as after any failure
        return Ok(Loan::Late);
    }
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
    enter(tracee, block, &code).map(Loan::Made)
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
    // What follows belongs together.
    if main.is_late() {
        return Ok(false);
    }
    let is_out =
        pending_calls::empty(target, block, status.interpreter).during(pid, "write memory")?;
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
    let waiting = thread_choice::callable(pid).during(pid, "list threads")?;
    let mut left = blocks;
    for tid in waiting.into_iter().chain([main]) {
        for _ in 0..HOLDS {
            let mut tracee = Tracee::stop(target, tid)?;
            target.steps.pass();
            if tid != main && !tracee.call.is_some_and(arch::is_safe_call) {
                break;
            }
            let net = tracee.spread_net(target.gadgets, &target.maps, &target.memory)?;
            let Some(net) = net else {
                break;
            };
            while let Some((block, others)) = left.split_first() {
                if tracee.is_late() {
                    break;
                }
                unmap(&mut tracee, net, block)?;
                left = others;
            }
            if left.is_empty() {
                return Ok(());
            }
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
