//! Blocks that were sampled and are in use, summed up by the stacks that allocated them.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use probing_proto::message::TracebackFrame;
use probing_proto::message::recorders::{HeapSite, Live};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::python::address_hash::Address;
use crate::recorders::memory::heap::PERIOD_BYTES;
use crate::recorders::memory::heap::hooks::{MARKS, mark_of};
use crate::recorders::memory::heap::stacks::{Stack, StackText};

/// Blocks in use that are kept: for 32 GiB.
const MAX_BLOCKS: usize = 1 << 16;
/// Code objects that are held: what goes beyond is looked at in words each time.
const MAX_CODES: usize = 8192;
/// Stacks that are kept. Those from which nothing is in use any more make room.
const MAX_STACKS: usize = 4096;
/// Ways to them that are remembered: one line of code is many places.
const MAX_KNOWN: usize = 1 << 16;

/// By numbers that are different enough as they are.
type ByNumber<Key, Value> = HashMap<Key, Value, BuildHasherDefault<Address>>;

#[derive(Debug, Default)]
pub(crate) struct Samples {
    blocks: ByNumber<usize, Block>,
    stacks: ByNumber<u64, StackTotals>,
    /// Stacks by what is cheap to look at.
    known: ByNumber<u64, u64>,
    /// Code objects of those, held so that nobody else can have their addresses. Let go of by [`Samples::clear`]'s caller.
    held: HashSet<usize>,
    /// How many blocks have each mark; empty before the first.
    marks: Vec<u32>,
    /// Names and files, each once.
    texts: HashSet<Arc<str>>,
    live_bytes: f64,
    dropped: u64,
}

/// A block that was sampled and is in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) size: usize,
    pub(crate) is_object: bool,
    stack: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) func: Arc<str>,
    pub(crate) file: Arc<str>,
    pub(crate) lineno: u32,
}

#[derive(Debug)]
struct StackTotals {
    frames: Arc<[Frame]>,
    live: Sum,
    allocated_bytes: f64,
}

/// What samples stand for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    bytes: f64,
    blocks: f64,
    samples: u64,
}

/// A stack and what is in use of what it allocated.
#[derive(Debug)]
pub(crate) struct Site {
    id: u64,
    pub(crate) frames: Arc<[Frame]>,
    pub(crate) live: Sum,
    pub(crate) allocated_bytes: f64,
}

/// Takes a reference, which is given back by [`release`].
#[expect(
    unsafe_code,
    reason = "a reference that no `Py` holds: there is no `Python` here"
)]
fn hold(code: *mut PyObject) {
    // SAFETY: the code of a frame that runs in this thread, which holds the GIL, or there would be no frames.
    unsafe { ffi::Py_IncRef(code) };
}

/// Gives the references back.
#[expect(unsafe_code, reason = "a reference that no `Py` holds")]
pub(crate) fn release(_: Python<'_>, codes: &HashSet<usize>) {
    for code in codes {
        // SAFETY: a reference of `hold`'s, given back once. The GIL is held.
        unsafe { ffi::Py_DECREF(*code as *mut PyObject) };
    }
}

/// How many blocks of this size a sample stands for: one of `size` bytes is seen with the probability that a countdown ends
/// in it.
fn weight(size: usize) -> f64 {
    let seen = -(-(size as f64) / PERIOD_BYTES as f64).exp_m1();
    if seen > 0.0 { 1.0 / seen } else { 0.0 }
}

impl Sum {
    pub(crate) fn one(size: usize) -> Self {
        let blocks = weight(size);
        Self {
            bytes: blocks * size as f64,
            blocks,
            samples: 1,
        }
    }

    pub(crate) fn add(&mut self, one: Self) {
        self.bytes += one.bytes;
        self.blocks += one.blocks;
        self.samples += one.samples;
    }

    fn take(&mut self, one: Self) {
        self.bytes = (self.bytes - one.bytes).max(0.0);
        self.blocks = (self.blocks - one.blocks).max(0.0);
        self.samples = self.samples.saturating_sub(one.samples);
    }

    pub(crate) fn told(self) -> Live {
        Live {
            bytes: self.bytes.round() as u64,
            blocks: self.blocks.round() as u64,
            samples: self.samples,
        }
    }
}

