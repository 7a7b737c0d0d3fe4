//! The first page of a ring, as it is written and as it is read.

use probing_proto::process::{Pid, ProcessKey};

use crate::ring::layout::{HEADER_BYTES, Shape};

/// `probing` and a zero byte.
const MAGIC: [u8; 8] = *b"probing\0";
/// Rings of another format are refused.
pub(crate) const VERSION: u32 = 4;

/// Offsets of words that change while the ring is written, each in a cache line of its own.
pub(crate) const SLOTS_IN_USE: u64 = 128;
pub(crate) const STRING_COUNT: u64 = 192;
/// The generation of the chunk that was begun last: those before it get no more rows.
pub(crate) const NEWEST: u64 = 256;
/// The generation of the newest of those chunks whose place was used again.
pub(crate) const GONE: u64 = 264;

/// Words of a chunk's head, from its beginning.
pub(crate) const GENERATION: u64 = 0;
pub(crate) const COMMITTED: u64 = 8;
pub(crate) const SEALED: u64 = 12;
pub(crate) const TS_MIN: u64 = 16;
pub(crate) const TS_MAX: u64 = 24;
pub(crate) const WALL_OFFSET: u64 = 32;
pub(crate) const FIRST_ROW: u64 = 40;
pub(crate) const TEXT_USED: u64 = 48;

/// Who writes a ring, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The process, as it sees itself.
    pub process: ProcessKey,
    /// The boot that its start time counts from.
    pub boot_id: [u8; 16],
    /// When the ring was made, on the clock of its rows.
    pub made_monotonic_nanos: i64,
    /// The same moment since 1970.
    pub made_wall_nanos: i64,
    /// Which of several writers of a table this is.
    pub shard: u32,
}

/// What the first page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) origin: Origin,
    pub(crate) shape: Shape,
}

/// Why a page is not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAHeader {
    Magic,
    Version(u32),
    Numbers,
}

impl Header {
    /// Has `put` put each of its words where it belongs.
    pub(crate) fn write(&self, mut put: impl FnMut(u64, &[u8])) {
        let Self { origin, shape } = self;
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &origin.process.pid.0.to_le_bytes());
        put(16, &origin.process.start_ticks.to_le_bytes());
        put(24, &origin.boot_id);
        put(40, &origin.made_monotonic_nanos.to_le_bytes());
        put(48, &origin.made_wall_nanos.to_le_bytes());
        put(56, &shape.schema_bytes.to_le_bytes());
        put(60, &shape.rows.to_le_bytes());
        put(64, &shape.slots.to_le_bytes());
        put(68, &shape.strings.to_le_bytes());
        put(72, &shape.heap_bytes.to_le_bytes());
        put(76, &shape.text_bytes.to_le_bytes());
        put(80, &origin.shard.to_le_bytes());
    }

    pub(crate) fn read(page: &[u8; HEADER_BYTES as usize]) -> Result<Self, NotAHeader> {
        if page[..8] != MAGIC {
            return Err(NotAHeader::Magic);
        }
        let version = u32_at(page, 8);
        if version != VERSION {
            return Err(NotAHeader::Version(version));
        }
        let shape = Shape {
            schema_bytes: u32_at(page, 56),
            rows: u32_at(page, 60),
            slots: u32_at(page, 64),
            strings: u32_at(page, 68),
            heap_bytes: u32_at(page, 72),
            text_bytes: u32_at(page, 76),
        };
        if !shape.is_sane() {
            return Err(NotAHeader::Numbers);
        }
        let mut boot_id = [0; 16];
        boot_id.copy_from_slice(&page[24..40]);
        let origin = Origin {
            process: ProcessKey {
                pid: Pid(u32_at(page, 12)),
                start_ticks: u64_at(page, 16),
            },
            boot_id,
            made_monotonic_nanos: u64_at(page, 40) as i64,
            made_wall_nanos: u64_at(page, 48) as i64,
            shard: u32_at(page, 80),
        };
        Ok(Self { origin, shape })
    }
}

/// A word of a page; zero beyond its end.
pub(crate) fn u32_at(page: &[u8], offset: u64) -> u32 {
    let bytes = page.get(offset as usize..).and_then(<[u8]>::first_chunk);
    bytes.copied().map_or(0, u32::from_le_bytes)
}

/// A word of a page; zero beyond its end.
pub(crate) fn u64_at(page: &[u8], offset: u64) -> u64 {
    let bytes = page.get(offset as usize..).and_then(<[u8]>::first_chunk);
    bytes.copied().map_or(0, u64::from_le_bytes)
}
