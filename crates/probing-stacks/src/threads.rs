//! Finds the threads of all interpreters in the target's memory.

use std::collections::HashSet;

use crate::interpreter::Interpreter;
use crate::layout::{CurrentFrame, GilPlace};
use crate::memory::{Memory, u32_at, u64_at};

const MAX_INTERPRETERS: usize = 1_000;
const MAX_THREADS: usize = 20_000;
/// Of the lists, when a thread ends while they are read.
const TRIES: usize = 5;
/// Of the start of libc's `struct pthread`, in which the kernel's id is.
const PTHREAD: usize = 1024;
/// Where glibc has it.
const GLIBC_TID: usize = if cfg!(target_arch = "x86_64") {
    720
} else {
    208
};

/// A thread as one interpreter knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) address: u64,
    pub(crate) interpreter: i64,
    /// Address of that interpreter.
    pub(crate) owner: u64,
    pub(crate) gil: u64,
    pub(crate) ident: u64,
    /// In the target's pid namespace.
    pub(crate) native_id: Option<u32>,
}

/// Where a thread is, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) frame: u64,
    pub(crate) chunk: u64,
    /// How far the chunk is in use.
    pub(crate) top: u64,
    /// What leads to the frame, where it does not stand in the thread.
    pub(crate) pointer: u64,
}

/// All threads, those of the main interpreter first, older before younger. `None`: there is no interpreter.
pub(crate) fn all(
    interpreter: &Interpreter,
    memory: &(impl Memory + ?Sized),
) -> Option<Vec<Thread>> {
    let mut threads = None;
    for _ in 0..TRIES {
        let (found, whole) = list(interpreter, memory)?;
        threads = Some(found);
        if whole {
            break;
        }
    }
    threads
}

/// The threads, and whether the lists were read to their ends.
fn list(interpreter: &Interpreter, memory: &(impl Memory + ?Sized)) -> Option<(Vec<Thread>, bool)> {
    let layout = &interpreter.layout;
    let mut address = memory.read_u64(interpreter.runtime.checked_add(layout.interpreters)?)?;
    let (mut seen, mut threads, mut whole) = (HashSet::new(), Vec::new(), true);
    while address != 0 && seen.len() < MAX_INTERPRETERS && seen.insert(address) {
        let fields = &layout.interpreter;
        let place = match layout.gil.place {
            GilPlace::Runtime(_) => fields.id,
            GilPlace::Pointer(at) => at,
        };
        let fields = [fields.id, fields.next, fields.threads, place];
        let ranges = fields.map(|offset| (address.saturating_add(offset), 8));
        let numbers: Option<Vec<u64>> = memory
            .read_many(&ranges)
            .into_iter()
            .map(|bytes| u64_at(&bytes?, 0))
            .collect();
        let Some(&[id, next, first, gil]) = numbers.as_deref() else {
            whole = false;
            break;
        };
        let gil = match layout.gil.place {
            GilPlace::Runtime(at) => interpreter.runtime.wrapping_add(at),
            GilPlace::Pointer(_) => gil,
        };
        let owner = Owner {
            address,
            id: id.cast_signed(),
            gil,
        };
        whole &= list_threads(interpreter, memory, owner, first, &mut threads);
        address = next;
    }
    if seen.is_empty() {
        return None;
    }
    // Both lists have the youngest first.
    threads.reverse();
    threads.sort_by_key(|thread| thread.interpreter);
    Some((threads, whole))
}

#[derive(Clone, Copy)]
struct Owner {
    address: u64,
    id: i64,
    gil: u64,
}

fn list_threads(
    interpreter: &Interpreter,
    memory: &(impl Memory + ?Sized),
    owner: Owner,
    first: u64,
    threads: &mut Vec<Thread>,
) -> bool {
    let layout = &interpreter.layout.thread;
    let (mut address, mut seen) = (first, HashSet::new());
    while address != 0 {
        if threads.len() >= MAX_THREADS || !seen.insert(address) {
            return false;
        }
        let Some(bytes) = memory.read(address, layout.size()) else {
            return false;
        };
        let field = |at: usize| u64_at(&bytes, at).unwrap_or(0);
        if field(layout.interpreter) != owner.address {
            return false;
        }
        threads.push(Thread {
            address,
            interpreter: owner.id,
            owner: owner.address,
            gil: owner.gil,
            ident: field(layout.ident),
            native_id: layout.native_id.and_then(|at| u32_at(&bytes, at)),
        });
        address = field(layout.next);
    }
    true
}

