//! Starts a program that has nothing to do with this process any more.
//!
//! A child that ends tells its parent by SIGCHLD, and the host may wait for any child: it must meet neither. So the child
//! is one that tells nobody (its signal is none), which starts the program as its own child and ends; that one belongs
//! to nobody here. Neither copies the host's memory: both run in it, on stacks of their own, while this thread is held by
//! the kernel (as `posix_spawn` does it), and touch nothing but those.
#![expect(unsafe_code, reason = "clone and execve have no safe face")]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::ptr;

use crate::process::signal_mask;

/// For two children, each of which calls the kernel a few times.
const STACK: usize = 64 << 10;
/// How many signals there are.
const SIGNALS: c_int = 64;
const NOTHING: &CStr = c"/dev/null";
const ROOT: &CStr = c"/";

/// What the children need, made ready before: they must not allocate.
struct Plan {
    arguments: Vec<*const c_char>,
    variables: Vec<*const c_char>,
    /// The top of the second child's stack.
    stack: *mut c_void,
    no_signals: libc::sigset_t,
}

/// Starts a program by its path, the first argument. It has an empty terminal, no files and a session of its own.
pub(crate) fn start(arguments: &[CString], variables: &[CString]) {
    let pointers = |texts: &[CString]| -> Vec<*const c_char> {
        let texts = texts.iter().map(|text| text.as_ptr());
        texts.chain([ptr::null()]).collect()
    };
    let mut stacks = [vec![0_u128; STACK / 16], vec![0_u128; STACK / 16]];
    // SAFETY: a set of signals is plain data, of which all bits zero is the empty one.
    let no_signals = unsafe { std::mem::zeroed() };
    let [first, second] = stacks
        .each_mut()
        .map(|stack| stack.as_mut_ptr_range().end.cast());
    let mut plan = Plan {
        arguments: pointers(arguments),
        variables: pointers(variables),
        stack: second,
        no_signals,
    };
    // A handler of the host's would run in its memory, in a child that it knows nothing of.
    signal_mask::blocked(|| {
        // SAFETY: `first` is the end of a stack that lives until this returns, and with CLONE_VFORK it returns only when the
        // child has ended; `middle` takes a pointer to a Plan, which lives as long, and nobody else uses it meanwhile. The
        // last byte of the flags, the signal at its end, is none.
        let child = unsafe {
            libc::clone(
                middle,
                first,
                libc::CLONE_VM | libc::CLONE_VFORK,
                ptr::from_mut(&mut plan).cast(),
            )
        };
        if child > 0 {
            // SAFETY: waits for our own child only, which has ended; no status is asked for.
            unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WALL) };
        }
    });
}

/// The child: leaves the host's session, and a child of its own behind.
extern "C" fn middle(plan: *mut c_void) -> c_int {
    // SAFETY: `start` gives a Plan that outlives this, and waits meanwhile. Only calls that are safe after a fork are made;
    // the child's stack is its own. It ends without running anything of the host's.
    unsafe {
        libc::setsid();
        let stack = (*plan.cast::<Plan>()).stack;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(last, stack, flags, plan);
        libc::_exit(0)
    }
}

/// Its child: becomes the program.
extern "C" fn last(plan: *mut c_void) -> c_int {
    // SAFETY: `start` gives a Plan that outlives this, and waits meanwhile.
    let plan = unsafe { &*plan.cast::<Plan>() };
    forget_handlers();
    leave_files();
    // SAFETY: a set of signals that lives as long as the Plan; the mask is this child's own.
    unsafe {
        libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const plan.no_signals,
            ptr::null_mut(),
        )
    };
    let (arguments, variables) = (plan.arguments.as_ptr(), plan.variables.as_ptr());
    // SAFETY: both end with null, and hold texts that live as long as the Plan.
    unsafe { libc::execve(plan.arguments[0], arguments, variables) };
    // SAFETY: ends this child without running anything of the host's.
    unsafe { libc::_exit(127) }
}

/// Gives every signal its usual effect. The table of handlers is this child's own (no `CLONE_SIGHAND`).
fn forget_handlers() {
    // SAFETY: plain data, of which all zeros is a value: no flags and no mask.
    let mut usual: libc::sigaction = unsafe { std::mem::zeroed() };
    usual.sa_sigaction = libc::SIG_DFL;
    for signal in 1..=SIGNALS {
        // SAFETY: reads `usual` and installs no function; numbers that are no signals are refused.
        unsafe { libc::sigaction(signal, &raw const usual, ptr::null_mut()) };
    }
}

/// Leaves the folder and the files of the host. The table of files is this child's own (no `CLONE_FILES`).
fn leave_files() {
    // SAFETY: a text with a null at its end; safe after a fork.
    unsafe { libc::chdir(ROOT.as_ptr()) };
    // SAFETY: a text with a null at its end; safe after a fork.
    let nothing = unsafe { libc::open(NOTHING.as_ptr(), libc::O_RDWR) };
    for file in 0..3 {
        // SAFETY: numbers of this child's own table; one that is not open is refused.
        unsafe { libc::dup2(nothing, file) };
    }
    // SAFETY: closes numbers of this child's own table, which it does not use.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if closed != 0 {
        // A kernel before 5.9.
        for file in 3..4096 {
            // SAFETY: a number of this child's own table, which it does not use.
            unsafe { libc::close(file) };
        }
    }
}

/// The file that this code was loaded from.
pub(crate) fn own_library() -> Option<PathBuf> {
    // SAFETY: `info` is plain data that dladdr fills when it succeeds; the name that it points to then lives as long as the
    // library is loaded, and it is never unloaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let here = own_library as *const c_void;
        if libc::dladdr(here, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(info.dli_fname);
        Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
    }
}
