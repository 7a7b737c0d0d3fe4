//! What a thread is in: the traced functions that have begun and not ended, and the ring that its rows go to.
//!
//! Rings are lent to threads and taken back when those end: a program that makes threads all the time has no more of them
//! than threads at one time, and of a program with very many at one time the later ones share a ring: they write one after
//! the other, as each has the GIL when it does.
#![expect(
    unsafe_code,
    reason = "a thread's own state, reached by that thread alone"
)]

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Mutex;

use probing_store::Writer;
use probing_store::packed::{Did, TraceRow};

use super::current::Current;
use super::functions;
use crate::forked;
use crate::recording;
use crate::step;
use crate::stops::lent::UnderGil;

/// Threads at one time that have rings of their own.
const MAX_RINGS: usize = 16;
/// Functions that a thread is told to be in at most.
const MAX_DEPTH: usize = 10_000;
/// Events of a thread between two looks at what they cost.
const LOOK_EVERY: u32 = 4096;
/// No number yet.
const UNKNOWN: u32 = u32::MAX;

/// A function that has begun, or gone on.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) code: usize,
    pub(super) began: i64,
    /// What traced functions took that it called.
    pub(super) of_others: i64,
    /// How much further to follow what it calls.
    pub(super) levels: u32,
}

/// A thread's own.
pub(super) struct Thread {
    /// Of which process; 0 is none yet.
    generation: u32,
    id: u32,
    pub(super) open: Vec<Open>,
    ring: Option<Ring>,
    /// It got none, and uses the one that is everybody's.
    shares: bool,
    until_look: u32,
    /// Before 3.12: whether it has our profile function, because it is in a function whose calls are followed.
    pub(super) is_profiled: bool,
}

/// A ring, and the numbers that functions have in it.
pub(super) struct Ring {
    generation: u32,
    writer: Writer,
    functions: Vec<u32>,
}

/// Those that no thread has at the moment, and how many there are in all.
struct Pool {
    generation: u32,
    free: Vec<Ring>,
    made: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    generation: 0,
    free: Vec::new(),
    made: 0,
});

thread_local! {
    static OWN: UnsafeCell<Thread> = const { UnsafeCell::new(Thread {
        generation: 0,
        id: 0,
        open: Vec::new(),
        ring: None,
        shares: false,
        until_look: LOOK_EVERY,
        is_profiled: false,
    }) };
}

/// The one that was last here.
static CURRENT: Current<Thread> = Current::new();
/// What threads write to that have no ring of their own.
static SHARED: UnderGil<Option<Ring>> = UnderGil::new(None);

/// Works with the state of this thread; nothing when the thread is at its very end. `work` must not come here again, nor let
/// go of the GIL, which the caller has.
#[inline]
pub(super) fn with_own<T>(work: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    let mut own = CURRENT.of_this_thread().or_else(own_and_remembered)?;
    // SAFETY: only this thread has it, it forgets it when it ends, and `work` does not come here again, as the caller says.
    let thread = unsafe { own.as_mut() };
    if thread.generation != forked::generation() + 1 {
        thread.begin();
    }
    Some(work(thread))
}

#[cold]
fn own_and_remembered() -> Option<NonNull<Thread>> {
    let own = OWN.try_with(UnsafeCell::get).ok()?;
    CURRENT.remember(own);
    NonNull::new(own)
}

impl Thread {
    /// In a thread that is new, or that a fork has brought here: the parent's ring is the parent's.
    #[cold]
    fn begin(&mut self) {
        self.generation = forked::generation() + 1;
        self.id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        self.open.clear();
        self.shares = false;
        std::mem::forget(self.ring.take());
    }

    /// Notes that a function has begun; false when it is in too many already.
    #[inline]
    pub(super) fn enter(&mut self, open: Open) -> bool {
        let has_room = self.open.len() < MAX_DEPTH;
        if has_room {
            self.open.push(open);
        }
        has_room
    }

    /// Notes that a function has ended: when it had begun, unless that was not seen. Those inside it have ended unseen.
    #[inline]
    pub(super) fn leave(&mut self, code: usize) -> Option<Open> {
        let place = match self.open.last() {
            Some(open) if open.code == code => self.open.len() - 1,
            _ => self.open.iter().rposition(|open| open.code == code)?,
        };
        let left = self.open[place];
        self.open.truncate(place);
        Some(left)
    }

