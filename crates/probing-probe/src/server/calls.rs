//! Calls of clients: the one table that says what handles each.
//!
//! The probe's thread comes here. It has no GIL and never waits: what needs the interpreter gets a thread of its own
//! (`requests/worker.rs`), and so does what may take long.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use probing_proto::message::breakpoints::{Step, StepCall, StopId};
use probing_proto::message::reads::Pieces;
use probing_proto::message::{Call, Eval, Event, Failure, Message, RequestId};
use pyo3::prelude::*;

use crate::breakpoints::{self, Order, StoppedEval, Stops};
use crate::eval::active::Evals;
use crate::eval::dispatch;
use crate::eval::output_sink::Sink;
use crate::inspect::{locals, objects};
use crate::process::{read_file, read_memory};
use crate::python::source_lines;
use crate::recorders::{self, collectives, torch};
use crate::requests::request::{Pending, given_up};
use crate::requests::worker;
use crate::server::connection::Connection;
use crate::server::event_loop::ShutdownRequest;
use crate::trace;
use crate::watchpoints::trap_handler;

/// What a call is handled with: who made it, and what it may reach.
pub(crate) struct CallContext<'a> {
    pub(crate) shutdown: &'a Arc<ShutdownRequest>,
    pub(crate) evals: &'static Evals,
    pub(crate) connection: &'a mut Connection,
    pub(crate) id: RequestId,
}

/// Handles one call, or has a thread do it. A call is answered once, by its handler or by the thread.
pub(crate) fn handle(context: CallContext<'_>, call: Call) {
    match call {
        Call::Eval(eval) => context.eval(eval),
        Call::Locals(asked) => context.run(move |sink| locals::answer(sink, &asked)),
        Call::Memory { ranges } => context.read(|| read_memory::read(&ranges)),
        Call::File(asked) => context.read(|| read_file::read(&asked)),
        Call::Complete(wanted) => context.look(move |py| objects::complete(py, &wanted)),
        Call::Describe(wanted) => context.look(move |py| objects::describe(py, &wanted)),
        Call::Progress { request } => {
            let progress = context.connection.progress(request);
            context.say(Event::Progress(progress));
        }
        Call::Cancel { request } => context.connection.cancel(context.id, request),
        Call::Arm(wanted) => context
            .prepare(move |py, sink, pending| breakpoints::arm(py, wanted, &sink.outbox, pending)),
        Call::Disarm { points } => context.change(move |py| breakpoints::disarm(py, &points)),
        Call::Record(seen) => context.change(move |py| breakpoints::record(py, &seen)),
        Call::GuardTraps => context.say(trap_handler::guard()),
        Call::Points => context.say(breakpoints::of_this_process().points_told()),
        Call::Stops => context.stops(),
        Call::Follow { driving } => context.follow(driving),
        Call::Drive { stop, take } => context.drive(stop, take),
        Call::Step(asked) => context.step(asked),
        Call::Release { stops } => context.resume(&stops),
        Call::Torch(asked) => {
            context.prepare(move |py, _, pending| torch::answer(py, &asked, pending));
        }
        Call::Source { file, first, count } => {
            context.look(move |py| source_lines::answer(py, &file, first, count));
        }
        Call::Trace(wanted) => {
            context.prepare(move |py, _, pending| trace::begin(py, wanted, pending));
        }
        Call::Untrace { traces } => context.change(move |py| trace::end(py, &traces)),
        Call::Traces => context.look(trace::report_traces),
        Call::Tracer(wanted) => {
            let borrowed = Arc::clone(context.connection.borrowed());
            context
                .prepare(move |py, _, pending| recorders::switch(py, wanted, &borrowed, pending));
        }
        Call::Heap => context.look(recorders::heap),
        Call::Detach => context.detach(),
    }
}

