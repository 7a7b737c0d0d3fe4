//! Finds the threads of all interpreters in the target's memory.

use std::collections::HashSet;

use crate::maps::Mapping;
use crate::memory::{Memory, u32_at, u64_at};
use crate::python::interpreter::Interpreter;
use crate::python::layout::{CurrentFrame, GilOffset};

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

/// More than the size of a thread's state. What it points to in itself is not on a stack.
const MAX_STATE: u64 = 4096;

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
pub(crate) fn read_threads(
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
            GilOffset::Runtime(_) => fields.id,
            GilOffset::Pointer(at) => at,
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
            GilOffset::Runtime(at) => interpreter.runtime.wrapping_add(at),
            GilOffset::Pointer(_) => gil,
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

/// Puts states of other interpreters on the threads that run them. Up to 3.12 an interpreter has one state, which says that
/// it is of the thread that has made the interpreter, whichever runs it; but that one has what it runs on its native stack.
///
/// `main_id` is the kernel's id of the main thread, as the target sees it.
pub(crate) fn find_runners(
    interpreter: &Interpreter,
    memory: &(impl Memory + ?Sized),
    maps: &[Mapping],
    threads: &mut [Thread],
    main_id: Option<u32>,
) {
    let Some(run) = interpreter.layout.thread.newest_run() else {
        return;
    };
    let others: Vec<usize> = (0..threads.len())
        .filter(|index| threads[*index].interpreter != 0)
        .collect();
    let ranges: Vec<_> = others
        .iter()
        .map(|index| (threads[*index].address.saturating_add(run), 8))
        .collect();
    let runs = memory.read_many(&ranges).into_iter();
    let runs: Vec<u64> = runs
        .map(|bytes| bytes.and_then(|bytes| u64_at(&bytes, 0)).unwrap_or(0))
        .collect();
    for (index, run) in others.into_iter().zip(runs) {
        let state = threads[index].address;
        if run == 0 || (state..state.saturating_add(MAX_STATE)).contains(&run) {
            continue;
        }
        if let Some((ident, native_id)) = runner(maps, threads, run, main_id) {
            threads[index].ident = ident;
            threads[index].native_id = native_id;
        }
    }
}

/// The thread on whose native stack an address is. An ident is the address of libc's structure for the thread, which lies
/// just beyond its stack; only that of the main thread is elsewhere.
fn runner(
    maps: &[Mapping],
    threads: &[Thread],
    address: u64,
    main_id: Option<u32>,
) -> Option<(u64, Option<u32>)> {
    let mapping = maps.iter().find(|mapping| mapping.contains(address))?;
    let found = if mapping.path == "[stack]" {
        let is_main = |thread: &&Thread| main_id.is_some() && thread.native_id == main_id;
        threads.iter().find(is_main)
    } else {
        let is_beyond = |thread: &&Thread| (address..mapping.end).contains(&thread.ident);
        let beyond = threads.iter().filter(is_beyond);
        beyond.min_by_key(|thread| thread.ident)
    };
    found.map(|thread| (thread.ident, thread.native_id))
}

/// Finds the kernel's ids of threads where libc has them: in a place that the kernel writes, at a fork as well. What Python
/// keeps (from 3.11 on) is of the parent in a child that C code has forked; it counts where libc's cannot be read.
///
/// Where in `struct pthread` the id is differs between C libraries: it is where most threads have one of `ids`, each
/// another. A thread that has ended has 0 there.
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
    let fitting = |offset: usize| {
        let found = known
            .iter()
            .filter_map(|(_, bytes)| u32_at(bytes, offset))
            .filter(|id| ids.contains(id));
        found.collect::<HashSet<u32>>().len()
    };
    let mut best = (GLIBC_TID, fitting(GLIBC_TID));
    for offset in (0..PTHREAD).step_by(4) {
        if best.1 == idents.len() {
            break;
        }
        let fits = fitting(offset);
        if fits > best.1 {
            best = (offset, fits);
        }
    }
    if best.1 == 0 {
        return;
    }
    for (index, bytes) in known {
        threads[index].native_id = u32_at(bytes, best.0);
    }
}
