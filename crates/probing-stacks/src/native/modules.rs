//! The native files of a target: their unwind tables and symbols.
//!
//! A file is looked at when a thread is first seen in it, and kept. What it holds is read from the file as the target
//! sees it; if that is gone (deleted, or never was one: the vdso) from the target's memory.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use probing_process::elf::{Bytes, CodeAddress, Image};
use probing_process::memory::Memory;
use probing_process::procfs::maps::Mapping;
use probing_process::python;
use probing_proto::process::Pid;

use crate::native::names;
use crate::native::source_lines::{SourceLine, SourceLines};
use crate::native::table::{Row, UnwindTable};

/// The largest libraries of today have 60 MB of it.
const MAX_TABLE: u64 = 256 << 20;
/// Of a file that is only to be had from memory: its headers, and all of the vdso.
const MAX_HEADERS: u64 = 64 << 10;
/// Where distributions put files of symbols.
const APART: &str = "/usr/lib/debug";
const MAX_NAME_BYTES: usize = 256;
/// Places whose rules are kept.
const MAX_ROWS: usize = 100_000;

/// What of a file could be had.
#[derive(Debug)]
enum Contents {
    File(File),
    Copy(Vec<u8>),
}

impl Bytes for Contents {
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        match self {
            Self::File(file) => file.read(offset, len),
            Self::Copy(bytes) => bytes.read(offset, len),
        }
    }
}

/// A file with code, at its place in memory.
pub(crate) struct Module {
    path: Arc<Path>,
    /// What is added to an address in the file.
    bias: u64,
    image: Arc<Image<Contents>>,
    table: Option<UnwindTable>,
    /// Read when the first line is asked for.
    lines: OnceLock<Option<SourceLines<Contents>>>,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut module = f.debug_struct("Module");
        module.field("path", &self.path).finish_non_exhaustive()
    }
}

impl Module {
    fn load(
        pid: Pid,
        memory: &(impl Memory + ?Sized),
        mapping: &Mapping,
        first: u64,
    ) -> Option<Self> {
        let file = python::open(pid, mapping).filter(|_| mapping.is_file());
        let contents = if let Some(file) = file {
            Contents::File(file)
        } else {
            let len = MAX_HEADERS.min(mapping.end.saturating_sub(mapping.start));
            Contents::Copy(memory.read(first, len as usize)?)
        };
        let image = Image::parse(contents)?;
        let bias = image.code_bias(mapping.start, mapping.offset)?;
        let mut module = Self {
            path: Path::new(&mapping.path).into(),
            bias,
            image: Arc::new(image),
            table: None,
            lines: OnceLock::new(),
        };
        module.table = module.read_table(memory);
        Some(module)
    }

    fn read_table(&self, memory: &(impl Memory + ?Sized)) -> Option<UnwindTable> {
        let read = |address: u64, len: u64| {
            let len = usize::try_from(len).ok().filter(|_| len <= MAX_TABLE)?;
            let in_memory = || memory.read(self.bias.wrapping_add(address), len);
            self.image.read_at(address, len).or_else(in_memory)
        };
        let (header_at, len) = self.image.unwind_header()?;
        let header = read(header_at, len)?;
        let frames_at = UnwindTable::frames_address(&header, header_at)?;
        let end = self.image.end_of_segment(frames_at)?;
        let frames = read(frames_at, end - frames_at)?;
        Some(UnwindTable::new(header, header_at, frames, frames_at))
    }

    pub(crate) fn table(&self) -> Option<&UnwindTable> {
        self.table.as_ref()
    }

    fn in_file(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }

    /// The names of functions at addresses in the file.
    fn names(&self, pid: Pid, addresses: &[u64]) -> Vec<Option<String>> {
        let function = |address: u64| Some(self.table()?.row(address)?.function);
        let wanted: Vec<CodeAddress> = addresses
            .iter()
            .map(|address| CodeAddress {
                address: *address,
                function: function(*address),
            })
            .collect();
        let apart = self
            .symbols_apart(pid)
            .map(|image| image.functions(&wanted));
        let mut names = apart.unwrap_or_else(|| vec![None; wanted.len()]);
        if names.iter().any(Option::is_none) {
            let own = self.image.functions(&wanted);
            for (name, own) in names.iter_mut().zip(own) {
                *name = name.take().or(own);
            }
        }
        names
    }

