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
use std::sync::atomic::{AtomicU32, Ordering};

use probing_proto::message::trace::TraceId;
use probing_store::ring::packed::{LineRow, TraceEventKind, TraceRow};
use probing_store::{TraceRowId, Writer};
use pyo3::Python;

use crate::process::fork_child;
use crate::process::per_process::PerProcess;
use crate::python::gil_cell::GilCell;
use crate::recording;
use crate::recording::step;
use crate::trace::lines::Line;
use crate::trace::thread_cache::Current;
use crate::trace::{functions, traces};

/// Threads at one time that have rings of their own.
const MAX_RINGS: usize = 16;
/// Functions that a thread is told to be in at most.
const MAX_DEPTH: usize = 10_000;
/// Events of a thread between two looks at what they cost.
const LOOK_EVERY: u32 = 4096;
/// No number yet.
const UNKNOWN: u32 = u32::MAX;

/// No place in the table of codes.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A function that has begun, or gone on.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) code: usize,
    pub(crate) began: i64,
    /// What traced functions took that it called.
    pub(crate) of_others: i64,
    /// How much further to follow what it calls.
    pub(crate) levels: u32,
    /// The trace that saw it begin.
    pub(crate) trace: TraceId,
    /// Where it was found in the table of codes.
    pub(crate) place: u32,
    /// Where the row of its beginning is.
    pub(crate) row: TraceRowId,
}

/// A thread's own.
pub(crate) struct Thread {
    /// Of which process; 0 is none yet.
    generation: u32,
    id: u32,
    pub(crate) open: Vec<Open>,
    /// The lines that it is at, in functions that are followed line by line, the innermost last.
    pub(crate) lines: Vec<Line>,
    /// Traces that had ended when it was last looked whose functions are open, and silences there had been.
    ended: u32,
    silences: u32,
    ring: Option<Ring>,
    /// It got none, and uses the one that is everybody's.
    shares: bool,
    until_look: u32,
    /// Before 3.12: whether it is in a function whose calls are followed, as far as `profile.rs` was told.
    pub(crate) follows_calls: bool,
}

/// A ring, and the numbers that functions have in it.
pub(crate) struct Ring {
    generation: u32,
    writer: Writer,
    functions: Vec<u32>,
}

/// Those that no thread has at the moment, and how many there are in all.
#[derive(Default)]
struct Pool {
    free: Vec<Ring>,
    made: usize,
}

static POOL: PerProcess<Mutex<Pool>> = PerProcess::new();

thread_local! {
    static OWN: UnsafeCell<Thread> = const { UnsafeCell::new(Thread {
        generation: 0,
        id: 0,
        open: Vec::new(),
        lines: Vec::new(),
        ended: 0,
        silences: 0,
        ring: None,
        shares: false,
        until_look: LOOK_EVERY,
        follows_calls: false,
    }) };
}

/// The one that was last here.
static CURRENT: Current<Thread> = Current::new();
/// How many traces have ended.
static ENDED: AtomicU32 = AtomicU32::new(0);
/// How often threads were silent for a while.
static SILENCES: AtomicU32 = AtomicU32::new(0);
/// What threads write to that have no ring of their own.
static SHARED: PerProcess<GilCell<Option<Ring>>> = PerProcess::new();

/// Works with the state of this thread; nothing when the thread is at its very end. `work` must not come here again, nor let
/// go of the GIL, which the caller has.
#[inline]
pub(crate) fn with_own<T>(work: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    let mut own = CURRENT.of_this_thread().or_else(own_and_remembered)?;
    // SAFETY: only this thread has it, it forgets it when it ends, and `work` does not come here again, as the caller says.
    let thread = unsafe { own.as_mut() };
    if thread.generation != fork_child::generation() + 1 {
        thread.begin();
    }
    Some(work(thread))
}

/// A trace has ended: threads forget, when they are here next, what it saw begin. With the GIL held.
pub(crate) fn trace_ended() {
    ENDED.fetch_add(1, Ordering::Relaxed);
    CURRENT.forget_all();
}

