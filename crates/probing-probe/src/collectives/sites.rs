//! Which code of the program asked for an operation: the innermost frame that is not torch's.
#![expect(unsafe_code, reason = "walks frames")]

use std::collections::HashMap;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::heap::Walk;
use crate::interned::interned;
use crate::traceback::text_of;

/// Frames that are looked at.
const DEEPEST: usize = 64;
/// Code objects that are remembered.
const MOST_CODES: usize = 4096;

/// A place in the program.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) func: String,
    pub(super) file: String,
    pub(super) lineno: i64,
}

/// What is known of code objects. They are held, so that nobody else can have their addresses.
pub(super) struct Sites {
    walk: Option<Walk>,
    codes: HashMap<usize, Known>,
}

struct Known {
    _held: Py<PyAny>,
    /// None for code of torch.
    place: Option<(String, String)>,
}

impl Sites {
    pub(super) fn new(py: Python<'_>) -> Self {
        Self {
            walk: Walk::here(py),
            codes: HashMap::new(),
        }
    }

    pub(super) fn here(&mut self, py: Python<'_>) -> Option<Site> {
        let walk = self.walk?;
        let mut frames: Vec<(*mut PyObject, i32)> = Vec::with_capacity(16);
        // SAFETY: the GIL is held, with the thread's current state; the code of frames that run is alive.
        unsafe {
            walk.each(ffi::PyThreadState_Get(), |code, line| {
                frames.push((code, line));
                frames.len() < DEEPEST
            });
        }
        frames.into_iter().find_map(|(code, line)| {
            // SAFETY: as above: the frames run on while we look.
            let code = unsafe { Bound::from_borrowed_ptr(py, code) };
            let (func, file) = self.place_of(&code)?;
            Some(Site {
                func,
                file,
                lineno: i64::from(line),
            })
        })
    }

    fn place_of(&mut self, code: &Bound<'_, PyAny>) -> Option<(String, String)> {
        let py = code.py();
        let address = code.as_ptr() as usize;
        if let Some(known) = self.codes.get(&address) {
            return known.place.clone();
        }
        let file = text_of(&code.getattr(interned!(py, "co_filename")).ok()?);
        let func = text_of(&code.getattr(interned!(py, "co_name")).ok()?);
        let is_torchs = file.contains("/torch/") || file == "<probing>";
        let place = (!is_torchs).then_some((func, file));
        if self.codes.len() < MOST_CODES {
            let known = Known {
                _held: code.clone().unbind(),
                place: place.clone(),
            };
            self.codes.insert(address, known);
        }
        place
    }
}
