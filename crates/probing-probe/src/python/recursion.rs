//! Room for calls of the probe in a thread at its recursion limit.
//!
//! A thread counts in its state how much deeper it may call. While code of ours runs in it, the count is higher; only this
//! thread reads it, and `sys.getrecursionlimit` is another word.
#![expect(
    unsafe_code,
    reason = "reads and writes the count in the thread's state"
)]

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

/// Calls that code of ours can make at any depth.
const MAX_OWN_CALLS: i32 = 200;

/// Where a thread state has its count, by version of Python.
#[derive(Clone, Copy)]
enum Layout {
    /// How deep it is.
    Depth(usize),
    /// How much deeper it may go; the limit follows.
    Left(usize),
}

/// Runs code with room for some calls, however deep this thread is in calls of the program.
pub(crate) fn with_room<T>(py: Python<'_>, code: impl FnOnce() -> T) -> T {
    let _more = More::if_needed(py);
    code()
}

/// Given to a thread until it is dropped, in that thread.
struct More {
    count: *mut i32,
    given: i32,
}

impl More {
    fn if_needed(py: Python<'_>) -> Option<Self> {
        let layout = layout(py)?;
        // SAFETY: the GIL is held, as `py` shows, so this thread has a state.
        let state = unsafe { ffi::PyThreadState_Get() };
        // SAFETY: the GIL is held.
        let limit = unsafe { ffi::Py_GetRecursionLimit() };
        let (Layout::Depth(offset) | Layout::Left(offset)) = layout;
        // SAFETY: a thread state is larger than that; nobody but this thread writes the word without the GIL.
        let (count, next) = unsafe {
            let count = state.byte_add(offset).cast::<i32>();
            (count, *count.add(1))
        };
        // SAFETY: a word of this thread's state, which only this thread writes while it has the GIL.
        let value = unsafe { *count };
        let (left, given) = match layout {
            Layout::Depth(_) => (limit - value, -MAX_OWN_CALLS),
            // Another layout than we know.
            Layout::Left(_) if next != limit => return None,
            Layout::Left(_) => (value, MAX_OWN_CALLS),
        };
        if !(-MAX_OWN_CALLS..MAX_OWN_CALLS).contains(&left) {
            return None;
        }
        // SAFETY: a word of this thread's state, which nobody else reads or writes while this thread has the GIL.
        unsafe { *count += given };
        Some(Self { count, given })
    }
}

impl Drop for More {
    fn drop(&mut self) {
        // SAFETY: the state of this thread, which is there as long as the thread runs Python code; the GIL is held again.
        unsafe { *self.count -= self.given };
    }
}

fn layout(py: Python<'_>) -> Option<Layout> {
    // Asked once: to tell a version is to read it from a text.
    static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();
    *LAYOUT.get_or_init(|| {
        let version = py.version_info();
        match (version.major, version.minor) {
            (3, 10) => Some(Layout::Depth(32)),
            (3, 11) => Some(Layout::Left(32)),
            (3, 12) => Some(Layout::Left(28)),
            (3, 13) => Some(Layout::Left(44)),
            (3, 14) => Some(Layout::Left(48)),
            _ => None,
        }
    })
}
