//! Stands before Python's three allocators and counts bytes down.
//!
//! The functions that were there before, be they Python's own, `tracemalloc`'s or those that look for errors, are called for
//! every block, which stays as they made it: blocks from before and after mean the same to everybody. What we put in has the
//! same context as what was there, so that a thread that is in the middle of a call while the table changes finds a pair that
//! fits, whichever halves it read; and what was there is remembered in a slot that is never written twice.
//!
//! Large blocks of the allocators of objects come from the raw one, by way of its table: each block is counted where it
//! ends up, once. (`PYTHONMALLOC=malloc` goes by another way: tried at the start.)
#![expect(
    unsafe_code,
    reason = "an allocator is called by address, and gives out memory"
)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use probing_proto::message::Failure;
use pyo3::prelude::*;

use crate::python::symbols::found;
use crate::recorders::memory::heap::stacks::{self, Stack};
use crate::recorders::memory::heap::{PERIOD_BYTES, STATE};

/// `PyMemAllocatorEx`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Allocator {
    ctx: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void),
}

impl PartialEq for Allocator {
    /// By address: ours differ in what they call, so no two of them are one.
    fn eq(&self, other: &Self) -> bool {
        let addresses = |one: &Self| {
            let (malloc, calloc) = (one.malloc as usize, one.calloc as usize);
            let (realloc, free) = (one.realloc as usize, one.free as usize);
            [one.ctx as usize, malloc, calloc, realloc, free]
        };
        addresses(self) == addresses(other)
    }
}

// SAFETY: addresses of functions and of what they share, which any thread may use.
unsafe impl Send for Allocator {}
// SAFETY: nobody writes to one after it was made; the functions may be called by several threads at once.
unsafe impl Sync for Allocator {}

/// `PyMemAllocatorDomain`: may be called without the GIL; buffers; objects.
const RAW: usize = 0;
const MEM: usize = 1;
const OBJ: usize = 2;
const DOMAINS: [usize; 3] = [RAW, MEM, OBJ];

/// How often what is there before us may be something new.
const SLOTS: usize = 4;
static BEFORE: [[OnceLock<Allocator>; SLOTS]; 3] =
    [const { [const { OnceLock::new() }; SLOTS] }; 3];

/// Larger than this, blocks of the allocators of objects come from the raw one.
const SMALL: usize = 512;
static COUNTED: AtomicUsize = AtomicUsize::new(SMALL);

/// Never ends.
const OFF: i64 = i64::MAX;
/// Bytes until the next sample: of those with the GIL, and of raw ones.
static LEFT: AtomicI64 = AtomicI64::new(OFF);
static LEFT_RAW: AtomicI64 = AtomicI64::new(OFF);
static ARMED: AtomicBool = AtomicBool::new(false);
/// Whether a thread tries, so that countdowns end at once: for that thread, not for others.
static TRYING: AtomicBool = AtomicBool::new(false);

/// A large block that the allocator of objects is about to ask the raw one for. Written and read with the GIL held.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Whether a block in use was sampled whose address has these bits: looked at for every block that is given back. Neighbours
/// have neighbouring bits, and all of them fit into the fastest cache.
const WORDS: usize = 1 << 10;
pub(crate) const MARKS: usize = 64 * WORDS;
static SAMPLED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

thread_local! {
    static HOOK_STATE: Cell<HookState> = const { Cell::new(HookState::Nothing) };
}

/// What a thread does in here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookState {
    Nothing,
    /// Looks at a sample: what it allocates for that is none.
    Sampling,
    /// Tries whether a block passes by here.
    Trying,
    Passed,
}

type Access = unsafe extern "C" fn(c_int, *mut Allocator);

struct Table {
    get: Access,
    set: Access,
}

impl Table {
    fn found() -> Option<Self> {
        // SAFETY: the types that CPython's headers give them in all versions.
        unsafe {
            Some(Self {
                get: found(c"PyMem_GetAllocator")?,
                set: found(c"PyMem_SetAllocator")?,
            })
        }
    }

