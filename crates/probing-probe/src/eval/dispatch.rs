//! Where evaluated code runs: on a thread of its own, or on one of the program's that then hands the outcome back.

use std::time::Instant;

use probing_proto::message::{Eval, Evaluated, Event, Failure, Outcome, Raised};
use pyo3::prelude::*;

use crate::eval::async_task::EvalTask;
use crate::eval::autograd_guard::{self, MainThreadEval};
use crate::eval::code::Code;
use crate::eval::evaluation::{self, EvalOptions, Evaluation};
use crate::eval::last_value::ConnectionValue;
use crate::eval::outcome_channel::{Handoff, abandoned};
use crate::eval::output_sink::Sink;
use crate::eval::pending_call;
use crate::eval::stdout_capture;
use crate::eval::thread_lookup::{self, Thread, Visit};
use crate::python::main_thread_name;
use crate::python::signal_handlers;
use crate::requests::worker;

/// Runs the code of a client and tells what became of it. `None` when the interpreter ends.
pub(crate) fn answer(eval: &Eval, sink: &Sink, held: &ConnectionValue) -> Option<Event> {
    let started = Instant::now();
    let work = EvalWork { eval, sink, held };
    let begun = worker::with_interpreter(|py| {
        main_thread_name::prepare(py);
        stdout_capture::tap(py);
        let begun = begin(py, &work);
        if !matches!(begun, Ok(EvalStart::Elsewhere { .. })) {
            stdout_capture::untap(py);
        }
        begun
    })?;
    let (outcome, thread) = match begun {
        Ok(EvalStart::Ended(outcome)) => (outcome, None),
        Ok(EvalStart::Elsewhere {
            handoff,
            thread,
            until,
        }) => match awaited(&work, &handoff, &until) {
            EvalResult::OnProgramThread(outcome) => (outcome, thread),
            EvalResult::OnOwnThread(outcome) => (outcome, None),
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
enum EvalResult {
    OnProgramThread(Outcome),
    OnOwnThread(Outcome),
}

/// Waits for code that runs elsewhere. At the end of the interpreter there is nothing to undo.
fn awaited(work: &EvalWork<'_>, handoff: &Handoff, until: &WaitAction) -> EvalResult {
    let mut is_here = false;
    let outcome = handoff.take(&work.sink.interrupt, || match until {
        WaitAction::ItComes => {}
        WaitAction::Visit(visit) => drop(worker::with_interpreter(|py| visit.renew(py))),
        WaitAction::Turn(turn) => {
            if let Some(outcome) = turn.or_here() {
                is_here = true;
                handoff.give(outcome);
            }
        }
    });
    worker::with_interpreter(|py| {
        if let WaitAction::Visit(visit) = until {
            visit.end(py);
        }
        stdout_capture::untap(py);
    });
    if is_here {
        EvalResult::OnOwnThread(outcome)
    } else {
        EvalResult::OnProgramThread(outcome)
    }
}

/// What is to be done for whom.
struct EvalWork<'a> {
    eval: &'a Eval,
    sink: &'a Sink,
    held: &'a ConnectionValue,
}

/// What became of code that was given to a thread.
enum EvalStart {
    Ended(Outcome),
    /// A thread of the program runs it, or will.
    Elsewhere {
        handoff: Handoff,
        thread: Option<String>,
        until: WaitAction,
    },
}

/// What is done while a thread of the program has not come to the code.
enum WaitAction {
    ItComes,
    Visit(Visit),
    Turn(MainThreadEval),
}

/// Runs the code, or has it run where it belongs.
fn begin(py: Python<'_>, work: &EvalWork<'_>) -> Result<EvalStart, Failure> {
    let code = match evaluation::compile(py, &work.eval.code) {
        Ok(code) => code,
        Err(outcome) => return Ok(EvalStart::Ended(outcome)),
    };
    let wanted = work.eval.thread.as_deref();
    if let Some(wanted_frame) = &work.eval.frame {
        let thread = Thread::find(py, wanted.unwrap_or("main"))?;
        let frame = thread.frame(py, wanted_frame)?;
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
    work: &EvalWork<'_>,
    code: Code,
    frame: Option<&Bound<'_, PyAny>>,
) -> Result<EvalStart, Failure> {
    let is_async = code.is_async();
    let has_turn = !is_async && autograd_guard::are_named_in(py, &code).unwrap_or(false);
    let evaluation = evaluation(py, work, code, frame)?;
    if has_turn {
        return at_turn(py, evaluation);
    }
    if !is_async {
        return Ok(EvalStart::Ended(evaluation.run(py)));
    }
    match thread_lookup::any_loop(py)? {
        Some((ident, event_loop)) => {
            work.sink.interrupt.await_thread(ident);
            as_task(evaluation, &event_loop, None)
        }
        None => run_alone(py, evaluation).map(EvalStart::Ended),
    }
}

/// On a thread of the program.
fn on_thread(
    py: Python<'_>,
    work: &EvalWork<'_>,
    code: Code,
    thread: Thread,
) -> Result<EvalStart, Failure> {
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
                thread_lookup::wake(&event_loop)?;
            }
            Ok(begun)
        }
        _ => as_visit(py, evaluation, is_async, thread),
    }
}

