//! Symbols, the section `.PyRuntime` and segments of an untrusted ELF file.
//!
//! Only what is needed is read (headers, `.dynsym`, its strings): a libpython has 30 MB, of which this is 1 %.
//! Read, not mapped, because a file that shrinks under a mapping kills the reader. Every size is checked
//! before it is believed, so a hostile file gives `None`, never a panic or a huge allocation.

mod functions;
mod sections;
mod segments;

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

pub use self::functions::CodeAddress;
pub use self::sections::Part;

/// More than any `.dynsym` or string table of a Python: 64 MB.
const MAX_TABLE: u64 = 64 << 20;
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
const PT_LOAD: u32 = 1;
const SHT_DYNSYM: u32 = 11;
/// Two addresses of one segment differ by less than this after rounding to pages of any size.
const MAX_PAGE: u64 = 0x10000;

/// Bytes with random access: a file, or a slice in tests.
pub trait Bytes: fmt::Debug {
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>>;
}

impl Bytes for File {
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let size = self.metadata().ok()?.len();
        if offset.checked_add(len as u64)? > size {
            return None;
        }
        let mut bytes = vec![0; len];
        self.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

impl<B: Bytes + ?Sized> Bytes for Box<B> {
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        (**self).read(offset, len)
    }
}

impl Bytes for &[u8] {
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        self.get(start..start.checked_add(len)?).map(<[u8]>::to_vec)
    }
}

impl Bytes for Vec<u8> {
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        self.as_slice().read(offset, len)
    }
}

/// A 64-bit little-endian ELF file.
#[derive(Debug)]
pub struct Image<B> {
    file: B,
    segments: Vec<u8>,
    sections: Vec<u8>,
    exports: OnceLock<Option<Exports>>,
}

#[derive(Debug)]
struct Exports {
    symbols: Vec<u8>,
    strings: Vec<u8>,
}

impl<B: Bytes> Image<B> {
    pub fn parse(file: B) -> Option<Self> {
        let header = file.read(0, HEADER)?;
        let is_elf64_le = header.starts_with(b"\x7fELF\x02\x01");
        let sizes = (u16_at(&header, 54)?, u16_at(&header, 58)?);
        if !is_elf64_le || sizes != (PROGRAM_HEADER as u16, SECTION_HEADER as u16) {
            return None;
        }
        let table = |offset, count: u16, size| file.read(offset, usize::from(count) * size);
        let sections = table(u64_at(&header, 40)?, u16_at(&header, 60)?, SECTION_HEADER);
        Some(Self {
            segments: table(u64_at(&header, 32)?, u16_at(&header, 56)?, PROGRAM_HEADER)?,
            // Of a file that is only to be had from memory they are not there.
            sections: sections.unwrap_or_default(),
            exports: OnceLock::new(),
            file,
        })
    }

    /// What to add to an address in the file to have it in memory, given where one page of the file is mapped.
    pub fn bias(&self, mapped_at: u64, file_offset: u64) -> Option<u64> {
        self.segments
            .chunks_exact(PROGRAM_HEADER)
            .find_map(|segment| {
                let (offset, address) = (u64_at(segment, 8)?, u64_at(segment, 16)?);
                let into_page = offset.checked_sub(file_offset)?;
                (u32_at(segment, 0)? == PT_LOAD && into_page < MAX_PAGE)
                    .then(|| mapped_at.wrapping_add(into_page).wrapping_sub(address))
            })
    }

    /// Addresses in the file of exported symbols, in the order of `names`.
    pub fn exported<const N: usize>(&self, names: [&str; N]) -> Option<[Option<u64>; N]> {
        let exports = self.exports.get_or_init(|| self.read_exports());
        let Exports { symbols, strings } = exports.as_ref()?;
        let mut found = [None; N];
        for symbol in symbols.chunks_exact(SYMBOL) {
            let (name, section, address) =
                (u32_at(symbol, 0)?, u16_at(symbol, 6)?, u64_at(symbol, 8)?);
            let Some(name) = strings.get(name as usize..) else {
                continue;
            };
            let defined = section != 0 && address != 0;
            if defined
                && (name.starts_with(b"Py") || name.starts_with(b"_Py"))
                && let Some(index) = names.iter().position(|wanted| is_c_string(name, wanted))
            {
                found[index] = Some(address);
            }
        }
        Some(found)
    }

    fn read_exports(&self) -> Option<Exports> {
        let mut sections = self.sections.chunks_exact(SECTION_HEADER);
        let mut all = sections.clone();
        let dynsym = sections.find(|section| u32_at(section, 4) == Some(SHT_DYNSYM))?;
        let strings = all.nth(u32_at(dynsym, 40)? as usize)?;
        Some(Exports {
            symbols: self.section(dynsym)?,
            strings: self.section(strings)?,
        })
    }

