//! Python objects of the target: types and contents, read from outside.
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

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use probing_process::memory::address_map::AddressMap;

use crate::memory::{Changes, CopyOutcome, Memory, PAGE, Pages, Range, u64_at};
use crate::python::interpreter::Interpreter;

pub(crate) use self::containers::{Items, Pairs};
pub(crate) use self::numbers::{Integer, push_float};
pub(crate) use self::types::Type;

/// Waves of one call: more than any chain of objects that a look follows.
const MAX_WAVES: usize = 200;
/// In pointers on the stack, 3.14 keeps notes in the lowest bits.
pub(crate) const TAGS: u64 = 3;
/// Pages that a look finds without a search.
const AT_HAND: usize = 8;
/// Of no address.
const NO_PAGE: (u64, &[u8]) = (u64::MAX, &[]);

/// Why a look has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gap {
    /// There is no such object.
    Wrong,
    /// The memory is not here yet. It will be at the next try.
    Later,
}

pub(crate) type ReadResult<T> = Result<T, Gap>;

/// Bytes of the target that were copied.
pub(crate) trait Source {
    fn copy(&self, address: u64, into: &mut [u8]) -> CopyOutcome;

    /// A whole page, where there are whole pages.
    fn page(&self, _number: u64) -> Option<&[u8]> {
        None
    }
}

impl Source for Pages {
    fn copy(&self, address: u64, into: &mut [u8]) -> CopyOutcome {
        Self::copy(self, address, into)
    }

    fn page(&self, number: u64) -> Option<&[u8]> {
        Self::page(self, number)
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
        look: impl Fn(&View<'_>, &K) -> ReadResult<T>,
    ) -> Vec<Option<T>> {
        let found = self.each_with_pages(keys, look).found.into_iter();
        found.map(|seen| seen.map(|seen| seen.result)).collect()
    }

    /// The same, and which pages each result was made of.
    pub(crate) fn each_with_pages<K, T>(
        &mut self,
        keys: &[K],
        look: impl Fn(&View<'_>, &K) -> ReadResult<T>,
    ) -> BatchRead<T> {
        let mut looks = BatchRead {
            found: keys.iter().map(|_| None).collect(),
            pages: Vec::new(),
        };
        let mut open: Vec<usize> = (0..keys.len()).collect();
        for _ in 0..MAX_WAVES {
            let view = View::new(self.interpreter, &self.pages, &self.types);
            open.retain(|index| {
                view.begin();
                match look(&view, &keys[*index]) {
                    Ok(result) => {
                        let start = looks.pages.len();
                        looks.pages.extend(view.used.borrow().iter());
                        let pages = start..looks.pages.len();
                        looks.found[*index] = Some(ReadObject { result, pages });
                        false
                    }
                    Err(gap) => gap == Gap::Later,
                }
            });
            let missing = view.into_missing();
            if open.is_empty() || missing.is_empty() {
                break;
            }
            self.pages.load(self.memory, &missing);
        }
        looks
    }

    /// The same memory as it is now: all of it is copied after all of it was looked at.
    pub(crate) fn again(&self, memory: &(impl Memory + ?Sized)) -> Copied<'_> {
        Copied {
            interpreter: self.interpreter,
            changes: self.pages.again(memory),
            before: &self.pages,
            types: self.types.clone(),
        }
    }
}

/// What was found, in the order of the keys; `None` where there is no such object.
pub(crate) struct BatchRead<T> {
    pub(crate) found: Vec<Option<ReadObject<T>>>,
    /// Of all, one after the other.
    pages: Vec<u64>,
}

/// What a look found, and which pages it used.
pub(crate) struct ReadObject<T> {
    pub(crate) result: T,
    pages: std::ops::Range<usize>,
}

/// Memory as it was once more: there will never be more of it.
pub(crate) struct Copied<'a> {
    interpreter: &'a Interpreter,
    before: &'a Pages,
    changes: Changes,
    types: KnownTypes,
}

impl Copied<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        View::new(self.interpreter, self, &self.types)
    }

    /// Whether a page that was used is another now.
    pub(crate) fn touches<T>(&self, looks: &BatchRead<T>, seen: &ReadObject<T>) -> bool {
        let mut used = looks.pages[seen.pages.clone()].iter();
        used.any(|page| self.changes.has(*page))
    }
}