/// Threads tell again of all that they call: what they were in before may have ended unseen.
pub(crate) fn silence_ends() {
    SILENCES.fetch_add(1, Ordering::Relaxed);
}

/// The state of this thread, if it was here before, and was the last one.
///
/// # Safety
///
/// With the GIL held; nobody has it at this moment, nor gets it while it is used.
#[inline]
pub(crate) unsafe fn own_at_hand<'a>() -> Option<&'a mut Thread> {
    let mut own = CURRENT.of_this_thread()?;
    // SAFETY: only this thread has it, it forgets it when it ends, and nobody else has it, as the caller says.
    let thread = unsafe { own.as_mut() };
    (thread.generation == fork_child::generation() + 1).then_some(thread)
}

#[cold]
fn own_and_remembered() -> Option<NonNull<Thread>> {
    let own = OWN.try_with(UnsafeCell::get).ok()?;
    CURRENT.remember(own);
    let mut own = NonNull::new(own)?;
    // SAFETY: only this thread has it, and nobody else has it at this moment, as those say who come here.
    unsafe { own.as_mut() }.forget_ended();
    Some(own)
}

impl Thread {
    /// In a thread that is new, or that a fork has brought here: the parent's ring is the parent's.
    #[cold]
    fn begin(&mut self) {
        self.generation = fork_child::generation() + 1;
        self.id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        self.open.clear();
        self.lines.clear();
        self.follows_calls = false;
        self.shares = false;
        std::mem::forget(self.ring.take());
    }

    /// The ends of functions are not told when their trace has ended before.
    fn forget_ended(&mut self) {
        let ended = ENDED.load(Ordering::Relaxed);
        if self.ended != ended {
            self.ended = ended;
            self.open.retain(|open| traces::goes_on(open.trace));
            // Where they were is counted by what is open.
            self.lines.clear();
        }
    }

    /// Whether threads have been silent since this was last asked.
    #[inline]
    pub(crate) fn has_been_silent(&mut self) -> bool {
        let silences = SILENCES.load(Ordering::Relaxed);
        std::mem::replace(&mut self.silences, silences) != silences
    }

    /// Of what is open, only what this thread still runs is: the code of its frames, the outermost first.
    #[cold]
    pub(crate) fn forget_unless_among(&mut self, running: &[usize]) {
        let open = self.open.len();
        let mut running = running.iter();
        self.open.retain(|open| {
            let mut inside = running.clone();
            let is_there = inside.any(|code| *code == open.code);
            if is_there {
                running = inside;
            }
            is_there
        });
        if self.open.len() < open {
            // Where they were is counted by what is open.
            self.lines.clear();
        }
    }

    /// Notes that a function begins, by a row, if there is room for all of that; else nothing is changed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `quick.rs`")]
    pub(crate) fn begin_here(
        &mut self,
        did: TraceEventKind,
        (code, place): (usize, u32),
        (trace, function): (TraceId, u32),
        now: i64,
    ) -> Option<()> {
        let row = self.row(did, function, (now, None));
        let ring = self.ring.as_mut()?;
        let (function, place_of_row) = ring.next(function)?;
        let has_room = self.until_look > 1 && self.open.len() < self.open.capacity();
        if !has_room {
            return None;
        }
        self.until_look -= 1;
        self.open.push(Open {
            code,
            began: now,
            of_others: 0,
            levels: 0,
            trace,
            place,
            row: place_of_row,
        });
        // Last, and there is room: what is looked at before need not be looked at again after such stores.
        ring.writer
            .append_trace_here(&TraceRow { function, ..row })
            .map(drop)
    }

    /// The innermost function, if its code is this one.
    #[inline]
    pub(crate) fn innermost(&self, code: usize) -> Option<&Open> {
        self.open.last().filter(|open| open.code == code)
    }

