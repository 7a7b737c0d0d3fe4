//! Local variables of all frames, read from outside without stopping anyone.
//!
//! Thousands of frames are looked at together, in waves (`objects`): first where their variables are, then every object
//! that one of these refers to. Because the target goes on meanwhile, everything that was needed is then copied once more:
//! a value that is the same in both is believed, because at the moment in between all of it was there. Where that does not
//! follow, because a running function may have used the same memory for something else in between, and where copies differ,
//! values are tried again one by one, with copies that are made right after each other (`retry`);
//! what never holds still is shown as [`CHANGING`].

mod quoted;
mod retry;
mod slots;
mod values;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use probing_process::memory::address_map::AddressMap;

use self::retry::Retry;
use self::slots::{Bound, Slots, Variables};
use self::values::{Values, WriteBuffer};
use crate::memory::{Bounded, Memory};
use crate::python::frames::RawFrame;
use crate::python::interpreter::Interpreter;
use crate::python::objects::{BatchRead, Copied, Gap, Objects, View};

/// A value that changed each time it was read.
pub(crate) const CHANGING: &str = "<changing>";
/// A value that stays, but is nothing that can be read.
const UNREADABLE: &str = "<unreadable>";
/// A value beyond the limits.
const LEFT_OUT: &str = "…";
/// Frames that are looked at together. What was read for them is then forgotten.
const AT_ONCE: usize = 4096;
/// For all values that change, together.
const RETRY_TIMEOUT: Duration = Duration::from_millis(100);
/// For the first try of each.
const ONE_TRY: Duration = Duration::from_secs(1);

/// How much of the values is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalLimits {
    /// Variables of a frame.
    pub values: usize,
    /// Items of a container.
    pub items: usize,
    /// Containers in containers.
    pub depth: usize,
    /// Characters of a text.
    pub text: usize,
    /// Of the target's memory, for all frames together.
    pub total_bytes: usize,
}

impl Default for LocalLimits {
    fn default() -> Self {
        Self {
            values: 100,
            items: 10,
            depth: 3,
            text: 200,
            total_bytes: 256 << 20,
        }
    }
}

/// A local variable that is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    pub name: Arc<str>,
    /// As Python would write it, cut to the limits; objects of classes by their type and address.
    pub value: Arc<str>,
    /// Name of its type; `None` if the value could not be read.
    pub kind: Option<Arc<str>>,
}

/// The variables of a frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Locals {
    pub(crate) shown: Vec<Local>,
    /// How many more there are.
    pub(crate) more: usize,
}

/// A value in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueText {
    pub(crate) text: Arc<str>,
    pub(crate) kind: Option<Arc<str>>,
    /// Everything in it could be read.
    pub(crate) whole: bool,
    /// Nothing in it can ever change: as long as someone refers to it, it is this.
    pub(crate) fixed: bool,
}

impl ValueText {
    fn only(text: &str) -> Self {
        Self {
            text: text.into(),
            kind: None,
            whole: false,
            fixed: false,
        }
    }
}

/// Addresses of the frames that threads are in: only these bind variables. Whether the thread was seen running.
pub(crate) type Innermost = AddressMap<bool>;

/// A variable with its value, as found in one copy of the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Variable {
    /// Address of the object.
    object: u64,
    /// `None`: nothing that can be read.
    written: Option<ValueText>,
}

/// The locals of all these frames, in their order; `None` for a frame that is not there any more.
pub(crate) fn of_all<M: Memory + ?Sized>(
    interpreter: &Interpreter,
    memory: &M,
    frames: &[RawFrame],
    innermost: &Innermost,
    limits: &LocalLimits,
) -> Vec<Option<Locals>> {
    // One half for each copy.
    let bounded = Bounded::new(memory, limits.total_bytes / 2);
    let scene = LocalsReader {
        codes: slots::of_codes(&mut Objects::new(interpreter, &bounded), frames),
        interpreter,
        memory,
        bounded: &bounded,
        innermost,
        limits,
        room: Cell::new(limits.total_bytes),
    };
    let (mut all, mut doubts) = (Vec::with_capacity(frames.len()), Vec::new());
    for some in frames.chunks(AT_ONCE) {
        scene.add(some, &mut all, &mut doubts);
    }
    let now = Instant::now();
    let retry = Retry {
        interpreter,
        memory,
        limits,
        until: now + RETRY_TIMEOUT,
        last: now + ONE_TRY,
    };
    for Doubt {
        frame,
        local,
        bound,
    } in doubts
    {
        let code = scene.codes.get(&frames[frame].code);
        if let Some((code, locals)) = code.zip(all[frame].as_mut()) {
            let written = retry.variable(&frames[frame], code, &bound);
            locals.shown[local] = Local::new(&bound, written);
        }
    }
    all
}

