//! Names and daemon flags of threads, as `threading` knows them.
//!
//! The outermost frame of such a thread is `Thread._bootstrap(self)`: its first local variable is the `Thread`, whose
//! attributes `_name` and `_daemonic` are wanted. Whatever is not as expected gives nothing, never something wrong: types
//! are checked.

use crate::memory::Memory;
use crate::python::code::Codes;
use crate::python::frames::Chain;
use crate::python::objects::{Gap, Integer, Objects, ReadResult, TAGS, View};

const MAX_NAME: usize = 4 << 10;

/// What `threading` knows of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: Option<String>,
    pub(crate) daemon: Option<bool>,
}

/// What `threading` knows of the threads that have these stacks.
pub(crate) fn of_all<M: Memory + ?Sized>(
    objects: &mut Objects<'_, M>,
    codes: &Codes,
    chains: &[&Chain],
) -> Vec<Named> {
    let frames: Vec<Option<u64>> = chains.iter().map(|chain| bootstrap(codes, chain)).collect();
    let names = objects.each(&frames, |view, frame| {
        let frame = frame.ok_or(Gap::Wrong)?;
        let thread = view.word(frame, view.interpreter.layout.frame.locals)? & !TAGS;
        let name = view.attribute(thread, "_name")?.ok_or(Gap::Wrong)?;
        let name = view.text(name, MAX_NAME)?;
        Ok(Named {
            name: Some(name).filter(|name| !name.is_empty()),
            daemon: daemon(view, thread)?,
        })
    });
    names.into_iter().map(Option::unwrap_or_default).collect()
}

fn daemon(view: &View<'_>, thread: u64) -> ReadResult<Option<bool>> {
    let is_true = |value: u64| {
        if view.class(value)? != view.interpreter.types.boolean {
            return Err(Gap::Wrong);
        }
        Ok(view.integer(value)? == Integer::Small(1))
    };
    match view
        .attribute(thread, "_daemonic")
        .and_then(|value| value.map(is_true).transpose())
    {
        // The name is there all the same.
        Err(Gap::Wrong) => Ok(None),
        told => told,
    }
}

/// The address of the frame of `Thread._bootstrap`.
fn bootstrap(codes: &Codes, chain: &Chain) -> Option<u64> {
    let frame = chain.frames.last()?;
    let code = codes.get(frame.code)?;
    let is_bootstrap = matches!(&*code.name, "_bootstrap" | "Thread._bootstrap");
    (is_bootstrap && code.file.ends_with("threading.py")).then_some(frame.address)
}