impl Source for Copied<'_> {
    fn copy(&self, address: u64, into: &mut [u8]) -> CopyOutcome {
        let (first, last) = pages_of(address, into.len());
        if (first..=last).any(|page| self.changes.has(page)) {
            self.copy_pages(address, into)
        } else {
            self.before.copy(address, into)
        }
    }

    fn page(&self, number: u64) -> Option<&[u8]> {
        self.pages_with(number).page(number)
    }
}

impl Copied<'_> {
    fn pages_with(&self, number: u64) -> &Pages {
        if self.changes.has(number) {
            self.changes.pages()
        } else {
            self.before
        }
    }

    /// Page by page.
    fn copy_pages(&self, address: u64, into: &mut [u8]) -> CopyOutcome {
        let mut done = 0;
        while done < into.len() {
            let at = address + done as u64;
            let len = ((PAGE - at % PAGE) as usize).min(into.len() - done);
            let known = self
                .pages_with(at / PAGE)
                .copy(at, &mut into[done..done + len]);
            if known != CopyOutcome::Here {
                return known;
            }
            done += len;
        }
        CopyOutcome::Here
    }
}

/// Numbers of the first and the last page of some bytes.
fn pages_of(address: u64, len: usize) -> (u64, u64) {
    let last = address.saturating_add(len as u64).saturating_sub(1);
    (address / PAGE, last / PAGE)
}

/// What looks see.
pub(crate) struct View<'a> {
    pub(crate) interpreter: &'a Interpreter,
    source: &'a dyn Source,
    types: &'a KnownTypes,
    missing: RefCell<Vec<Range>>,
    /// Numbers of pages of which something was copied.
    used: RefCell<Vec<u64>>,
    /// Some of those, each in a place by its number: a look comes back to the same few pages.
    at_hand: [Cell<(u64, &'a [u8])>; AT_HAND],
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
            at_hand: std::array::from_fn(|_| Cell::new(NO_PAGE)),
        }
    }

    /// What is used from here on belongs to the next look.
    fn begin(&self) {
        self.used.borrow_mut().clear();
        self.at_hand.iter().for_each(|place| place.set(NO_PAGE));
    }

    /// What looks asked for in vain.
    pub(crate) fn into_missing(self) -> Vec<Range> {
        self.missing.into_inner()
    }

    pub(crate) fn copy(&self, address: u64, into: &mut [u8]) -> ReadResult<()> {
        if let Some(bytes) = self.on_one_page(address, into.len()) {
            into.copy_from_slice(bytes);
            return Ok(());
        }
        match self.source.copy(address, into) {
            CopyOutcome::Here => {
                let (first, last) = pages_of(address, into.len());
                (first..=last).for_each(|number| self.note(number));
                Ok(())
            }
            CopyOutcome::NotLoaded => {
                self.missing.borrow_mut().push((address, into.len()));
                Err(Gap::Later)
            }
            CopyOutcome::Never => Err(Gap::Wrong),
        }
    }

    /// Bytes that need not be copied: they lie on one page, and that is here.
    fn on_one_page(&self, address: u64, len: usize) -> Option<&'a [u8]> {
        let (number, start) = (address / PAGE, (address % PAGE) as usize);
        let bytes = start..start.checked_add(len)?;
        let place = &self.at_hand[number as usize % AT_HAND];
        let (known, page) = place.get();
        if known == number {
            return page.get(bytes);
        }
        let page = self.source.page(number)?;
        let found = page.get(bytes)?;
        place.set((number, page));
        self.note(number);
        Some(found)
    }

    fn note(&self, page: u64) {
        let mut used = self.used.borrow_mut();
        if !used.contains(&page) {
            used.push(page);
        }
    }

    /// At `base` and so many bytes on.
    pub(crate) fn word(&self, base: u64, offset: usize) -> ReadResult<u64> {
        let address = base.checked_add(offset as u64).ok_or(Gap::Wrong)?;
        let mut bytes = [0; 8];
        self.copy(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn words(&self, address: u64, count: usize) -> ReadResult<Vec<u64>> {
        let bytes = self.bytes(address, count.checked_mul(8).ok_or(Gap::Wrong)?)?;
        Ok((0..count).filter_map(|n| u64_at(&bytes, n * 8)).collect())
    }

    pub(crate) fn bytes(&self, address: u64, len: usize) -> ReadResult<Cow<'a, [u8]>> {
        if let Some(bytes) = self.on_one_page(address, len) {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = vec![0; len];
        self.copy(address, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// Address of the type of what is at this address, if it may be an object.
    pub(crate) fn class(&self, object: u64) -> ReadResult<u64> {
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
