//! What became of the blocks that were sampled: the types of the objects in them.
//!
//! Nothing of the program is called and nothing is counted object by object. A block of the allocator of objects begins with
//! the object, or with what the garbage collector and the object's attributes need, then the object: one of three words is
//! its type, if it is an object at all. What is believed to be a type is read through the kernel, which refuses what is not
//! there: a word that only looks like one costs a wrong name, never the process.
#![expect(unsafe_code, reason = "reads memory by address")]

use std::collections::HashMap;
use std::ptr;

use probing_proto::message::recorders::HeapType;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::recorders::memory::heap::samples::{Samples, Sum};

const WORD: usize = size_of::<usize>();
/// Where the type of an object is, in the object.
const TYPE: usize = WORD;
/// Where the object is in its block: alone, behind the collector's head, behind that and two words for attributes.
const OBJECTS: [usize; 3] = [0, 2 * WORD, 4 * WORD];
/// In a type object, of all versions from 3.10 to 3.14: its name, and its flags.
const NAME: usize = 3 * WORD;
const FLAGS: usize = 21 * WORD;
/// Instances of this type are types.
const TYPE_SUBCLASS: usize = 1 << 31;
const MAX_NAME_BYTES: usize = 128;
/// Types that are told about.
const MAX_TYPES: usize = 200;
/// What is no object: the room of a list, the table of a dictionary.
const BUFFER: &str = "(buffers)";

/// Sums by type, most bytes first. The GIL is held: no block of an object is given back meanwhile.
pub(crate) fn live_types(py: Python<'_>, samples: &Samples) -> Vec<HeapType> {
    let mut names: HashMap<usize, Option<String>> = HashMap::new();
    let mut sums: HashMap<String, Sum> = HashMap::new();
    let types = py.get_type::<PyType>().as_ptr() as usize;
    for (address, block) in samples.blocks() {
        let candidates = OBJECTS.iter().filter(|_| block.is_object);
        let mut candidates = candidates
            .filter(|at| *at + TYPE + WORD <= block.size)
            // SAFETY: within a block that is in use, as the sampler has heard of no `free`; word by word, as it is laid out.
            .map(|at| unsafe { ptr::read_volatile((address + at + TYPE) as *const usize) });
        let name = candidates.find_map(|candidate| {
            let name = names.entry(candidate);
            name.or_insert_with(|| name_of(candidate, types)).clone()
        });
        sums.entry(name.unwrap_or_else(|| BUFFER.to_owned()))
            .or_default()
            .add(Sum::one(block.size));
    }
    let told = sums.into_iter();
    let mut told: Vec<HeapType> = told
        .map(|(name, sum)| HeapType {
            name,
            live: sum.told(),
        })
        .collect();
    told.sort_by_key(|kind| std::cmp::Reverse(kind.live.bytes));
    told.truncate(MAX_TYPES);
    told
}

/// The name of what may be a type; `types` is the type of most types.
fn name_of(candidate: usize, types: usize) -> Option<String> {
    let kind = word(candidate.checked_add(TYPE)?)?;
    let is_type = kind == types
        || word(kind.checked_add(TYPE)?)? == types
            && word(kind.checked_add(FLAGS)?)? & TYPE_SUBCLASS != 0;
    if !is_type {
        return None;
    }
    let name = word(candidate.checked_add(NAME)?)?;
    let bytes = read::<MAX_NAME_BYTES>(name)?;
    let text = bytes.split(|byte| *byte == 0).next()?;
    let text = str::from_utf8(text).ok()?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn word(address: usize) -> Option<usize> {
    read::<WORD>(address)
        .filter(|_| address.is_multiple_of(WORD))
        .map(usize::from_ne_bytes)
}

/// Bytes of this process, as far as they are there: what is behind the last page is zero.
fn read<const LENGTH: usize>(address: usize) -> Option<[u8; LENGTH]> {
    let mut bytes = [0_u8; LENGTH];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: LENGTH,
    };
    // In two pieces where a page ends within: the kernel reads whole pieces or none.
    let page = 4096;
    let first = LENGTH.min(page - address % page);
    let remote = [
        libc::iovec {
            iov_base: address as *mut _,
            iov_len: first,
        },
        libc::iovec {
            iov_base: address.wrapping_add(first) as *mut _,
            iov_len: LENGTH - first,
        },
    ];
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: `bytes` has room for what is read; the other side is checked by the kernel.
    let read = unsafe { libc::process_vm_readv(own, &raw const local, 1, remote.as_ptr(), 2, 0) };
    (read > 0).then_some(bytes)
}
