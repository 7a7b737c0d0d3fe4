//! Pinned rings: a private copy of rows that their writer would overwrite before a query has read them.

use std::io;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::reader::copy::{Copied, Limits};
use crate::reader::{Ring, RingChunk};

/// A writer that comes round sooner than this is faster than a query may be.
const LAP_TIMEOUT: Duration = Duration::from_secs(2);
/// The copy of a ring is made at most this often; the one with the most rows counts.
const MAX_COPIES: u32 = 8;
/// No ring takes longer to copy.
const COPY_TIMEOUT: Duration = Duration::from_secs(2);

/// A copy of a ring that nobody writes.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) ring: Ring,
    /// Rows that were there and were overwritten before they were copied.
    pub(crate) overwritten: u64,
}

impl Ring {
    /// Whether the writer is likely to overwrite the oldest of these chunks while a query reads them.
    pub(crate) fn laps_soon(&self, chunks: &[RingChunk]) -> bool {
        let (Some(oldest), Some(newest)) = (chunks.first(), chunks.last()) else {
            return false;
        };
        let span = newest.ts_max.saturating_sub(oldest.ts_min).max(0);
        let chunk = Duration::from_nanos(span as u64) / chunks.len() as u32;
        chunk.saturating_mul(self.layout.shape.slots) < LAP_TIMEOUT
    }

    /// Copies the rows that are there into memory of our own, the newest first. When the writer was faster the copy is
    /// made again, and the best one is kept.
    pub(crate) fn pin(&self) -> io::Result<Pinned> {
        let limits = Limits {
            bytes: u64::MAX,
            until: Instant::now() + COPY_TIMEOUT,
        };
        let mut best: Option<(rustix::fd::OwnedFd, Copied)> = None;
        for _ in 0..MAX_COPIES {
            let file = memfd_create("probing-rows", MemfdFlags::CLOEXEC)?;
            let copied = self.copy(file.try_clone()?.into(), limits)?;
            let is_whole = copied.rows == copied.of_rows;
            let is_better = |(_, other): &(_, Copied)| copied.rows > other.rows;
            if best.as_ref().is_none_or(is_better) {
                best = Some((file, copied));
            }
            if is_whole || Instant::now() >= limits.until {
                break;
            }
        }
        let (file, copied) = best.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Pinned {
            ring: Self::from_file(file.into(), self.path.clone()).map_err(io::Error::other)?,
            overwritten: copied.of_rows - copied.rows,
        })
    }
}