    /// How much further to follow what is called now.
    pub(super) fn levels(&self) -> Option<u32> {
        self.open
            .last()
            .map(|open| open.levels)
            .filter(|levels| *levels > 0)
    }

    /// How much further to follow what a function calls that is the innermost one.
    pub(super) fn levels_of(&self, code: usize) -> Option<u32> {
        let open = self.open.last().filter(|open| open.code == code)?;
        (open.levels > 0).then_some(open.levels)
    }

    /// Whether it is time to look at what all this costs.
    #[inline]
    pub(super) fn is_due(&mut self) -> bool {
        self.until_look -= 1;
        let is_due = self.until_look == 0;
        if is_due {
            self.until_look = LOOK_EVERY;
        }
        is_due
    }

    /// Appends a row. Without memory for a ring there is none, and nobody here to tell.
    #[inline]
    pub(super) fn write(&mut self, did: Did, function: u32, (ts, took): (i64, Option<i64>)) {
        let row = TraceRow {
            ts,
            did,
            function,
            thread_id: self.id,
            depth: u16::try_from(self.open.len()).unwrap_or(u16::MAX),
            duration_nanos: took,
            step: step::now(),
        };
        match &mut self.ring {
            Some(ring) => ring.write(row),
            None => self.write_first(row),
        }
    }

    /// The same without a ring: it gets one, or shares one.
    #[inline(never)]
    fn write_first(&mut self, row: TraceRow) {
        // Whether there is one again is asked only now and then.
        if !self.shares || self.until_look == 1 {
            self.ring = borrowed();
            self.shares = self.ring.is_none();
        }
        if let Some(ring) = &mut self.ring {
            ring.write(row);
            return;
        }
        let Some(mut shared) = SHARED.lend_if_free() else {
            return;
        };
        if shared
            .as_ref()
            .is_none_or(|ring| ring.generation != forked::generation())
        {
            // That of a parent is left alone.
            std::mem::forget(shared.take());
            *shared = made();
        }
        if let Some(ring) = shared.as_mut() {
            ring.write(row);
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        CURRENT.forget();
        if self.generation != forked::generation() + 1 {
            std::mem::forget(self.ring.take());
        } else if let Some(ring) = self.ring.take() {
            give_back(ring);
        }
    }
}

impl Ring {
    /// Appends a row, whose function is numbered as everywhere.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a call to it, and the row in memory for it, are a tenth of what an event costs"
    )]
    fn write(&mut self, row: TraceRow) {
        let known = self.functions.get(row.function as usize).copied();
        let function = match known {
            Some(number) if number != UNKNOWN => number,
            _ => self.learn(row.function),
        };
        self.writer.append_trace(&TraceRow { function, ..row });
    }

    /// The number of a function that has no row here yet.
    #[cold]
    fn learn(&mut self, function: u32) -> u32 {
        let place = function as usize;
        if self.functions.len() <= place {
            self.functions.resize(place + 1, UNKNOWN);
        }
        let number = functions::with(function, |spot| {
            self.writer.function(&spot.func, &spot.file, spot.lineno)
        });
        let number = number.unwrap_or_default();
        self.functions[place] = number;
        number
    }
}

fn borrowed() -> Option<Ring> {
    let generation = forked::generation();
    // A thread that held it when another one forked holds it in the child for ever.
    let mut pool = POOL.try_lock().ok()?;
    if pool.generation != generation {
        // The parent's are left alone.
        std::mem::forget(std::mem::take(&mut pool.free));
        (pool.generation, pool.made) = (generation, 0);
    }
    if let Some(ring) = pool.free.pop() {
        return Some(ring);
    }
    if pool.made >= MAX_RINGS {
        return None;
    }
    pool.made += 1;
    drop(pool);
    made()
}

fn made() -> Option<Ring> {
    Some(Ring {
        generation: forked::generation(),
        writer: recording::ring_of_tracers()?,
        functions: Vec::new(),
    })
}

fn give_back(ring: Ring) {
    let Ok(mut pool) = POOL.try_lock() else {
        std::mem::forget(ring);
        return;
    };
    if ring.generation == pool.generation {
        pool.free.push(ring);
    } else {
        std::mem::forget(ring);
    }
}
