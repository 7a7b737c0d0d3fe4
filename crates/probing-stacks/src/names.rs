//! Reads the names that `threading` gives to threads, which the kernel does not know before 3.14 (and then cut).
//!
//! The outermost frame of such a thread is `Thread._bootstrap(self)`: its first local variable is the `Thread`, whose
//! attribute `_name` is looked up in its dictionary. How objects keep their attributes differs in each version:
//!
//! * 3.10: `tp_dictoffset` says where the dictionary is
//! * 3.11: three words before the object there is the dictionary, four before it the bare values
//! * 3.12: three words before the object there is either; an odd number points one byte before the values
//! * 3.13 and later: three words before the object there is the dictionary, or nothing, then values follow the object
//!
//! Offsets as printed by `offsetof` with the headers of each version; those of 3.13 hold for 3.14. Whatever is not as
//! expected gives no name, never a wrong one: types are checked.

use std::collections::HashMap;

use crate::code;
use crate::interpreter::Interpreter;
use crate::memory::{Memory, u64_at};

const NAME: &[u8] = b"_name";
const MAX_KEYS: u64 = 64;
const BASIC_SIZE: u64 = 32;
const DICT_OFFSET: u64 = 288;
const DICT_KEYS: u64 = 32;
const DICT_VALUES: u64 = 40;

/// Looks names up; remembers where in a table of keys the attribute is, because all threads share one.
pub(crate) struct Names<'a, M: ?Sized> {
    interpreter: &'a Interpreter,
    memory: &'a M,
    positions: HashMap<u64, Option<Position>>,
}

/// Where in a dictionary an attribute is.
#[derive(Debug, Clone, Copy)]
struct Position {
    index: u64,
    /// Address of the value, in a dictionary that keeps values with their keys.
    beside: u64,
}

impl<'a, M: Memory + ?Sized> Names<'a, M> {
    pub(crate) fn new(interpreter: &'a Interpreter, memory: &'a M) -> Self {
        Self {
            interpreter,
            memory,
            positions: HashMap::new(),
        }
    }

    /// The name of the thread whose `Thread._bootstrap` runs in the frame at this address.
    pub(crate) fn of(&mut self, frame: u64) -> Option<String> {
        let locals = self.interpreter.layout.frame.locals as u64;
        // 3.14 keeps notes in the lowest bits.
        let thread = self.word(frame.checked_add(locals)?)? & !3;
        let value = self.attribute(thread)?;
        let text = code::read_text(self.interpreter, self.memory, value)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Some(text).filter(|text| !text.is_empty())
    }

    /// Address of the value of `_name`.
    fn attribute(&mut self, object: u64) -> Option<u64> {
        let kind = self.interpreter.layout.object.kind as u64;
        let class = self.word(object.checked_add(kind)?)?;
        let before = |words: u64| object.checked_sub(8 * words);
        let (dict, values) = match self.interpreter.layout.version.1 {
            10 => {
                let offset = self.word(class.checked_add(DICT_OFFSET)?)?;
                (self.word(object.checked_add(offset)?)?, 0)
            }
            11 => (self.word(before(3)?)?, self.word(before(4)?)?),
            12 => match self.word(before(3)?)? {
                values if values % 2 == 1 => (0, values.checked_add(1)?),
                dict => (dict, 0),
            },
            _ => match self.word(before(3)?)? {
                0 => {
                    let size = self.word(class.checked_add(BASIC_SIZE)?)?;
                    // Four bytes of sizes and states come first.
                    (0, object.checked_add(size)?.checked_add(8)?)
                }
                dict => (dict, 0),
            },
        };
        if values != 0 {
            let cached_keys = match self.interpreter.layout.version.1 {
                10 | 11 => 872,
                _ => 880,
            };
            let keys = self.word(class.checked_add(cached_keys)?)?;
            let position = self.position(keys)?;
            return self.word(values.checked_add(8 * position.index)?);
        }
        let keys = self.word(dict.checked_add(DICT_KEYS)?)?;
        let position = self.position(keys)?;
        match self.word(dict.checked_add(DICT_VALUES)?)? {
            0 => self.word(position.beside),
            values => {
                let first = match self.interpreter.layout.version.1 {
                    10..=12 => values,
                    _ => values.checked_add(8)?,
                };
                self.word(first.checked_add(8 * position.index)?)
            }
        }
    }

    fn position(&mut self, keys: u64) -> Option<Position> {
        if let Some(known) = self.positions.get(&keys) {
            return *known;
        }
        let found = self.find(keys);
        self.positions.insert(keys, found);
        found
    }

    fn find(&self, keys: u64) -> Option<Position> {
        let header = self.memory.read(keys, 40)?;
        let (indices, entry, key, count) = if self.interpreter.layout.version.1 == 10 {
            let size = u64_at(&header, 8)?;
            let width = match size {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                _ => return None,
            };
            (40 + size * width, 24, 8, u64_at(&header, 32)?)
        } else {
            let (bits, kind) = (*header.get(9)?, *header.get(10)?);
            let len = 1u64.checked_shl(u32::from(bits)).filter(|_| bits < 24)?;
            // The general kind keeps hashes with its keys.
            let (entry, key) = if kind == 0 { (24, 8) } else { (16, 0) };
            (32 + len, entry, key, u64_at(&header, 24)?)
        };
        let first = keys.checked_add(indices)?;
        (0..count.min(MAX_KEYS)).find_map(|index| {
            let at = first.checked_add(index * entry + key)?;
            let name = code::read_text(self.interpreter, self.memory, self.word(at)?)?;
            (name == NAME).then_some(Position {
                index,
                beside: at + 8,
            })
        })
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.memory.read_u64(address)
    }
}
