//! A thread on its way through the stub: waits for the source, takes it back at the deadline, cleans up.
//!
//! Everything here is done by reading and writing words of the block; the thread needs us no more.

use std::io;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use probing_process::error::ProcessError;
use probing_process::procfs::threads as kernel;
use probing_process::procfs::threads::{SyscallState, Tid};

use crate::arch;
use crate::error::{AttachError, During as _, Unsupported};
use crate::injection::inject::{self, Attempt, Target};
use crate::injection::remote_block::{Block, PAGE, State, Status, StubKind, at};
use crate::injection::thread_choice::safe_call;
use crate::injection::tracee::{Running, Tracee, nap};

/// How long we look whether the borrowed thread is home, and then whether the block is gone. On a machine that is
/// overloaded a thread may not get a CPU for a tenth of this; the new thread waits twice as long for our verdict.
const CLEAN_UP: Duration = Duration::from_secs(1);
/// How long main may take to come by a queued call, and the borrowed thread to leave, before we look what they do.
const COMES_BY: Duration = Duration::from_millis(20);
/// How long source that has begun at the deadline may take to end.
const GRACE: Duration = Duration::from_millis(50);

/// A thread on its way through the stub, and the block that it is in.
#[derive(Debug)]
pub(crate) struct Borrowed {
    pub(crate) block: Block,
    pub(crate) tid: Tid,
    /// The stack pointer that it will have at home.
    pub(crate) home_stack: u64,
    pub(crate) since: Instant,
    pub(crate) since_monotonic: Duration,
    /// Set if its process is stopped.
    pub(crate) running: Option<Running>,
}