/// Where threads are now; `None` for one that is gone.
pub(crate) fn heads(
    interpreter: &Interpreter,
    memory: &(impl Memory + ?Sized),
    threads: &[Thread],
) -> Vec<Option<Head>> {
    let layout = &interpreter.layout.thread;
    let ranges: Vec<_> = threads
        .iter()
        .map(|thread| (thread.address, layout.size() + 8))
        .collect();
    let mut heads: Vec<Option<Head>> = memory
        .read_many(&ranges)
        .into_iter()
        .map(|bytes| head(interpreter, &bytes?))
        .collect();
    if let CurrentFrame::Through { inside, .. } = layout.frame {
        let ranges: Vec<_> = heads
            .iter()
            .map(|head| (head.unwrap_or_default().pointer.wrapping_add(inside), 8))
            .collect();
        for (head, bytes) in heads.iter_mut().zip(memory.read_many(&ranges)) {
            let frame = bytes.and_then(|bytes| u64_at(&bytes, 0));
            *head = match (*head, frame) {
                (Some(head), Some(frame)) => Some(Head { frame, ..head }),
                // A thread that is not in Python yet.
                (Some(head), None) if head.pointer == 0 => Some(head),
                _ => None,
            };
        }
    }
    heads
}

/// Reads a thread's fields from its memory, [`size_of_head`] bytes. `frame` is 0 where it does not stand there.
pub(crate) fn head(interpreter: &Interpreter, bytes: &[u8]) -> Option<Head> {
    let layout = &interpreter.layout.thread;
    let (frame, pointer) = match layout.frame {
        CurrentFrame::Direct(at) => (u64_at(bytes, at)?, 0),
        CurrentFrame::Through { pointer, .. } => (0, u64_at(bytes, pointer)?),
    };
    let (chunk, top) = match layout.chunk {
        Some(at) => (u64_at(bytes, at)?, u64_at(bytes, at + 8)?),
        None => (0, 0),
    };
    Some(Head {
        frame,
        chunk,
        top,
        pointer,
    })
}

pub(crate) fn size_of_head(interpreter: &Interpreter) -> usize {
    interpreter.layout.thread.size() + 8
}

/// Whether each thread holds its interpreter's GIL.
pub(crate) fn holders(
    interpreter: &Interpreter,
    memory: &(impl Memory + ?Sized),
    threads: &[Thread],
) -> Vec<bool> {
    let layout = &interpreter.layout.gil;
    let mut gils: Vec<u64> = threads.iter().map(|thread| thread.gil).collect();
    gils.sort_unstable();
    gils.dedup();
    let ranges: Vec<_> = gils.iter().map(|gil| (*gil, 128)).collect();
    let answers = memory.read_many(&ranges);
    let holder = |bytes: &Option<Vec<u8>>| {
        let bytes = bytes.as_ref()?;
        (u32_at(bytes, layout.locked)? == 1).then_some(u64_at(bytes, layout.holder)?)
    };
    let holders: Vec<Option<u64>> = answers.iter().map(holder).collect();
    threads
        .iter()
        .map(|thread| {
            let gil = gils.binary_search(&thread.gil).ok();
            gil.and_then(|index| holders[index]) == Some(thread.address)
        })
        .collect()
}

/// Finds the kernel's ids of threads for a Python that does not keep them, in libc's own structures.
///
/// Where in `struct pthread` the id is differs between C libraries: it is where each has one of `ids`, each another.
pub(crate) fn find_native_ids(
    memory: &(impl Memory + ?Sized),
    threads: &mut [Thread],
    ids: &HashSet<u32>,
) {
    let ranges: Vec<_> = threads
        .iter()
        .map(|thread| (thread.ident, PTHREAD))
        .collect();
    let structs = memory.read_many(&ranges);
    let known: Vec<(usize, &[u8])> = structs
        .iter()
        .enumerate()
        .filter_map(|(index, bytes)| Some((index, bytes.as_deref()?)))
        .collect();
    let idents: HashSet<u64> = known
        .iter()
        .map(|(index, _)| threads[*index].ident)
        .collect();
    let fits = |offset: usize| {
        let found: HashSet<u32> = known
            .iter()
            .filter_map(|(_, bytes)| u32_at(bytes, offset))
            .filter(|id| ids.contains(id))
            .collect();
        !known.is_empty() && found.len() == idents.len()
    };
    let places = std::iter::once(GLIBC_TID).chain((0..PTHREAD).step_by(4));
    if let Some(place) = places.into_iter().find(|offset| fits(*offset)) {
        for (index, bytes) in known {
            threads[index].native_id = u32_at(bytes, place);
        }
    }
}
