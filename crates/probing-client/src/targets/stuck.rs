//! Why code does not begin or does not end, found out from outside: the target may be unable to say.

use probing_proto::message::Progress;
use probing_proto::report::{ReportedThread, StuckReport, state_words};

use crate::targets::target::Target;

impl Target {
    /// What keeps code that did not begin, or did not end when it was interrupted.
    pub fn stuck(&self, progress: Progress) -> StuckReport {
        let thread = progress.thread.and_then(|ident| self.stack(ident));
        let reason = if progress.begun {
            let what = match &thread {
                Some(_) => "the code is inside a C call and ends when that returns",
                None => "the code was interrupted and has not ended yet",
            };
            what.to_owned()
        } else {
            let what = self.waited_for(progress.thread, thread.as_ref());
            format!("the code has not begun and will not run: {what}")
        };
        StuckReport {
            begun: progress.begun,
            reason,
            thread,
        }
    }

    /// What code that has not begun waits for: the thread of this ident, whose stack may be known, else the GIL.
    pub fn waited_for(&self, ident: Option<u64>, thread: Option<&ReportedThread>) -> String {
        let Some(ident) = ident else {
            let holder = self.gil_holder();
            return holder
                .unwrap_or_else(|| "another thread of the target holds the GIL".to_owned());
        };
        match thread {
            Some(thread) if thread.state == "running" => {
                let name = thread.title();
                format!("thread {name} is busy and has not begun it yet")
            }
            Some(thread) => {
                let (name, state) = (thread.title(), state_words(&thread.state, thread.gil));
                format!("thread {name} is inside a C call: {state}")
            }
            None => format!("thread {ident} has not begun it yet"),
        }
    }
}