fn evaluation(
    py: Python<'_>,
    work: &EvalWork<'_>,
    code: Code,
    frame: Option<&Bound<'_, PyAny>>,
) -> Result<Evaluation, Failure> {
    let client = (
        work.sink.clone(),
        work.held.clone(),
        EvalOptions::of(work.eval),
    );
    Evaluation::new(py, code, frame, client)
        .map_err(|error| Failure::new(format!("cannot read the names of the program: {error}")))
}

fn as_task(
    evaluation: Evaluation,
    event_loop: &Bound<'_, PyAny>,
    thread: Option<String>,
) -> Result<EvalStart, Failure> {
    let handoff = Handoff::default();
    let task = task(event_loop.py(), evaluation, &handoff)?;
    thread_lookup::start_on(event_loop, &task)?;
    Ok(EvalStart::Elsewhere {
        handoff,
        thread,
        until: WaitAction::ItComes,
    })
}

fn as_errand(evaluation: Evaluation, is_async: bool, thread: String) -> Result<EvalStart, Failure> {
    let handoff = Handoff::default();
    let receiver = handoff.clone();
    let errand = Box::new(move |py: Python<'_>| {
        let outcome = if is_async {
            signal_handlers::let_in(py, || run_alone(py, evaluation))
        } else {
            Ok(evaluation.run(py))
        };
        // The loop could not even be made.
        receiver.give(outcome.unwrap_or_else(|failure| refused(&failure)));
    });
    if !pending_call::send(errand) {
        return Err(
            Failure::new("the interpreter's queue of calls for the main thread is full")
                .with_hint("the main thread is stuck: `probing backtrace` shows where"),
        );
    }
    Ok(EvalStart::Elsewhere {
        handoff,
        thread: Some(thread),
        until: WaitAction::ItComes,
    })
}

fn at_turn(py: Python<'_>, evaluation: Evaluation) -> Result<EvalStart, Failure> {
    let handoff = Handoff::default();
    let turn = MainThreadEval::begin(py, evaluation, &handoff)?;
    Ok(EvalStart::Elsewhere {
        handoff,
        thread: Some(turn.main.name.clone()),
        until: WaitAction::Turn(turn),
    })
}

fn as_visit(
    py: Python<'_>,
    evaluation: Evaluation,
    is_async: bool,
    thread: Thread,
) -> Result<EvalStart, Failure> {
    if is_async {
        let why = format!("no event loop runs on thread {}", thread.name);
        return Err(Failure::new(why)
            .with_hint("omit --thread: then code that awaits uses the program's loop"));
    }
    let handoff = Handoff::default();
    let receiver = handoff.clone();
    let visit = Visit::begin(py, &thread, move |py| receiver.give(evaluation.run(py)))?;
    Ok(EvalStart::Elsewhere {
        handoff,
        thread: Some(thread.name),
        until: WaitAction::Visit(visit),
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
    let ran = thread_lookup::run_alone(&task);
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
