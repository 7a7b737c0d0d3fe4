//! Names of functions: the symbols of an ELF file, all or the exported ones.
//!
//! A library may have a million: the table is gone through once for all addresses asked for, and only the names that
//! fit are read.

use crate::elf::{Bytes, Image, SECTION_HEADER, SHT_DYNSYM, SYMBOL, u16_at, u32_at, u64_at};

const SHT_SYMTAB: u32 = 2;
/// Of the table, read at once.
const PIECE: usize = SYMBOL << 15;
/// More than any library has: ten million symbols.
const MAX_SYMBOLS: u64 = 10_000_000 * SYMBOL as u64;
/// Names of one place that are compared.
const MAX_ALIASES: usize = 16;
/// Names of C++ are long, sometimes absurdly.
const MAX_NAME: usize = 4096;
const LOCAL: u8 = 0;
const NO_TYPE: u8 = 0;
const FUNCTION: u8 = 2;
const INDIRECT_FUNCTION: u8 = 10;

/// An address of code, and where its function begins, if that is known otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeAddress {
    pub address: u64,
    pub function: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    name: u32,
    local: bool,
    /// Of functions inside each other, the smaller one is meant.
    size: u64,
}

impl<B: Bytes> Image<B> {
    pub fn has_all_symbols(&self) -> bool {
        self.table_of(SHT_SYMTAB).is_some()
    }

    /// The function at each address, as the linker calls it.
    pub fn functions(&self, wanted: &[CodeAddress]) -> Vec<Option<String>> {
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_unstable_by_key(|index| wanted[*index].address);
        let mut names = vec![None; wanted.len()];
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            if names.iter().all(Option::is_some) {
                break;
            }
            self.functions_of(kind, wanted, &order, &mut names);
        }
        names
    }

    fn table_of(&self, kind: u32) -> Option<(&[u8], &[u8])> {
        let mut sections = self.sections.chunks_exact(SECTION_HEADER);
        let table = sections
            .clone()
            .find(|section| u32_at(section, 4) == Some(kind))?;
        let strings = sections.nth(u32_at(table, 40)? as usize)?;
        Some((table, strings))
    }

    fn functions_of(
        &self,
        kind: u32,
        wanted: &[CodeAddress],
        order: &[usize],
        names: &mut [Option<String>],
    ) {
        let Some((table, strings)) = self.table_of(kind) else {
            return;
        };
        let mut candidates: Vec<Vec<Candidate>> = vec![Vec::new(); wanted.len()];
        let place = (u64_at(table, 24), u64_at(table, 32));
        let (Some(mut offset), Some(mut left)) = place else {
            return;
        };
        if left > MAX_SYMBOLS {
            return;
        }
        while left > 0 {
            let len = (PIECE as u64).min(left);
            let Some(symbols) = self.file.read(offset, len as usize) else {
                return;
            };
            for symbol in symbols.chunks_exact(SYMBOL) {
                consider(symbol, wanted, order, &mut candidates);
            }
            (offset, left) = (offset.saturating_add(len), left - len);
        }
        for (name, candidates) in names.iter_mut().zip(&candidates) {
            if name.is_none() {
                *name = self.best(strings, candidates);
            }
        }
    }

    /// The name that people know: no `__libc_` before it, exported rather than not.
    fn best(&self, strings: &[u8], candidates: &[Candidate]) -> Option<String> {
        let smallest = candidates.iter().map(|candidate| candidate.size).min()?;
        candidates
            .iter()
            .filter(|candidate| candidate.size == smallest)
            .filter_map(|candidate| Some((candidate.local, self.name(strings, candidate.name)?)))
            .min_by_key(|(local, name)| {
                let underscores = name.len() - name.trim_start_matches('_').len();
                // All names of C++ and Rust begin with one.
                let is_mangled = name.starts_with("_Z") || name.starts_with("_R");
                (
                    !is_mangled && underscores > 0,
                    *local,
                    name.len(),
                    name.clone(),
                )
            })
            .map(|(_, name)| name)
    }

    fn name(&self, strings: &[u8], at: u32) -> Option<String> {
        let (offset, size) = (u64_at(strings, 24)?, u64_at(strings, 32)?);
        let left = size.checked_sub(at.into())?;
        let len = (MAX_NAME as u64).min(left) as usize;
        let bytes = self.file.read(offset.checked_add(at.into())?, len)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        // Names with a dollar mark what is code and what is not.
        let is_name = end > 0 && bytes[0] != b'$';
        is_name.then(|| String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// Notes a symbol for the addresses that it covers.
fn consider(
    symbol: &[u8],
    wanted: &[CodeAddress],
    order: &[usize],
    candidates: &mut [Vec<Candidate>],
) {
    let fields = (
        u32_at(symbol, 0),
        symbol.get(4),
        u16_at(symbol, 6),
        u64_at(symbol, 8),
        u64_at(symbol, 16),
    );
    let (Some(name), Some(info), Some(section), Some(start), Some(size)) = fields else {
        return;
    };
    let (kind, local) = (info & 15, info >> 4 == LOCAL);
    let is_code = matches!(kind, FUNCTION | INDIRECT_FUNCTION | NO_TYPE);
    if !is_code || section == 0 || name == 0 {
        return;
    }
    let first = order.partition_point(|index| wanted[*index].address < start);
    for index in &order[first..] {
        let CodeAddress { address, function } = wanted[*index];
        // Assembly often does not say how long a function is.
        let (covered, size) = match size {
            0 => (function == Some(start), u64::MAX),
            _ => (address - start < size, size),
        };
        if !covered {
            break;
        }
        let list = &mut candidates[*index];
        if list.len() < MAX_ALIASES {
            list.push(Candidate { name, local, size });
        }
    }
}
