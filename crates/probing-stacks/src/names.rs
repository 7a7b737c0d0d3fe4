//! Reads the names that `threading` gives to threads, which the kernel does not know before 3.14 (and then cut).
//!
//! The outermost frame of such a thread is `Thread._bootstrap(self)`: its first local variable is the `Thread`, whose
//! attribute `_name` is wanted. Whatever is not as expected gives no name, never a wrong one: types are checked.

use crate::code::Codes;
use crate::frames::Chain;
use crate::memory::Memory;
use crate::objects::{Gap, Objects, TAGS};

const MAX_NAME: usize = 4 << 10;

/// What `threading` calls the threads that have these stacks.
pub(crate) fn of_all<M: Memory + ?Sized>(
    objects: &mut Objects<'_, M>,
    codes: &Codes,
    chains: &[&Chain],
) -> Vec<Option<String>> {
    let frames: Vec<Option<u64>> = chains.iter().map(|chain| bootstrap(codes, chain)).collect();
    let names = objects.each(&frames, |view, frame| {
        let frame = frame.ok_or(Gap::Wrong)?;
        let thread = view.word(frame, view.interpreter.layout.frame.locals)? & !TAGS;
        let name = view.attribute(thread, "_name")?.ok_or(Gap::Wrong)?;
        view.text(name, MAX_NAME)
    });
    let known = |name: Option<String>| name.filter(|name| !name.is_empty());
    names.into_iter().map(known).collect()
}

/// The address of the frame of `Thread._bootstrap`.
fn bootstrap(codes: &Codes, chain: &Chain) -> Option<u64> {
    let frame = chain.frames.last()?;
    let code = codes.get(frame.code)?;
    let is_bootstrap = matches!(&*code.name, "_bootstrap" | "Thread._bootstrap");
    (is_bootstrap && code.file.ends_with("threading.py")).then_some(frame.address)
}
