//! Memory blocks that killed attaches left in the target, which the next attach finds and unmaps.
//!
//! Blocks that attaches left in the target, because they were killed or could not tell whether somebody is in one:
//! found and unmapped by the next.
//!
//! A block is known by where it lies: an address of a window that programs do not use, whose upper part is random and
//! whose lower part follows from the upper. So even one that nobody had time to write a word into is known for ours.

use std::time::{Duration, Instant, SystemTime};

use probing_process::procfs::maps::Mapping;
use probing_process::procfs::status::Status;
use probing_process::procfs::threads as kernel;
use probing_process::procfs::threads::Tid;

use crate::injection::hijacked_thread::{Borrowed, InspectionMode};
use crate::injection::inject::{self, Target};
use crate::injection::remote_block::{Block, Layout, PAGE, StubKind, at};

/// The window is from 16 to 32 TB: above every program and its heap, below libraries and stacks.
const WINDOW: u64 = 1 << 44;
/// Distance between two places: 64 MB where pages have 4 KB. The largest block is a thirtieth of that.
const SPACING: u64 = PAGE << 14;
/// How many places there are.
const PLACES: u64 = WINDOW / SPACING;
/// How many blocks are unmapped while a thread is held, and how many by one attach.
const AT_ONCE: usize = 4;
const AT_MOST: usize = 256;

/// Where the block with this number belongs.
fn place(number: u64) -> u64 {
    let number = number % PLACES;
    let check = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
    WINDOW + number * SPACING + check * PAGE
}

fn is_place(address: u64) -> bool {
    let number = address
        .checked_sub(WINDOW)
        .map(|distance| distance / SPACING);
    number.is_some_and(|number| number < PLACES && place(number) == address)
}

