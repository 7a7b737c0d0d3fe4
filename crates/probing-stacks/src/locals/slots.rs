//! Which variables a frame has and where their values are.
//!
//! A function keeps its variables in slots of its frame, and those that functions inside it use in cells. The body of a
//! class or a module keeps them in a dictionary.

use std::collections::HashMap;
use std::sync::Arc;

use crate::locals::LocalLimits;
use crate::memory::{Memory, Range};
use crate::python::frames::RawFrame;
use crate::python::interpreter::Interpreter;
use crate::python::layout;
use crate::python::objects::{Gap, Objects, ReadResult, TAGS, Type, View};

/// `CO_OPTIMIZED`: variables are in slots.
const OPTIMIZED: u64 = 1;
const HIDDEN: u8 = 0x10;
const CELL: u8 = 0x40;
const FREE: u8 = 0x80;
/// Python compiles no function with more that people wrote.
const MAX_SLOTS: usize = 4096;
const MAX_NAME: usize = 256;
/// Of a module.
const MAX_GLOBALS: usize = 2000;

/// Variables of a code object.
#[derive(Debug)]
pub(super) struct Variables {
    in_slots: bool,
    /// Name and kind of each slot.
    slots: Vec<(Arc<str>, u8)>,
}

/// A variable that has a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) name: Arc<str>,
    /// Address of the value.
    pub(super) object: u64,
    place: VariableLocation,
}

