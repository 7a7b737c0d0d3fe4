//! Says, from outside, who keeps the GIL: for the message when nothing could run.
//!
//! Up to 3.12 no table tells where things are: those places are from the headers of each version, by `offsetof`. What
//! is read there is believed only if it ends at a living thread.

use std::fs;

use crate::arch;
use crate::inject::Target;
use crate::threads::{self, Place, Tid};

/// The holder and what it does; if that is not known, what main does.
pub(crate) fn seen(target: &Target<'_>) -> String {
    let pid = target.pid;
    if let Some(tid) = holder(target) {
        let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
        let (name, place) = (name.trim_end(), Place::of(pid, tid));
        return format!("thread {tid} ({name}) holds the GIL and {place}");
    }
    let main = Place::of(pid, Tid::main_of(pid));
    format!("the GIL was not free, and main {main}")
}

/// Addresses of the GIL's words, and where a thread state has its thread's id.
struct Gil {
    locked: u64,
    holder: u64,
    thread_id: ThreadId,
}

enum ThreadId {
    Kernel(u64),
    /// The C library's, on 3.10.
    Pthread(u64),
}

fn holder(target: &Target<'_>) -> Option<Tid> {
    let read = |address: u64| target.memory.read_u64(address).ok();
    let gil = find(target)?;
    let thread = read(gil.holder)?;
    if read(gil.locked)? as u32 != 1 || thread == 0 {
        return None;
    }
    let id = match gil.thread_id {
        ThreadId::Kernel(at) => read(thread.checked_add(at)?)?,
        ThreadId::Pthread(at) => {
            let pthread = read(thread.checked_add(at)?)?;
            kernel_id(target, pthread)?
        }
    };
    threads::by_id_inside(target.pid, i32::try_from(id).ok()?)
}

fn find(target: &Target<'_>) -> Option<Gil> {
    let python = &target.python;
    let runtime = python.runtime?;
    let read = |address: u64| target.memory.read_u64(address).ok();
    if python.free_threaded {
        return None;
    }
    let in_table = |locked: u64, holder: u64, thread_id: u64| {
        let interpreter = python.main_interpreter(&target.memory)?;
        Some(Gil {
            locked: interpreter.checked_add(read(runtime + locked)?)?,
            holder: interpreter.checked_add(read(runtime + holder)?)?,
            thread_id: ThreadId::Kernel(read(runtime + thread_id)?),
        })
    };
    match python.version {
        (3, 10) => Some(Gil {
            locked: runtime + 368,
            holder: runtime + 360,
            thread_id: ThreadId::Pthread(176),
        }),
        (3, 11) => Some(Gil {
            locked: runtime + 376,
            holder: runtime + 368,
            thread_id: ThreadId::Kernel(160),
        }),
        (3, 12) => {
            let interpreter = read(runtime + 48)?;
            let gil = read(interpreter.checked_add(384)?)?;
            Some(Gil {
                locked: gil.checked_add(16)?,
                holder: gil.checked_add(8)?,
                thread_id: ThreadId::Kernel(144),
            })
        }
        (3, 13) => in_table(136, 144, 200),
        (3, 14) => in_table(144, 152, 224),
        _ => None,
    }
}

/// glibc: what `pthread_self` gives is the address of a struct that starts with its own address, two words in, and
/// holds the kernel's id.
fn kernel_id(target: &Target<'_>, pthread: u64) -> Option<u64> {
    let read = |at: u64| target.memory.read_u64(pthread.checked_add(at)?).ok();
    let is_one = read(arch::PTHREAD_SELF)? == pthread;
    is_one.then_some(u64::from(read(arch::PTHREAD_KERNEL_ID)? as u32))
}