    fn current(&self, domain: usize, _: Python<'_>) -> Allocator {
        let mut allocator = ours(domain, 0, ptr::null_mut());
        // SAFETY: the GIL is held; it fills what it is given.
        unsafe { (self.get)(domain as c_int, &raw mut allocator) };
        allocator
    }

    fn put(&self, domain: usize, mut allocator: Allocator, _: Python<'_>) {
        // SAFETY: the GIL is held, and what is put in calls what was there.
        unsafe { (self.set)(domain as c_int, &raw mut allocator) };
    }
}

/// Puts the hooks in, and begins to count.
pub(crate) fn install(py: Python<'_>) -> Result<(), Failure> {
    let no = |what: &str| Failure::new(format!("this Python does not allow heap sampling: {what}"));
    let table = Table::found().ok_or_else(|| no("PyMem_SetAllocator is missing"))?;
    if !stacks::prepare(py) {
        return Err(no("its frames cannot be walked"));
    }
    for domain in DOMAINS {
        let there = table.current(domain, py);
        if is_ours(&there) {
            continue;
        }
        let Some(slot) = slot_for(domain, there) else {
            return Err(no("its allocators were replaced too often")
                .with_hint("restart the program to sample it again"));
        };
        table.put(domain, ours(domain, slot, there.ctx), py);
    }
    let counted = if objects_come_from_raw(&table, py) {
        SMALL
    } else {
        usize::MAX
    };
    COUNTED.store(counted, Ordering::Relaxed);
    ARMED.store(true, Ordering::Release);
    for left in [&LEFT, &LEFT_RAW] {
        left.store(until_next(), Ordering::Relaxed);
    }
    Ok(())
}

/// Takes the hooks out where they are the outermost. Others have taken hold of the rest, which only passes on from now on.
pub(crate) fn remove(py: Python<'_>) {
    disarm();
    let Some(table) = Table::found() else { return };
    for domain in DOMAINS {
        let there = table.current(domain, py);
        let slot = (0..SLOTS).find(|slot| ours(domain, *slot, there.ctx) == there);
        let before = slot.and_then(|slot| BEFORE[domain][slot].get());
        if let Some(before) = before {
            table.put(domain, *before, py);
        }
    }
}

/// Counts no more.
pub(crate) fn disarm() {
    ARMED.store(false, Ordering::Release);
    for left in [&LEFT, &LEFT_RAW] {
        left.store(OFF, Ordering::Relaxed);
    }
    for word in &SAMPLED {
        word.store(0, Ordering::Relaxed);
    }
}

pub(crate) fn is_armed() -> bool {
    ARMED.load(Ordering::Acquire)
}

/// Whether blocks still pass by here.
pub(crate) fn are_called(py: Python<'_>) -> bool {
    let Some(table) = Table::found() else {
        return false;
    };
    let mut domains = DOMAINS.iter();
    domains.all(|domain| passes_by(&table.current(*domain, py), 1, py))
}

/// Whether a call of the allocator of objects for a large block is one of the raw allocator.
fn objects_come_from_raw(table: &Table, py: Python<'_>) -> bool {
    let there = table.current(OBJ, py);
    // Only the raw one counts blocks of this size.
    COUNTED.store(SMALL, Ordering::Relaxed);
    passes_by(&there, SMALL + 1, py)
}

/// Whether a block of this size from there is counted by one of our hooks: tried, with a countdown that ends at once.
fn passes_by(allocator: &Allocator, size: usize, _: Python<'_>) -> bool {
    TRYING.store(true, Ordering::SeqCst);
    let left = [&LEFT, &LEFT_RAW].map(|left| left.swap(0, Ordering::SeqCst));
    HOOK_STATE.set(HookState::Trying);
    // SAFETY: an allocator that is in use, with the GIL held; the block is given back at once.
    unsafe {
        let block = (allocator.malloc)(allocator.ctx, size);
        (allocator.free)(allocator.ctx, block);
    }
    let passed = HOOK_STATE.replace(HookState::Nothing) == HookState::Passed;
    LEFT.store(left[0], Ordering::Relaxed);
    LEFT_RAW.store(left[1], Ordering::Relaxed);
    TRYING.store(false, Ordering::Release);
    passed
}