impl Bound {
    /// Where the reference to the value lies, if that is in the frame.
    pub(super) fn slot(&self, interpreter: &Interpreter, frame: &RawFrame) -> Option<Range> {
        let VariableLocation::Slot(number) = self.place else {
            return None;
        };
        let offset = interpreter.layout.frame.locals + number * 8;
        Some((frame.address.checked_add(offset as u64)?, 8))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VariableLocation {
    /// The slot of this number.
    Slot(usize),
    /// An entry of the frame's dictionary. Its key is at this address.
    Entry(u64),
}

/// Variables of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) bound: Vec<Bound>,
    pub(super) more: usize,
}

/// What these frames run.
pub(super) fn of_codes<M: Memory + ?Sized>(
    objects: &mut Objects<'_, M>,
    frames: &[RawFrame],
) -> HashMap<u64, Variables> {
    let mut codes: Vec<u64> = frames.iter().map(|frame| frame.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let variables = objects.each(&codes, |view, code| Variables::read(view, *code));
    let known = codes.into_iter().zip(variables);
    known
        .filter_map(|(code, variables)| Some((code, variables?)))
        .collect()
}

impl Variables {
    fn read(view: &View<'_>, code: u64) -> ReadResult<Self> {
        let fields = &view.interpreter.layout.code;
        let in_slots = view.word(code, fields.flags)? & OPTIMIZED != 0;
        let slots = match fields.variables {
            layout::Variables::Three(tuples) => {
                let (mut slots, mut later) = (Vec::new(), false);
                for (tuple, kind) in tuples.into_iter().zip([0, CELL, FREE]) {
                    match names(view, view.word(code, tuple)?) {
                        Ok(names) => slots.extend(names.into_iter().map(|name| (name, kind))),
                        Err(Gap::Later) => later = true,
                        Err(Gap::Wrong) => return Err(Gap::Wrong),
                    }
                }
                if later {
                    return Err(Gap::Later);
                }
                slots
            }
            layout::Variables::One { names: at, kinds } => {
                let kinds = view.byte_string(view.word(code, kinds)?, MAX_SLOTS);
                let names = names(view, view.word(code, at)?)?;
                let kinds = kinds?.0;
                names.into_iter().zip(kinds.iter().copied()).collect()
            }
        };
        Ok(Self { in_slots, slots })
    }

    /// The variables of a frame that are bound.
    pub(super) fn slots(
        &self,
        view: &View<'_>,
        frame: &RawFrame,
        limits: &LocalLimits,
    ) -> ReadResult<Slots> {
        let layout = &view.interpreter.layout.frame;
        let at = frame.address.checked_add(layout.locals as u64);
        let values = view.words(at.ok_or(Gap::Wrong)?, self.slots.len());
        check_code(view, frame)?;
        let mut bound = Vec::new();
        let mut later = false;
        for (number, ((name, kind), value)) in self.slots.iter().zip(values?).enumerate() {
            let value = value & !TAGS;
            let bind = |object| Bound {
                name: name.clone(),
                object,
                place: VariableLocation::Slot(number),
            };
            // Beside its dictionary, a class body or a module has slots for what comprehensions use.
            if value == 0 || !(self.in_slots || kind & HIDDEN != 0) {
                continue;
            }
            match content(view, value, *kind) {
                Ok(0) => {}
                Ok(content) => bound.push(bind(content)),
                Err(Gap::Later) => later = true,
                // Shown as something that cannot be read.
                Err(Gap::Wrong) => bound.push(bind(value)),
            }
        }
        if !self.in_slots {
            match dictionary(view, view.word(frame.address, layout.mapping)? & !TAGS) {
                Ok(entries) => bound.extend(entries),
                Err(Gap::Later) => later = true,
                // Any mapping serves `exec`.
                Err(Gap::Wrong) => {}
            }
        }
        if later {
            return Err(Gap::Later);
        }
        let more = bound.len().saturating_sub(limits.values);
        bound.truncate(limits.values);
        Ok(Slots { bound, more })
    }

    /// The value that one of them has now; `None` if it has none.
    pub(super) fn find(
        &self,
        view: &View<'_>,
        frame: &RawFrame,
        bound: &Bound,
    ) -> ReadResult<Option<u64>> {
        check_code(view, frame)?;
        let found = match bound.place {
            VariableLocation::Slot(number) => {
                let (_, kind) = self.slots.get(number).ok_or(Gap::Wrong)?;
                let at = view.interpreter.layout.frame.locals + number * 8;
                match view.word(frame.address, at)? & !TAGS {
                    0 => 0,
                    value => match content(view, value, *kind) {
                        Err(Gap::Wrong) => value,
                        content => content?,
                    },
                }
            }
            VariableLocation::Entry(key) => {
                let mapping = view.interpreter.layout.frame.mapping;
                let pairs = view.pairs(view.word(frame.address, mapping)? & !TAGS, MAX_GLOBALS)?;
                let mut pairs = pairs.first.into_iter();
                pairs.find(|pair| pair.0 == key).map_or(0, |pair| pair.1)
            }
        };
        Ok(Some(found).filter(|object| *object != 0))
    }
}

/// Whether the frame is still there.
fn check_code(view: &View<'_>, frame: &RawFrame) -> ReadResult<()> {
    let code = view.word(frame.address, view.interpreter.layout.frame.code)? & !TAGS;
    if code == frame.code {
        Ok(())
    } else {
        Err(Gap::Wrong)
    }
}

fn names(view: &View<'_>, tuple: u64) -> ReadResult<Vec<Arc<str>>> {
    let items = view.items(tuple, MAX_SLOTS)?;
    let (mut names, mut gap) = (Vec::new(), None);
    for name in items.first {
        match view.text(name, MAX_NAME) {
            Ok(name) => names.push(name.into()),
            Err(other) => gap = Some(other),
        }
    }
    gap.map_or(Ok(names), Err)
}

/// What a slot holds, or the cell in it; 0 if that is empty.
fn content(view: &View<'_>, value: u64, kind: u8) -> ReadResult<u64> {
    let is_cell = kind & (CELL | FREE) != 0 && view.class(value)? == view.interpreter.types.cell;
    if is_cell {
        view.word(value, view.interpreter.layout.builtins.cell_content())
    } else {
        Ok(value)
    }
}

/// What a module or class body made itself: no names of Python's own, nothing imported or defined.
fn dictionary(view: &View<'_>, dict: u64) -> ReadResult<Vec<Bound>> {
    let pairs = view.pairs(dict, MAX_GLOBALS)?;
    let (mut entries, mut later) = (Vec::new(), false);
    for (key, value) in pairs.first {
        let entry = view.text(key, MAX_NAME).and_then(|name| {
            let is_own = name.starts_with("__") && name.ends_with("__");
            let shown = !is_own && !is_definition(view, value)?;
            Ok(shown.then(|| Bound {
                name: Arc::from(name),
                object: value,
                place: VariableLocation::Entry(key),
            }))
        });
        match entry {
            Ok(entry) => entries.extend(entry),
            Err(Gap::Later) => later = true,
            Err(Gap::Wrong) => {}
        }
    }
    if later { Err(Gap::Later) } else { Ok(entries) }
}

/// Whether it is a module, a function or a class.
fn is_definition(view: &View<'_>, object: u64) -> ReadResult<bool> {
    let types = &view.interpreter.types;
    let class = match view.type_of(object) {
        Ok(class) => class,
        Err(Gap::Wrong) => return Ok(false),
        Err(Gap::Later) => return Err(Gap::Later),
    };
    let definitions = [types.module, types.function, types.c_function];
    Ok(definitions.contains(&class.address) || class.has(Type::TYPE))
}
