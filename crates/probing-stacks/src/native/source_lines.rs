//! Source lines of native functions, from the debug information of their file.
//!
//! Debug information may have gigabytes. Read is which unit of it an address belongs to, the beginning of that unit, and
//! its table of lines: of a libpython, a fifth. What is compressed, too large or damaged gives no lines.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{
    AttributeValue, DebugAranges, DebugInfoOffset, Dwarf, EndianSlice, LineProgramHeader,
    LittleEndian, SectionId, Unit,
};
use probing_process::elf::{Bytes, Image};

/// Of one section. Libraries of machine learning have more; nobody waits for that.
const MAX_SECTION: u64 = 64 << 20;
/// Of one file, where it does not say what is where: each is looked at.
const MAX_UNITS: usize = 20_000;
/// The beginning of a unit: its header and its first entry.
const BEGINNING: usize = 1024;
/// Rows of one table of lines.
const MAX_ROWS: usize = 5_000_000;

type Data<'a> = EndianSlice<'a, LittleEndian>;

/// A place in source code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceLine {
    pub(crate) file: Arc<Path>,
    pub(crate) line: u32,
}

/// Code of a unit, by addresses in the file, and where the unit is in `.debug_info`.
#[derive(Debug, Clone, Copy)]
struct UnitRange {
    start: u64,
    end: u64,
    unit: u64,
}

/// What a file says about lines.
pub(super) struct SourceLines<B> {
    image: Arc<Image<B>>,
    /// All but `.debug_info`.
    sections: HashMap<SectionId, Vec<u8>>,
    /// In the order of addresses.
    stretches: Vec<UnitRange>,
}

impl<B: Bytes> SourceLines<B> {
    pub(super) fn of(image: Arc<Image<B>>) -> Option<Self> {
        image.debug_section(SectionId::DebugLine.name())?;
        image.debug_section(SectionId::DebugInfo.name())?;
        let mut lines = Self {
            image,
            sections: HashMap::new(),
            stretches: Vec::new(),
        };
        for id in [
            SectionId::DebugAbbrev,
            SectionId::DebugLine,
            SectionId::DebugLineStr,
            SectionId::DebugStr,
            SectionId::DebugStrOffsets,
            SectionId::DebugAddr,
            SectionId::DebugRanges,
            SectionId::DebugRngLists,
        ] {
            let data = lines.section(id)?;
            lines.sections.insert(id, data);
        }
        let arranged = lines.section(SectionId::DebugAranges)?;
        lines.stretches = self::arranged(&arranged).unwrap_or_default();
        if lines.stretches.is_empty() {
            lines.stretches = lines.looked_up();
        }
        lines
            .stretches
            .sort_unstable_by_key(|stretch| stretch.start);
        Some(lines)
    }

    /// Empty when there is none; `None` when it is too large.
    fn section(&self, id: SectionId) -> Option<Vec<u8>> {
        let part = self.image.debug_section(id.name());
        Some(match part {
            Some(part) if part.len > MAX_SECTION => return None,
            Some(part) => self.image.read_part(part, 0, part.len as usize)?,
            None => Vec::new(),
        })
    }

    /// By the beginning of every unit.
    fn looked_up(&self) -> Vec<UnitRange> {
        let (mut stretches, mut at) = (Vec::new(), 0);
        for _ in 0..MAX_UNITS {
            let Some((beginning, len)) = self.beginning(at) else {
                break;
            };
            if let Ok(ranges) = self.ranges(&beginning) {
                let unit = at;
                let stretch = |(start, end)| UnitRange { start, end, unit };
                stretches.extend(ranges.into_iter().map(stretch));
            }
            at += len;
        }
        stretches
    }

    fn ranges(&self, beginning: &[u8]) -> gimli::Result<Vec<(u64, u64)>> {
        let (dwarf, unit) = self.unit(beginning)?;
        let (mut found, mut ranges) = (Vec::new(), dwarf.unit_ranges(&unit)?);
        while let Some(range) = ranges.next()? {
            found.push((range.begin, range.end));
        }
        Ok(found)
    }

    /// The first bytes of a unit, as if there were no more, and how long it really is.
    fn beginning(&self, at: u64) -> Option<(Vec<u8>, u64)> {
        let part = self.image.debug_section(SectionId::DebugInfo.name())?;
        let mut bytes = self.image.read_part(part, at, BEGINNING)?;
        let (length, rest) = bytes.split_first_chunk_mut::<4>()?;
        // Longer ones have another form, and are too long anyway.
        let len = u32::from_le_bytes(*length);
        let left = (rest.len() as u32).min(len);
        *length = left.to_le_bytes();
        bytes.truncate(left as usize + 4);
        Some((bytes, u64::from(len).checked_add(4)?))
    }

