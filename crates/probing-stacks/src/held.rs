//! The Python frames of a held thread: the pages to copy are found before, and what is on them is understood afterwards.
//!
//! While the thread stands still its memory is copied, and nothing else is done. Frames on pages that were not expected are
//! missing from such a copy; then they are expected at the next hold.

use std::collections::HashSet;

use crate::consistency::Reading;
use crate::memory::{Memory, PAGE, Pages, Range, u64_at};
use crate::python::frames::{self, Chain, FrameChainEnd};
use crate::python::layout::Runs;
use crate::python::thread_states::{self, Thread};
use crate::snapshot::{CHUNK, read_all};
use crate::thread_hold;

/// Of a thread, to copy at once.
const MAX_PAGES: usize = 1024;

/// What is to be copied of a thread.
pub(crate) struct Expected<'a, M: ?Sized> {
    reading: &'a Reading<'a, M>,
    /// What each interpreter knows of it.
    threads: &'a [Thread],
    pages: Vec<Range>,
}

/// A copy, of one moment.
pub(crate) struct Copied {
    heads: Vec<Option<Vec<u8>>>,
    newest: Vec<u64>,
    pages: Pages,
}

impl<'a, M: Memory + ?Sized> Expected<'a, M> {
    pub(crate) fn new(reading: &'a Reading<'a, M>, threads: &'a [Thread]) -> Self {
        Self {
            reading,
            threads,
            pages: Vec::new(),
        }
    }

    /// Looks where the frames are now. Where they were before they may be again.
    pub(crate) fn look(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        let (heads, chains) = read_all(self.reading, self.threads);
        let mut pages = Vec::new();
        for (head, chain) in heads.into_iter().zip(&chains) {
            let head = head.unwrap_or_default();
            if head.chunk != 0 {
                let chunk = (0..CHUNK as u64).step_by(PAGE as usize);
                pages.extend(chunk.map(|at| Pages::around((head.chunk.saturating_add(at), 1))));
            }
            pages.extend(self.reading.ranges(head, chain));
        }
        pages.append(&mut self.pages);
        let mut seen = HashSet::new();
        pages.retain(|range| seen.insert(*range));
        pages.truncate(MAX_PAGES);
        self.pages = pages;
    }

    /// Copies it, in one system call.
    pub(crate) fn copy(&self) -> Copied {
        let layout = &self.reading.interpreter.layout.thread;
        let size = thread_states::size_of_head(self.reading.interpreter);
        let newest = layout.runs.map_or(0, |Runs { newest, .. }| newest);
        let heads = self.threads.iter().map(|thread| (thread.address, size));
        let runs = self
            .threads
            .iter()
            .map(|thread| (thread.address.wrapping_add(newest), 8));
        let places: Vec<Range> = heads
            .chain(runs)
            .chain(self.pages.iter().copied())
            .collect();
        let mut answers = self.reading.memory.read_many(&places).into_iter();
        let heads = answers.by_ref().take(self.threads.len()).collect();
        let number = |bytes: Option<Vec<u8>>| u64_at(&bytes?, 0);
        let runs = answers.by_ref().take(self.threads.len());
        let runs: Vec<u64> = runs.map(|bytes| number(bytes).unwrap_or(0)).collect();
        let mut pages = Pages::default();
        for (range, bytes) in self.pages.iter().zip(answers) {
            if let Some(bytes) = bytes {
                pages.insert(*range, bytes);
            }
        }
        Copied {
            heads,
            newest: if layout.runs.is_some() {
                runs
            } else {
                vec![0; self.threads.len()]
            },
            pages,
        }
    }

    /// The frames that were copied. Those that were not are read from `more`.
    pub(crate) fn chains(&self, copied: &mut Copied, more: &(impl Memory + ?Sized)) -> Vec<Chain> {
        let pages = &mut copied.pages;
        let layout = &self.reading.interpreter.layout;
        let broken = || Chain {
            end: FrameChainEnd::Broken,
            ..Chain::default()
        };
        let heads = copied.heads.iter();
        let chain = |bytes: &Option<Vec<u8>>| {
            let head = thread_states::head(self.reading.interpreter, bytes.as_deref()?)?;
            let is_outside = head.frame == 0 && head.pointer == 0;
            let frame = if is_outside {
                0 // it is not in Python yet, or any more
            } else {
                self.reading.current_frame(head, more, pages)?
            };
            let max_depth = self.reading.max_depth;
            frames::walk(layout, more, pages, &[frame], max_depth).pop()
        };
        heads
            .map(chain)
            .map(|chain| chain.unwrap_or_else(broken))
            .collect()
    }
}

impl Copied {
    /// Adds whole pages that were copied at the same moment.
    pub(crate) fn add(&mut self, (range, bytes): (Range, Vec<u8>)) {
        self.pages.insert(range, bytes);
    }

    /// The newest run of each thread, where that is listed.
    pub(crate) fn newest(self) -> Vec<u64> {
        self.newest
    }
}

/// Has nothing that was not copied.
pub(crate) struct NoMore;

impl Memory for NoMore {
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
        vec![None; ranges.len()]
    }
}

/// Memory that is read as long as its thread may be held.
pub(crate) struct InTime<'a, M: ?Sized> {
    pub(crate) memory: &'a M,
    pub(crate) held: &'a thread_hold::StoppedThread,
}

impl<M: Memory + ?Sized> Memory for InTime<'_, M> {
    fn read_many(&self, ranges: &[Range]) -> Vec<Option<Vec<u8>>> {
        if self.held.is_late() {
            return vec![None; ranges.len()];
        }
        self.memory.read_many(ranges)
    }
}
