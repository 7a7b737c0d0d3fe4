//! Sections of an ELF file by their names.

use crate::elf::{Bytes, HEADER, Image, SECTION_HEADER, is_c_string, u16_at, u32_at, u64_at};

const SHT_NOBITS: u32 = 8;
const SHF_COMPRESSED: u64 = 0x800;

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    offset: u64,
    pub len: u64,
}

impl<B: Bytes> Image<B> {
    /// Address in the file of the section of this name.
    pub fn section_named(&self, wanted: &str) -> Option<u64> {
        u64_at(self.header_of(wanted)?, 16)
    }

    /// Where the file has what debuggers read. Not of one that is compressed.
    pub fn debug_section(&self, wanted: &str) -> Option<Part> {
        let header = self.header_of(wanted)?;
        let is_there = u32_at(header, 4)? != SHT_NOBITS && u64_at(header, 8)? & SHF_COMPRESSED == 0;
        is_there.then_some(Part {
            offset: u64_at(header, 24)?,
            len: u64_at(header, 32)?,
        })
    }

    /// Bytes of a part; fewer at its end.
    pub fn read_part(&self, part: Part, at: u64, most: usize) -> Option<Vec<u8>> {
        let len = part.len.checked_sub(at)?.min(most as u64);
        self.file.read(part.offset.checked_add(at)?, len as usize)
    }

    fn header_of(&self, wanted: &str) -> Option<&[u8]> {
        let header = self.file.read(0, HEADER)?;
        let names = usize::from(u16_at(&header, 62)?);
        let mut sections = self.sections.chunks_exact(SECTION_HEADER);
        let names = self.section(sections.clone().nth(names)?)?;
        sections.find(|section| {
            let name = u32_at(section, 0).and_then(|at| names.get(at as usize..));
            name.is_some_and(|name| is_c_string(name, wanted))
        })
    }
}
