//! The search for the code of a breakpoint, in loaded code and in code that is loaded later.
//!
//! The looking is done by `codes.py`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use probing_proto::message::Failure;
use probing_proto::message::breakpoints::{BreakpointLocation, SourceLocation};
use probing_proto::message::trace::Scope;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::eval::traceback::text_of;
use crate::process::per_process::PerProcess;
use crate::python::call::call;
use crate::python::embedded::embedded;
use crate::python::frame;
use crate::python::monitoring;
use crate::requests::request::Pending;

/// How long a search runs before others may: what it does between two looks at the clock comes on top.
const PIECE: Duration = Duration::from_micros(700);

/// Then they have it at least that long.
const PAUSE: Duration = Duration::from_micros(50);

/// Looks for the code of one point.
pub(crate) struct Finder {
    /// A `Line` or `Function` of `codes.py`.
    search: Py<PyAny>,
    hint: Hint,
}

/// What code that is meant must at least have, so that nearly all other code is told apart at once.
enum Hint {
    /// The last part of its file's name.
    File(Mutex<Vec<String>>),
    /// Its name.
    Name(String),
    /// Only its module tells.
    Nothing,
}

/// Code that a point is in.
pub(crate) struct FoundCode<'py> {
    pub(crate) code: Bound<'py, PyAny>,
    pub(crate) spot: SourceLocation,
}

impl Finder {
    pub(crate) fn new(py: Python<'_>, place: &BreakpointLocation) -> PyResult<Option<Self>> {
        let names = namespace(py)?;
        let class = |name: &str| names.as_any().get_item(name);
        let (search, hint) = match place {
            BreakpointLocation::Line { file, line } => {
                let search = call(&class("Line")?, (file, *line))?;
                (search, Hint::File(Mutex::default()))
            }
            BreakpointLocation::Function { function }
            | BreakpointLocation::Local { function, .. } => {
                let search = call(&class("Function")?, (function,))?;
                let name = text_of(&call(&search.getattr("name")?, ())?);
                (search, Hint::Name(name))
            }
            _ => return Ok(None),
        };
        let search = search.unbind();
        Ok(Some(Self { search, hint }))
    }

    /// For what is traced.
    pub(crate) fn of_scope(py: Python<'_>, scope: &Scope) -> PyResult<Self> {
        let names = namespace(py)?;
        let class = |name: &str| names.as_any().get_item(name);
        let (search, hint) = match scope {
            Scope::Function { function, file } => {
                let search = call(&class("Function")?, (function, file.as_deref()))?;
                let name = text_of(&call(&search.getattr("name")?, ())?);
                (search, Hint::Name(name))
            }
            Scope::Module { module } => (call(&class("Module")?, (module,))?, Hint::Nothing),
        };
        let search = search.unbind();
        Ok(Self { search, hint })
    }

    /// Looks through what is loaded; and what to say about it. The GIL is given back every millisecond, and nobody is told of
    /// what the search itself does. It ends when the client gives up.
    pub(crate) fn find<'py>(
        &self,
        py: Python<'py>,
        pending: &Pending<'_>,
    ) -> Result<(Vec<FoundCode<'py>>, Option<String>), Failure> {
        let failed = |error: PyErr| Failure::new(format!("cannot search for code: {error}"));
        let search = || {
            let steps = call(&self.search.bind(py).getattr("find")?, ())?;
            steps.getattr("__next__")
        };
        let next = search().map_err(failed)?;
        loop {
            let found = monitoring::unheard(py, || piece(&next)).map_err(failed)?;
            if let Some(found) = found {
                return self.read(&found).map_err(failed);
            }
            pending.check()?;
            // To yield is not enough: whoever waits for the GIL must be awake before we ask for it again.
            py.detach(|| thread::sleep(PAUSE));
        }
    }

    /// What a search has found.
    fn read<'py>(
        &self,
        found: &Bound<'py, PyAny>,
    ) -> PyResult<(Vec<FoundCode<'py>>, Option<String>)> {
        let note = found.get_item(1)?;
        if let Hint::File(names) = &self.hint {
            let search = self.search.bind(found.py());
            let told = call(&search.getattr("file_names")?, ())?.extract()?;
            *names.lock().unwrap_or_else(PoisonError::into_inner) = told;
        }
        let note = (!note.is_none()).then(|| text_of(&note));
        Ok((read_found(&found.get_item(0)?)?, note))
    }

    /// Whether code that begins to run, or some inside it, is meant.
    pub(crate) fn bind<'py>(
        &self,
        code: &Bound<'py, PyAny>,
        module: &str,
    ) -> PyResult<Vec<FoundCode<'py>>> {
        if !self.may_be(code) {
            return Ok(Vec::new());
        }
        let bind = self.search.bind(code.py()).getattr("bind")?;
        read_found(&call(&bind, (code, module))?)
    }

    /// Why another line is met than the one that was asked for.
    pub(crate) fn moved(&self, found: &FoundCode<'_>) -> Option<String> {
        let Hint::File(_) = self.hint else {
            return None;
        };
        let SourceLocation { func, lineno, .. } = &found.spot;
        let moved = self.search.bind(found.code.py()).getattr("moved");
        let moved = moved.and_then(|moved| call(&moved, (&found.code, func, *lineno)));
        moved.ok()?.extract().ok()?
    }

    /// Functions that were found before and have been defined again since.
    pub(crate) fn again<'py>(&self, py: Python<'py>) -> PyResult<Vec<FoundCode<'py>>> {
        match self.hint {
            Hint::Name(_) => read_found(&call(&self.search.bind(py).getattr("again")?, ())?),
            Hint::File(_) | Hint::Nothing => Ok(Vec::new()),
        }
    }

    fn may_be(&self, code: &Bound<'_, PyAny>) -> bool {
        match &self.hint {
            Hint::File(names) => {
                let file = frame::file_of(code);
                let last = file.rsplit('/').next().unwrap_or(&file);
                let is_known = {
                    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
                    names.iter().any(|name| name == last)
                };
                // A link may call the file anything. Modules are few, and have all their functions in them.
                is_known || is_called(code, "<module>")
            }
            Hint::Name(name) => is_called(code, name),
            Hint::Nothing => true,
        }
    }
}

