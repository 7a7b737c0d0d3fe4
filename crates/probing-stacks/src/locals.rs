//! Local variables of all frames, read from outside without stopping anyone.
//!
//! All frames are looked at together, in waves (`objects`): first where their variables are, then every object that one of
//! these refers to. Because the target goes on meanwhile, everything that was needed is then copied once more at one go: a
//! value that is the same in both is believed, because at the moment in between all of it was there. Where that does not
//! follow, because a running function may have used the same memory for something else in between, and where copies differ,
//! values are tried again one by one, with copies that are made right after each other (`retry`);
//! what never holds still is shown as [`CHANGING`].

mod quoted;
mod retry;
mod slots;
mod values;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use probing_process::addresses::AddressMap;

use self::retry::Retry;
use self::slots::{Bound, Slots};
use self::values::Values;
use crate::frames::RawFrame;
use crate::interpreter::Interpreter;
use crate::memory::{Bounded, Memory};
use crate::objects::{Copied, Gap, Objects, Seen, View};

/// A value that changed each time it was read.
pub(crate) const CHANGING: &str = "<changing>";
/// A value that stays, but is nothing that can be read.
const UNREADABLE: &str = "<unreadable>";
/// A value beyond the limits.
const LEFT_OUT: &str = "…";
/// For all values that change, together.
const PATIENCE: Duration = Duration::from_millis(100);
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
pub(crate) struct Written {
    pub(crate) text: Arc<str>,
    pub(crate) kind: Option<Arc<str>>,
    /// Everything in it could be read.
    pub(crate) whole: bool,
    /// Nothing in it can ever change: as long as someone refers to it, it is this.
    pub(crate) fixed: bool,
}

impl Written {
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
    written: Option<Written>,
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
    let mut objects = Objects::new(interpreter, &bounded);
    let codes = slots::of_codes(&mut objects, frames);
    let look = |view: &View<'_>, frame: &RawFrame| {
        let code = codes.get(&frame.code).ok_or(Gap::Wrong)?;
        code.slots(view, frame, limits)
    };
    let scopes = objects.each_with_pages(frames, look);
    let values = Table::write(&mut objects, scopes.iter().flatten(), limits);
    let again = objects.again(memory);
    let now = Instant::now();
    let retry = Retry {
        interpreter,
        memory,
        limits,
        until: now + PATIENCE,
        last: now + ONE_TRY,
    };
    let mut all = Vec::with_capacity(frames.len());
    for (frame, scope) in frames.iter().zip(&scopes) {
        let Some((scope, code)) = scope.as_ref().zip(codes.get(&frame.code)) else {
            all.push(None);
            continue;
        };
        let moved = again
            .touches(scope)
            .then(|| look(&again.view(), frame).ok());
        let runs = innermost.get(&frame.address);
        let runs = runs.is_some_and(|was_seen| *was_seen || moved.is_some());
        let written = |bound: &Bound| {
            let is_there = moved.as_ref().is_none_or(|now| {
                let now = now.iter().flat_map(|slots| &slots.bound);
                now.into_iter().any(|slot| slot == bound)
            });
            match values.settled(&again, bound.object, limits) {
                Some(written) if is_there && !runs && written.whole => written.clone(),
                None if bounded.is_spent() => Written::only(LEFT_OUT),
                _ => retry.variable(frame, code, bound),
            }
        };
        all.push(Some(Locals::new(&scope.result, written)));
    }
    all
}

impl Locals {
    fn new(slots: &Slots, written: impl Fn(&Bound) -> Written) -> Self {
        let shown = slots.bound.iter().map(|bound| {
            let Written { text, kind, .. } = written(bound);
            Local {
                name: bound.name.clone(),
                value: text,
                kind,
            }
        });
        Self {
            shown: shown.collect(),
            more: slots.more,
        }
    }
}

/// Every object that a variable refers to, in words.
struct Table {
    values: AddressMap<Option<Seen<Written>>>,
    /// Whether they were found to be the same in the second copy.
    stayed: RefCell<AddressMap<bool>>,
}

impl Table {
    fn write<'s, M: Memory + ?Sized>(
        objects: &mut Objects<'_, M>,
        scopes: impl Iterator<Item = &'s Seen<Slots>>,
        limits: &LocalLimits,
    ) -> Self {
        let slots = scopes.flat_map(|scope| &scope.result.bound);
        let mut addresses: Vec<u64> = slots.map(|bound| bound.object).collect();
        addresses.sort_unstable();
        addresses.dedup();
        // Bytes of text that may still be written.
        let room = Cell::new(limits.total_bytes);
        let values = objects.each_with_pages(&addresses, |view, object| {
            let written = Values::new(view, limits).write(*object)?;
            let left = room.get().checked_sub(written.text.len());
            Ok(left.map_or_else(
                || Written::only(LEFT_OUT),
                |left| {
                    room.set(left);
                    written
                },
            ))
        });
        Self {
            values: addresses.into_iter().zip(values).collect(),
            stayed: RefCell::default(),
        }
    }

    /// What an object is in words, if it is the same in the second copy and was so in between.
    fn settled(&self, again: &Copied<'_>, object: u64, limits: &LocalLimits) -> Option<&Written> {
        let seen = self.values.get(&object)?.as_ref()?;
        let same = || Values::new(&again.view(), limits).write(object).as_ref() == Ok(&seen.result);
        let mut stayed = self.stayed.borrow_mut();
        let stayed = stayed
            .entry(object)
            .or_insert_with(|| !again.touches(seen) || (seen.result.fixed && same()));
        stayed.then_some(&seen.result)
    }
}