/// What the locals of frames are found with.
struct LocalsReader<'a, M: ?Sized> {
    interpreter: &'a Interpreter,
    memory: &'a M,
    bounded: &'a Bounded<'a, M>,
    codes: HashMap<u64, Variables>,
    innermost: &'a Innermost,
    limits: &'a LocalLimits,
    /// Bytes of text that may still be written.
    room: Cell<usize>,
}

/// A variable whose value is not certain: its frame and its place among the locals of that.
struct Doubt {
    frame: usize,
    local: usize,
    bound: Bound,
}

impl<M: Memory + ?Sized> LocalsReader<'_, M> {
    /// Adds the locals of some frames.
    fn add(&self, frames: &[RawFrame], all: &mut Vec<Option<Locals>>, doubts: &mut Vec<Doubt>) {
        let mut objects = Objects::new(self.interpreter, self.bounded);
        let look = |view: &View<'_>, frame: &RawFrame| {
            let code = self.codes.get(&frame.code).ok_or(Gap::Wrong)?;
            code.slots(view, frame, self.limits)
        };
        let scopes = objects.each_with_pages(frames, look);
        let values = Table::write(&mut objects, &scopes, self.limits, &self.room);
        let again = objects.again(self.memory);
        for (frame, scope) in frames.iter().zip(&scopes.found) {
            let Some(scope) = scope else {
                all.push(None);
                continue;
            };
            let moved = again
                .touches(&scopes, scope)
                .then(|| look(&again.view(), frame).ok());
            let runs = self.innermost.get(&frame.address);
            let runs = runs.is_some_and(|was_seen| *was_seen || moved.is_some());
            let mut shown = Vec::with_capacity(scope.result.bound.len());
            for bound in &scope.result.bound {
                let is_there = moved.as_ref().is_none_or(|now| {
                    let now = now.iter().flat_map(|slots| &slots.bound);
                    now.into_iter().any(|slot| slot == bound)
                });
                let written = match values.settled(&again, bound.object, self.limits) {
                    Some(written) if is_there && !runs && written.whole => written.clone(),
                    None if self.bounded.is_spent() => ValueText::only(LEFT_OUT),
                    _ => {
                        doubts.push(Doubt {
                            frame: all.len(),
                            local: shown.len(),
                            bound: bound.clone(),
                        });
                        ValueText::only(CHANGING)
                    }
                };
                shown.push(Local::new(bound, written));
            }
            let more = scope.result.more;
            all.push(Some(Locals { shown, more }));
        }
    }
}

impl Local {
    fn new(bound: &Bound, written: ValueText) -> Self {
        Self {
            name: bound.name.clone(),
            value: written.text,
            kind: written.kind,
        }
    }
}

/// Every object that a variable refers to, in words.
struct Table {
    /// Which of the values it is.
    places: AddressMap<usize>,
    values: BatchRead<ValueText>,
    /// Whether they were found to be the same in the second copy.
    stayed: RefCell<Vec<Option<bool>>>,
}

impl Table {
    fn write<M: Memory + ?Sized>(
        objects: &mut Objects<'_, M>,
        scopes: &BatchRead<Slots>,
        limits: &LocalLimits,
        room: &Cell<usize>,
    ) -> Self {
        let scopes = scopes.found.iter().flatten();
        let slots = scopes.flat_map(|scope| &scope.result.bound);
        let mut addresses: Vec<u64> = slots.map(|bound| bound.object).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let paper = RefCell::new(WriteBuffer::default());
        let values = objects.each_with_pages(&addresses, |view, object| {
            let mut paper = paper.borrow_mut();
            let written = Values::new(view, limits, &mut paper).write(*object)?;
            let left = room.get().checked_sub(written.text.len());
            Ok(left.map_or_else(
                || ValueText::only(LEFT_OUT),
                |left| {
                    room.set(left);
                    written
                },
            ))
        });
        Self {
            stayed: RefCell::new(vec![None; addresses.len()]),
            places: addresses.into_iter().zip(0..).collect(),
            values,
        }
    }

    /// What an object is in words, if it is the same in the second copy and was so in between.
    fn settled(&self, again: &Copied<'_>, object: u64, limits: &LocalLimits) -> Option<&ValueText> {
        let place = *self.places.get(&object)?;
        let seen = self.values.found[place].as_ref()?;
        let same = || {
            let written =
                Values::new(&again.view(), limits, &mut WriteBuffer::default()).write(object);
            written.as_ref() == Ok(&seen.result)
        };
        let mut stayed = self.stayed.borrow_mut();
        let stayed = stayed[place].get_or_insert_with(|| {
            !again.touches(&self.values, seen) || (seen.result.fixed && same())
        });
        stayed.then_some(&seen.result)
    }
}
