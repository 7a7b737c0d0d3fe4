//! What a stopped thread does for its driver, itself: so the code has its device, its thread-locals and its frames.

use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;

use probing_proto::message::{Evaluated, Event, Failure, FrameSelector, Message, Outcome};
use pyo3::prelude::*;

use crate::breakpoints::events::in_words;
use crate::breakpoints::session::{Stack, StoppedEval};
use crate::eval::active::Evals;
use crate::eval::evaluation::{self, EvalOptions, Evaluation};
use crate::eval::output_sink::OutputReceiver;
use crate::eval::stdout_capture;
use crate::process::fork_child;

/// Evaluates code in a frame of this thread, and answers.
pub(crate) fn evaluate(stack: Stack<'_, '_>, thread_name: &str, work: StoppedEval) {
    let py = stack.0.py();
    let started = Instant::now();
    let generation = fork_child::generation();
    let (sink, interrupt) = (work.sink.clone(), work.sink.interrupt.clone());
    stdout_capture::tap(py);
    let done = panic::catch_unwind(AssertUnwindSafe(|| outcome(stack, work)));
    stdout_capture::untap(py);
    interrupt.end();
    // The code forked, and this is the child: client and stop are the parent's.
    if generation != fork_child::generation() {
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
                .with_hint("this is a defect of Probing; the target keeps running"),
        ),
    };
    sink.outbox.push(Message {
        id: Some(sink.id),
        event,
    });
    Evals::of_this_process().leave(&interrupt);
}

fn outcome((innermost, stack): Stack<'_, '_>, work: StoppedEval) -> Result<Outcome, Failure> {
    let py = innermost.py();
    let asked = work.eval;
    let chosen = chosen(stack, asked.frame.as_ref())?;
    let code = match evaluation::compile(py, &asked.code) {
        Ok(code) => code,
        Err(outcome) => return Ok(outcome),
    };
    if code.is_async() {
        return Err(Failure::new(
            "a stopped thread runs no event loop: this code awaits something",
        )
        .with_hint("run it without a stop: then code that awaits uses the program's loop"));
    }
    let client = (work.sink, work.held, EvalOptions::of(&asked));
    let evaluation = Evaluation::at_stop(py, code, chosen, client)
        .map_err(|error| Failure::new(format!("cannot read the names of the frame: {error}")))?;
    Ok(evaluation.run(py))
}

fn chosen<'a, 'py>(
    stack: &'a [Bound<'py, PyAny>],
    wanted: Option<&FrameSelector>,
) -> Result<&'a Bound<'py, PyAny>, Failure> {
    let depth = match wanted {
        None => 0,
        Some(FrameSelector::Depth(depth)) => *depth,
        Some(FrameSelector::Function(name)) => {
            let is_it = |frame: &&Bound<'_, PyAny>| {
                let named = |attribute| {
                    let code = frame.getattr("f_code")?;
                    code.getattr(attribute)?.eq(name)
                };
                ["co_name", "co_qualname"]
                    .into_iter()
                    .any(|it| named(it).unwrap_or(false))
            };
            let missing = || Failure::new(format!("no frame of a function {name}"));
            return stack.iter().find(is_it).ok_or_else(missing);
        }
    };
    let index = if depth < 0 {
        stack.len().checked_add_signed(depth as isize)
    } else {
        usize::try_from(depth).ok()
    };
    index.and_then(|index| stack.get(index)).ok_or_else(|| {
        Failure::new(format!("no frame {depth}: the stack has {}", stack.len()))
            .with_hint("0 is the innermost, -1 the outermost")
    })
}

/// Has the thread go on at another line, when it goes on.
pub(crate) fn jump(frame: &Bound<'_, PyAny>, line: u32) -> Result<(), Failure> {
    let py = frame.py();
    stdout_capture::tap(py);
    // Python warns of variables that are not bound then; that is nobody's business but the driver's.
    let jumped = OutputReceiver::Nobody.lend(|| set_line(frame, line));
    stdout_capture::untap(py);
    jumped.map_err(|error| {
        Failure::new(format!(
            "Python cannot jump to line {line}: {}",
            in_words(py, error)
        ))
        .with_hint("jump to a line of the same function and block")
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