    /// The lines at addresses in the file, by it or by the file of symbols that is installed apart.
    fn source_lines(&self, pid: Pid, addresses: &[u64]) -> HashMap<u64, SourceLine> {
        if addresses.is_empty() {
            return HashMap::new();
        }
        let lines = self.lines.get_or_init(|| {
            let own = SourceLines::of(Arc::clone(&self.image));
            own.or_else(|| SourceLines::of(Arc::new(self.image_apart(pid)?)))
        });
        let found = lines.as_ref().map(|lines| lines.find(addresses));
        found.unwrap_or_default()
    }

    /// The file of symbols that a distribution installs apart, for a file without its own.
    fn symbols_apart(&self, pid: Pid) -> Option<Image<Contents>> {
        if self.image.has_all_symbols() {
            return None;
        }
        self.image_apart(pid)
    }

    fn image_apart(&self, pid: Pid) -> Option<Image<Contents>> {
        let id = self.image.build_id()?;
        let (first, rest) = id.split_first()?;
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        let by_id = Path::new(APART).join(format!(".build-id/{first:02x}/{rest}.debug"));
        let linked = self.linked().unwrap_or_default();
        let mut paths = std::iter::once(by_id).chain(linked);
        paths.find_map(|path| {
            let image = Image::parse(Contents::File(python::open_path(pid, &path)?))?;
            // An older one is of no use.
            (image.build_id().as_ref() == Some(&id)).then_some(image)
        })
    }

    /// Where a file that names its file of symbols may have it.
    fn linked(&self) -> Option<[PathBuf; 3]> {
        let link = self.image.debug_section(".gnu_debuglink")?;
        let link = self.image.read_part(link, 0, MAX_NAME_BYTES)?;
        let name = CStr::from_bytes_until_nul(&link).ok()?.to_str().ok()?;
        let is_name = !name.is_empty() && !name.contains('/');
        let folder = self.path.parent().filter(|_| is_name)?;
        let apart = Path::new(APART).join(folder.strip_prefix("/").ok()?);
        let hidden = folder.join(".debug");
        Some([folder.join(name), hidden.join(name), apart.join(name)])
    }
}

/// Whether code is in memory alone, where a compiler has put it.
fn is_in_no_file(mapping: &Mapping) -> bool {
    let path = mapping.path.as_str();
    path.is_empty() || path.starts_with("/memfd:") || path.starts_with("/dev/zero")
}

/// What a place in the code is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    /// `None`: the file does not say.
    pub(crate) function: Option<Arc<str>>,
    pub(crate) module: Arc<Path>,
    /// In the file.
    pub(crate) address: u64,
    /// In the source code.
    pub(crate) line: Option<SourceLine>,
}

/// What came of looking at a file.
#[derive(Debug, Clone, Default)]
enum Lookup {
    #[default]
    NotYet,
    Nothing,
    Found(Arc<Module>),
}

#[derive(Debug)]
struct Slot {
    mapping: Mapping,
    /// Where the file's first bytes are.
    first: u64,
    module: Lookup,
}

/// How to leave a place in the code.
type UnwindStep = (Arc<Module>, Arc<Row>);

/// What is kept from one reading to the next.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Code, in the order of addresses.
    slots: Vec<Slot>,
    rows: HashMap<u64, Option<UnwindStep>>,
    names: HashMap<u64, Name>,
}

impl Loaded {
    /// What code is called that is in no file: a compiler has made it in the process, and says nowhere what it is of.
    fn generated(&self) -> &'static str {
        let is_numbas = |slot: &Slot| slot.mapping.name().starts_with("libllvmlite");
        if self.slots.iter().any(is_numbas) {
            "<numba>"
        } else {
            "<generated code>"
        }
    }

    /// Takes note of what is mapped now.
    pub(crate) fn refresh(&mut self, maps: &[Mapping]) {
        let code: Vec<&Mapping> = maps.iter().filter(|mapping| mapping.executable).collect();
        if self
            .slots
            .iter()
            .map(|slot| &slot.mapping)
            .eq(code.iter().copied())
        {
            return;
        }
        let mut before = std::mem::take(&mut self.slots);
        let slot = |mapping: &Mapping| {
            let same = before.iter_mut().find(|slot| slot.mapping == *mapping);
            let first = maps
                .iter()
                .filter(|other| other.path == mapping.path && other.offset == 0)
                .rfind(|other| other.start <= mapping.start);
            Slot {
                module: same.map_or(Lookup::NotYet, |slot| std::mem::take(&mut slot.module)),
                first: first.map_or(mapping.start, |first| first.start),
                mapping: mapping.clone(),
            }
        };
        self.slots = code.into_iter().map(slot).collect();
        self.rows.clear();
        self.names.clear();
    }

    fn index(&self, address: u64) -> Option<usize> {
        let index = self
            .slots
            .partition_point(|slot| slot.mapping.end <= address);
        let slot = self.slots.get(index)?;
        slot.mapping.contains(address).then_some(index)
    }
}

