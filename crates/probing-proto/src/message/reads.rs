//! Messages by which a probe reads memory and files of its own process for a client.

use serde::{Deserialize, Serialize};

use crate::message::omitted::is_zero;

/// The most bytes that one answer brings.
pub const MAX_READ: usize = 4 << 20;
/// The most ranges of one request.
pub const MAX_RANGES: usize = 4096;

/// Part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCall {
    /// In the process's `/proc/self`: `maps`, `stat`, `status`, `task` (a folder: its names, a line each), and these of a
    /// thread: `task/4243/syscall`. Or the whole path of a file whose code the process runs.
    pub file: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at: u64,
    /// The maximum of bytes.
    pub len: usize,
}

/// Bytes, which are the payload: one piece for each that was asked for, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    /// How long each is; `null` for one that is not wholly mapped, and of which nothing is in the payload.
    pub lengths: Vec<Option<usize>>,
}

impl Pieces {
    /// The payload in pieces; `None` when it is not as long as it should be.
    pub fn of(&self, mut payload: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
        let mut pieces = Vec::with_capacity(self.lengths.len());
        for length in &self.lengths {
            let piece = match length {
                Some(length) => {
                    let (piece, rest) = payload.split_at_checked(*length)?;
                    payload = rest;
                    Some(piece.to_vec())
                }
                None => None,
            };
            pieces.push(piece);
        }
        Some(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_cut_as_it_is_said_to_be() {
        let pieces = |lengths: &[Option<usize>]| Pieces {
            lengths: lengths.to_vec(),
        };
        let cut = pieces(&[Some(2), None, Some(0), Some(1)]).of(b"abc");
        let expected = [
            Some(b"ab".to_vec()),
            None,
            Some(vec![]),
            Some(b"c".to_vec()),
        ];
        assert_eq!(cut.unwrap(), expected);
        assert_eq!(pieces(&[Some(2), Some(usize::MAX)]).of(b"abc"), None);
    }
}
