//! The reason why code does not begin or end, read from outside.

use std::io::{self, Write as _};

use probing_client::Target;
use probing_proto::message::Progress;
use probing_proto::report::{ReportedThread, StuckReport};

use crate::commands::backtrace::text;
use crate::terminal;

/// What keeps it.
pub(in crate::commands) fn report(target: &Target, progress: Progress) -> StuckReport {
    let thread = progress.thread.and_then(|ident| target.stack(ident));
    let reason = if progress.begun {
        let what = match &thread {
            Some(_) => "the code is inside a C call and ends when that returns",
            None => "the code was interrupted and has not ended yet",
        };
        what.to_owned()
    } else {
        format!(
            "the code has not begun and will not run: {}",
            waits_for(target, progress.thread, thread.as_ref())
        )
    };
    StuckReport {
        begun: progress.begun,
        reason,
        thread,
    }
}

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
    let waits_for = waits_for(target, ident, thread.as_ref());
    write!(
        terminal::stderr(),
        "note: the code waits to begin: {waits_for}\n{stack}"
    )
}

fn waits_for(target: &Target, ident: Option<u64>, thread: Option<&ReportedThread>) -> String {
    let Some(ident) = ident else {
        let holder = target.gil_holder();
        return holder.unwrap_or_else(|| "another thread of the target holds the GIL".to_owned());
    };
    match thread {
        Some(thread) if thread.state == "running" => {
            let name = text::name(thread);
            format!("thread {name} is busy and has not begun it yet")
        }
        Some(thread) => {
            let (name, state) = (text::name(thread), text::state(&thread.state, thread.gil));
            format!("thread {name} is inside a C call: {state}")
        }
        None => format!("thread {ident} has not begun it yet"),
    }
}
