//! Where evaluated code runs: on a thread of its own, or on one of the program's that then hands the outcome back.

use std::time::Instant;

use probing_proto::message::{Eval, Evaluated, Event, Failure, Outcome, Raised};
use pyo3::prelude::*;

use crate::code::Code;
use crate::eval::{self, Evaluation, Wish};
use crate::gradients::{self, Turn};
use crate::handlers;
use crate::handoff::{Handoff, abandoned};
use crate::last::Held;
use crate::main_thread;
use crate::output;
use crate::place::{self, Thread, Visit};
use crate::sink::Sink;
use crate::task::EvalTask;
use crate::threading;
use crate::worker;

/// Runs the code of a client and tells what became of it. `None` when the interpreter ends.
pub(crate) fn answer(eval: &Eval, sink: &Sink, held: &Held) -> Option<Event> {
    let started = Instant::now();
    let work = Work { eval, sink, held };
    let begun = worker::with_interpreter(|py| {
        threading::prepare(py);
        output::tap(py);
        let begun = begin(py, &work);
        if !matches!(begun, Ok(Begun::Elsewhere { .. })) {
            output::untap(py);
        }
        begun
    })?;
    let (outcome, thread) = match begun {
        Ok(Begun::Ended(outcome)) => (outcome, None),
        Ok(Begun::Elsewhere {
            handoff,
            thread,
            until,
        }) => match awaited(&work, &handoff, &until) {
            Ended::There(outcome) => (outcome, thread),
            Ended::Here(outcome) => (outcome, None),
        },
        Err(failure) => return Some(Event::Failed(failure)),
    };
    Some(Event::Evaluated(Evaluated {
        took_nanos: started.elapsed().as_nanos() as u64,
        output_dropped: sink.dropped(),
        thread,
        outcome,
    }))
}

/// Which thread had the code in the end.
enum Ended {
    There(Outcome),
    Here(Outcome),
}

/// Waits for code that runs elsewhere. At the end of the interpreter there is nothing to undo.
fn awaited(work: &Work<'_>, handoff: &Handoff, until: &Until) -> Ended {
    let mut is_here = false;
    let outcome = handoff.take(&work.sink.interrupt, || match until {
        Until::ItComes => {}
        Until::Visit(visit) => drop(worker::with_interpreter(|py| visit.renew(py))),
        Until::Turn(turn) => {
            if let Some(outcome) = turn.or_here() {
                is_here = true;
                handoff.give(outcome);
            }
        }
    });
    worker::with_interpreter(|py| {
        if let Until::Visit(visit) = until {
            visit.end(py);
        }
        output::untap(py);
    });
    if is_here {
        Ended::Here(outcome)
    } else {
        Ended::There(outcome)
    }
}

/// What is to be done for whom.
struct Work<'a> {
    eval: &'a Eval,
    sink: &'a Sink,
    held: &'a Held,
}

/// What became of code that was given to a thread.
enum Begun {
    Ended(Outcome),
    /// A thread of the program runs it, or will.
    Elsewhere {
        handoff: Handoff,
        thread: Option<String>,
        until: Until,
    },
}

/// What is done while a thread of the program has not come to the code.
enum Until {
    ItComes,
    Visit(Visit),
    Turn(Turn),
}

/// Runs the code, or has it run where it belongs.
fn begin(py: Python<'_>, work: &Work<'_>) -> Result<Begun, Failure> {
    let code = match eval::compile(py, &work.eval.code) {
        Ok(code) => code,
        Err(outcome) => return Ok(Begun::Ended(outcome)),
    };
    let wanted = work.eval.thread.as_deref();
    if let Some(depth) = work.eval.frame {
        let thread = Thread::find(py, wanted.unwrap_or("main"))?;
        let frame = thread.frame(py, depth)?;
        return anywhere(py, work, code, Some(&frame));
    }
    match wanted {
        Some(wanted) => on_thread(py, work, code, Thread::find(py, wanted)?),
        None => anywhere(py, work, code, None),
    }
}

/// In this thread, unless it looks at gradients; code that awaits, on a loop of the program's if there is one.
fn anywhere(
    py: Python<'_>,
    work: &Work<'_>,
    code: Code,
    frame: Option<&Bound<'_, PyAny>>,
) -> Result<Begun, Failure> {
    let is_async = code.is_async();
    let has_turn = !is_async && gradients::are_named_in(py, &code).unwrap_or(false);
    let evaluation = evaluation(py, work, code, frame)?;
    if has_turn {
        return at_turn(py, evaluation);
    }
    if !is_async {
        return Ok(Begun::Ended(evaluation.run(py)));
    }
    match place::any_loop(py)? {
        Some((ident, event_loop)) => {
            work.sink.interrupt.await_thread(ident);
            as_task(evaluation, &event_loop, None)
        }
        None => run_alone(py, evaluation).map(Begun::Ended),
    }
}