/// Ways to handle a call on a thread of its own.
impl CallContext<'_> {
    /// Runs code of a client, here or in a stopped thread.
    fn eval(mut self, eval: Eval) {
        match eval.stop {
            Some(stop) => {
                let evaluated = self.eval_at_stop(stop, eval);
                self.say_failure(evaluated);
            }
            None => {
                let held = self.connection.held();
                self.start(eval.max_output, move |sink| {
                    dispatch::answer(&eval, sink, &held)
                });
            }
        }
    }

    /// Has a stopped thread run code.
    fn eval_at_stop(&mut self, stop: StopId, eval: Eval) -> Result<(), Failure> {
        let sink = self.connection.begin(self.id, eval.max_output)?;
        let held = self.connection.held();
        self.evals.enter(&sink.interrupt);
        let order = Order::Eval(Box::new(StoppedEval { eval, sink, held }));
        let ordered = breakpoints::of_this_process().order(self.connection.outbox(), stop, order);
        if let Err((order, failure)) = ordered {
            order.refuse(failure);
        }
        Ok(())
    }

    /// Looks at something, with the GIL.
    fn look(self, look: impl FnOnce(Python<'_>) -> Event + Send + 'static) {
        self.prepare(move |py, _, _| Ok(look(py)));
    }

    /// Changes something that is not taken back easily: committed before it begins.
    fn change(self, change: impl FnOnce(Python<'_>) -> Event + Send + 'static) {
        self.prepare(move |py, _, pending| pending.commit().map(|()| change(py)));
    }

    /// Changes something that is taken back easily: `prepare` commits when all of it is there.
    fn prepare(
        self,
        prepare: impl FnOnce(Python<'_>, &Sink, Pending<'_>) -> Result<Event, Failure> + Send + 'static,
    ) {
        self.run(move |sink| {
            worker::with_interpreter(|py| {
                collectives::look_for_rank(py);
                let pending = Pending::of_client(&sink.interrupt);
                let prepared = match pending.check() {
                    Ok(()) => prepare(py, sink, pending),
                    Err(failure) => Err(failure),
                };
                prepared.unwrap_or_else(Event::Failed)
            })
        });
    }

    /// Does the work on a thread of its own. It gives the answer; `None` when the interpreter ends.
    fn run(self, work: impl FnOnce(&Sink) -> Option<Event> + Send + 'static) {
        self.start(None, work);
    }

    fn start(
        self,
        max_output: Option<u64>,
        work: impl FnOnce(&Sink) -> Option<Event> + Send + 'static,
    ) {
        let begun = self.connection.begin(self.id, max_output);
        let started = begun.and_then(|sink| {
            worker::spawn(self.evals, sink, Box::new(work)).map_err(|error| no_thread(&error))
        });
        self.say_failure(started);
    }
}

/// Calls that the probe's thread handles itself.
impl CallContext<'_> {
    fn say(&self, event: Event) {
        self.connection.say(Some(self.id), event);
    }

    fn say_done(&self, done: Result<(), Failure>) {
        self.say(done.map_or_else(Event::Failed, |()| Event::Done));
    }

    fn say_failure(&self, done: Result<(), Failure>) {
        if let Err(failure) = done {
            self.say(Event::Failed(failure));
        }
    }

    fn read(self, read: impl FnOnce() -> Result<(Pieces, Vec<u8>), Failure>) {
        self.connection.say_read(self.id, read);
    }

    /// Whether the client has given up a call that would take effect at once: nothing else could leave it undone.
    fn is_given_up(&self) -> bool {
        let is_given_up = self.connection.has_given_up(self.id);
        if is_given_up {
            self.say(Event::Failed(given_up()));
        }
        is_given_up
    }

    fn stops(&self) {
        self.say(breakpoints::of_this_process().told(self.connection.outbox()));
    }

    fn follow(&self, driving: bool) {
        if !self.is_given_up() {
            breakpoints::of_this_process().follow(self.connection.outbox(), self.id, driving);
        }
    }

    fn drive(&self, stop: StopId, take: bool) {
        if !self.is_given_up() {
            let stops = breakpoints::of_this_process();
            self.say_done(stops.drive(self.connection.outbox(), stop, take));
        }
    }

    fn step(mut self, asked: StepCall) {
        if self.is_given_up() {
            return;
        }
        let stops = breakpoints::of_this_process();
        if let Step::Jump { line } = asked.step {
            let jumped = self.jump(stops, asked.stop, line);
            return self.say_failure(jumped);
        }
        let ordered = stops.order(self.connection.outbox(), asked.stop, Order::Step(asked));
        self.say_done(ordered.map_err(|(_, failure)| failure));
    }

    /// The stopped thread answers.
    fn jump(&mut self, stops: &Stops, stop: StopId, line: u32) -> Result<(), Failure> {
        let sink = self.connection.begin(self.id, None)?;
        let jump = Order::Jump { line, sink };
        if let Err((jump, failure)) = stops.order(self.connection.outbox(), stop, jump) {
            jump.refuse(failure);
        }
        Ok(())
    }

    fn resume(&self, wanted: &[StopId]) {
        if !self.is_given_up() {
            let resumed = breakpoints::of_this_process().release(self.connection.outbox(), wanted);
            self.say(resumed.unwrap_or_else(Event::Failed));
        }
    }

    fn detach(mut self) {
        if self.is_given_up() {
            return;
        }
        if breakpoints::are_evaluating() {
            let detached = self.detach_later();
            return self.say_failure(detached);
        }
        self.say(Event::Done);
        self.shutdown.end.store(true, Ordering::Release);
    }

    /// Ends the probe when no thread is inside of an expression of ours any more, or says that one is. This thread must not
    /// wait for that: it is the one that interrupts them. Until then the client may give it up.
    fn detach_later(&mut self) -> Result<(), Failure> {
        let sink = self.connection.begin(self.id, None)?;
        let shutdown = Arc::clone(self.shutdown);
        let interrupt = Arc::clone(&sink.interrupt);
        let detach = move || {
            let pending = Pending::of_client(&sink.interrupt);
            let left = breakpoints::interrupt_expressions(|| pending.check().is_ok());
            let detached = pending.commit().and_then(|()| {
                // Others may have begun one meanwhile; from now on none does.
                let left = left.and_then(|()| breakpoints::leave_expressions());
                shutdown.end.store(true, Ordering::Release);
                left
            });
            sink.interrupt.end();
            // Wakes the probe's thread, which sends it before it ends.
            sink.outbox.push(Message {
                id: Some(sink.id),
                event: detached.map_or_else(Event::Failed, |()| Event::Done),
            });
        };
        worker::start(detach).map_err(|error| {
            interrupt.end();
            no_thread(&error)
        })
    }
}

fn no_thread(error: &io::Error) -> Failure {
    Failure::new(format!("cannot start a thread in the target: {error}"))
}
