//! The reason why code does not begin or end, read from outside.

use std::io::{self, Write as _};

use probing_client::Target;
use probing_proto::report::StuckReport;

use crate::commands::backtrace::text;
use crate::terminal;

/// The stack of the thread that keeps it.
pub(in crate::commands) fn stack(stuck: &StuckReport) -> String {
    let thread = stuck.thread.as_ref();
    thread.map_or_else(String::new, |thread| {
        text::threads(std::slice::from_ref(thread), false)
    })
}

/// Says what code that has not begun waits for.
pub(super) fn say_waits(target: &Target, ident: Option<u64>) -> io::Result<()> {
    let thread = ident.and_then(|ident| target.stack(ident));
    let stack = thread.as_ref().map_or_else(String::new, |thread| {
        text::threads(std::slice::from_ref(thread), false)
    });
    let waits_for = target.waited_for(ident, thread.as_ref());
    write!(
        terminal::stderr(),
        "note: the code waits to begin: {waits_for}\n{stack}"
    )
}
