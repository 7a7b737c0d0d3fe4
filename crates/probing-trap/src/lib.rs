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
    remember(&action(Some(handler()))?);
    Ok(&DROPPED)
}

fn remember(former: &libc::sigaction) {
    FORMER_FLAGS.store(former.sa_flags, Ordering::Relaxed);
    FORMER.store(former.sa_sigaction, Ordering::Release);
}

fn ours() -> usize {
    on_trap as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize
}

fn handler() -> libc::sigaction {
    // SAFETY: the structure is plain data, of which all bits zero is a valid value: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = ours();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
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
    if is_stray(code) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let former = FORMER.load(Ordering::Acquire);
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

/// Lets the signal do what it does without a handler: it is sent again, with all that it says, and arrives when the handler
/// returns, at the instruction where it was.
fn end(info: *mut libc::siginfo_t) {
    // SAFETY: SIG_DFL is a valid action; the former one is not asked for.
    unsafe { libc::signal(libc::SIGTRAP, libc::SIG_DFL) };
    // SAFETY: takes no arguments.
    let pid = unsafe { libc::getpid() };
    // SAFETY: takes no arguments.
    let tid = unsafe { libc::gettid() };
    // SAFETY: `info` is the kernel's own and lives until the handler returns; a process may send any to itself.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, libc::SIGTRAP, info) };
}