/// Goes on with a search for a while; what it has found, at its end.
fn piece<'py>(next: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let began = Instant::now();
    while began.elapsed() < PIECE {
        let found = call(next, ())?;
        if !found.is_none() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn is_called(code: &Bound<'_, PyAny>, name: &str) -> bool {
    let own = code.getattr("co_name");
    own.is_ok_and(|own| text_of(&own) == name)
}

fn read_found<'py>(found: &Bound<'py, PyAny>) -> PyResult<Vec<FoundCode<'py>>> {
    let each = found.try_iter()?.map(|one| {
        let one = one?;
        let code = one.get_item(0)?;
        let spot = SourceLocation {
            func: text_of(&one.get_item(1)?),
            file: frame::file_of(&code),
            lineno: one.get_item(2)?.extract()?,
        };
        Ok(FoundCode { code, spot })
    });
    each.collect()
}

/// One search at a time, with what is done about its result: the next one forgets what it saw.
pub(crate) struct SearchGuard {
    is_searching: &'static AtomicBool,
}

/// Whether a thread of this process searches. A child of a fork has not got that thread.
static SEARCHING: PerProcess<AtomicBool> = PerProcess::new();
/// How long who finds somebody at it waits before it looks again.
const NAP: Duration = Duration::from_millis(1);

impl SearchGuard {
    /// Waits, without the GIL, until no other search is under way, or the client gives up.
    pub(crate) fn wait(py: Python<'_>, pending: &Pending<'_>) -> Result<Self, Failure> {
        let is_searching = SEARCHING.get_or_init(AtomicBool::default);
        // With the GIL nobody comes between the two.
        while is_searching.load(Ordering::Acquire) {
            pending.check()?;
            py.detach(|| thread::sleep(NAP));
        }
        is_searching.store(true, Ordering::Release);
        Ok(Self { is_searching })
    }
}

impl Drop for SearchGuard {
    fn drop(&mut self) {
        self.is_searching.store(false, Ordering::Release);
    }
}

/// The names that frames of code will have, as far as the last search knows.
pub(crate) fn globals_of<'py>(code: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let globals_of = namespace(code.py()).and_then(|it| it.as_any().get_item("globals_of"));
    let globals = globals_of.and_then(|globals_of| call(&globals_of, (code,)));
    globals.ok().filter(|globals| !globals.is_none())
}

/// After the codes that a search has found were looked at: nothing of the program is kept.
pub(crate) fn forget_globals(py: Python<'_>) {
    let forget = namespace(py).and_then(|it| it.as_any().get_item("forget_globals"));
    drop(forget.and_then(|forget| call(&forget, ())));
}

/// The qualified name of what a frame runs, whose code this is: before 3.11 code itself does not know it.
pub(crate) fn qualname_of(code: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) -> String {
    if frame::has_qualnames(code.py()) {
        return frame::name_of(code);
    }
    let qualname_of = namespace(code.py()).and_then(|it| it.as_any().get_item("qualname_of"));
    let name = qualname_of.and_then(|qualname_of| call(&qualname_of, (code, frame)));
    name.map_or_else(|_| frame::name_of(code), |name| text_of(&name))
}

/// The module that a frame's code belongs to.
pub(crate) fn module_of(frame: &Bound<'_, PyAny>) -> String {
    let globals = frame.getattr("f_globals");
    let name = globals.and_then(|globals| globals.get_item("__name__"));
    name.map(|name| text_of(&name)).unwrap_or_default()
}

/// The names in `codes.py`.
pub(crate) fn namespace(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static NAMESPACE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let namespace =
        NAMESPACE.get_or_try_init(py, || embedded!(py, "code_search.py").map(Bound::unbind))?;
    Ok(namespace.bind(py))
}
