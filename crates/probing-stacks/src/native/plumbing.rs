//! Functions of the interpreter that only pass a call on, which stacks omit.
//!
//! They say nothing about the program and are left out.
//!
//! Left out is only what is named here and lies in the interpreter's own file, so functions of extension modules and
//! of other libraries are always shown, and so is all that the interpreter itself does: waiting for a lock, importing,
//! collecting garbage. A Python without its symbols shows more.

use std::path::PathBuf;

use crate::native::modules::Name;

/// Calling an object, whatever it is.
const CALLS: &[&str] = &[
    "PyCFunction_Call",
    "PyEval_EvalCode",
    "PyEval_EvalCodeEx",
    "PyEval_EvalFrame",
    "PyEval_EvalFrameEx",
    "PyIter_Send",
    "PyObject_Call",
    "PyObject_CallFunction",
    "PyObject_CallFunctionObjArgs",
    "PyObject_CallMethod",
    "PyObject_CallMethodObjArgs",
    "PyObject_CallNoArgs",
    "PyObject_CallObject",
    "PyObject_CallOneArg",
    "PyObject_Vectorcall",
    "PyObject_VectorcallDict",
    "PyObject_VectorcallMethod",
    "PyVectorcall_Call",
    "_PyCFunction_Call",
    "_PyCFunction_FastCallDict",
    "_PyCFunction_FastCallKeywords",
    "_PyEval_EvalCode",
    "_PyEval_EvalFrame",
    "_PyEval_EvalFrameDefault",
    "_PyEval_Vector",
    "_PyFunction_FastCallDict",
    "_PyFunction_Vectorcall",
    "_PyObject_Call",
    "_PyObject_CallFunctionVa",
    "_PyObject_CallMethodIdObjArgs",
    "_PyObject_CallMethodVa",
    "_PyObject_CallNoArgs",
    "_PyObject_CallNoArgsTstate",
    "_PyObject_CallNoArgTstate",
    "_PyObject_Call_Prepend",
    "_PyObject_FastCallDictTstate",
    "_PyObject_MakeTpCall",
    "_PyObject_Vectorcall",
    "_PyObject_VectorcallDictTstate",
    "_PyObject_VectorcallPrepend",
    "_PyObject_VectorcallTstate",
    "_PyVectorcall_Call",
    "_PyVectorcall_FunctionInline",
    "_Py_call_instrumentation",
    "call_attribute",
    "call_function",
    "call_method",
    "call_trampoline",
    "call_unbound_noarg",
    "cfunction_call",
    "cfunction_vectorcall_FASTCALL",
    "cfunction_vectorcall_FASTCALL_KEYWORDS",
    "cfunction_vectorcall_FASTCALL_KEYWORDS_METHOD",
    "cfunction_vectorcall_NOARGS",
    "cfunction_vectorcall_O",
    "do_call_core",
    "function_code_fastcall",
    "gen_iternext",
    "gen_send",
    "gen_send_ex",
    "gen_send_ex2",
    "method_vectorcall",
    "method_vectorcall_FASTCALL",
    "method_vectorcall_FASTCALL_KEYWORDS",
    "method_vectorcall_FASTCALL_KEYWORDS_METHOD",
    "method_vectorcall_NOARGS",
    "method_vectorcall_O",
    "method_vectorcall_VARARGS",
    "method_vectorcall_VARARGS_KEYWORDS",
    "object_vacall",
    "slot_tp_call",
    "slot_tp_init",
    "slot_tp_new",
    "type_call",
    "vectorcall_method",
    "vectorcall_unbound",
];

/// Starting a program or a thread.
const STARTS: &[&str] = &[
    "PyRun_AnyFileExFlags",
    "PyRun_FileExFlags",
    "PyRun_SimpleFileExFlags",
    "PyRun_SimpleStringFlags",
    "PyRun_StringFlags",
    "Py_BytesMain",
    "Py_Main",
    "Py_RunMain",
    "_PyRun_AnyFileObject",
    "_PyRun_SimpleFileObject",
    "_PyRun_SimpleFile",
    "_PyRun_SimpleString",
    "_PyRun_SimpleStringFlagsWithName",
    "pymain_main",
    "pymain_run_command",
    "pymain_run_file",
    "pymain_run_file_obj",
    "pymain_run_module",
    "pymain_run_python",
    "pymain_run_stdin",
    "pymain_start_pyrepl",
    "pyrun_file",
    "pyrun_simple_file",
    "pythread_wrapper",
    "run_eval_code_obj",
    "run_mod",
    "thread_run",
    "t_bootstrap",
];

/// In the program `python` itself.
const PROGRAM: &[&str] = &["main", "_start"];

/// The handlers of a Python whose interpreter is made of functions that end by calling each other.
const HANDLERS: &str = "_TAIL_CALL_";

/// What libc does before `main` and before a thread's first function.
const LIBC_STARTS: &[&str] = &[
    "__libc_start_call_main",
    "__libc_start_main",
    "__libc_start_main_impl",
    "_start",
    "clone",
    "clone3",
    "start_thread",
];

/// The files that make the interpreter: its library and the program, which may be one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub(crate) library: PathBuf,
    pub(crate) program: Option<PathBuf>,
}

impl Interpreter {
    /// Whether a frame says nothing about the program.
    pub(crate) fn is_plumbing(&self, name: &Name) -> bool {
        let Some(function) = name.function.as_deref() else {
            return false;
        };
        let is_call = CALLS.contains(&function) || STARTS.contains(&function);
        let file = name.module.file_name().unwrap_or_default();
        let is_libc = file == "libc.so.6" || file == "libpthread.so.0";
        (*name.module == *self.library && (is_call || function.starts_with(HANDLERS)))
            || (Some(&*name.module) == self.program.as_deref() && PROGRAM.contains(&function))
            || (is_libc && LIBC_STARTS.contains(&function))
    }
}
