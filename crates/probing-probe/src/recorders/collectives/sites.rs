//! The line of the program that asked for an operation, and the call of torch that waits for it.
//!
//! And which call of torch's waits for it.
#![expect(unsafe_code, reason = "walks frames")]

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::address_hash::Address;
use crate::python::interned::interned;
use crate::python::text::text_of;
use crate::recorders::memory::heap::{Frame, Walk};
use crate::recording::{Site, collective_symbol};

/// Frames that are looked at.
const MAX_DEPTH: usize = 64;
/// Code objects that are remembered.
const MAX_CACHED_CODES: usize = 4096;
/// Places in one of them.
const MAX_CACHED_LINES: usize = 32;

/// What is known of code objects. They are held, so that nobody else can have their addresses.
pub(crate) struct Sites {
    walk: Option<Walk>,
    /// Where torch is, with a slash at its end.
    torch: String,
    codes: HashMap<usize, CachedCode, BuildHasherDefault<Address>>,
}

struct CachedCode {
    _held: Py<PyAny>,
    of: CodeOwner,
    /// Lines of places in it.
    lines: Vec<(i32, i64)>,
}

/// Whose code it is.
#[derive(Clone, Copy)]
enum CodeOwner {
    Torch,
    /// Around each function of torch's that asks for an operation.
    Call,
    /// Function and file.
    Program(u32, u32),
}

/// Who asked.
#[derive(Default)]
pub(crate) struct CallOrigin {
    pub(crate) site: Option<Site>,
    /// The frame of torch's that returns when it is done, by address.
    pub(crate) call: Option<usize>,
}

impl Sites {
    pub(crate) fn new(py: Python<'_>) -> Self {
        Self {
            walk: Walk::here(py),
            torch: String::new(),
            codes: HashMap::default(),
        }
    }

    /// torch has been imported from here.
    pub(crate) fn torch_is_at(&mut self, folder: String) {
        self.torch = folder;
    }

    /// This code is around the functions that ask.
    pub(crate) fn is_call(&mut self, code: &Bound<'_, PyAny>) {
        self.remember(code, CodeOwner::Call);
    }

    pub(crate) fn here(&mut self, py: Python<'_>) -> CallOrigin {
        let mut asked = CallOrigin::default();
        let Some(walk) = self.walk else {
            return asked;
        };
        let mut left = MAX_DEPTH;
        // SAFETY: the GIL is held, with the thread's current state.
        unsafe {
            walk.each(ffi::PyThreadState_Get(), |frame| {
                match self.whose(py, frame) {
                    CodeOwner::Torch => {}
                    CodeOwner::Call => asked.call = asked.call.or(Some(frame.address)),
                    CodeOwner::Program(func, file) => {
                        let lineno = self.line_of(frame);
                        asked.site = Some(Site { func, file, lineno });
                    }
                }
                left -= 1;
                asked.site.is_none() && left > 0
            });
        }
        asked
    }

    /// The innermost frame, if it is that of a call, or the one around it.
    pub(crate) fn call_here(&self) -> Option<usize> {
        let mut found = None;
        let mut left = 2;
        // SAFETY: a tap comes here, with the GIL held: the calling thread has a state.
        unsafe {
            self.walk?.each(ffi::PyThreadState_Get(), |frame| {
                let known = self.codes.get(&(frame.code as usize));
                if known.is_some_and(|known| matches!(known.of, CodeOwner::Call)) {
                    found = Some(frame.address);
                }
                left -= 1;
                found.is_none() && left > 0
            });
        }
        found
    }

    fn whose(&mut self, py: Python<'_>, frame: &Frame) -> CodeOwner {
        if let Some(known) = self.codes.get(&(frame.code as usize)) {
            return known.of;
        }
        // SAFETY: a frame that runs holds its code.
        let code = unsafe { Bound::from_borrowed_ptr(py, frame.code) };
        let text = |name| code.getattr(name).map(|text| text_of(&text));
        let (Ok(file), Ok(func)) = (
            text(interned!(py, "co_filename")),
            text(interned!(py, "co_name")),
        ) else {
            return CodeOwner::Torch;
        };
        let of = if file.starts_with(&self.torch) || file == "<probing>" {
            CodeOwner::Torch
        } else {
            CodeOwner::Program(collective_symbol(py, &func), collective_symbol(py, &file))
        };
        self.remember(&code, of);
        of
    }

    fn remember(&mut self, code: &Bound<'_, PyAny>, of: CodeOwner) {
        if self.codes.len() < MAX_CACHED_CODES {
            let known = CachedCode {
                _held: code.clone().unbind(),
                of,
                lines: Vec::new(),
            };
            self.codes.insert(code.as_ptr() as usize, known);
        }
    }

    fn line_of(&mut self, frame: &Frame) -> i64 {
        let place = frame.place();
        let Some(known) = self.codes.get_mut(&(frame.code as usize)) else {
            return i64::from(frame.line());
        };
        if let Some((_, line)) = known.lines.iter().find(|(at, _)| *at == place) {
            return *line;
        }
        let line = i64::from(frame.line());
        if known.lines.len() < MAX_CACHED_LINES {
            known.lines.push((place, line));
        }
        line
    }
}