/// Where what was there before us is remembered.
fn slot_for(domain: usize, there: Allocator) -> Option<usize> {
    (0..SLOTS).find(|slot| *BEFORE[domain][*slot].get_or_init(|| there) == there)
}

fn is_ours(there: &Allocator) -> bool {
    DOMAINS
        .iter()
        .any(|domain| (0..SLOTS).any(|slot| ours(*domain, slot, there.ctx) == *there))
}

fn ours(domain: usize, slot: usize, ctx: *mut c_void) -> Allocator {
    fn of<const DOMAIN: usize, const SLOT: usize>(ctx: *mut c_void) -> Allocator {
        Allocator {
            ctx,
            malloc: malloc::<DOMAIN, SLOT>,
            calloc: calloc::<DOMAIN, SLOT>,
            realloc: realloc::<DOMAIN, SLOT>,
            free: free::<DOMAIN, SLOT>,
        }
    }
    fn in_slot<const DOMAIN: usize>(slot: usize, ctx: *mut c_void) -> Allocator {
        match slot {
            0 => of::<DOMAIN, 0>(ctx),
            1 => of::<DOMAIN, 1>(ctx),
            2 => of::<DOMAIN, 2>(ctx),
            _ => of::<DOMAIN, 3>(ctx),
        }
    }
    match domain {
        RAW => in_slot::<RAW>(slot, ctx),
        MEM => in_slot::<MEM>(slot, ctx),
        _ => in_slot::<OBJ>(slot, ctx),
    }
}

#[inline]
fn before<const DOMAIN: usize, const SLOT: usize>() -> &'static Allocator {
    // SAFETY: filled before the hook that asks was put in, and never changed.
    unsafe { BEFORE[DOMAIN][SLOT].get().unwrap_unchecked() }
}

unsafe extern "C" fn malloc<const DOMAIN: usize, const SLOT: usize>(
    ctx: *mut c_void,
    size: usize,
) -> *mut c_void {
    asking::<DOMAIN>(size);
    // SAFETY: what was there before us, called as we are.
    let block = unsafe { (before::<DOMAIN, SLOT>().malloc)(ctx, size) };
    count::<DOMAIN>(block, size);
    block
}

unsafe extern "C" fn calloc<const DOMAIN: usize, const SLOT: usize>(
    ctx: *mut c_void,
    count_of: usize,
    size: usize,
) -> *mut c_void {
    let all = count_of.saturating_mul(size);
    asking::<DOMAIN>(all);
    // SAFETY: what was there before us, called as we are.
    let block = unsafe { (before::<DOMAIN, SLOT>().calloc)(ctx, count_of, size) };
    count::<DOMAIN>(block, all);
    block
}

unsafe extern "C" fn realloc<const DOMAIN: usize, const SLOT: usize>(
    ctx: *mut c_void,
    old: *mut c_void,
    size: usize,
) -> *mut c_void {
    asking::<DOMAIN>(size);
    // Forgotten first: somebody else may be given its address before we are back.
    if is_sampled(old) {
        forget(old);
    }
    // SAFETY: what was there before us, called as we are. When it fails the old block lives on without its sample.
    let block = unsafe { (before::<DOMAIN, SLOT>().realloc)(ctx, old, size) };
    count::<DOMAIN>(block, size);
    block
}

unsafe extern "C" fn free<const DOMAIN: usize, const SLOT: usize>(
    ctx: *mut c_void,
    block: *mut c_void,
) {
    if is_sampled(block) {
        forget(block);
    }
    // SAFETY: what was there before us, called as we are.
    unsafe { (before::<DOMAIN, SLOT>().free)(ctx, block) };
}

/// Notes that a large block, which the raw allocator is asked for next, is an object; 0 when it has answered.
#[inline]
fn asking<const DOMAIN: usize>(size: usize) {
    if DOMAIN == OBJ && size > SMALL {
        ASKED.store(size, Ordering::Relaxed);
    }
}

