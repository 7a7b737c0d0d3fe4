//! `tuple`, `list`, `dict` and `set`: the addresses of their items.
//!
//! A `dict` keeps its entries in the order they came, after a table of indices that is not needed to list them. Those of
//! instances share keys and keep values apart (`split`); from 3.11 on such values have their order with them.

use crate::memory::{u32_at, u64_at};
use crate::python::objects::{Gap, ReadResult, Type, View};

/// More than any process has.
const MAX_COUNT: u64 = 1 << 44;
/// Places looked at for each item wanted: what was removed leaves holes.
const PLACES: usize = 16;
const SPLIT: u8 = 2;
/// Shared keys are few.
const MAX_SPLIT: usize = 256;

/// The first items and how many there are in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Items {
    pub(crate) first: Vec<u64>,
    pub(crate) count: usize,
}

/// The first keys with their values and how many there are in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pairs {
    pub(crate) first: Vec<(u64, u64)>,
    pub(crate) count: usize,
}

/// Keys of a dictionary.
struct Keys {
    /// Address of the first entry, their number and form.
    entries: u64,
    count: usize,
    /// Words of an entry, and which is the key; its value follows.
    words: usize,
    key: usize,
    is_split: bool,
}

impl View<'_> {
    /// Items of a `list` or `tuple`, or of what derives from them.
    pub(crate) fn items(&self, object: u64, limit: usize) -> ReadResult<Items> {
        let layout = &self.interpreter.layout;
        let class = self.type_of(object)?;
        let count = self.word(object, layout.object.size)?;
        let at = if class.has(Type::LIST) {
            self.word(object, layout.builtins.list_items)?
        } else if class.has(Type::TUPLE) {
            object
                .checked_add(layout.builtins.tuple_items as u64)
                .ok_or(Gap::Wrong)?
        } else {
            return Err(Gap::Wrong);
        };
        let count = plausible(count)?;
        let first = match count.min(limit) {
            0 => Vec::new(),
            wanted => self.words(at, wanted)?,
        };
        Ok(Items { first, count })
    }

    /// Members of a `set` or `frozenset`, in the order of its table.
    pub(crate) fn members(&self, object: u64, limit: usize) -> ReadResult<Items> {
        let used = self.interpreter.layout.builtins.set_used();
        let class = self.class(object)?;
        let types = &self.interpreter.types;
        if class != types.set && class != types.frozen_set {
            return Err(Gap::Wrong);
        }
        let count = plausible(self.word(object, used)?)?;
        let size = plausible(self.word(object, used + 8)?)? + 1;
        let table = self.word(object, used + 16)?;
        let places = limit.saturating_mul(PLACES).saturating_add(64).min(size);
        let table = self.words(table, places * 2)?;
        // What was removed has the hash -1, which nothing else has.
        let first = table
            .chunks_exact(2)
            .filter(|entry| entry[0] != 0 && entry[1] != u64::MAX)
            .map(|entry| entry[0]);
        Ok(Items {
            first: first.take(limit.min(count)).collect(),
            count,
        })
    }

    /// Keys and values of a `dict` or what derives from it.
    pub(crate) fn pairs(&self, object: u64, limit: usize) -> ReadResult<Pairs> {
        self.is(object, Type::DICT)?;
        let builtins = &self.interpreter.layout.builtins;
        let count = plausible(self.word(object, builtins.dict_used())?)?;
        let keys = self.word(object, builtins.dict_keys)?;
        let values = self.word(object, builtins.dict_values)?;
        let first = if values == 0 {
            self.together(keys, limit)?
        } else {
            let mut pairs = self.split(keys, values)?;
            pairs.truncate(limit);
            pairs
        };
        Ok(Pairs { first, count })
    }

    /// The value of a key that is text.
    pub(crate) fn value_of(&self, dict: u64, key: &str) -> ReadResult<Option<u64>> {
        const MAX_PAIRS: usize = 1024;
        let pairs = self.pairs(dict, MAX_PAIRS)?;
        self.find(&pairs.first, key)
    }

    pub(crate) fn find(&self, pairs: &[(u64, u64)], key: &str) -> ReadResult<Option<u64>> {
        let mut later = false;
        for (name, value) in pairs {
            match self.text(*name, key.len() + 1) {
                Ok(name) if name == key => return Ok(Some(*value)),
                Ok(_) | Err(Gap::Wrong) => {}
                Err(Gap::Later) => later = true,
            }
        }
        if later { Err(Gap::Later) } else { Ok(None) }
    }

    fn together(&self, keys: u64, limit: usize) -> ReadResult<Vec<(u64, u64)>> {
        let keys = self.keys(keys)?;
        let places = limit
            .saturating_mul(PLACES)
            .saturating_add(64)
            .min(keys.count);
        let words = self.words(keys.entries, places * keys.words)?;
        let entries = words.chunks_exact(keys.words);
        let pairs = entries.map(|entry| (entry[keys.key], entry[keys.key + 1]));
        // A key that was removed left a hole.
        Ok(pairs
            .filter(|(key, value)| *key != 0 && *value != 0)
            .take(limit)
            .collect())
    }

    /// Keys that others share, with values that are apart.
    pub(super) fn split(&self, keys: u64, values: u64) -> ReadResult<Vec<(u64, u64)>> {
        let keys = self.keys(keys)?;
        let minor = self.interpreter.layout.version.1;
        if keys.count > MAX_SPLIT || (minor >= 11 && !keys.is_split) {
            return Err(Gap::Wrong);
        }
        let (first, order) = self.order(values, keys.count)?;
        let entries = self.words(keys.entries, keys.count * keys.words)?;
        let values = self.words(first, keys.count)?;
        let pair = |index: usize| {
            let key = *entries.get(index * keys.words + keys.key)?;
            let value = *values.get(index)?;
            Some((key, value)).filter(|(key, value)| *key != 0 && *value != 0)
        };
        Ok(order.into_iter().filter_map(pair).collect())
    }

    /// Where the values begin, and which was there first.
    fn order(&self, values: u64, count: usize) -> ReadResult<(u64, Vec<usize>)> {
        let (first, order) = match self.interpreter.layout.version.1 {
            10 => return Ok((values, (0..count).collect())),
            // Before the values, backwards: how much room, how many, the order.
            11 | 12 => {
                let at = values.checked_sub(2).ok_or(Gap::Wrong)?;
                let used = self.bytes(at, 1)?[0];
                let from = at.checked_sub(u64::from(used)).ok_or(Gap::Wrong)?;
                let mut order = self.bytes(from, usize::from(used))?.into_owned();
                order.reverse();
                (values, order)
            }
            // First how much room and how many; after the values the order.
            _ => {
                let header = self.bytes(values, 2)?;
                let (room, used) = (u64::from(header[0]), usize::from(header[1]));
                let first = values.checked_add(8).ok_or(Gap::Wrong)?;
                let order = first.checked_add(room * 8).ok_or(Gap::Wrong)?;
                (first, self.bytes(order, used)?.into_owned())
            }
        };
        Ok((first, order.into_iter().map(usize::from).collect()))
    }

    fn keys(&self, address: u64) -> ReadResult<Keys> {
        let mut header = [0; 40];
        let is_3_10 = self.interpreter.layout.version.1 == 10;
        let size = if is_3_10 { 40 } else { 32 };
        self.copy(address, &mut header[..size])?;
        let word = |offset: usize| u64_at(&header, offset).ok_or(Gap::Wrong);
        let (indices, count, kind) = if is_3_10 {
            let places = word(8)?;
            let width = match places {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                0x1_0000..=0xffff_ffff => 4,
                _ => return Err(Gap::Wrong),
            };
            (places * width, word(32)?, 0)
        } else {
            let fields = u32_at(&header, 8).ok_or(Gap::Wrong)?.to_le_bytes();
            if fields[1] > 44 || fields[2] > SPLIT {
                return Err(Gap::Wrong);
            }
            (1 << fields[1], word(24)?, fields[2])
        };
        // The general kind keeps hashes with its keys.
        let (words, key) = if kind == 0 { (3, 1) } else { (2, 0) };
        Ok(Keys {
            entries: address
                .checked_add(size as u64 + indices)
                .ok_or(Gap::Wrong)?,
            count: plausible(count)?,
            words,
            key,
            is_split: kind == SPLIT,
        })
    }
}

fn plausible(count: u64) -> ReadResult<usize> {
    if count < MAX_COUNT {
        Ok(count as usize)
    } else {
        Err(Gap::Wrong)
    }
}
