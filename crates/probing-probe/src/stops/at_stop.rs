//! What a stopped thread does for its driver, itself: so the code has its device, its thread-locals and its frames.

use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;

use probing_proto::message::{Evaluated, Event, Failure, Message, Outcome};
use pyo3::prelude::*;

use super::events::in_words;
use super::session::Stack;
use crate::eval::{self, Evaluation, Wish};
use crate::evals::Evals;
use crate::forked;
use crate::output;
use crate::sink::Ear;
use crate::worker::{Job, Work};

/// Evaluates code in a frame of this thread, and answers.
pub(super) fn evaluate(stack: Stack<'_, '_>, thread_name: &str, work: Work) {
    let py = stack.0.py();
    let started = Instant::now();
    let generation = forked::generation();
    let (sink, interrupt) = (work.sink.clone(), work.sink.interrupt.clone());
    output::tap(py);
    let done = panic::catch_unwind(AssertUnwindSafe(|| outcome(stack, work)));
    output::untap(py);
    interrupt.end();
    // The code forked, and this is the child: client and stop are the parent's.
    if generation != forked::generation() {
        return;
    }
    let event = match done {
        Ok(Ok(outcome)) => Event::Evaluated(Evaluated {
            took_nanos: started.elapsed().as_nanos() as u64,
            output_dropped: sink.dropped(),
            thread: Some(thread_name.to_owned()),
            outcome,
        }),
        Ok(Err(failure)) => Event::Failed(failure),
        Err(_) => Event::Failed(
            Failure::new("the probe failed")
                .with_hint("this is a defect of Probing; the target goes on"),
        ),
    };
    sink.outbox.push(Message {
        id: Some(sink.id),
        event,
    });
    Evals::of_this_process().leave(&interrupt);
}

fn outcome((innermost, stack): Stack<'_, '_>, work: Work) -> Result<Outcome, Failure> {
    let py = innermost.py();
    let Job::Eval(asked) = work.job else {
        return Err(Failure::new("only code is run by a stopped thread"));
    };
    let depth = asked.frame.unwrap_or(0) as usize;
    let chosen = stack.get(depth).ok_or_else(|| {
        Failure::new(format!("no frame {depth}: the stack has {}", stack.len()))
            .with_hint("0 is the innermost")
    })?;
    let code = match eval::compile(py, &asked.code) {
        Ok(code) => code,
        Err(outcome) => return Ok(outcome),
    };
    if code.is_async() {
        return Err(Failure::new(
            "a stopped thread runs no event loop: this code awaits something",
        )
        .with_hint("without a stop, code that awaits finds a loop"));
    }
    let client = (work.sink, work.held, Wish::of(&asked));
    let evaluation = Evaluation::at_stop(py, code, chosen, client)
        .map_err(|error| Failure::new(format!("the frame's names cannot be had: {error}")))?;
    Ok(evaluation.run(py))
}

/// Has the thread go on at another line, when it goes on.
pub(super) fn jump(frame: &Bound<'_, PyAny>, line: u32) -> Result<(), Failure> {
    let py = frame.py();
    output::tap(py);
    // Python warns of variables that are not bound then; that is nobody's business but the driver's.
    let jumped = Ear::Nobody.lend(|| set_line(frame, line));
    output::untap(py);
    jumped.map_err(|error| {
        Failure::new(format!(
            "Python cannot jump to line {line}: {}",
            in_words(py, error)
        ))
        .with_hint("it can from a line of a function to another one of the same block")
    })
}

fn set_line(frame: &Bound<'_, PyAny>, line: u32) -> PyResult<()> {
    let py = frame.py();
    if py.version_info() >= (3, 12) {
        return frame.setattr("f_lineno", line);
    }
    // Before, only frames with a trace function of their own may.
    let before = frame.getattr("f_trace")?;
    frame.setattr("f_trace", py.None().bind(py).get_type())?;
    let set = frame.setattr("f_lineno", line);
    if before.is_none() {
        frame.delattr("f_trace")?;
    } else {
        frame.setattr("f_trace", before)?;
    }
    set
}