    /// Notes that the innermost function ends, in the row of its beginning: how long it took, and what of that others did.
    /// `None`, and nothing is changed: its end needs a row of its own.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as part of `quick.rs`")]
    pub(crate) fn end_here(&mut self, did: TraceEventKind, now: i64) -> Option<(i64, i64)> {
        let open = self.open.last()?;
        let (took, of_others) = ((now - open.began).max(0), open.of_others);
        let ring = self.ring.as_mut()?;
        if !ring.writer.end_trace(open.row, did, took, step::now()) {
            return None;
        }
        self.open.pop();
        if let Some(outer) = self.open.last_mut() {
            outer.of_others += took;
        }
        Some((took, of_others))
    }

    /// Notes that a function has begun; false when it is in too many already.
    #[inline]
    pub(crate) fn enter(&mut self, open: Open) -> bool {
        let has_room = self.open.len() < MAX_DEPTH;
        if has_room {
            self.open.push(open);
        }
        has_room
    }

    /// Notes that a function has ended: when it had begun, unless that was not seen. Those inside it have ended unseen.
    #[inline]
    pub(crate) fn leave(&mut self, code: usize) -> Option<Open> {
        let place = match self.open.last() {
            Some(open) if open.code == code => self.open.len() - 1,
            _ => self.open.iter().rposition(|open| open.code == code)?,
        };
        let left = self.open[place];
        self.open.truncate(place);
        Some(left)
    }

    /// The function whose calls are followed now, and how much further.
    pub(crate) fn follows(&self) -> Option<(usize, u32)> {
        let open = self.open.last()?;
        (open.levels > 0).then_some((open.code, open.levels))
    }

    /// How many functions a thread was in already that is now in this one, whose beginning may not have been seen.
    pub(crate) fn depth_of(&self, code: usize) -> usize {
        self.open.len() - usize::from(self.innermost(code).is_some())
    }

    /// How much further to follow what a function calls that is the innermost one.
    pub(crate) fn levels_of(&self, code: usize) -> Option<u32> {
        let open = self.open.last().filter(|open| open.code == code)?;
        (open.levels > 0).then_some(open.levels)
    }