impl Borrowed {
    /// Until the source has run, or the deadline.
    pub(crate) fn wait(self, target: &Target<'_>) -> Result<Attempt, AttachError> {
        let mut next_look = COMES_BY;
        loop {
            self.beat(target);
            let status = self.status(target)?;
            if status.left {
                if let Some(result) = self.result(&status, target) {
                    return result;
                }
                if let Some(seen) = not_started(&status) {
                    self.reclaim(target);
                    let (pid, seen) = (target.pid, seen.to_owned());
                    return Err(AttachError::NoThread { pid, seen });
                }
            }
            if !status.left && self.since.elapsed() > next_look {
                next_look *= 2; // on a busy machine it may still be on its way
                self.check_memory(target)?;
            }
            if Instant::now() > target.deadline {
                return self.cancel(target);
            }
            if self.main_went_to_wait(&status, target) {
                return match self.cancel(target) {
                    Err(AttachError::Busy { .. }) => Ok(Attempt::NoThread {
                        seen: "the main thread began to wait before it ran the code".to_owned(),
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

    /// What the source came to, if it has ended; then the block is given up.
    fn result(&self, status: &Status, target: &Target<'_>) -> Option<Result<Attempt, AttachError>> {
        let pid = target.pid;
        let result = match status.state {
            State::Waiting | State::Running | State::Cancelled => return None,
            State::Done => match self.block.text(&target.memory, status.text_len) {
                Ok(text) if text.is_empty() => Ok(Attempt::Ran {
                    paused: self.paused(status),
                }),
                Ok(message) => Err(AttachError::Raised { pid, message }),
                Err(_gone) => Err(ProcessError::Ended { pid }.into()),
            },
            State::Failed => Err(AttachError::Raised {
                pid,
                message: "MemoryError: in the code around it".to_owned(),
            }),
            State::NotInitialized => Err(AttachError::NotSupported {
                pid,
                what: Unsupported::NotInitialized,
            }),
        };
        self.clean_up(target);
        Some(result)
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
            .map_err(|_gone| ProcessError::Ended { pid: target.pid }.into())
    }

    /// Shows the new thread that we live. If that fails, reading does, too.
    fn beat(&self, target: &Target<'_>) {
        let now = self.since.elapsed().as_nanos() as u64;
        _ = target.memory.write_u64(self.block.word(at::BEAT), now);
    }

    /// Whether a queued call will not be seen for long, but a thread could be started now.
    fn main_went_to_wait(&self, status: &Status, target: &Target<'_>) -> bool {
        self.block.layout.way == StubKind::Pending
            && status.state == State::Waiting
            && status.queued == Some(true)
            && status.caller == 0
            && self.since.elapsed() > COMES_BY
            && safe_call(SyscallState::of(target.pid, self.tid)).is_some()
    }

    /// Takes the source back. If it has begun in this very moment it ends; it never begins after this.
    fn cancel(self, target: &Target<'_>) -> Result<Attempt, AttachError> {
        let pid = target.pid;
        if self.taken_back(target) {
            return Err(busy(target));
        }
        target
            .memory
            .write_u64(self.block.word(at::CANCEL), 1)
            .during(pid, "write memory")?;
        fence(Ordering::SeqCst); // with the one in the stub: it sees this, or we see that it runs
        let asked = Instant::now();
        let mut status = self.status(target)?;
        while status.state == State::Running && asked.elapsed() < GRACE {
            thread::sleep(nap(asked.elapsed()));
            status = self.status(target)?;
        }
        if let Some(result) = self.result(&status, target) {
            return result;
        }
        self.check_memory(target)?;
        let busy = busy(target);
        self.clean_up(target);
        Err(match status.state {
            State::Running => {
                let waited = target.started.elapsed();
                AttachError::Unfinished { pid, waited }
            }
            _ => busy,
        })
    }

    /// Takes a queued call back that main has not made; then the block is gone.
    fn taken_back(&self, target: &Target<'_>) -> bool {
        const STOPS: u32 = 6;
        let is_queued = || {
            let status = self.block.status(&target.memory);
            status.is_ok_and(|status| status.queued == Some(true) && status.caller == 0)
        };
        if self.block.layout.way != StubKind::Pending
            || !self.becomes_true(target, |status, _| status.left && !status.helper_alive)
        {
            return false;
        }
        for stop in 0..STOPS {
            if !is_queued() {
                return false;
            }
            // What goes wrong changes nothing: main unmaps the block when it comes by.
            if inject::take_back(target, &self.block).is_ok_and(|is_out| is_out) {
                return true;
            }
            thread::sleep(Duration::from_millis(1 << stop)); // it may be on its way through the block
        }
        false
    }

    /// Fails if the thread went home at once, because the kernel did not let it write to the block.
    fn check_memory(&self, target: &Target<'_>) -> Result<(), AttachError> {
        let pid = target.pid;
        let left = || Ok::<_, AttachError>(self.status(target)?.left);
        // In this order: who has left leaves word before it is home.
        if self.running.is_some()
            || left()?
            || !self.is_home(target, InspectionMode::MayStop)
            || left()?
        {
            return Ok(());
        }
        inject::unmap_from_outside(target, &[self.block])?;
        Err(io::Error::from_raw_os_error(libc::ENOMEM)).during(pid, "make memory writable")
    }

    /// Lets whoever is last in the block unmap it, if nobody else can still be in it.
    fn clean_up(&self, target: &Target<'_>) {
        const UNMAP: u64 = 1;
        const LEAVE: u64 = 2;
        if self.block.layout.way == StubKind::Hijack {
            self.reclaim(target); // nobody is left in it who could
            return;
        }
        let started = Instant::now();
        let empty = self.is_empty(target);
        let verdict = if empty { UNMAP } else { LEAVE };
        let word = self.block.word(at::VERDICT);
        if target.memory.write_u64(word, verdict).is_err() || !empty {
            return;
        }
        // So that the caller finds the target as it was. A thread that is not through does it later.
        let waits = |status: Status| matches!(status.state, State::Waiting | State::Running);
        let mut next_look = COMES_BY;
        while started.elapsed() < CLEAN_UP {
            let looks = started.elapsed() > next_look;
            let gone = looks && self.thread_is_gone(target);
            match self.block.status(&target.memory) {
                // It had given us up.
                Ok(_) if gone => return self.reclaim(target),
                Ok(status) if !waits(status) => thread::sleep(nap(started.elapsed())),
                _ => return,
            }
            if looks {
                next_look *= 2;
            }
        }
    }

    /// Whether the new thread has begun, and has ended.
    pub(crate) fn thread_is_gone(&self, target: &Target<'_>) -> bool {
        let thread = self
            .block
            .status(&target.memory)
            .map(|status| status.thread);
        matches!(thread, Ok(Some(thread)) if kernel::by_id_inside(target.pid, thread).is_none())
    }

    /// Unmaps a block in which nobody is left, by another short stop. What is not certain stays.
    fn reclaim(&self, target: &Target<'_>) {
        if self.running.is_none()
            && self.becomes_true(target, |status, look| {
                status.left && self.is_home(target, look)
            })
        {
            // Nothing depends on it: if it fails, the block stays.
            _ = inject::unmap_from_outside(target, &[self.block]);
        }
    }

    /// Whether only the new thread (or a cancelled pending call) can still be in the block.
    fn is_empty(&self, target: &Target<'_>) -> bool {
        self.becomes_true(target, |status, look| match self.block.layout.way {
            StubKind::Hijack => false,
            StubKind::Thread => status.left && self.is_home(target, look),
            // Main has left the pending call if someone else has had the GIL since. It had left the stub before, if
            // it was the borrowed thread: that is checked by the code that unmaps.
            StubKind::Pending => {
                status.left && !status.helper_alive && !target.python.free_threaded
            }
        })
    }

    /// Waits a while for a condition; now and then it may look closer.
    fn becomes_true(
        &self,
        target: &Target<'_>,
        holds: impl Fn(&Status, InspectionMode) -> bool,
    ) -> bool {
        let started = Instant::now();
        let mut closer = Duration::from_millis(20);
        while let waited = started.elapsed()
            && waited < CLEAN_UP
            && let Ok(status) = self.block.status(&target.memory)
        {
            self.beat(target);
            let look = if waited < closer {
                InspectionMode::FromOutside
            } else {
                InspectionMode::MayStop
            };
            if holds(&status, look) {
                return true;
            }
            if look == InspectionMode::MayStop {
                closer *= 2;
            }
            thread::sleep(nap(waited));
        }
        false
    }

    /// Whether the borrowed thread is seen outside the stub.
    pub(crate) fn is_home(&self, target: &Target<'_>, look: InspectionMode) -> bool {
        let (pid, tid) = (target.pid, self.tid);
        if kernel::stat(pid, tid).is_none() {
            return true; // it has ended
        }
        match SyscallState::of(pid, tid) {
            place @ SyscallState::Call { stack, pc, .. } => {
                self.is_outside(stack, pc, target) && SyscallState::of(pid, tid) == place
            }
            // It is in no system call that a stop could interrupt.
            SyscallState::Running if look == InspectionMode::MayStop => Tracee::stop(target, tid)
                .is_ok_and(|held| {
                    let regs = &held.home.regs;
                    self.is_outside(arch::stack_of(regs), arch::pc_of(regs), target)
                }),
            _ => false,
        }
    }

    /// Whether a thread that is here, on its own stack, has no way back into the stub: a signal handler that
    /// interrupted the stub's last instructions would have one on the stack.
    fn is_outside(&self, stack: u64, pc: u64, target: &Target<'_>) -> bool {
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
        !words.chunks_exact(8).any(leads_back)
    }
}

/// How to find out where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InspectionMode {
    FromOutside,
    /// By stopping it for a moment, if it runs.
    MayStop,
}

/// The source had no chance to begin.
fn busy(target: &Target<'_>) -> AttachError {
    let pid = target.pid;
    let main = SyscallState::of(pid, Tid::main_of(pid));
    AttachError::Busy {
        pid,
        waited: target.started.elapsed(),
        seen: format!("the GIL was not free, and main {main}"),
    }
}

/// Why nobody will ever run the source.
fn not_started(status: &Status) -> Option<&'static str> {
    // PyThread_start_new_thread gives -1, clone a negative errno.
    if status.state == State::Waiting && (-4095..0).contains(&status.started) {
        return Some("no thread can be started");
    }
    (status.queued == Some(false)).then_some("its queue of pending calls is full")
}
