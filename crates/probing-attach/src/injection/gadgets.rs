//! Finds the few instructions that we use where they already are: nothing in the target is patched.

use memchr::memmem;
use probing_process::procfs::maps::Mapping;
use probing_proto::process::Pid;

use crate::arch::{CALL_PATTERNS, Gadgets, RESTORER_PATTERNS};
use crate::error::{AttachError, Unsupported};
use crate::injection::memory::Memory;

/// Read in pieces, because both are usually found in the first few.
const PIECE: usize = 0x20000;
/// Pieces overlap by more than the longest pattern.
const OVERLAP: usize = 16;

pub(crate) fn find(pid: Pid, maps: &[Mapping], memory: &Memory) -> Result<Gadgets, AttachError> {
    let mut places: Vec<&Mapping> = maps
        .iter()
        .filter(|mapping| mapping.executable && mapping.readable)
        .filter(|mapping| mapping.path.starts_with('/') || mapping.path == "[vdso]")
        .collect();
    places.sort_by_key(|mapping| !is_libc(mapping.name())); // on x86_64 it has both
    let (mut call, mut restorer) = (None, None);
    for mapping in places {
        let mut start = mapping.start;
        while start < mapping.end {
            let len = (mapping.end - start).min(PIECE as u64) as usize;
            let Ok(piece) = memory.read_vec(start, len) else {
                break;
            };
            call = call.or_else(|| position(&piece, CALL_PATTERNS).map(|at| start + at));
            restorer =
                restorer.or_else(|| position(&piece, RESTORER_PATTERNS).map(|at| start + at));
            if let (Some(call), Some(restorer)) = (call, restorer) {
                return Ok(Gadgets { call, restorer });
            }
            if len < PIECE {
                break;
            }
            start += (PIECE - OVERLAP) as u64;
        }
    }
    let what = if call.is_none() {
        "a system call"
    } else {
        "a signal's return"
    };
    Err(AttachError::NotSupported {
        pid,
        what: Unsupported::Gadget { what },
    })
}

/// Not `libcrypto` or `libcublas`: a program that uses torch has hundreds of megabytes of such.
fn is_libc(name: &str) -> bool {
    name.starts_with("libc.") || name.starts_with("libc-") || name.contains("musl")
}

fn position(bytes: &[u8], patterns: &[&[u8]]) -> Option<u64> {
    let find = |pattern: &&[u8]| memmem::find(bytes, pattern);
    patterns.iter().find_map(find).map(|at| at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_c_is_told_from_others_that_begin_like_it() {
        for name in ["libc.so.6", "libc-2.31.so", "ld-musl-x86_64.so.1"] {
            assert!(is_libc(name), "{name}");
        }
        for name in ["libcublas.so.13", "libcrypto.so.3", "libpython3.12.so.1.0"] {
            assert!(!is_libc(name), "{name}");
        }
    }

    #[test]
    fn the_first_whole_pattern_is_found() {
        assert_eq!(position(b"aabcaabz", &[b"abz"]), Some(5));
        assert_eq!(position(b"aab", &[b"abz"]), None);
        assert_eq!(position(b"xyz", &[b"q", b"yz"]), Some(1));
        assert_eq!(position(b"", &[b"q"]), None);
    }
}
