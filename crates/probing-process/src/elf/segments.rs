//! What of an ELF file is in memory, and where.

use crate::elf::{Bytes, Image, MAX_PAGE, PROGRAM_HEADER, PT_LOAD, u32_at, u64_at};

const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const EXECUTABLE: u32 = 1;
/// Notes are a few dozen bytes.
const MAX_NOTES: u64 = 1 << 16;
const NOTE_BUILD_ID: u32 = 3;

/// A part of the file. Addresses are the file's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl<B: Bytes> Image<B> {
    fn segments(&self) -> impl Iterator<Item = Segment> {
        let headers = self.segments.chunks_exact(PROGRAM_HEADER);
        headers.filter_map(|header| {
            Some(Segment {
                kind: u32_at(header, 0)?,
                flags: u32_at(header, 4)?,
                offset: u64_at(header, 8)?,
                address: u64_at(header, 16)?,
                size: u64_at(header, 32)?,
            })
        })
    }

    /// What to add to an address in the file to have it in memory, given where some of its code is mapped.
    pub fn code_bias(&self, mapped_at: u64, file_offset: u64) -> Option<u64> {
        let holds = |segment: &Segment| {
            let begin = segment.offset & !(MAX_PAGE - 1);
            let end = segment.offset.saturating_add(segment.size);
            (begin..end).contains(&file_offset)
        };
        // Two segments may share a page of the file: the later one has its code there.
        let code = self
            .segments()
            .filter(|segment| segment.kind == PT_LOAD && segment.flags & EXECUTABLE != 0)
            .filter(holds)
            .min_by_key(|segment| segment.offset.abs_diff(file_offset))?;
        let address = code
            .address
            .wrapping_sub(code.offset)
            .wrapping_add(file_offset);
        Some(mapped_at.wrapping_sub(address))
    }

    /// Address and length of the table in which functions are looked up to leave them: `.eh_frame_hdr`.
    pub fn unwind_header(&self) -> Option<(u64, u64)> {
        let found = self
            .segments()
            .find(|segment| segment.kind == PT_GNU_EH_FRAME)?;
        Some((found.address, found.size))
    }

    /// Where the part of the file that holds this address ends in memory.
    pub fn end_of_segment(&self, address: u64) -> Option<u64> {
        let segment = self.segment_at(address)?;
        segment.address.checked_add(segment.size)
    }

    /// Bytes by their address.
    pub fn read_at(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let segment = self.segment_at(address)?;
        let inside = address - segment.address;
        (len as u64 <= segment.size - inside).then_some(())?;
        self.file.read(segment.offset.checked_add(inside)?, len)
    }

    fn segment_at(&self, address: u64) -> Option<Segment> {
        self.segments().find(|segment| {
            let inside = address.checked_sub(segment.address);
            segment.kind == PT_LOAD && inside.is_some_and(|inside| inside < segment.size)
        })
    }

    /// What names this very build, by which files of symbols are found.
    pub fn build_id(&self) -> Option<Vec<u8>> {
        let notes = self
            .segments()
            .filter(|segment| segment.kind == PT_NOTE && segment.size <= MAX_NOTES);
        notes
            .filter_map(|segment| self.file.read(segment.offset, segment.size as usize))
            .find_map(|notes| build_id(&notes))
    }
}

fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let (name_len, len) = (u32_at(notes, 0)? as usize, u32_at(notes, 4)? as usize);
        let start = 12_usize.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let end = start.checked_add(len)?;
        let (name, id) = (notes.get(12..)?.get(..name_len)?, notes.get(start..end)?);
        if name == b"GNU\0" && u32_at(notes, 8)? == NOTE_BUILD_ID {
            return Some(id.to_vec());
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}
