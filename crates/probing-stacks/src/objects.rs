//! Python objects of the target: what they are and what they hold, read from outside.
//!
//! Many are looked at together, in waves: a look that needs memory which is not here yet says so
//! ([`Gap::Later`]) and is repeated after one bulk reading for all ([`Objects::each`]). So a look is written as if all
//! memory were at hand, should ask for all that it can before it gives up, and costs few system calls.
//!
//! An address is an object only if its type is a type and someone refers to it; what is read is checked against bounds.

mod attributes;
mod containers;
mod numbers;
mod tensors;
pub(crate) mod text;
mod types;

use std::cell::RefCell;
use std::rc::Rc;

use probing_process::addresses::{AddressMap, AddressSet};

use crate::interpreter::Interpreter;
use crate::memory::{Known, Memory, PAGE, Pages, Range, u64_at};

pub(crate) use self::containers::{Items, Pairs};
pub(crate) use self::numbers::{Integer, float_text};
pub(crate) use self::types::Type;

/// Waves of one call: more than any chain of objects that a look follows.
const MAX_WAVES: usize = 200;
/// In pointers on the stack, 3.14 keeps notes in the lowest bits.
pub(crate) const TAGS: u64 = 3;

/// Why a look has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gap {
    /// There is no such object.
    Wrong,
    /// The memory is not here yet. It will be at the next try.
    Later,
}

pub(crate) type Look<T> = Result<T, Gap>;

/// Bytes of the target that were copied.
pub(crate) trait Source {
    fn copy(&self, address: u64, into: &mut [u8]) -> Known;
}

impl Source for Pages {
    fn copy(&self, address: u64, into: &mut [u8]) -> Known {
        Self::copy(self, address, into)
    }
}

/// Objects of the target as they once were.
pub(crate) struct Objects<'a, M: ?Sized> {
    interpreter: &'a Interpreter,
    memory: &'a M,
    pages: Pages,
    types: KnownTypes,
}

/// Types seen so far; `None` for what is no type.
pub(crate) type KnownTypes = RefCell<AddressMap<Option<Rc<Type>>>>;

impl<'a, M: Memory + ?Sized> Objects<'a, M> {
    pub(crate) fn new(interpreter: &'a Interpreter, memory: &'a M) -> Self {
        Self {
            interpreter,
            memory,
            pages: Pages::default(),
            types: KnownTypes::default(),
        }
    }

    /// Looks at each of `keys` until all memory is here. `None` where there is no such object.
    pub(crate) fn each<K, T>(
        &mut self,
        keys: &[K],
        look: impl Fn(&View<'_>, &K) -> Look<T>,
    ) -> Vec<Option<T>> {
        let seen = self.each_with_pages(keys, look).into_iter();
        seen.map(|seen| seen.map(|seen| seen.result)).collect()
    }

    /// The same, and which pages each result was made of.
    pub(crate) fn each_with_pages<K, T>(
        &mut self,
        keys: &[K],
        look: impl Fn(&View<'_>, &K) -> Look<T>,
    ) -> Vec<Option<Seen<T>>> {
        let mut results: Vec<Option<Seen<T>>> = keys.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..keys.len()).collect();
        for _ in 0..MAX_WAVES {
            let view = View::new(self.interpreter, &self.pages, &self.types);
            open.retain(|index| {
                view.used.borrow_mut().clear();
                match look(&view, &keys[*index]) {
                    Ok(result) => {
                        let pages = view.used.borrow().as_slice().into();
                        results[*index] = Some(Seen { result, pages });
                        false
                    }
                    Err(gap) => gap == Gap::Later,
                }
            });
            let missing = view.missing.into_inner();
            if open.is_empty() || missing.is_empty() {
                break;
            }
            self.pages.load(self.memory, &missing);
        }
        results
    }

    /// The same memory as it is now, copied at one go.
    pub(crate) fn again(&self, memory: &(impl Memory + ?Sized)) -> Copied<'a> {
        let pages = self.pages.again(memory);
        Copied {
            interpreter: self.interpreter,
            changed: self.pages.changed(&pages),
            pages,
            types: self.types.clone(),
        }
    }
}

