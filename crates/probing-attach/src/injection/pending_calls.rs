//! The interpreter's queue of pending calls: one of ours that main has not made yet becomes one that does nothing.
//!
//! A call in the queue is two words side by side, function and argument. Ours is found by its values, which nobody else
//! has, wherever a version of Python keeps its queue; in the place of our function comes one of Python's own. So the
//! block need not wait for main to come by, which may never do. What stays until then is one call of nothing.

use std::io;

use crate::injection::inject::Target;
use crate::injection::remote_block::{Block, words};

/// The queue is near the start of the interpreter (up to 3.11) or of `_PyRuntime`.
const SEARCHED: usize = 0x4000;

/// Replaces our function in the queue. Only while main stands still and has nothing of the block in hand: then nobody
/// can make the call after this. False: it is not there.
pub(crate) fn empty(target: &Target<'_>, block: &Block, interpreter: u64) -> io::Result<bool> {
    let nothing = target.python.functions.nothing_raised;
    let mut found = false;
    for start in target.python.runtime.into_iter().chain([interpreter]) {
        let bytes = target.memory.read_vec(start, SEARCHED)?;
        for distance in calls_of(block, &bytes) {
            target.memory.write_u64(start + distance, nothing)?;
            found = true;
        }
    }
    Ok(found)
}

/// Where our function stands in front of its argument.
fn calls_of(block: &Block, bytes: &[u8]) -> Vec<u64> {
    let words: Vec<u64> = words(bytes).collect();
    let is_ours = |two: &[u64]| block.code().contains(&two[0]) && two[1] == block.context();
    let found = words.windows(2).enumerate().filter(|(_, two)| is_ours(two));
    found.map(|(index, _)| 8 * index as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::injection::remote_block::{Layout, PAGE, StubKind};

    #[test]
    fn only_our_function_with_our_argument_is_our_call() {
        let start = 0x7000_0000;
        let layout = Layout::new(StubKind::Pending, 10, 0);
        let block = Block { start, layout };
        let (function, context) = (start + 0x80, start + PAGE);
        let find = |words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            calls_of(&block, &bytes)
        };
        assert_eq!(find(&[0, function, context, 0]), [8]);
        assert_eq!(find(&[function, context, function, context]), [0, 16]);
        for others in [
            [function, 0],
            [0, context],
            [context, function],
            [start - 8, context],
        ] {
            assert_eq!(find(&others), [0; 0], "{others:x?}");
        }
    }
}