impl Samples {
    /// Keeps a block of a stack that is known by now. False when there is no room.
    pub(crate) fn insert(
        &mut self,
        address: usize,
        block: (usize, bool),
        stack: Option<u64>,
    ) -> bool {
        let (size, is_object) = block;
        let id = stack.filter(|_| self.blocks.len() < MAX_BLOCKS);
        let Some(id) = id else {
            self.dropped += 1;
            return false;
        };
        let one = Sum::one(size);
        if let Some(kept) = self.stacks.get_mut(&id) {
            kept.live.add(one);
            kept.allocated_bytes += one.bytes;
        }
        self.live_bytes += one.bytes;
        let block = Block {
            size,
            is_object,
            stack: id,
        };
        if self.blocks.insert(address, block).is_none() {
            // Memory that is not touched costs nothing.
            if self.marks.is_empty() {
                self.marks = vec![0; MARKS];
            }
            self.marks[mark_of(address)] += 1;
        }
        true
    }

    /// Forgets a block that is given back. Whether no other has its mark.
    pub(crate) fn remove(&mut self, address: usize) -> bool {
        let Some(block) = self.blocks.remove(&address) else {
            return false;
        };
        let one = Sum::one(block.size);
        if let Some(kept) = self.stacks.get_mut(&block.stack) {
            kept.live.take(one);
        }
        self.live_bytes = (self.live_bytes - one.bytes).max(0.0);
        let left = &mut self.marks[mark_of(address)];
        *left -= 1;
        *left == 0
    }

    /// Forgets everything. Gives the code objects that were held.
    #[must_use]
    pub(crate) fn clear(&mut self) -> HashSet<usize> {
        std::mem::take(self).held
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = (usize, Block)> {
        self.blocks
            .iter()
            .map(|(address, block)| (*address, *block))
    }

    pub(crate) fn live_bytes(&self) -> f64 {
        self.live_bytes
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Those with most bytes in use.
    pub(crate) fn sites(&self, most: usize) -> Vec<Site> {
        let mut sites: Vec<Site> = self
            .stacks
            .iter()
            .filter(|(_, kept)| kept.live.samples > 0)
            .map(|(id, kept)| Site {
                id: *id,
                frames: Arc::clone(&kept.frames),
                live: kept.live,
                allocated_bytes: kept.allocated_bytes,
            })
            .collect();
        sites.sort_by(|one, other| other.live.bytes.total_cmp(&one.live.bytes));
        sites.truncate(most);
        sites
    }

    /// The number of a stack that was seen before.
    pub(crate) fn known(&self, stack: &Stack) -> Option<u64> {
        let id = self.known.get(&stack.key());
        id.filter(|id| self.stacks.contains_key(id)).copied()
    }

    /// The number of a stack from now on; none when there is no room for it.
    pub(crate) fn learn(&mut self, stack: &Stack, words: &StackText) -> Option<u64> {
        let id = words.id();
        if !self.stacks.contains_key(&id) {
            self.make_room();
            if self.stacks.len() >= MAX_STACKS {
                return None;
            }
            let frames = words.frames().map(|(func, file, lineno)| Frame {
                func: self.text(func),
                file: self.text(file),
                lineno,
            });
            let frames: Vec<Frame> = frames.collect();
            let kept = StackTotals {
                frames: frames.into(),
                live: Sum::default(),
                allocated_bytes: 0.0,
            };
            self.stacks.insert(id, kept);
        }
        if self.held.len() < MAX_CODES {
            for code in stack
                .codes()
                .filter(|code| self.held.insert(*code as usize))
            {
                hold(code);
            }
            if self.known.len() >= MAX_KNOWN {
                self.known.clear();
            }
            self.known.insert(stack.key(), id);
        }
        Some(id)
    }

    /// Forgets stacks of which nothing is in use, when there are many.
    fn make_room(&mut self) {
        if self.stacks.len() >= MAX_STACKS {
            self.stacks.retain(|_, kept| kept.live.samples > 0);
            self.texts.retain(|text| Arc::strong_count(text) > 1);
        }
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&text));
        text
    }
}

impl Site {
    /// `func (file:line)`, innermost first.
    pub(crate) fn text(&self) -> String {
        let frames = self.frames.iter();
        let frames =
            frames.map(|frame| format!("{} ({}:{})", frame.func, frame.file, frame.lineno));
        frames.collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn told(self) -> HeapSite {
        let frames = self.frames.iter().map(|frame| TracebackFrame {
            func: frame.func.to_string(),
            file: frame.file.to_string(),
            lineno: frame.lineno,
        });
        HeapSite {
            id: self.id,
            stack: frames.collect(),
            live: self.live.told(),
        }
    }
}