    fn unit<'a>(&'a self, beginning: &'a [u8]) -> gimli::Result<(Dwarf<Data<'a>>, Unit<Data<'a>>)> {
        let dwarf = Dwarf::load(|id| {
            let bytes = match id {
                SectionId::DebugInfo => beginning,
                id => self.sections.get(&id).map_or(&[][..], Vec::as_slice),
            };
            Ok::<_, gimli::Error>(Data::new(bytes, LittleEndian))
        })?;
        let header = dwarf.units().next()?;
        let header = header.ok_or(gimli::Error::MissingUnitDie)?;
        let unit = dwarf.unit(header)?;
        Ok((dwarf, unit))
    }

    /// The lines of addresses in the file.
    pub(super) fn find(&self, addresses: &[u64]) -> HashMap<u64, SourceLine> {
        let mut wanted: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for address in addresses {
            if let Some(unit) = self.unit_at(*address) {
                wanted.entry(unit).or_default().push(*address);
            }
        }
        let mut found = HashMap::new();
        for (unit, mut addresses) in wanted {
            addresses.sort_unstable();
            let beginning = self.beginning(unit).map(|(bytes, _)| bytes);
            let lines = beginning.and_then(|bytes| self.lines_in(&bytes, &addresses).ok());
            found.extend(lines.unwrap_or_default());
        }
        found
    }

    fn unit_at(&self, address: u64) -> Option<u64> {
        let after = self
            .stretches
            .partition_point(|stretch| stretch.start <= address);
        let stretch = self.stretches[..after].last()?;
        (address < stretch.end).then_some(stretch.unit)
    }

    /// Goes through the table of one unit, for addresses in ascending order.
    fn lines_in(
        &self,
        beginning: &[u8],
        addresses: &[u64],
    ) -> gimli::Result<Vec<(u64, SourceLine)>> {
        let (dwarf, unit) = self.unit(beginning)?;
        let Some(program) = unit.line_program.clone() else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        let mut rows = program.rows();
        let mut before: Option<(u64, u64, Option<u32>)> = None;
        for _ in 0..MAX_ROWS {
            let Some((header, row)) = rows.next_row()? else {
                break;
            };
            if let Some((start, file, Some(line))) = before {
                let first = addresses.partition_point(|address| *address < start);
                let its = addresses[first..]
                    .iter()
                    .take_while(|address| **address < row.address());
                for address in its {
                    let file = path(&dwarf, &unit, header, file)?.into();
                    found.push((*address, SourceLine { file, line }));
                }
            }
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
            before = (!row.end_sequence()).then(|| (row.address(), row.file_index(), line));
        }
        Ok(found)
    }
}

/// Which unit has which code, by the table that compilers write for this.
fn arranged(table: &[u8]) -> gimli::Result<Vec<UnitRange>> {
    let mut stretches = Vec::new();
    let mut headers = DebugAranges::new(table, LittleEndian).headers();
    while let Some(header) = headers.next()? {
        let DebugInfoOffset(unit) = header.debug_info_offset();
        let mut entries = header.entries();
        while let Some(entry) = entries.next()? {
            let start = entry.address();
            stretches.push(UnitRange {
                start,
                end: start.wrapping_add(entry.length()),
                unit: unit as u64,
            });
        }
    }
    Ok(stretches)
}

/// The path of a source file, as the compiler was told.
fn path(
    dwarf: &Dwarf<Data<'_>>,
    unit: &Unit<Data<'_>>,
    header: &LineProgramHeader<Data<'_>>,
    index: u64,
) -> gimli::Result<PathBuf> {
    let text = |value: AttributeValue<Data<'_>>| -> gimli::Result<String> {
        let text = dwarf.attr_string(unit, value)?;
        Ok(text.to_string_lossy().into_owned())
    };
    let Some(file) = header.file(index) else {
        return Ok(PathBuf::new());
    };
    let mut path = PathBuf::new();
    if let Some(folder) = &unit.comp_dir {
        path.push(&*folder.to_string_lossy());
    }
    if let Some(folder) = file.directory(header) {
        path.push(text(folder)?);
    }
    path.push(text(file.path_name())?);
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    /// A small library with debug information.
    static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = probing_testkit::root().join("tests/targets/stacks/native.c");
        let path = folder.path().join("library.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-g", "-o"]).arg(&path);
        assert!(compiler.arg(source).status().unwrap().success());
        std::fs::read(&path).unwrap()
    });

    fn find_all(file: Vec<u8>) -> Option<usize> {
        let lines = SourceLines::of(Arc::new(Image::parse(file)?))?;
        let addresses: Vec<u64> = (0..0x4000).step_by(8).collect();
        Some(lines.find(&addresses).len() + lines.looked_up().len())
    }

    #[test]
    fn a_whole_library_has_lines() {
        assert!(find_all(LIBRARY.clone()).is_some_and(|found| found > 50));
    }

    proptest! {
        #[test]
        fn damaged_debug_information_is_survived(
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
        ) {
            let mut file = LIBRARY.clone();
            // Behind the code: there it lies.
            let from = file.len() / 2;
            for (at, byte) in damage {
                let at = from + at.index(file.len() - from);
                file[at] = byte;
            }
            find_all(file);
        }
    }
}
