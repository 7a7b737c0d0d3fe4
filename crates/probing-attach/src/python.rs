//! Finds the interpreter in a process: its version and the addresses of the functions that we call.
//!
//! Everything comes from the target's own files under `/proc/<pid>/root`, so containers need no special care,
//! and from exported symbols only, so a stripped Python serves as well.

use std::fs::{self, File};

use probing_proto::process::Pid;

use crate::elf::Image;
use crate::error::{AttachError, Unsupported};
use crate::maps::Mapping;
use crate::memory::Memory;

/// The oldest Python that we enter.
const OLDEST: (u8, u8) = (3, 10);

/// Addresses in the target of the C functions that injected code calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions {
    pub(crate) is_initialized: u64,
    pub(crate) ensure_gil: u64,
    pub(crate) release_gil: u64,
    pub(crate) new_dict: u64,
    pub(crate) run_string: u64,
    pub(crate) clear_error: u64,
    pub(crate) dict_item: u64,
    pub(crate) bytes_start: u64,
    pub(crate) bytes_len: u64,
    pub(crate) drop_reference: u64,
    pub(crate) start_thread: u64,
    pub(crate) add_pending_call: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Python {
    pub(crate) version: (u8, u8),
    pub(crate) free_threaded: bool,
    pub(crate) functions: Functions,
    /// `_PyRuntime`, which starts with a table of offsets from 3.13 on.
    pub(crate) runtime: Option<u64>,
}

impl Python {
    pub(crate) fn find(pid: Pid, maps: &[Mapping], memory: &Memory) -> Result<Self, AttachError> {
        for mapping in candidates(pid, maps) {
            let Some(symbols) = Symbols::read(pid, mapping) else {
                continue;
            };
            let Some(functions) = symbols.functions else {
                continue;
            };
            let version = symbols.version(memory, mapping);
            if version < OLDEST {
                let what = Unsupported::OldPython { version };
                return Err(AttachError::NotSupported { pid, what });
            }
            return Ok(Self {
                version,
                free_threaded: symbols.free_threaded,
                functions,
                runtime: symbols.runtime,
            });
        }
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        Err(AttachError::NotPython { pid, program })
    }

    /// By the table that `_PyRuntime` starts with from 3.13 on. The newest interpreter is the head of the list; main
    /// has the number 0.
    pub(crate) fn main_interpreter(&self, memory: &Memory) -> Option<u64> {
        const MOST: usize = 1000;
        let runtime = self.runtime?;
        let read = |address: u64| memory.read_u64(address).ok();
        if memory.read_vec(runtime, table::COOKIE.len()).ok()? != table::COOKIE {
            return None;
        }
        let (id, next) = (read(runtime + table::ID)?, read(runtime + table::NEXT)?);
        let mut interpreter = read(runtime + read(runtime + table::INTERPRETERS_HEAD)?)?;
        for _ in 0..MOST {
            if read(interpreter.checked_add(id)?)? == 0 {
                return Some(interpreter);
            }
            interpreter = read(interpreter.checked_add(next)?)?;
        }
        None
    }
}

/// The start of the table of offsets: the same in 3.13 and 3.14.
mod table {
    pub(super) const COOKIE: &[u8] = b"xdebugpy";
    pub(super) const INTERPRETERS_HEAD: u64 = 40;
    /// Of an interpreter.
    pub(super) const ID: u64 = 56;
    pub(super) const NEXT: u64 = 64;
}

/// The first mapping of every file that may hold an interpreter, the likeliest first.
fn candidates(pid: Pid, maps: &[Mapping]) -> Vec<&Mapping> {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let program = program.to_string_lossy();
    let mut found: Vec<(u8, &Mapping)> = Vec::new();
    for mapping in maps.iter().filter(|mapping| mapping.path.starts_with('/')) {
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
    functions: Option<Functions>,
    version: Option<u64>,
    since_3_10: bool,
    free_threaded: bool,
    runtime: Option<u64>,
}

impl Symbols {
    fn read(pid: Pid, mapping: &Mapping) -> Option<Self> {
        let file = open(pid, mapping)?;
        let image = Image::parse(&file)?;
        let bias = image.bias(mapping.start, mapping.offset)?;
        let found = image.exported([
            "Py_IsInitialized",
            "PyGILState_Ensure",
            "PyGILState_Release",
            "PyDict_New",
            "PyRun_String",
            "PyErr_Clear",
            "PyDict_GetItemString",
            "PyBytes_AsString",
            "PyBytes_Size",
            "Py_DecRef",
            "PyThread_start_new_thread",
            "Py_AddPendingCall",
            "Py_Version",
            "PyModule_AddObjectRef",
            "_Py_MergeZeroLocalRefcount",
            "_PyRuntime",
        ])?;
        let at = |index: usize| Some(bias.wrapping_add(found[index]?));
        let functions = || {
            Some(Functions {
                is_initialized: at(0)?,
                ensure_gil: at(1)?,
                release_gil: at(2)?,
                new_dict: at(3)?,
                run_string: at(4)?,
                clear_error: at(5)?,
                dict_item: at(6)?,
                bytes_start: at(7)?,
                bytes_len: at(8)?,
                drop_reference: at(9)?,
                start_thread: at(10)?,
                add_pending_call: at(11)?,
            })
        };
        Some(Self {
            functions: functions(),
            version: at(12),
            since_3_10: found[13].is_some(),
            free_threaded: found[14].is_some(),
            runtime: at(15),
        })
    }

    /// `Py_Version` exists from 3.11 on; before it, one function that came with 3.10 tells, and the file's name.
    fn version(&self, memory: &Memory, mapping: &Mapping) -> (u8, u8) {
        if let Some(hex) = self.version.and_then(|at| memory.read_u64(at).ok()) {
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
    if let Some(path) = mapping.path.strip_suffix(" (deleted)") {
        let Mapping { start, end, .. } = mapping;
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        return File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
            .or_else(|error| match program.to_str() {
                Some(program) if program.starts_with(path) => {
                    File::open(format!("/proc/{pid}/exe"))
                }
                _ => Err(error),
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
        assert_eq!(version_in_name("python3"), None);
        assert_eq!(version_in_name("uwsgi"), None);
    }
}
