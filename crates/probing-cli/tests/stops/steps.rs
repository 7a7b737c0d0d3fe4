//! Steps: over, into, out, until, jump; across calls, yields, awaits, exceptions, recursion and decorators.

use probing_proto::message::breakpoints::Step::{Continue, Into, Jump, Out, Over, Return, Until};
use probing_proto::message::breakpoints::{
    BreakpointEvent, ResumeReason, Step, StepCall, StopId, StopReason,
};
use probing_proto::message::{Call, Event};
use probing_testkit::every_python;

use crate::debugger::{Debugged, at, check_at, in_function, line, stop};

/// Stops at a line, disarms what stopped it, takes steps, and lets go.
#[track_caller]
fn walk(debugged: &mut Debugged, code: &str, first: &str, steps: &[(Step, &str)]) {
    debugged.client.arm(stop(at(first)));
    debugged.begin(code);
    let stopped = debugged.client.stopped();
    check_at(&stopped, first);
    debugged.client.disarm_all();
    for (step, mark) in steps {
        debugged.client.step_to(stopped.stop, *step, mark);
    }
    debugged.client.step(stopped.stop, Continue);
    debugged.ended();
}

#[test]
fn steps_go_over_into_and_out_of_calls() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let it = &mut debugged;
        let steps = [
            (Over, "second"),
            (Over, "third"),
            (Into, "finish"),
            (Over, "sum"),
        ];
        walk(it, "trainer.fit(1)", "first", &steps);
        let over = [(Over, "handled")];
        walk(it, "print(trainer.fit(1), fails())", "except", &over);
        walk(it, "consume()", "twice", &[(Out { frame: 0 }, "consumed")]);
        let until = Until {
            line: line("consumed"),
        };
        walk(it, "consume()", "consume", &[(until, "consumed")]);
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_step_to_the_return_stops_there_with_the_value() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let returned = |debugged: &mut Debugged, id| {
            debugged.client.step(id, Return { frame: 0 });
            let stopped = debugged.client.stopped();
            match &stopped.why {
                StopReason::Returned { value } => (value.clone(), stopped),
                why => panic!("{why:?}"),
            }
        };
        debugged.client.arm(stop(at("finish")));
        debugged.begin("print(trainer.fit(1))");
        let first = debugged.client.stopped();
        debugged.client.disarm_all();
        let (value, stopped) = returned(&mut debugged, first.stop);
        assert_eq!(value, "9");
        check_at(&stopped, "sum");
        assert_eq!(debugged.client.value(first.stop, 0, "value"), "3");
        // There is nothing left to do in it: its caller returns next.
        let (value, stopped) = returned(&mut debugged, first.stop);
        assert_eq!(value, "9");
        check_at(&stopped, "third");
        debugged.client.step(first.stop, Continue);
        assert_eq!(debugged.ended(), ["9"]);

        // A generator that yields does not return; one that raises comes to its caller.
        debugged.client.arm(stop(at("twice")));
        debugged.begin("consume()");
        let generator = debugged.client.stopped();
        debugged.client.disarm_all();
        let (value, _) = returned(&mut debugged, generator.stop);
        assert_eq!(value, "None");
        let line = Over;
        debugged.client.step_to(generator.stop, line, "consumed");
        debugged.client.step(generator.stop, Continue);
        debugged.ended();
        let raising = [(Return { frame: 0 }, "except")];
        walk(&mut debugged, "fails()", "raise", &raising);
        debugged.leaves_no_trace();
    });
}

#[test]
fn steps_cross_yields_exceptions_recursion_and_decorators() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let it = &mut debugged;
        // A generator: over its `yield` is its own next line; into comes to whoever asked for the value.
        let own = [(Over, "yield"), (Over, "twice"), (Over, "yield")];
        walk(it, "consume()", "twice", &own[..1]);
        let consumer = [
            (Over, "loop"),
            (Over, "add"),
            (Over, "loop"),
            (Over, "add"),
            (Over, "loop"),
            (Over, "consumed"),
        ];
        walk(it, "consume()", "consume", &consumer);
        let raising = [(Over, "breaks"), (Over, "except"), (Over, "handled")];
        walk(it, "fails()", "try", &raising);
        let recursion = [
            (Over, "recursion"),
            (Into, "factorial"),
            (Over, "recursion"),
        ];
        walk(it, "factorial(3)", "factorial", &recursion);
        walk(it, "print(decorated(1))", "wrapper", &[(Into, "decorated")]);
        debugged.leaves_no_trace();
    });
}

