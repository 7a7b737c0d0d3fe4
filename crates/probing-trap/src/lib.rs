//! A SIGTRAP handler that keeps a process alive when a debug exception arrives without its cause.
//!
//! The processor reports a write to watched bytes as a debug exception and names its cause in register DR6. A hypervisor
//! may lose DR6 before the guest's kernel reads it: KVM before Linux 6.14 does, when it handles an exit in its fast path
//! (most often below another KVM). The guest's kernel then takes the exception for the instruction `int1` and sends
//! SIGTRAP, whose default action ends the process. No arrangement of perf events avoids this: the exception belongs to an
//! event that is set and stays set. So a process that is watched gets this handler first.
//!
//! The handler stays for good: a debug exception may be under way when its event is removed, and the client that removes
//! it may be killed. It drops stray traps alone; any other SIGTRAP takes the course that it had before.
#![expect(unsafe_code, reason = "sigaction is a C interface")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Stray traps that were dropped in this process.
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Whether the handler has been installed in this process.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The action before ours: a function, or `SIG_DFL`.
static FORMER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static FORMER_FLAGS: AtomicI32 = AtomicI32::new(0);

/// Why a process cannot have the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotGuarded {
    /// Programs that it starts would inherit another action than they do now.
    #[error("the program ignores SIGTRAP")]
    Ignored,
    /// The program's handler may call ours, so ours must not call it.
    #[error("the program has replaced the SIGTRAP handler of the probe")]
    Replaced,
    #[error("the kernel refuses a SIGTRAP handler: error {code}")]
    Refused { code: i32 },
}

/// Installs the handler, unless it is there; the address at which this process counts the stray traps that it dropped.
pub fn guard() -> Result<&'static AtomicU64, NotGuarded> {
    let former = action(None)?;
    if former.sa_sigaction == ours() {
        return Ok(&DROPPED);
    }
    if former.sa_sigaction == libc::SIG_IGN {
        return Err(NotGuarded::Ignored);
    }
    if INSTALLED.swap(true, Ordering::AcqRel) && former.sa_sigaction != libc::SIG_DFL {
        return Err(NotGuarded::Replaced);
    }
    remember(&former);
    // The program may have set another one since.
    remember(&action(Some(handler_after(&former)))?);
    Ok(&DROPPED)
}

fn remember(former: &libc::sigaction) {
    FORMER_FLAGS.store(former.sa_flags, Ordering::Relaxed);
    FORMER.store(former.sa_sigaction, Ordering::Release);
}

fn ours() -> usize {
    on_trap as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize
}

/// Ours, which interrupts as much as the one before did: what the program does with SIGTRAP stays as it was.
fn handler_after(former: &libc::sigaction) -> libc::sigaction {
    let mut action = *former;
    action.sa_sigaction = ours();
    let kept = former.sa_flags & (libc::SA_RESTART | libc::SA_NODEFER);
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | kept;
    action
}

/// The action of SIGTRAP before this call, which sets another one if it is given one.
fn action(new: Option<libc::sigaction>) -> Result<libc::sigaction, NotGuarded> {
    let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut former = MaybeUninit::zeroed();
    // SAFETY: both structures live until the call returns; the handler is async-signal-safe and lives as long as this code,
    // which is in the program or in a library that is never unloaded.
    let done = unsafe { libc::sigaction(libc::SIGTRAP, new, former.as_mut_ptr()) };
    if done != 0 {
        let code = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        return Err(NotGuarded::Refused { code });
    }
    // SAFETY: all bits zero is a valid value, and the kernel has filled it in.
    Ok(unsafe { former.assume_init() })
}

/// A trap that only a debug register can have caused, where the kernel found no event or no cause. `int3` has another
/// code; a debugger's breakpoints and steps reach the debugger and never a handler.
fn is_stray(code: c_int) -> bool {
    // On aarch64 an instruction (`brk`) has the other code, and there is no DR6 to be lost.
    let lost_cause = cfg!(target_arch = "x86_64") && code == libc::TRAP_BRKPT;
    lost_cause || code == libc::TRAP_HWBKPT
}

extern "C" fn on_trap(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a structure that lives until it returns.
    let code = unsafe { (*info).si_code };
    if is_stray(code) && !is_at_int1(context) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let former = FORMER.load(Ordering::Acquire);
    if FORMER_FLAGS.load(Ordering::Relaxed) & libc::SA_RESETHAND != 0 {
        FORMER.store(libc::SIG_DFL, Ordering::Release);
    }
    if former == libc::SIG_DFL {
        end(info);
    } else if FORMER_FLAGS.load(Ordering::Relaxed) & libc::SA_SIGINFO != 0 {
        // SAFETY: the program has installed this address as a handler that takes these three.
        let former: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
            unsafe { std::mem::transmute(former) };
        former(signal, info, context);
    } else {
        // SAFETY: the program has installed this address as a handler that takes the number of a signal.
        let former: extern "C" fn(c_int) = unsafe { std::mem::transmute(former) };
        former(signal);
    }
}