/// What a look found, and numbers of the pages that it used.
pub(crate) struct Seen<T> {
    pub(crate) result: T,
    pages: Box<[u64]>,
}

/// Memory that was copied at one go: there will never be more of it.
pub(crate) struct Copied<'a> {
    interpreter: &'a Interpreter,
    pages: Pages,
    changed: AddressSet,
    types: KnownTypes,
}

impl Copied<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        View::new(self.interpreter, &self.pages, &self.types)
    }

    /// Whether a page that was used is another now.
    pub(crate) fn touches<T>(&self, seen: &Seen<T>) -> bool {
        seen.pages.iter().any(|page| self.changed.contains(page))
    }
}

/// What looks see.
pub(crate) struct View<'a> {
    pub(crate) interpreter: &'a Interpreter,
    source: &'a dyn Source,
    types: &'a KnownTypes,
    missing: RefCell<Vec<Range>>,
    /// Numbers of pages of which something was copied.
    used: RefCell<Vec<u64>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(
        interpreter: &'a Interpreter,
        source: &'a dyn Source,
        types: &'a KnownTypes,
    ) -> Self {
        Self {
            interpreter,
            source,
            types,
            missing: RefCell::default(),
            used: RefCell::default(),
        }
    }

    /// What looks asked for in vain.
    pub(crate) fn into_missing(self) -> Vec<Range> {
        self.missing.into_inner()
    }

    pub(crate) fn copy(&self, address: u64, into: &mut [u8]) -> Look<()> {
        match self.source.copy(address, into) {
            Known::Here => {
                self.note(address, into.len());
                Ok(())
            }
            Known::NotLoaded => {
                self.missing.borrow_mut().push((address, into.len()));
                Err(Gap::Later)
            }
            Known::Never => Err(Gap::Wrong),
        }
    }

    fn note(&self, address: u64, len: usize) {
        let mut used = self.used.borrow_mut();
        for page in address / PAGE..=(address + len as u64).saturating_sub(1) / PAGE {
            if !used.contains(&page) {
                used.push(page);
            }
        }
    }

    /// At `base` and so many bytes on.
    pub(crate) fn word(&self, base: u64, offset: usize) -> Look<u64> {
        let mut bytes = [0; 8];
        self.copy(
            base.checked_add(offset as u64).ok_or(Gap::Wrong)?,
            &mut bytes,
        )?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn words(&self, address: u64, count: usize) -> Look<Vec<u64>> {
        let bytes = self.bytes(address, count.checked_mul(8).ok_or(Gap::Wrong)?)?;
        Ok((0..count).filter_map(|n| u64_at(&bytes, n * 8)).collect())
    }

    pub(crate) fn bytes(&self, address: u64, len: usize) -> Look<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.copy(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Address of the type of what is at this address, if it may be an object.
    pub(crate) fn class(&self, object: u64) -> Look<u64> {
        let layout = &self.interpreter.layout;
        if object == 0 || !object.is_multiple_of(8) {
            return Err(Gap::Wrong);
        }
        let mut bytes = [0; 64];
        let bytes = bytes.get_mut(..layout.object.kind + 8).ok_or(Gap::Wrong)?;
        self.copy(object, bytes)?;
        let references = u64_at(bytes, 0).ok_or(Gap::Wrong)?;
        if !layout.free_threaded && !is_alive(references) {
            return Err(Gap::Wrong);
        }
        u64_at(bytes, layout.object.kind).ok_or(Gap::Wrong)
    }
}

/// Whether a count of references is one: what was freed has none, or the address of another free object in its place.
/// From 3.14 on the last two bytes are marks.
fn is_alive(references: u64) -> bool {
    references as u32 != 0 && (references >> 32) as u16 == 0
}