#[test]
fn steps_stay_with_a_coroutine_that_awaits() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let it = &mut debugged;
        let steps = [(Over, "awaited"), (Into, "sleep"), (Over, "fetched")];
        walk(it, "gathered()", "await", &steps);
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_function_stops_at_the_first_line_of_its_body() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let point = debugged.client.arm(stop(in_function("finish")));
        assert_eq!(point.bound[0].lineno, line("finish"));
        debugged.begin("trainer.fit(1)");
        let stopped = debugged.client.stopped();
        check_at(&stopped, "finish");
        let point = point.point;
        assert_eq!(stopped.why, StopReason::Breakpoint { point });
        assert_eq!(debugged.client.value(stopped.stop, 0, "value"), "3");
        assert_eq!(debugged.client.value(stopped.stop, 1, "batch"), "1");
        debugged.client.step_to(stopped.stop, Over, "sum");
        debugged.client.step(stopped.stop, Continue);
        debugged.ended();
        // A loop is the first line of this one, and met once.
        let point = debugged.client.arm(stop(in_function("numbers")));
        debugged.begin("print(consume())");
        let stopped = debugged.client.stopped();
        assert_eq!(stopped.frames[0].lineno, line("twice") - 1);
        debugged.client.step(stopped.stop, Continue);
        assert_eq!(debugged.ended(), ["2"]);
        let points = debugged.client.disarm_all();
        let seen = points.iter().find(|it| it.point == point.point);
        assert_eq!(seen.map(|it| it.hits), Some(1), "{points:?}");
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_jump_skips_lines_and_refuses_what_python_refuses() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(at("second")));
        debugged.begin("print(trainer.fit(10))");
        let stopped = debugged.client.stopped();
        let jump = |line: u32| {
            Call::Step(StepCall {
                stop: stopped.stop,
                step: Jump { line },
                my_code: false,
            })
        };
        let refused = debugged.client.refused(jump(line("sum")));
        let expected = format!("Python cannot jump to line {}", line("sum"));
        assert!(refused.starts_with(&expected), "{refused}");
        assert_eq!(debugged.client.ask(jump(line("third"))), Event::Done);
        check_at(&debugged.client.stopped(), "third");
        debugged.client.disarm_all();
        debugged.client.step(stopped.stop, Continue);
        // Without the line that adds one.
        assert_eq!(debugged.ended(), ["60"]);
        debugged.leaves_no_trace();
    });
}

#[test]
fn steps_in_my_code_pass_by_the_library() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("import functools; mapped = functools.reduce");
        debugged.ended();
        debugged.client.arm(stop(at("fetched")));
        debugged.begin("gathered()");
        let stopped = debugged.client.stopped();
        debugged.client.disarm_all();
        let step = |stop: StopId| {
            Call::Step(StepCall {
                stop,
                step: Out { frame: 0 },
                my_code: true,
            })
        };
        assert_eq!(debugged.client.ask(step(stopped.stop)), Event::Done);
        check_at(&debugged.client.stopped(), "awaited");
        debugged.client.step(stopped.stop, Continue);
        debugged.ended();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_thread_that_ends_in_the_middle_of_a_step_leaves_nothing_behind() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(at("consumed")));
        debugged.begin("worker = in_thread(consume)");
        debugged.ended();
        let stopped = debugged.client.stopped();
        debugged.client.disarm_all();
        let out = Call::Step(StepCall {
            stop: stopped.stop,
            step: Out { frame: 0 },
            my_code: true,
        });
        assert_eq!(debugged.client.ask(out), Event::Done);
        let because = debugged.client.news(|news| match news {
            BreakpointEvent::WentOn { because, .. } => Some(because),
            _ => None,
        });
        assert_eq!(because, ResumeReason::ThreadEnded);
        assert_eq!(debugged.told("worker.join()"), "None");
        assert_eq!(debugged.client.stops(), []);
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_breakpoint_ends_a_step() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(at("third")));
        debugged.client.arm(stop(at("sum")));
        debugged.begin("trainer.fit(1)");
        let stopped = debugged.client.stopped();
        debugged.client.step(stopped.stop, Over);
        let again = debugged.client.stopped();
        assert_eq!(again.stop, stopped.stop);
        assert!(matches!(again.why, StopReason::Breakpoint { .. }));
        check_at(&again, "sum");
        debugged.client.disarm_all();
        debugged.client.step(stopped.stop, Continue);
        debugged.ended();
        debugged.leaves_no_trace();
    });
}
