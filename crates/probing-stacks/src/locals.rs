//! Local variables of all frames, read from outside without stopping anyone.
//!
//! All frames are looked at together, in waves (`objects`). Because the target goes on meanwhile, everything that was
//! needed is then copied once more at one go: a value that is the same in both is believed, because at the moment in
//! between all of it was there. The others are tried again one by one, with copies that are made right after each other;
//! what never holds still is shown as [`CHANGING`].

mod quoted;
mod retry;
mod slots;
mod values;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::slots::Variables;
use self::values::Values;
use crate::frames::RawFrame;
use crate::interpreter::Interpreter;
use crate::memory::{Bounded, Memory};
use crate::objects::{Gap, Look, Objects, View};

/// A value that changed each time it was read.
pub(crate) const CHANGING: &str = "<changing>";
/// A value that stays, but is nothing that can be read.
const UNREADABLE: &str = "<unreadable>";
/// A value beyond the limits.
const LEFT_OUT: &str = "…";
/// For all values that change, together.
const PATIENCE: Duration = Duration::from_millis(100);

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
}

impl Written {
    fn only(text: &str) -> Self {
        Self {
            text: text.into(),
            kind: None,
            whole: false,
        }
    }
}

/// A variable with its value, as found in one copy of the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Variable {
    name: Arc<str>,
    /// Address of the object.
    object: u64,
    /// `None`: nothing that can be read.
    written: Option<Written>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Scope {
    variables: Vec<Variable>,
    more: usize,
}

/// What is known while values are written, for one copy of the memory.
struct Writing<'a> {
    limits: &'a LocalLimits,
    /// Values that are whole, by the addresses of their objects.
    known: RefCell<HashMap<u64, Option<Written>>>,
    /// Bytes of text that may still be written.
    room: Cell<usize>,
    /// Only the variable of this name.
    only: Option<&'a str>,
}

impl<'a> Writing<'a> {
    fn new(limits: &'a LocalLimits) -> Self {
        Self {
            limits,
            known: RefCell::default(),
            room: Cell::new(limits.total_bytes),
            only: None,
        }
    }

    /// All variables of a frame.
    fn scope(&self, view: &View<'_>, frame: &RawFrame, code: &Variables) -> Look<Scope> {
        let mut slots = code.slots(view, frame, self.limits)?;
        if let Some(only) = self.only {
            slots.bound.retain(|(name, _)| **name == *only);
        }
        let mut later = false;
        let mut variables = Vec::with_capacity(slots.bound.len());
        for (name, object) in slots.bound {
            match self.written(view, object) {
                Ok(written) => variables.push(Variable {
                    name,
                    object,
                    written,
                }),
                Err(_) => later = true,
            }
        }
        if later {
            return Err(Gap::Later);
        }
        Ok(Scope {
            variables,
            more: slots.more,
        })
    }

    /// `None` if there is no object; an error only if it can be told later.
    fn written(&self, view: &View<'_>, object: u64) -> Look<Option<Written>> {
        if let Some(known) = self.known.borrow().get(&object) {
            return Ok(known.clone());
        }
        let written = match Values::new(view, self.limits).write(object) {
            Err(Gap::Later) => return Err(Gap::Later),
            Err(Gap::Wrong) => None,
            Ok(written) => match self.room.get().checked_sub(written.text.len()) {
                Some(left) => {
                    self.room.set(left);
                    Some(written)
                }
                None => Some(Written::only(LEFT_OUT)),
            },
        };
        self.known.borrow_mut().insert(object, written.clone());
        Ok(written)
    }
}

/// The locals of all these frames, in their order; `None` for a frame that is not there any more.
pub(crate) fn of_all<M: Memory + ?Sized>(
    interpreter: &Interpreter,
    memory: &M,
    frames: &[RawFrame],
    limits: &LocalLimits,
) -> Vec<Option<Locals>> {
    // One half for each copy.
    let bounded = Bounded::new(memory, limits.total_bytes / 2);
    let mut objects = Objects::new(interpreter, &bounded);
    let codes = slots::of_codes(&mut objects, frames);
    let scope = |writing: &Writing<'_>, view: &View<'_>, frame: &RawFrame| {
        let code = codes.get(&frame.code).ok_or(Gap::Wrong)?;
        writing.scope(view, frame, code)
    };
    let first = Writing::new(limits);
    let firsts = objects.each(frames, |view, frame| scope(&first, view, frame));
    let left_out = bounded.is_spent();
    let again = objects.again(memory);
    let second = Writing::new(limits);
    let until = Instant::now() + PATIENCE;
    let retry = retry::Retry {
        interpreter,
        memory,
        limits,
        until,
    };
    let mut all = Vec::with_capacity(frames.len());
    for (frame, first) in frames.iter().zip(firsts) {
        let Some(code) = codes.get(&frame.code) else {
            all.push(None);
            continue;
        };
        let other = scope(&second, &again.view(), frame).ok();
        let settled = |variable: &Variable| {
            let same = other.as_ref().and_then(|other| other.named(&variable.name));
            match &variable.written {
                Some(written) if first.is_some() && same == Some(variable) && written.whole => {
                    written.clone()
                }
                None if left_out => Written::only(LEFT_OUT),
                _ => retry.variable(frame, code, &variable.name),
            }
        };
        let scope = first.as_ref().or(other.as_ref());
        all.push(scope.map(|scope| scope.settled(settled)));
    }
    all
}

impl Scope {
    fn named(&self, name: &Arc<str>) -> Option<&Variable> {
        let mut variables = self.variables.iter();
        variables.find(|variable| variable.name == *name)
    }

    fn settled(&self, written: impl Fn(&Variable) -> Written) -> Locals {
        let shown = self.variables.iter().map(|variable| {
            let Written { text, kind, .. } = written(variable);
            Local {
                name: variable.name.clone(),
                value: text,
                kind,
            }
        });
        Locals {
            shown: shown.collect(),
            more: self.more,
        }
    }
}