/// A place for a block of this size, chosen by chance. `None`: the target does not use such addresses.
pub(crate) fn free_place(maps: &[Mapping], size: u64) -> Option<u64> {
    const TRIES: u64 = 8;
    let reaches_beyond = |mapping: &Mapping| mapping.end > 2 * WINDOW;
    if size > SPACING / 2 || !maps.iter().any(reaches_beyond) {
        return None;
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().ok()?.as_nanos() as u64;
    let chance = now.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20;
    let is_free = |start: &u64| {
        let is_apart = |mapping: &Mapping| mapping.end < *start || mapping.start > start + size;
        maps.iter().all(is_apart)
    };
    (0..TRIES).map(|more| place(chance + more)).find(is_free)
}

/// Unmaps what was left, as far as it is certain that nobody is in it. Failures are left to the next attach.
pub(crate) fn take_back(target: &Target<'_>) {
    let found: Vec<(u64, u64)> = left_in(&target.maps).take(AT_MOST).collect();
    // Somebody may be at work in one of them this very moment.
    if found.is_empty() || is_traced(target) {
        return;
    }
    let until = Instant::now() + target.deadline.saturating_duration_since(Instant::now()) / 4;
    let mut empty = Vec::new();
    for (start, total) in found {
        if Instant::now() > until {
            break;
        }
        empty.extend(emptied(target, start, total));
    }
    for blocks in empty.chunks(AT_ONCE) {
        if Instant::now() > until || inject::unmap_from_outside(target, blocks).is_err() {
            break;
        }
    }
}

/// Start and length of our blocks: one page of code, and what follows it once the stub has made that writable.
fn left_in(maps: &[Mapping]) -> impl Iterator<Item = (u64, u64)> {
    maps.iter().enumerate().filter_map(|(index, code)| {
        let is_code = code.executable && !code.writable && code.path.is_empty();
        if !is_code || !is_place(code.start) {
            return None;
        }
        let next = maps.get(index + 1).filter(|next| {
            next.start == code.end && next.writable && !next.executable && next.path.is_empty()
        });
        let end = match next {
            Some(next) if code.end - code.start == PAGE => next.end,
            _ => code.end,
        };
        Some((code.start, end - code.start))
    })
}

fn is_traced(target: &Target<'_>) -> bool {
    let pid = target.pid;
    let tracer = |tid| Status::of_thread(pid, tid).and_then(|status| status.tracer());
    let tids = kernel::thread_ids(pid).unwrap_or_default();
    tids.into_iter().any(|tid| tracer(tid).is_some())
}

/// A block to be unmapped. `None`: somebody may be in it, or it is gone.
fn emptied(target: &Target<'_>, start: u64, total: u64) -> Option<Block> {
    let unknown = Layout::new(StubKind::Thread, 0, 0);
    let block = |way| Block {
        start,
        layout: Layout {
            way,
            total,
            ..unknown
        },
    };
    let status = block(StubKind::Thread).status(&target.memory).ok()?;
    let Some(way) = status.way else {
        // Its maker died before it wrote a word: nobody knows of it.
        return Some(block(StubKind::Thread));
    };
    let block = block(way);
    let home_stack = target.memory.read_u64(block.word(at::OWN_STACK)).ok()?;
    let now = Instant::now();
    let borrowed = Borrowed {
        block,
        // If it has ended, no thread has this number.
        tid: kernel::by_id_inside(target.pid, status.borrowed).unwrap_or(Tid(0)),
        home_stack,
        since: now,
        since_monotonic: Duration::ZERO,
        running: None,
    };
    let has_thread = status.left && way != StubKind::Hijack && status.started >= 0;
    match way {
        StubKind::Pending if status.helper_alive => return None,
        StubKind::Pending if status.queued == Some(true) && status.caller == 0 => {
            // Its call is still in the queue: main stands still for that, and unmaps it.
            _ = inject::take_back(target, &block);
            return None;
        }
        StubKind::Pending if status.queued != Some(true) => {}
        _ if has_thread && !borrowed.thread_is_gone(target) => return None,
        _ => {}
    }
    // After the thread has had the GIL main has left its call.
    let is_certain = way != StubKind::Pending || !target.python.free_threaded;
    (is_certain && borrowed.is_home(target, InspectionMode::MayStop)).then_some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, rights: &str) -> Mapping {
        let has = |right| rights.contains(right);
        Mapping {
            start,
            end,
            offset: 0,
            readable: has('r'),
            writable: has('w'),
            executable: has('x'),
            path: String::new(),
        }
    }

    #[test]
    fn a_place_is_known_again_and_its_neighbours_are_not() {
        for number in (0..PLACES).step_by(997) {
            let place = place(number);
            assert!(is_place(place));
            assert!((WINDOW..2 * WINDOW).contains(&place));
            assert!(
                ![place - PAGE, place + PAGE, place + SPACING].map(is_place)[..2].contains(&true)
            );
        }
        assert!(!is_place(0x5555_5555_4000) && !is_place(0x7f00_0000_0000));
    }

    #[test]
    fn a_free_place_is_apart_from_what_is_there() {
        let high = mapping(0x7f00_0000_0000, 0x7f00_0000_1000, "r");
        let place = free_place(std::slice::from_ref(&high), 0x20000).unwrap();
        assert!(is_place(place));
        let everything = mapping(WINDOW, 2 * WINDOW, "r");
        assert_eq!(free_place(&[everything, high], 0x20000), None);
        let small = mapping(0x1000, 0x2000, "r");
        assert_eq!(free_place(&[small], 0x20000), None);
    }

    #[test]
    fn blocks_are_found_before_and_after_they_were_entered() {
        let (one, two, other) = (place(1), place(2), 0x7f00_0000_0000);
        let maps = [
            mapping(one, one + 0x30000, "rx"),
            mapping(two, two + PAGE, "rx"),
            mapping(two + PAGE, two + 0x20000, "rw"),
            mapping(other, other + PAGE, "rx"),
        ];
        let found: Vec<(u64, u64)> = left_in(&maps).collect();
        assert_eq!(found, [(one, 0x30000), (two, 0x20000)]);
    }
}
