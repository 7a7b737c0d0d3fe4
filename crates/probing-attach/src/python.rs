//! The interpreter in a process: its version and the addresses of the functions that we call.

use probing_process::access::source::Files as _;
use probing_process::error::ProcessError;
use probing_process::procfs::maps::Mapping;
use probing_process::python::Library;
use probing_proto::process::Pid;

use crate::error::{AttachError, Unsupported};
use crate::injection::memory::Memory;

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
    pub(crate) main_interpreter: u64,
    /// Does nothing and answers 0, as long as no exception is set.
    pub(crate) nothing_raised: u64,
}

impl Functions {
    fn of(library: &Library) -> Option<Self> {
        let found = library.exported([
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
            "PyInterpreterState_Main",
            "PyErr_Occurred",
        ])?;
        Some(Self {
            is_initialized: found[0]?,
            ensure_gil: found[1]?,
            release_gil: found[2]?,
            new_dict: found[3]?,
            run_string: found[4]?,
            clear_error: found[5]?,
            dict_item: found[6]?,
            bytes_start: found[7]?,
            bytes_len: found[8]?,
            drop_reference: found[9]?,
            start_thread: found[10]?,
            add_pending_call: found[11]?,
            main_interpreter: found[12]?,
            nothing_raised: found[13]?,
        })
    }
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
        for library in Library::candidates(pid, maps) {
            let Some(functions) = Functions::of(&library) else {
                continue;
            };
            let version = library.version(|at| memory.read_u32(at).ok());
            if version < OLDEST {
                let what = Unsupported::OldPython { version };
                return Err(AttachError::NotSupported { pid, what });
            }
            let [runtime, merges_references] = library
                .exported(["_PyRuntime", "_Py_MergeZeroLocalRefcount"])
                .unwrap_or_default();
            return Ok(Self {
                version,
                free_threaded: merges_references.is_some(),
                functions,
                runtime,
            });
        }
        let program = pid.program().unwrap_or_default();
        Err(ProcessError::NotPython { pid, program }.into())
    }

    /// By the table that `_PyRuntime` starts with from 3.13 on. The newest interpreter is the head of the list; main
    /// has the number 0.
    pub(crate) fn main_interpreter(&self, memory: &Memory) -> Option<u64> {
        const MAX_INTERPRETERS: usize = 1000;
        let runtime = self.runtime?;
        let read = |address: u64| memory.read_u64(address).ok();
        if memory.read_vec(runtime, table::COOKIE.len()).ok()? != table::COOKIE {
            return None;
        }
        let (id, next) = (read(runtime + table::ID)?, read(runtime + table::NEXT)?);
        let mut interpreter = read(runtime + read(runtime + table::INTERPRETERS_HEAD)?)?;
        for _ in 0..MAX_INTERPRETERS {
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