/// The files of one target, during one reading.
pub(crate) struct Modules<'a, M: ?Sized> {
    pub(crate) pid: Pid,
    pub(crate) memory: &'a M,
    pub(crate) loaded: &'a mut Loaded,
}

impl<M: Memory + ?Sized> Modules<'_, M> {
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.loaded.index(address).is_some()
    }

    fn at(&mut self, address: u64) -> Option<Arc<Module>> {
        let index = self.loaded.index(address)?;
        let slot = &mut self.loaded.slots[index];
        if matches!(slot.module, Lookup::NotYet) {
            let found = Module::load(self.pid, self.memory, &slot.mapping, slot.first);
            slot.module = found.map_or(Lookup::Nothing, |module| Lookup::Found(Arc::new(module)));
        }
        match &slot.module {
            Lookup::Found(module) => Some(module.clone()),
            Lookup::NotYet | Lookup::Nothing => None,
        }
    }

    /// How to leave the function at an address.
    pub(crate) fn row(&mut self, address: u64) -> Option<UnwindStep> {
        if let Some(known) = self.loaded.rows.get(&address) {
            return known.clone();
        }
        let found = self.at(address).and_then(|module| {
            let row = module.table()?.row(module.in_file(address))?;
            Some((module, Arc::new(row)))
        });
        if self.loaded.rows.len() >= MAX_ROWS {
            self.loaded.rows.clear();
        }
        self.loaded.rows.insert(address, found.clone());
        found
    }

    /// What places are called; each file is gone through once. Lines are looked up for those that `is_shown`.
    pub(crate) fn name_all(
        &mut self,
        addresses: impl Iterator<Item = u64>,
        is_shown: impl Fn(&Name) -> bool,
    ) -> HashMap<u64, Name> {
        if self.loaded.names.len() >= MAX_ROWS {
            self.loaded.names.clear();
        }
        let (mut found, mut wanted) = (HashMap::new(), HashMap::<usize, Vec<u64>>::new());
        for address in addresses {
            if let Some(name) = self.loaded.names.get(&address) {
                found.insert(address, name.clone());
            } else if let Some(index) = self.loaded.index(address) {
                wanted.entry(index).or_default().push(address);
            }
        }
        for (index, mut addresses) in wanted {
            addresses.sort_unstable();
            addresses.dedup();
            let mut names = self.names_in(index, &addresses);
            self.add_lines(addresses[0], &mut names, &is_shown);
            for (address, name) in names {
                self.loaded.names.insert(address, name.clone());
                found.insert(address, name);
            }
        }
        found
    }

    fn add_lines(
        &mut self,
        inside: u64,
        names: &mut [(u64, Name)],
        is_shown: impl Fn(&Name) -> bool,
    ) {
        let Some(module) = self.at(inside) else {
            return;
        };
        let shown = names.iter_mut().map(|(_, name)| name);
        let shown: Vec<&mut Name> = shown.filter(|name| is_shown(name)).collect();
        let addresses: Vec<u64> = shown.iter().map(|name| name.address).collect();
        let mut lines = module.source_lines(self.pid, &addresses);
        for name in shown {
            name.line = lines.remove(&name.address);
        }
    }

    fn names_in(&mut self, index: usize, addresses: &[u64]) -> Vec<(u64, Name)> {
        let Some(module) = self.at(addresses[0]) else {
            let mapping = &self.loaded.slots[index].mapping;
            let module: Arc<Path> = PathBuf::from(&mapping.path).into();
            let generated = is_in_no_file(mapping).then(|| self.loaded.generated());
            let unknown = addresses.iter().map(|address| {
                let name = Name {
                    function: generated.map(Arc::from),
                    module: module.clone(),
                    address: *address,
                    line: None,
                };
                (*address, name)
            });
            return unknown.collect();
        };
        let in_file: Vec<u64> = addresses.iter().map(|at| module.in_file(*at)).collect();
        let functions = module.names(self.pid, &in_file);
        let found = addresses.iter().zip(in_file).zip(functions);
        found
            .map(|((address, in_file), function)| {
                let name = Name {
                    function: function.map(|function| names::readable(&function).into()),
                    module: module.path.clone(),
                    address: in_file,
                    line: None,
                };
                (*address, name)
            })
            .collect()
    }
}
