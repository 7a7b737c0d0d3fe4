//! Numbers in place of texts.
//!
//! A text that came lately is known by its view, and its letters need not be looked at.

use ahash::RandomState;
use datafusion::arrow::array::{StringViewArray, StringViewBuilder};
use datafusion::arrow::buffer::{Buffer, NullBuffer};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::optimizer::key_interning::NONE;

/// Places for views that came lately: a power of two, so many that some hundred names seldom share one.
const RECENT_BITS: u32 = 12;
/// Longer texts stand elsewhere, and the view says where.
const INLINE: u32 = 12;
/// The age of a view that has its text in itself: it is the same for ever.
const AGELESS: u32 = 1;

/// A table from texts to their numbers.
#[derive(Debug)]
pub(super) struct Texts {
    hasher: RandomState,
    table: HashTable<u32>,
    /// All of them, one behind the other.
    letters: String,
    /// Where each ends, by number.
    ends: Vec<usize>,
    recent: Vec<Recent>,
    /// What the views of the last array pointed into. It is held, so that no other can be in its place.
    buffers: Vec<CachedBuffer>,
    age: u32,
    is_closed: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    view: u128,
    /// Of the buffer that it points into; 0: nothing is here.
    age: u32,
    number: u32,
}

/// A buffer, and since when it is there.
#[derive(Debug)]
struct CachedBuffer {
    buffer: Buffer,
    age: u32,
}

impl Texts {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            table: HashTable::new(),
            letters: String::new(),
            ends: Vec::new(),
            recent: vec![Recent::default(); 1 << RECENT_BITS],
            buffers: Vec::new(),
            age: AGELESS,
            is_closed: false,
        }
    }

    /// Adds the number of each text; that beside the nulls where there is none.
    pub(super) fn numbers(
        &mut self,
        array: &StringViewArray,
        nulls: Option<(&NullBuffer, u32)>,
        numbers: &mut Vec<u32>,
    ) {
        self.hold(array.data_buffers());
        let mut last = None;
        for (row, &view) in array.views().iter().enumerate() {
            let number = match (last, nulls) {
                (_, Some((nulls, nothing))) if nulls.is_null(row) => nothing,
                (Some((known, number)), _) if known == view => number,
                _ => {
                    let number = self.number(view, || array.value(row));
                    last = Some((view, number));
                    number
                }
            };
            numbers.push(number);
        }
    }

    /// No more of them: a text that has not come before has [`NONE`] from now on.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// A number that stands for no text.
    pub(super) fn reserve(&mut self) -> u32 {
        if self.is_closed {
            return NONE;
        }
        self.ends.push(self.letters.len());
        self.ends.len() as u32 - 1
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The texts, by number.
    pub(super) fn array(&self) -> StringViewArray {
        let mut builder = StringViewBuilder::with_capacity(self.len());
        for number in 0..self.len() {
            builder.append_value(text(&self.letters, &self.ends, number));
        }
        builder.finish()
    }

    pub(super) fn size(&self) -> usize {
        self.letters.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.table.allocation_size()
            + self.recent.capacity() * size_of::<Recent>()
    }

    /// Buffers that are not those of the array before get a new age: what is known of views into them is forgotten.
    fn hold(&mut self, buffers: &[Buffer]) {
        self.buffers.truncate(buffers.len());
        for (place, buffer) in buffers.iter().enumerate() {
            let is_same = |held: &CachedBuffer| {
                held.buffer.ptr_eq(buffer) && held.buffer.len() == buffer.len()
            };
            if self.buffers.get(place).is_some_and(is_same) {
                continue;
            }
            self.age += 1;
            let held = CachedBuffer {
                buffer: buffer.clone(),
                age: self.age,
            };
            if place < self.buffers.len() {
                self.buffers[place] = held;
            } else {
                self.buffers.push(held);
            }
        }
    }

    #[inline]
    fn number<'a>(&mut self, view: u128, text: impl FnOnce() -> &'a str) -> u32 {
        let age = if view as u32 <= INLINE {
            AGELESS
        } else {
            self.buffers[(view >> 64) as u32 as usize].age
        };
        let place = slot(view);
        let recent = self.recent[place];
        if recent.view == view && recent.age == age {
            return recent.number;
        }
        let number = self.look_up(text());
        self.recent[place] = Recent { view, age, number };
        number
    }

    fn look_up(&mut self, wanted: &str) -> u32 {
        let Self {
            hasher,
            letters,
            ends,
            ..
        } = self;
        let hash = hasher.hash_one(wanted);
        let is_it = |number: &u32| text(letters, ends, *number as usize) == wanted;
        if self.is_closed {
            return self.table.find(hash, is_it).copied().unwrap_or(NONE);
        }
        let entry = self.table.entry(hash, is_it, |number| {
            hasher.hash_one(text(letters, ends, *number as usize))
        });
        match entry {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let number = ends.len() as u32;
                entry.insert(number);
                letters.push_str(wanted);
                ends.push(letters.len());
                number
            }
        }
    }
}

fn text<'a>(letters: &'a str, ends: &[usize], number: usize) -> &'a str {
    let begin = number.checked_sub(1).map_or(0, |before| ends[before]);
    &letters[begin..ends[number]]
}

fn slot(view: u128) -> usize {
    let folded = view as u64 ^ ((view >> 64) as u64).rotate_left(29);
    (folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - RECENT_BITS)) as usize
}