/// The instruction `int1`. Some hypervisors report it before it has been executed: whoever drops that meets it again, for
/// ever. It is the program's own, so it takes the course that it had before.
fn is_at_int1(context: *const c_void) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        const INT1: u8 = 0xf1;
        // SAFETY: the kernel gives a handler with SA_SIGINFO a context that lives until it returns.
        let next = unsafe {
            (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize]
        };
        // SAFETY: the processor is about to read an instruction there, and has read the one before.
        let byte = unsafe { ptr::with_exposed_provenance::<u8>(next as usize).read_volatile() };
        byte == INT1
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        _ = context;
        false
    }
}

/// Sends the calling thread what a stray trap is to a handler: a rehearsal.
pub fn rehearse_stray() {
    // SAFETY: the structure is plain data, of which all bits zero is a valid value.
    let mut info: libc::siginfo_t = unsafe { MaybeUninit::zeroed().assume_init() };
    info.si_signo = libc::SIGTRAP;
    info.si_code = if cfg!(target_arch = "x86_64") {
        libc::TRAP_BRKPT
    } else {
        libc::TRAP_HWBKPT
    };
    send(&raw const info);
}

/// Lets the signal do what it does without a handler: it is sent again, with all that it says, and arrives when the handler
/// returns, at the instruction where it was.
fn end(info: *mut libc::siginfo_t) {
    // SAFETY: SIG_DFL is a valid action; the former one is not asked for.
    unsafe { libc::signal(libc::SIGTRAP, libc::SIG_DFL) };
    send(info);
}

/// Sends a signal to the calling thread, with all that is said of it.
fn send(info: *const libc::siginfo_t) {
    // SAFETY: takes no arguments.
    let pid = unsafe { libc::getpid() };
    // SAFETY: takes no arguments.
    let tid = unsafe { libc::gettid() };
    // SAFETY: both callers have a structure that lives until the call returns; a process may send any to itself.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, libc::SIGTRAP, info) };
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::arch::asm;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);
    const WAIT_INTERVAL: Duration = Duration::from_millis(1);
    const REACHED_ITS_END: c_int = 0;
    const WENT_WRONG: c_int = 3;

    /// Runs this in a child, which ends with a status; its end as `waitpid` tells it, within a deadline.
    fn in_child(action: fn() -> c_int) -> c_int {
        // SAFETY: the child calls the kernel only, and does not return.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let status = action();
            // SAFETY: ends the child without running anything of the program's.
            unsafe { libc::_exit(status) };
        }
        let until = Instant::now() + TIMEOUT;
        let (mut status, mut is_killed) = (0, false);
        loop {
            // SAFETY: our own child; the status lives until the call returns.
            if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
                break;
            }
            if Instant::now() > until && !is_killed {
                // SAFETY: our own child, which has not been waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                is_killed = true;
            }
            thread::sleep(WAIT_INTERVAL);
        }
        assert!(!is_killed, "it did not end");
        status
    }

    fn is_ended_by_trap(status: c_int) -> bool {
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTRAP
    }

    fn set_action(handler: usize, flags: c_int) {
        // SAFETY: all bits zero is a valid value.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        // SAFETY: the structure lives until the call returns; the handler is async-signal-safe.
        unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()) };
    }

    fn raise() {
        // SAFETY: sends a signal to the calling thread.
        unsafe { libc::raise(libc::SIGTRAP) };
    }

    static CALLS: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn counts(_: c_int) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }

    fn counter() -> usize {
        counts as extern "C" fn(c_int) as usize
    }

    #[test]
    fn a_handler_for_one_signal_gets_one_and_the_next_ends_the_process() {
        let once = in_child(|| {
            set_action(counter(), libc::SA_RESETHAND);
            if guard().is_err() {
                return WENT_WRONG;
            }
            rehearse_stray();
            raise();
            if CALLS.load(Ordering::Relaxed) != 1 {
                return WENT_WRONG;
            }
            raise();
            REACHED_ITS_END
        });
        assert!(is_ended_by_trap(once), "{once:#x}");
        let always = in_child(|| {
            set_action(counter(), 0);
            if guard().is_err() {
                return WENT_WRONG;
            }
            raise();
            raise();
            if CALLS.load(Ordering::Relaxed) == 2 {
                REACHED_ITS_END
            } else {
                WENT_WRONG
            }
        });
        assert_eq!(always, REACHED_ITS_END);
    }

    #[test]
    fn int1_is_known_by_the_byte_that_is_executed_next() {
        let is_int1 = |code: &[u8]| {
            // SAFETY: a context is plain data, of which all bits zero is a valid value.
            let mut context: libc::ucontext_t = unsafe { MaybeUninit::zeroed().assume_init() };
            let next = code.as_ptr().expose_provenance();
            context.uc_mcontext.gregs[libc::REG_RIP as usize] = next as i64;
            is_at_int1((&raw const context).cast())
        };
        assert!(is_int1(&[0xf1, 0x90]));
        assert!(!is_int1(&[0x90, 0xf1]));
        assert!(!is_int1(&[0xcc]));
    }

    /// A processor goes on behind it: a stray trap. A hypervisor may report it again and again: the program's own end.
    #[test]
    fn int1_never_keeps_a_process_for_ever() {
        let status = in_child(|| {
            if guard().is_err() {
                return WENT_WRONG;
            }
            // SAFETY: raises a debug exception, for which there is a handler.
            unsafe { asm!(".byte 0xf1") };
            REACHED_ITS_END
        });
        assert!(
            status == REACHED_ITS_END || is_ended_by_trap(status),
            "{status:#x}"
        );
    }
}
