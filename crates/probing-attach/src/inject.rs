//! Runs source by borrowing a thread for less than a millisecond.
//!
//! Stop one thread, have it map a block of memory (state B), write code and source into it, send the thread
//! through that code (state C) and let go. All waiting afterwards is done by reading words of the block; the
//! target needs nothing more from us, so we may be killed at any moment.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use probing_proto::process::Pid;

use crate::arch::{self, Gadgets, Plan};
use crate::block::{Block, Layout, PAGE, State, Status, Way, at};
use crate::error::{AttachError, During as _, Unsupported};
use crate::maps::Mapping;
use crate::memory::Memory;
use crate::python::Python;
use crate::steps::Steps;
use crate::threads::{self, Place, Tid};
use crate::tracee::{Running, Tracee, nap};
use crate::wrapper;

/// How long we look whether the borrowed thread is home, and then whether the block is gone.
const CLEAN_UP: Duration = Duration::from_millis(100);
/// How long main may take to come by a queued call before we look whether it waits for something.
const COMES_BY: Duration = Duration::from_millis(20);
/// How long source that has begun at the deadline may take to end.
const GRACE: Duration = Duration::from_millis(50);

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
    pub(crate) deadline: Instant,
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
        Way::Pending => vec![(Tid::main_of(pid), None)],
        Way::Thread | Way::Hijack => threads::callable(pid)
            .during(pid, "list threads")?
            .into_iter()
            .map(|(tid, call)| (tid, Some(call)))
            .collect(),
    };
    if way == Way::Hijack {
        victims.reverse(); // main first: it is the likeliest to have the GIL
    }
    let mut seen = String::from("none waits in a system call that may be interrupted");
    for (tid, expected) in victims {
        let tracee = match Tracee::stop(pid, tid, expected, &target.memory, target.steps) {
            Ok(tracee) => tracee,
            // It ended, or would not stop: there are others.
            Err(AttachError::Ended { .. }) => continue,
            Err(AttachError::Io { what, source, .. }) => {
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

/// A thread on its way through the stub, and the block that it is in.
struct Borrowed {
    block: Block,
    tid: Tid,
    /// The stack pointer that it will have at home.
    home_stack: u64,
    since: Instant,
    since_monotonic: Duration,
    /// Set if its process is stopped.
    running: Option<Running>,
}

/// From A over B to C. `None`: no room on its stack for the signal frame.
fn borrow(
    target: &Target<'_>,
    mut tracee: Tracee<'_>,
    way: Way,
    text: &str,
) -> Result<Option<Borrowed>, AttachError> {
    let (pid, memory, gadgets) = (target.pid, &target.memory, target.gadgets);
    if tracee.has_shadow_stack() {
        return Err(AttachError::NotSupported {
            pid,
            what: Unsupported::ShadowStack,
        });
    }
    let dtv = match way {
        Way::Pending => {
            HelperTables::read(&tracee, memory).during(pid, "read thread-local storage")?
        }
        Way::Thread | Way::Hijack => HelperTables::default(),
    };
    let frame = tracee.frame(gadgets)?;
    // The kernel does not grow a stack for writes from outside.
    let home_stack = arch::stack_of(&tracee.home.regs);
    let has_room = |mapping: &Mapping| {
        mapping.writable && mapping.start + PAGE <= frame.address && home_stack <= mapping.end
    };
    if !target.maps.iter().any(has_room) {
        return Ok(None);
    }
    memory
        .write(frame.address, &frame.bytes)
        .during(pid, "write the signal frame")?;
    target.steps.pass();

    let layout = Layout::new(way, text.len(), dtv.len());
    let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let read_run = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let read_write = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let map = [0, layout.total, read_run, anonymous, u64::MAX, 0];
    let start = tracee.call(gadgets, frame.address, arch::MMAP, map, "map memory")?;
    let block = Block { start, layout };
    let own_stack = frame.address.saturating_sub(1024) & !63;
    let code = arch::assemble(&Plan {
        functions: &target.python.functions,
        gadgets,
        start,
        layout,
        own_stack,
    });
    let protect = [start + PAGE, layout.total - PAGE, read_write, 0, 0, 0];
    let filled = tracee
        .call(
            gadgets,
            frame.address,
            arch::MPROTECT,
            protect,
            "protect memory",
        )
        .and_then(|_| {
            memory
                .write(start, &code.bytes)
                .and_then(|()| write_context(&block, &tracee, memory, text))
                .and_then(|()| dtv.write(&block, target, memory))
                .during(pid, "write memory")
        });
    if let Err(error) = filled {
        let unmap = [start, layout.total, 0, 0, 0, 0];
        tracee.call(gadgets, frame.address, arch::MUNMAP, unmap, "unmap memory")?;
        return Err(error);
    }
    target.steps.pass();

    let regs = arch::regs_for_stub(
        &tracee.home,
        code.stub,
        start + layout.stub_stack,
        block.context(),
    );
    let (tid, since, since_monotonic) =
        (tracee.tid, tracee.stopped_at, tracee.stopped_at_monotonic);
    let running = if tracee.group_stop {
        Some(tracee.enter_held(&regs)?)
    } else {
        tracee.enter(&regs)?;
        None
    };
    Ok(Some(Borrowed {
        block,
        tid,
        home_stack,
        since,
        since_monotonic,
        running,
    }))
}

fn write_context(
    block: &Block,
    tracee: &Tracee<'_>,
    memory: &Memory,
    text: &str,
) -> io::Result<()> {
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
        (at::BORROWED, tracee.tid.0 as u64),
        (at::EVERY_SIGNAL, u64::MAX),
        (at::NAP + 8, 200_000), // nanoseconds
        (at::FLOAT_CONTROL, arch::FLOAT_CONTROL),
    ] {
        put(at, &value.to_le_bytes());
    }
    put(at::NAME, wrapper::RESULT.as_bytes());
    memory.write(block.context(), &context)?;
    // The memory is fresh, so the text ends in a zero.
    memory.write(block.word(at::SOURCE), text.as_bytes())
}

/// The helper's thread-local storage: zeroes, with a dtv of the same length and generation as the victim's, so
/// that code which looks there finds a thread that has not used its variables yet.
#[derive(Default)]
struct HelperTables {
    head: Vec<u8>,
    entries: usize,
    main_pointer: u64,
}

impl HelperTables {
    /// glibc: the thread pointer is followed by that of the dtv, two words in front of which is its length.
    fn read(main: &Tracee<'_>, memory: &Memory) -> io::Result<Self> {
        const MOST: u64 = 4000;
        let main_pointer = arch::thread_pointer_of(&main.home.regs);
        let dtv = memory.read_u64(main_pointer + 8)?;
        let head = memory.read_vec(dtv.wrapping_sub(16), 32)?;
        let entries = memory.read_u64(dtv.wrapping_sub(16))?.min(MOST) as usize;
        Ok(Self {
            head,
            entries,
            main_pointer,
        })
    }

    fn len(&self) -> usize {
        if self.head.is_empty() {
            0
        } else {
            (self.entries + 4) * 16
        }
    }

    fn write(&self, block: &Block, target: &Target<'_>, memory: &Memory) -> io::Result<()> {
        if self.head.is_empty() {
            return Ok(());
        }
        let Layout {
            thread_pointer,
            dtv,
            zeroes,
            ..
        } = block.layout;
        let [thread_pointer, dtv, zeroes] =
            [thread_pointer, dtv, zeroes].map(|at| block.start + at);
        let mut table = self.head.clone();
        for _ in 0..=self.entries {
            table.extend(zeroes.to_le_bytes());
            table.extend([0; 8]);
        }
        memory.write(dtv, &table)?;
        // What pthread_self() answers: up to 3.12 a pending call wakes the interpreter only if "main" adds it.
        let identity = if target.python.version <= (3, 12) {
            self.main_pointer
        } else {
            thread_pointer
        };
        memory.write_u64(thread_pointer, thread_pointer)?;
        memory.write_u64(thread_pointer + 8, dtv + 16)?;
        memory.write_u64(thread_pointer + 16, identity)
    }
}

impl Borrowed {
    /// Until the source has run, or the deadline.
    fn wait(self, target: &Target<'_>) -> Result<Attempt, AttachError> {
        let pid = target.pid;
        let mut paused = None;
        loop {
            let status = self.status(target)?;
            if status.left && paused.is_none() {
                paused = Some(self.paused(&status));
            }
            if let Some(paused) = paused {
                match status.state {
                    State::Done => {
                        let text = self
                            .block
                            .text(&target.memory, status.text_len)
                            .during(pid, "read memory")?;
                        self.clean_up(target);
                        return match text.as_str() {
                            "" => Ok(Attempt::Ran { paused }),
                            _ => Err(AttachError::Raised { pid, message: text }),
                        };
                    }
                    State::Failed | State::NotInitialized => {
                        self.clean_up(target);
                        return Err(failure(pid, status.state));
                    }
                    State::Cancelled => return Err(AttachError::Ended { pid }),
                    State::Waiting | State::Running => {}
                }
                if status.queued == Some(false) || could_not_start(&status) {
                    self.clean_up(target);
                    let what = if status.queued == Some(false) {
                        "its queue is full"
                    } else {
                        "no thread can be started"
                    };
                    return Ok(Attempt::NoThread {
                        seen: what.to_owned(),
                    });
                }
            }
            if Instant::now() > target.deadline {
                return self.cancel(target);
            }
            if status.state == State::Waiting && self.main_went_to_wait(&status, target) {
                return match self.cancel(target) {
                    Err(AttachError::Busy { .. }) => Ok(Attempt::NoThread {
                        seen: "main went to wait before it came by".to_owned(),
                    }),
                    ran => ran,
                };
            }
            if let Some(running) = &self.running {
                running.attend();
            }
            thread::sleep(nap(self.since.elapsed()));
        }
    }

    /// How long the thread was away, by its own account if that makes sense.
    fn paused(&self, status: &Status) -> Duration {
        let observed = self.since.elapsed();
        match status.left_at.checked_sub(self.since_monotonic) {
            Some(exact) if exact < observed => exact,
            _ => observed,
        }
    }

    fn status(&self, target: &Target<'_>) -> Result<Status, AttachError> {
        // Memory that cannot be read any more belonged to a process that is gone.
        self.block
            .status(&target.memory)
            .map_err(|_gone| AttachError::Ended { pid: target.pid })
    }

    /// Whether a queued call will not be seen for long, but a thread could be started now.
    fn main_went_to_wait(&self, status: &Status, target: &Target<'_>) -> bool {
        self.block.layout.way == Way::Pending
            && status.queued == Some(true)
            && status.caller == 0
            && self.since.elapsed() > COMES_BY
            && Place::of(target.pid, self.tid).safe_call().is_some()
    }

    /// Takes the source back. If it has begun in this very moment it ends; it never begins after this.
    fn cancel(self, target: &Target<'_>) -> Result<Attempt, AttachError> {
        let pid = target.pid;
        target
            .memory
            .write_u64(self.block.word(at::CANCEL), 1)
            .during(pid, "write memory")?;
        let asked = Instant::now();
        let mut status = self.status(target)?;
        while status.state == State::Running && asked.elapsed() < GRACE {
            thread::sleep(nap(asked.elapsed()));
            status = self.status(target)?;
        }
        let waited = target.started.elapsed();
        match status.state {
            State::Running => Err(AttachError::Unfinished { pid, waited }),
            State::Done => {
                let text = self
                    .block
                    .text(&target.memory, status.text_len)
                    .during(pid, "read memory")?;
                self.clean_up(target);
                match text.as_str() {
                    "" => Ok(Attempt::Ran {
                        paused: self.paused(&status),
                    }),
                    _ => Err(AttachError::Raised { pid, message: text }),
                }
            }
            State::Waiting | State::Cancelled => {
                let seen = crate::gil::seen(target);
                self.clean_up(target);
                Err(AttachError::Busy { pid, waited, seen })
            }
            state => Err(failure(pid, state)),
        }
    }

    /// Lets whoever is last in the block unmap it, if nobody else can still be in it.
    fn clean_up(&self, target: &Target<'_>) {
        const UNMAP: u64 = 1;
        const LEAVE: u64 = 2;
        if self.block.layout.way == Way::Hijack {
            return; // nobody is left in it who could
        }
        let started = Instant::now();
        let verdict = loop {
            match self.block.status(&target.memory) {
                Ok(status) if self.is_empty(&status, target) => break UNMAP,
                Ok(_) if started.elapsed() < CLEAN_UP => thread::sleep(nap(started.elapsed())),
                _ => break LEAVE,
            }
        };
        let word = self.block.word(at::VERDICT);
        if target.memory.write_u64(word, verdict).is_err() || verdict == LEAVE {
            return;
        }
        // So that the caller finds the target as it was. A thread that still waits for the GIL does it later.
        let waits = |status: Status| matches!(status.state, State::Waiting);
        while started.elapsed() < CLEAN_UP {
            match self.block.status(&target.memory) {
                Ok(status) if !waits(status) => thread::sleep(nap(started.elapsed())),
                _ => return,
            }
        }
    }

    /// Whether only the new thread (or a cancelled pending call) can still be in the block.
    fn is_empty(&self, status: &Status, target: &Target<'_>) -> bool {
        match self.block.layout.way {
            Way::Hijack => false,
            Way::Thread => status.left && self.is_home(target),
            // Main has left the pending call if someone else has had the GIL since. It had left the stub before, if
            // it was the borrowed thread: that is checked by the code that unmaps.
            Way::Pending => status.left && !status.helper_alive && !target.python.free_threaded,
        }
    }

    /// Whether the borrowed thread is seen waiting in the kernel, on its own stack, with no way back into the
    /// stub: a signal handler that interrupted its last instructions would have one on the stack.
    fn is_home(&self, target: &Target<'_>) -> bool {
        if threads::stat(target.pid, self.tid).is_none() {
            return true; // it has ended
        }
        let place = Place::of(target.pid, self.tid);
        let Place::Call { stack, pc, .. } = place else {
            return false;
        };
        let code = self.block.start..self.block.start + PAGE;
        let own_stack = target
            .maps
            .iter()
            .find(|mapping| mapping.contains(self.home_stack));
        if code.contains(&pc) || !own_stack.is_some_and(|own| own.contains(stack)) {
            return false;
        }
        let deeper = self.home_stack.saturating_sub(stack) as usize;
        let Ok(words) = target.memory.read_vec(stack, deeper.next_multiple_of(8)) else {
            return false;
        };
        let leads_back = |word: &[u8]| {
            word.try_into()
                .is_ok_and(|word| code.contains(&u64::from_le_bytes(word)))
        };
        !words.chunks_exact(8).any(leads_back) && Place::of(target.pid, self.tid) == place
    }
}

fn could_not_start(status: &Status) -> bool {
    // PyThread_start_new_thread gives -1, clone a negative errno.
    status.state == State::Waiting && (-4095..0).contains(&status.started)
}

fn failure(pid: Pid, state: State) -> AttachError {
    if state == State::NotInitialized {
        return AttachError::NotSupported {
            pid,
            what: Unsupported::NotInitialized,
        };
    }
    AttachError::Raised {
        pid,
        message: "MemoryError: in the code around it".to_owned(),
    }
}
