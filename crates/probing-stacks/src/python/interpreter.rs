//! The interpreter in a process: its version, `_PyRuntime`, and the types that identify objects.

use probing_process::access::source::Source;
use probing_process::error::ProcessError;
use probing_process::python::Library;

use crate::error::StackError;
use crate::memory::u32_at;
use crate::python::layout::Layout;
use crate::{maps, permission};

/// Addresses in the target and what is known of its structures.
#[derive(Debug, Clone)]
pub(crate) struct Interpreter {
    pub(crate) runtime: u64,
    pub(crate) layout: Layout,
    pub(crate) types: Types,
}

/// Addresses of type objects. Something of another type is never taken for a code object, text or bytes.
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
    pub(crate) complex: u64,
    pub(crate) range: u64,
    /// Not a type, but the only object of it; so are these.
    pub(crate) none: u64,
    pub(crate) ellipsis: u64,
    pub(crate) not_implemented: u64,
}

impl Types {
    const SYMBOLS: [&str; 18] = [
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
        "PyComplex_Type",
        "PyRange_Type",
        "_Py_NoneStruct",
        "_Py_EllipsisObject",
        "_Py_NotImplementedStruct",
    ];

    /// From the addresses of the symbols above.
    fn new(addresses: [u64; 18]) -> Self {
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
        let [
            ..,
            cell,
            function,
            c_function,
            method,
            module,
            _,
            _,
            _,
            _,
            _,
        ] = addresses;
        let [.., complex, range, none, ellipsis, not_implemented] = addresses;
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
            complex,
            range,
            none,
            ellipsis,
            not_implemented,
        }
    }
}

impl Interpreter {
    pub(crate) fn find(source: &dyn Source) -> Result<Self, StackError> {
        let pid = source.pid();
        let maps = maps::read_maps(source)
            .map_err(|error| source.explain("read the memory map", error))?;
        if maps.is_empty() {
            return Err(permission::without_memory(pid).into());
        }
        for library in Library::candidates(source, &maps) {
            let Some(symbols) = Symbols::of(&library) else {
                continue;
            };
            let version = library.version(|at| u32_at(&source.read(at, 4)?, 0));
            let layout = Layout::of(version, source, symbols.runtime);
            let layout = layout.ok_or(StackError::NotSupported { pid, version })?;
            return Ok(Self {
                runtime: symbols.runtime,
                layout,
                types: symbols.types,
            });
        }
        let program = source.program().unwrap_or_default();
        Err(ProcessError::NotPython { pid, program }.into())
    }
}

struct Symbols {
    runtime: u64,
    types: Types,
}

impl Symbols {
    fn of(library: &Library) -> Option<Self> {
        let [runtime] = library.exported(["_PyRuntime"])?;
        let types = library.exported(Types::SYMBOLS)?;
        if types.contains(&None) {
            return None;
        }
        Some(Self {
            runtime: runtime.or_else(|| library.runtime_section())?,
            types: Types::new(types.map(|address| address.unwrap_or(0))),
        })
    }
}
