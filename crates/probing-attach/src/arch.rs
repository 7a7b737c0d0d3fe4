//! What differs between machines: registers, system call numbers, the signal frame, the injected instructions.
//!
//! One file each behind the same names; the flow in `inject.rs` is written once.

use std::time::Duration;

use crate::injection::remote_block::Layout;
use crate::python::Functions;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use self::x86_64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use self::aarch64::*;

/// Its decisions and its instructions are plain data: they are tested where we are.
#[cfg(all(test, not(target_arch = "aarch64")))]
#[expect(dead_code, reason = "only what the tests ask for")]
mod aarch64;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("probing-attach knows x86_64 and aarch64");

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const CLOCK_MONOTONIC: u64 = libc::CLOCK_MONOTONIC as u64;
/// `Py_file_input`: source is a series of statements.
const FILE_INPUT: u64 = 257;

/// What the injected instructions need to know.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) functions: &'a Functions,
    pub(crate) gadgets: Gadgets,
    pub(crate) start: u64,
    pub(crate) layout: Layout,
    /// Hijack only: where on the thread's own stack the source may run.
    pub(crate) own_stack: u64,
}

/// Instructions that the target already has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gadgets {
    /// A system call, then a return.
    pub(crate) call: u64,
    /// libc's way back from a signal handler.
    pub(crate) restorer: u64,
}

/// The injected code.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
    /// Where the borrowed thread enters it.
    pub(crate) stub: u64,
}

/// Where a stopped thread goes when we are through with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home<R = Regs> {
    pub(crate) regs: R,
    /// What to set at once, at the stop itself, if the thread would otherwise see that there was one.
    pub(crate) resumed: Option<R>,
    /// Result register and program counter if a signal waits for it.
    pub(crate) interrupted: (u64, u64),
    /// The register with the number of the system call, in the signal frame: there the kernel has forgotten how to
    /// restart one.
    pub(crate) fallback_result: u64,
}

/// A signal frame for the thread's own stack.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}

/// What is left of a wait that has no restart block, in milliseconds: or its timers would come late.
///
/// Who waited for its whole time was not interrupted in that wait but on its way into the next. If it is not known how
/// long one has lasted the lesser harm is done: a short wait begins anew, a long one answers EINTR (`None`). Who waits
/// that long (Python, libuv, libev) then goes on for the rest of its time, which only it knows.
fn rest_of_wait(timeout: Duration, waited: Option<Duration>) -> Option<u64> {
    const SHORT_WAIT: Duration = Duration::from_millis(100);
    let left = waited.and_then(|waited| timeout.checked_sub(waited));
    let left = match left {
        Some(left) if !left.is_zero() => left,
        _ if timeout <= SHORT_WAIT => timeout,
        _ => return None,
    };
    let left = left.as_nanos().div_ceil(1_000_000);
    Some(i32::try_from(left).ok()?.cast_unsigned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_continues_for_the_rest_of_its_time() {
        let rest = |timeout, waited: Option<u64>| {
            rest_of_wait(
                Duration::from_millis(timeout),
                waited.map(Duration::from_micros),
            )
        };
        assert_eq!(rest(10_000, Some(2_000_000)), Some(8000));
        assert_eq!(rest(1, Some(900)), Some(1));
        // Unknown, or the wait before this one.
        for waited in [None, Some(1000), Some(5000)] {
            assert_eq!(rest(1, waited), Some(1));
        }
        assert_eq!(rest(10_000, None), None);
        assert_eq!(rest(10_000, Some(10_000_000)), None);
    }
}
