//! Finds the interpreter in a process: its version, `_PyRuntime`, and the types that tell objects apart.
//!
//! Everything comes from the target's own files under `/proc/<pid>/root`, so containers need no special care,
//! and from exported symbols, so a stripped or statically linked Python serves as well.

use std::fs::{self, File};

use probing_proto::process::Pid;

use crate::elf::Image;
use crate::error::StackError;
use crate::layout::Layout;
use crate::maps::{self, Mapping};
use crate::memory::{Memory, u32_at};
use crate::permission;

/// Addresses in the target and what is known of its structures.
#[derive(Debug, Clone)]
pub(crate) struct Interpreter {
    pub(crate) runtime: u64,
    pub(crate) layout: Layout,
    pub(crate) types: Types,
}

/// Addresses of type objects. Something of another type is never taken for a code object, text or bytes.
#[expect(dead_code, reason = "values of locals are read with the rest of it")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Types {
    pub(crate) code: u64,
    pub(crate) text: u64,
    pub(crate) bytes: u64,
    /// `type`
    pub(crate) class: u64,
    pub(crate) boolean: u64,
    pub(crate) float: u64,
    pub(crate) set: u64,
    pub(crate) frozen_set: u64,
    pub(crate) cell: u64,
    pub(crate) function: u64,
    pub(crate) c_function: u64,
    pub(crate) method: u64,
    pub(crate) module: u64,
    /// The only object of its type.
    pub(crate) none: u64,
}

impl Types {
    const SYMBOLS: [&str; 14] = [
        "PyCode_Type",
        "PyUnicode_Type",
        "PyBytes_Type",
        "PyType_Type",
        "PyBool_Type",
        "PyFloat_Type",
        "PySet_Type",
        "PyFrozenSet_Type",
        "PyCell_Type",
        "PyFunction_Type",
        "PyCFunction_Type",
        "PyMethod_Type",
        "PyModule_Type",
        "_Py_NoneStruct",
    ];

    /// From the addresses of the symbols above.
    fn new(addresses: [u64; 14]) -> Self {
        let [
            code,
            text,
            bytes,
            class,
            boolean,
            float,
            set,
            frozen_set,
            ..,
        ] = addresses;
        let [.., cell, function, c_function, method, module, none] = addresses;
        Self {
            code,
            text,
            bytes,
            class,
            boolean,
            float,
            set,
            frozen_set,
            cell,
            function,
            c_function,
            method,
            module,
            none,
        }
    }
}

impl Interpreter {
    pub(crate) fn find(pid: Pid, memory: &impl Memory) -> Result<Self, StackError> {
        let maps = maps::of(pid)
            .map_err(|source| permission::explain(pid, "read the memory map", source))?;
        if maps.is_empty() {
            return Err(permission::without_memory(pid));
        }
        for mapping in candidates(pid, &maps) {
            let Some(symbols) = Symbols::read(pid, mapping) else {
                continue;
            };
            let version = symbols.version(memory, mapping);
            let layout = Layout::of(version, memory, symbols.runtime);
            let layout = layout.ok_or(StackError::NotSupported { pid, version })?;
            return Ok(Self {
                runtime: symbols.runtime,
                layout,
                types: symbols.types,
            });
        }
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        Err(StackError::NotPython { pid, program })
    }
}

/// The first mapping of every file that may hold an interpreter, the likeliest first.
fn candidates(pid: Pid, maps: &[Mapping]) -> Vec<&Mapping> {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let program = program.to_string_lossy();
    let mut found: Vec<(u8, &Mapping)> = Vec::new();
    for mapping in maps {
        let rank = match mapping.name() {
            name if name.starts_with("libpython") => 0,
            _ if mapping.path == program => 1,
            name if name.contains("python") => 2,
            _ => continue,
        };
        if found.iter().all(|(_, seen)| seen.path != mapping.path) {
            found.push((rank, mapping));
        }
    }
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, mapping)| mapping).collect()
}

struct Symbols {
    runtime: u64,
    types: Types,
    version: Option<u64>,
    since_3_10: bool,
}

impl Symbols {
    fn read(pid: Pid, mapping: &Mapping) -> Option<Self> {
        let file = open(pid, mapping)?;
        let image = Image::parse(&file)?;
        let bias = image.bias(mapping.start, mapping.offset)?;
        let names = ["_PyRuntime", "Py_Version", "PyModule_AddObjectRef"];
        let [runtime, version, since_3_10] = image.exported(names)?;
        let types = image.exported(Types::SYMBOLS)?;
        if types.contains(&None) {
            return None;
        }
        let at = |address: u64| bias.wrapping_add(address);
        Some(Self {
            runtime: at(runtime.or_else(|| image.runtime_section())?),
            types: Types::new(types.map(|address| at(address.unwrap_or(0)))),
            version: version.map(at),
            since_3_10: since_3_10.is_some(),
        })
    }

    /// `Py_Version` exists from 3.11 on; before it, one function that came with 3.10 tells, and the file's name.
    fn version(&self, memory: &impl Memory, mapping: &Mapping) -> (u8, u8) {
        let bytes = self.version.and_then(|at| memory.read(at, 4));
        if let Some(hex) = bytes.and_then(|bytes| u32_at(&bytes, 0)) {
            return ((hex >> 24) as u8, (hex >> 16) as u8);
        }
        if self.since_3_10 {
            return (3, 10);
        }
        version_in_name(mapping.name()).unwrap_or((3, 0))
    }
}

/// `libpython3.9.so.1.0`, `python2.7`.
fn version_in_name(name: &str) -> Option<(u8, u8)> {
    let (_, rest) = name.split_once("python")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The file behind a mapping. After an upgrade its path is gone, but the kernel still has the file.
fn open(pid: Pid, mapping: &Mapping) -> Option<File> {
    let Mapping { start, end, .. } = mapping;
    if let Some(path) = mapping.path.strip_suffix(" (deleted)") {
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let is_program = program.to_string_lossy().starts_with(path);
        return File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
            .or_else(|error| {
                if is_program {
                    File::open(format!("/proc/{pid}/exe"))
                } else {
                    Err(error)
                }
            })
            .ok();
    }
    File::open(format!("/proc/{pid}/root{}", mapping.path)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_in_the_name_of_the_file() {
        assert_eq!(version_in_name("libpython3.9.so.1.0"), Some((3, 9)));
        assert_eq!(version_in_name("python2.7"), Some((2, 7)));
        assert_eq!(version_in_name("uwsgi"), None);
    }
}