    /// Whether it is time to look at what all this costs.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.until_look -= 1;
        let is_due = self.until_look == 0;
        if is_due {
            self.until_look = LOOK_EVERY;
        }
        is_due
    }

    /// Appends the row of a beginning. Without memory for a ring there is none, and nobody here to tell.
    #[inline]
    pub(crate) fn write_begin(
        &mut self,
        py: Python<'_>,
        did: TraceEventKind,
        function: u32,
        ts: i64,
    ) -> TraceRowId {
        let row = self.row(did, function, (ts, None));
        match &mut self.ring {
            Some(ring) => ring.write(row),
            None => self.with_some_ring(py, |ring| ring.write(row)),
        }
    }

    /// Tells in the row of a beginning how that ended; in a row of its own, where that row is full or of another step.
    #[inline]
    pub(crate) fn write_end(
        &mut self,
        py: Python<'_>,
        began: TraceRowId,
        did: TraceEventKind,
        function: u32,
        (ts, took): (i64, i64),
    ) {
        let is_told = self.ring.as_mut().is_some_and(|ring| {
            let step = step::now();
            ring.writer.end_trace(began, did, took, step)
        });
        if !is_told {
            self.write_end_alone(py, began, did, function, (ts, took));
        }
    }

    #[inline(never)]
    fn write_end_alone(
        &mut self,
        py: Python<'_>,
        began: TraceRowId,
        did: TraceEventKind,
        function: u32,
        (ts, took): (i64, i64),
    ) {
        let row = self.row(did, function, (ts, Some(took)));
        let write = |ring: &mut Ring| {
            if !ring.writer.end_trace(began, did, took, row.step) {
                ring.write(row);
            }
            TraceRowId::NOWHERE
        };
        match &mut self.ring {
            Some(ring) => write(ring),
            None => self.with_some_ring(py, write),
        };
    }

    /// Appends the row of a line.
    pub(crate) fn write_line(
        &mut self,
        py: Python<'_>,
        line: u32,
        depth: usize,
        ts: i64,
    ) -> TraceRowId {
        let row = LineRow {
            ts,
            line,
            thread_id: self.id,
            depth: depth as u16,
            step: step::now(),
        };
        match &mut self.ring {
            Some(ring) => ring.write_line(row),
            None => self.with_some_ring(py, |ring| ring.write_line(row)),
        }
    }

    /// Tells in the row of a line how long it took.
    pub(crate) fn end_line(&mut self, py: Python<'_>, place: TraceRowId, took: i64) {
        let end = |ring: &mut Ring| {
            // Where its place is full by now, nobody says how long it took.
            ring.writer.end_line(place, took);
            TraceRowId::NOWHERE
        };
        match &mut self.ring {
            Some(ring) => end(ring),
            None => self.with_some_ring(py, end),
        };
    }

    #[inline]
    fn row(&self, did: TraceEventKind, function: u32, (ts, took): (i64, Option<i64>)) -> TraceRow {
        TraceRow {
            ts,
            did,
            function,
            thread_id: self.id,
            // Less than `MAX_DEPTH`, or little more.
            depth: self.open.len() as u16,
            duration_nanos: took,
            step: step::now(),
        }
    }

    /// For a thread without a ring: it gets one, or shares one.
    #[inline(never)]
    fn with_some_ring(
        &mut self,
        py: Python<'_>,
        write: impl FnOnce(&mut Ring) -> TraceRowId,
    ) -> TraceRowId {
        // Whether there is one again is asked only now and then.
        if !self.shares || self.until_look == 1 {
            self.ring = borrowed();
            self.shares = self.ring.is_none();
        }
        if let Some(ring) = &mut self.ring {
            return write(ring);
        }
        let shared = SHARED.get_or_init(|| GilCell::new(made()));
        let Some(mut shared) = shared.try_borrow_mut(py) else {
            return TraceRowId::NOWHERE;
        };
        if shared.is_none() {
            *shared = made();
        }
        shared.as_mut().map_or(TraceRowId::NOWHERE, write)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        CURRENT.forget();
        if self.generation != fork_child::generation() + 1 {
            std::mem::forget(self.ring.take());
        } else if let Some(ring) = self.ring.take() {
            give_back(ring);
        }
    }
}

impl Ring {
    /// The number of a function that has rows here, and where the next row goes, if there is room at the moment.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as below")]
    fn next(&self, function: u32) -> Option<(u32, TraceRowId)> {
        let function = *self.functions.get(function as usize)?;
        let place = self.writer.next_trace()?;
        (function != UNKNOWN).then_some((function, place))
    }

    /// Appends a row, whose function is numbered as everywhere.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a call to it, and the row in memory for it, are a tenth of what an event costs"
    )]
    fn write(&mut self, row: TraceRow) -> TraceRowId {
        let function = self.number(row.function);
        self.writer.append_trace(&TraceRow { function, ..row })
    }

    fn write_line(&mut self, row: LineRow) -> TraceRowId {
        let line = self.number(row.line);
        self.writer.append_line(&LineRow { line, ..row })
    }

    /// The number that a function has here.
    #[inline]
    fn number(&mut self, function: u32) -> u32 {
        match self.functions.get(function as usize) {
            Some(number) if *number != UNKNOWN => *number,
            _ => self.learn(function),
        }
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
    let mut pool = POOL.get_or_init(Mutex::default).try_lock().ok()?;
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
        generation: fork_child::generation(),
        writer: recording::ring_of_tracers()?,
        functions: Vec::new(),
    })
}

fn give_back(ring: Ring) {
    let is_ours = ring.generation == fork_child::generation();
    match POOL.get().filter(|_| is_ours).map(Mutex::try_lock) {
        Some(Ok(mut pool)) => pool.free.push(ring),
        _ => std::mem::forget(ring),
    }
}
