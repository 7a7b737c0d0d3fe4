//! Says, from outside, who seems to keep the GIL: for the message when nothing could run.

use crate::inject::Target;
use crate::threads::{Place, Tid};

/// Where the table at the start of `_PyRuntime` has the offsets that lead to the holder.
struct Offsets {
    interpreters_head: u64,
    locked: u64,
    holder: u64,
    native_thread_id: u64,
}

const OFFSETS: [((u8, u8), Offsets); 2] = [
    (
        (3, 13),
        Offsets {
            interpreters_head: 40,
            locked: 136,
            holder: 144,
            native_thread_id: 200,
        },
    ),
    (
        (3, 14),
        Offsets {
            interpreters_head: 40,
            locked: 144,
            holder: 152,
            native_thread_id: 224,
        },
    ),
];

/// The holder and what it does; on versions that do not tell, what main does.
pub(crate) fn seen(target: &Target<'_>) -> String {
    let pid = target.pid;
    if let Some(tid) = holder(target) {
        let place = Place::of(pid, tid);
        return format!("the GIL is held by thread {tid}, which {place}");
    }
    let main = Place::of(pid, Tid::main_of(pid));
    format!("the GIL was not free, and main {main}")
}

fn holder(target: &Target<'_>) -> Option<Tid> {
    let version = target.python.version;
    let (_, offsets) = OFFSETS.iter().find(|(known, _)| *known == version)?;
    let runtime = target.python.runtime?;
    let read = |address: u64| target.memory.read_u64(address).ok();
    let offset = |at: u64| read(runtime + at);
    if target.memory.read_vec(runtime, 8).ok()? != b"xdebugpy" {
        return None;
    }
    let interpreter = read(runtime + offset(offsets.interpreters_head)?)?;
    let locked = read(interpreter.checked_add(offset(offsets.locked)?)?)? as u32;
    let thread = read(interpreter.checked_add(offset(offsets.holder)?)?)?;
    if locked != 1 || thread == 0 {
        return None;
    }
    let tid = read(thread.checked_add(offset(offsets.native_thread_id)?)?)?;
    Some(Tid(i32::try_from(tid).ok()?))
}