#[inline]
fn asked<const DOMAIN: usize>(size: usize) {
    if DOMAIN == OBJ && size > SMALL {
        ASKED.store(0, Ordering::Relaxed);
    }
}

/// Counts a block down, where it is to be counted.
#[inline]
fn count<const DOMAIN: usize>(block: *mut c_void, size: usize) {
    asked::<DOMAIN>(size);
    if block.is_null() {
        return;
    }
    // Nothing is larger than half of the addresses there are.
    let bytes = size as i64;
    let ended = if DOMAIN == RAW {
        LEFT_RAW.fetch_sub(bytes, Ordering::Relaxed) <= bytes
    } else if size <= COUNTED.load(Ordering::Relaxed) {
        // With the GIL held there is nobody else.
        let left = LEFT.load(Ordering::Relaxed) - bytes;
        LEFT.store(left, Ordering::Relaxed);
        left <= 0
    } else {
        false
    };
    if ended {
        sample(DOMAIN, block, size);
    }
}

#[inline]
fn is_sampled(block: *mut c_void) -> bool {
    let (word, bit) = mark(block as usize);
    SAMPLED[word].load(Ordering::Relaxed) & bit != 0
}

/// The bit of an address, without the four that are zero in all.
#[inline]
fn mark(address: usize) -> (usize, u64) {
    ((address >> 10) % WORDS, 1 << (address >> 4 & 63))
}

/// The same as one number.
pub(crate) fn mark_of(address: usize) -> usize {
    address >> 4 & (MARKS - 1)
}

/// A countdown has ended in this block. The calling thread may or may not hold the GIL.
#[cold]
#[inline(never)]
fn sample(domain: usize, block: *mut c_void, size: usize) {
    match HOOK_STATE.get() {
        HookState::Nothing if !TRYING.load(Ordering::Acquire) => {}
        HookState::Trying => return HOOK_STATE.set(HookState::Passed),
        HookState::Nothing | HookState::Sampling | HookState::Passed => return,
    }
    let is_armed = is_armed();
    let left = if domain == RAW { &LEFT_RAW } else { &LEFT };
    left.store(if is_armed { until_next() } else { OFF }, Ordering::Relaxed);
    if !is_armed {
        return;
    }
    let Some(state) = STATE.get() else {
        // A child of a fork that no Python code made.
        return disarm();
    };
    HOOK_STATE.set(HookState::Sampling);
    let stack = Stack::here();
    let asked = stack.has_gil() && ASKED.load(Ordering::Relaxed) == size;
    let is_object = domain == OBJ || domain == RAW && asked;
    let address = block as usize;
    let known = state.samples().known(&stack);
    // Not while they are locked: `forget` must never be met by who has them.
    let words = known.is_none().then(|| stack.in_words());
    let mut samples = state.samples();
    let known = match &words {
        Some(words) => samples.learn(&stack, words),
        None => known,
    };
    if samples.insert(address, (size, is_object), known) {
        let (word, bit) = mark(address);
        SAMPLED[word].fetch_or(bit, Ordering::Relaxed);
    }
    drop(samples);
    HOOK_STATE.set(HookState::Nothing);
}

/// A block is given back whose address may be that of a sample.
#[cold]
#[inline(never)]
fn forget(block: *mut c_void) {
    let Some(state) = STATE.get() else { return };
    let address = block as usize;
    let mut samples = state.samples();
    if samples.remove(address) {
        let (word, bit) = mark(address);
        SAMPLED[word].fetch_and(!bit, Ordering::Relaxed);
    }
}

/// The length of a countdown: so long that every byte has the same chance to end one, whatever the program's rhythm is.
fn until_next() -> i64 {
    static STATE: AtomicU64 = AtomicU64::new(0x2545_f491_4f6c_dd1d);
    // Xorshift. Two threads may draw the same number, which does no harm.
    let mut state = STATE.load(Ordering::Relaxed);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.store(state, Ordering::Relaxed);
    // In (0, 1].
    let drawn = ((state >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    1 + (-drawn.ln() * PERIOD_BYTES as f64) as i64
}