    fn section(&self, header: &[u8]) -> Option<Vec<u8>> {
        let (offset, size) = (u64_at(header, 24)?, u64_at(header, 32)?);
        if size > MAX_TABLE {
            return None;
        }
        self.file.read(offset, size as usize)
    }
}

fn is_c_string(bytes: &[u8], text: &str) -> bool {
    bytes
        .strip_prefix(text.as_bytes())
        .is_some_and(|rest| rest.first() == Some(&0))
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        bytes.get(offset..offset + 2)?.try_into().ok()?,
    ))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(offset..offset + 4)?.try_into().ok()?,
    ))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(offset..offset + 8)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads everything that the crate would read.
    fn read_all(bytes: &[u8]) -> Option<[Option<u64>; 2]> {
        let image = Image::parse(bytes)?;
        image.bias(0x7000, 0);
        image.section_named(".PyRuntime");
        image.code_bias(0x7000, 0);
        image
            .debug_section(".PyRuntime")
            .and_then(|part| image.read_part(part, 0, 100));
        image.build_id();
        if let Some((address, len)) = image.unwind_header() {
            image.read_at(address, len.min(1 << 20) as usize);
            image.end_of_segment(address);
        }
        let function = Some(0x11);
        image.functions(&[0, 0x11, u64::MAX].map(|address| CodeAddress { address, function }));
        image.exported(["Py_Version", "_PyRuntime"])
    }

    /// A file with one segment and the symbols `Py_Version` (at 0x11) and `PyOther`.
    fn small_elf() -> Vec<u8> {
        let strings = b"\0Py_Version\0PyOther\0";
        let symbols = [symbol(0, 0, 0), symbol(1, 5, 0x11), symbol(12, 5, 0x22)].concat();
        let mut file = vec![0; HEADER];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(32, &64u64.to_le_bytes());
        put(40, &120u64.to_le_bytes());
        put(54, &56u16.to_le_bytes());
        put(56, &1u16.to_le_bytes());
        put(58, &64u16.to_le_bytes());
        put(60, &2u16.to_le_bytes());
        let mut segment = vec![0; PROGRAM_HEADER];
        segment[0] = PT_LOAD as u8;
        segment[16..24].copy_from_slice(&0x1000u64.to_le_bytes());
        file.extend(segment);
        let tables = 120 + 2 * SECTION_HEADER as u64;
        file.extend(section(SHT_DYNSYM, tables, symbols.len() as u64, 1));
        file.extend(section(
            3,
            tables + symbols.len() as u64,
            strings.len() as u64,
            0,
        ));
        file.extend(symbols);
        file.extend(strings);
        file
    }

    fn symbol(name: u32, section: u16, address: u64) -> Vec<u8> {
        [
            &name.to_le_bytes()[..],
            &[0, 0],
            &section.to_le_bytes(),
            &address.to_le_bytes(),
            &[0; 8],
        ]
        .concat()
    }

    fn section(kind: u32, offset: u64, size: u64, link: u32) -> Vec<u8> {
        let mut header = vec![0; SECTION_HEADER];
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&offset.to_le_bytes());
        header[32..40].copy_from_slice(&size.to_le_bytes());
        header[40..44].copy_from_slice(&link.to_le_bytes());
        header
    }

    #[test]
    fn exported_symbols_are_found_by_their_whole_name() {
        assert_eq!(read_all(&small_elf()), Some([Some(0x11), None]));
        let file = small_elf();
        let image = Image::parse(&file[..]).unwrap();
        assert_eq!(
            image.exported(["PyOth", "PyOther"]),
            Some([None, Some(0x22)])
        );
        assert_eq!(image.bias(0x5000, 0), Some(0x4000));
    }

    #[test]
    fn functions_are_named_by_what_covers_them() {
        let image = Image::parse(small_elf()).unwrap();
        let at = |address, function| CodeAddress { address, function };
        let wanted = [
            at(0x23, Some(0x22)),
            at(0x12, Some(0x11)),
            at(0x12, None),
            at(0x5, Some(0x5)),
        ];
        let names = image.functions(&wanted);
        let expected = [Some("PyOther"), Some("Py_Version"), None, None];
        assert_eq!(names, expected.map(|name| name.map(str::to_owned)));
    }

    #[test]
    fn a_file_that_is_no_elf_is_nothing() {
        assert_eq!(read_all(b""), None);
        assert_eq!(read_all(b"#!/bin/sh\n"), None);
        assert_eq!(read_all(&small_elf()[..100]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            read_all(&bytes);
        }

        #[test]
        fn a_damaged_file_is_survived(damage in prop::collection::vec((0usize..400, any::<u8>()), 1..12), cut in 0usize..400) {
            let mut file = small_elf();
            for (at, byte) in damage {
                if let Some(slot) = file.get_mut(at) {
                    *slot = byte;
                }
            }
            read_all(&file);
            file.truncate(cut);
            read_all(&file);
        }
    }
}
