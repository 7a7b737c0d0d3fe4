//! Which variables a frame has and where their values are.
//!
//! A function keeps its variables in slots of its frame, and those that functions inside it use in cells. The body of a
//! class or a module keeps them in a dictionary.

use std::collections::HashMap;
use std::sync::Arc;

use super::LocalLimits;
use crate::frames::RawFrame;
use crate::layout;
use crate::memory::Memory;
use crate::objects::{Gap, Look, Objects, TAGS, Type, View};

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

/// Names of bound variables, and addresses of their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) bound: Vec<(Arc<str>, u64)>,
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
    fn read(view: &View<'_>, code: u64) -> Look<Self> {
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
                names.into_iter().zip(kinds?.0).collect()
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
    ) -> Look<Slots> {
        let layout = &view.interpreter.layout.frame;
        let at = frame.address.checked_add(layout.locals as u64);
        let values = view.words(at.ok_or(Gap::Wrong)?, self.slots.len());
        let code = view.word(frame.address, layout.code)? & !TAGS;
        if code != frame.code {
            return Err(Gap::Wrong);
        }
        let mut bound = Vec::new();
        let mut later = false;
        for ((name, kind), value) in self.slots.iter().zip(values?) {
            let value = value & !TAGS;
            // Beside its dictionary, a class body or a module has slots for what comprehensions use.
            if value == 0 || !(self.in_slots || kind & HIDDEN != 0) {
                continue;
            }
            match content(view, value, *kind) {
                Ok(0) => {}
                Ok(value) => bound.push((name.clone(), value)),
                Err(Gap::Later) => later = true,
                // Shown as something that cannot be read.
                Err(Gap::Wrong) => bound.push((name.clone(), value)),
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
}

fn names(view: &View<'_>, tuple: u64) -> Look<Vec<Arc<str>>> {
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
fn content(view: &View<'_>, value: u64, kind: u8) -> Look<u64> {
    let is_cell = kind & (CELL | FREE) != 0 && view.class(value)? == view.interpreter.types.cell;
    if is_cell {
        view.word(value, view.interpreter.layout.builtins.cell_content())
    } else {
        Ok(value)
    }
}

/// What a module or class body made itself: no names of Python's own, nothing imported or defined.
fn dictionary(view: &View<'_>, dict: u64) -> Look<Vec<(Arc<str>, u64)>> {
    let pairs = view.pairs(dict, MAX_GLOBALS)?;
    let (mut entries, mut later) = (Vec::new(), false);
    for (key, value) in pairs.first {
        let entry = view.text(key, MAX_NAME).and_then(|name| {
            let is_own = name.starts_with("__") && name.ends_with("__");
            let shown = !is_own && !is_definition(view, value)?;
            Ok(shown.then(|| (Arc::from(name), value)))
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
fn is_definition(view: &View<'_>, object: u64) -> Look<bool> {
    let types = &view.interpreter.types;
    let class = match view.type_of(object) {
        Ok(class) => class,
        Err(Gap::Wrong) => return Ok(false),
        Err(Gap::Later) => return Err(Gap::Later),
    };
    let definitions = [types.module, types.function, types.c_function];
    Ok(definitions.contains(&class.address) || class.has(Type::TYPE))
}