/// On a thread of the program.
fn on_thread(
    py: Python<'_>,
    work: &Work<'_>,
    code: Code,
    thread: Thread,
) -> Result<Begun, Failure> {
    let is_async = code.is_async();
    let event_loop = thread.running_loop(py)?;
    let evaluation = evaluation(py, work, code, None)?;
    work.sink.interrupt.await_thread(thread.ident);
    match event_loop {
        Some(event_loop) if is_async || !thread.is_main => {
            as_task(evaluation, &event_loop, Some(thread.name))
        }
        event_loop if thread.is_main => {
            let begun = as_errand(evaluation, is_async, thread.name)?;
            if let Some(event_loop) = event_loop {
                place::wake(&event_loop)?;
            }
            Ok(begun)
        }
        _ => as_visit(py, evaluation, is_async, thread),
    }
}

fn evaluation(
    py: Python<'_>,
    work: &Work<'_>,
    code: Code,
    frame: Option<&Bound<'_, PyAny>>,
) -> Result<Evaluation, Failure> {
    let client = (work.sink.clone(), work.held.clone(), Wish::of(work.eval));
    Evaluation::new(py, code, frame, client)
        .map_err(|error| Failure::new(format!("the program's names cannot be had: {error}")))
}

fn as_task(
    evaluation: Evaluation,
    event_loop: &Bound<'_, PyAny>,
    thread: Option<String>,
) -> Result<Begun, Failure> {
    let handoff = Handoff::default();
    let task = task(event_loop.py(), evaluation, &handoff)?;
    place::start_on(event_loop, &task)?;
    Ok(Begun::Elsewhere {
        handoff,
        thread,
        until: Until::ItComes,
    })
}

fn as_errand(evaluation: Evaluation, is_async: bool, thread: String) -> Result<Begun, Failure> {
    let handoff = Handoff::default();
    let receiver = handoff.clone();
    let errand = Box::new(move |py: Python<'_>| {
        let outcome = if is_async {
            handlers::let_in(|| run_alone(py, evaluation))
        } else {
            Ok(evaluation.run(py))
        };
        // The loop could not even be made.
        receiver.give(outcome.unwrap_or_else(|failure| refused(&failure)));
    });
    if !main_thread::send(errand) {
        return Err(
            Failure::new("the interpreter takes no more calls for the main thread now")
                .with_hint("the main thread is stuck: `probing backtrace` shows where"),
        );
    }
    Ok(Begun::Elsewhere {
        handoff,
        thread: Some(thread),
        until: Until::ItComes,
    })
}

fn at_turn(py: Python<'_>, evaluation: Evaluation) -> Result<Begun, Failure> {
    let handoff = Handoff::default();
    let turn = Turn::begin(py, evaluation, &handoff)?;
    Ok(Begun::Elsewhere {
        handoff,
        thread: Some(turn.main.name.clone()),
        until: Until::Turn(turn),
    })
}

fn as_visit(
    py: Python<'_>,
    evaluation: Evaluation,
    is_async: bool,
    thread: Thread,
) -> Result<Begun, Failure> {
    if is_async {
        let why = format!("no event loop runs on thread {}", thread.name);
        return Err(Failure::new(why).with_hint("without --thread, code that awaits finds a loop"));
    }
    let handoff = Handoff::default();
    let receiver = handoff.clone();
    let visit = Visit::begin(py, &thread, move |py| receiver.give(evaluation.run(py)))?;
    Ok(Begun::Elsewhere {
        handoff,
        thread: Some(thread.name),
        until: Until::Visit(visit),
    })
}

/// Runs code that awaits on a loop of its own, in this thread.
fn run_alone(py: Python<'_>, evaluation: Evaluation) -> Result<Outcome, Failure> {
    // Making a loop may take a while, where asyncio must be loaded first.
    if !evaluation.sink.interrupt.begin() {
        return Ok(abandoned());
    }
    let handoff = Handoff::default();
    let task = task(py, evaluation, &handoff)?;
    let ran = place::run_alone(&task);
    match handoff.taken() {
        Some(outcome) => Ok(outcome),
        None => Err(ran
            .err()
            .unwrap_or_else(|| Failure::new("the event loop ended before the code"))),
    }
}

fn task<'py>(
    py: Python<'py>,
    evaluation: Evaluation,
    handoff: &Handoff,
) -> Result<Bound<'py, PyAny>, Failure> {
    Bound::new(py, EvalTask::new(evaluation, handoff.clone()))
        .map(Bound::into_any)
        .map_err(|error| Failure::new(format!("no memory for a task: {error}")))
}

/// A failure where only an outcome can be given.
fn refused(failure: &Failure) -> Outcome {
    Outcome::Raised(Raised {
        exception: "RuntimeError".to_owned(),
        message: failure.error.clone(),
        traceback: format!("RuntimeError: {}\n", failure.error),
        frames: Vec::new(),
    })
}
