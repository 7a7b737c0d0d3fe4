//! Requests that their clients give up: whatever they were to change stays as it was, however late the target comes to them.

use std::fs;
use std::process::Stdio;

use probing_proto::message::breakpoints::{
    BreakpointEvent, BreakpointLocation, Controller, SetBreakpoint, Step, StepCall,
};
use probing_proto::message::recorders::{Tracer, TracerCall};
use probing_proto::message::torch::{TorchCall, TorchOptions};
use probing_proto::message::trace::{Scope, Trace};
use probing_proto::message::{Call, Eval, Event, Failure, Progress, RequestId};
use probing_testkit::{every_python, wait_until};
use rustix::process::Signal;

use crate::debugger::{Client, Debugged, arm, at, in_function, stop};

/// Has the main thread hold the GIL, in one call of C, until a line comes on its standard input.
const HOLD: &str = "import ctypes; ctypes.PyDLL(None).system(b'echo holding; read line')";

/// Finds the names of our own code that looks for functions.
const GATE: &str = "import gc, threading; gate = threading.Event(); \
    own = next(it.find.__globals__ for it in gc.get_objects() if isinstance(it, type) and it.__name__ == 'Function' \
    and hasattr(it, 'find') and it.find.__code__.co_filename == '<probing>')";

/// Has a function of it tell when another thread than the program's own calls it, and wait.
fn gated(debugged: &mut Debugged, function: &str) {
    debugged.begin(GATE);
    debugged.ended();
    debugged.begin(&format!(
        "inner = own[{function:?}]; main = threading.get_ident(); own[{function:?}] = lambda *args: \
         (threading.get_ident() == main or gate.is_set() or (print('searching', flush=True), gate.wait()), inner(*args))[1]"
    ));
    debugged.ended();
}

fn given_up() -> Event {
    Event::Failed(Failure::new(
        "cancelled by the client before it took effect",
    ))
}

/// Gives up a request; whether it had taken effect.
#[track_caller]
fn cancel(client: &mut Client, request: RequestId) -> bool {
    match client.ask(Call::Cancel { request }) {
        Event::Cancelling(Progress { begun, .. }) => begun,
        event => panic!("{event:?}"),
    }
}

fn traced(function: &str) -> Trace {
    Trace {
        scope: Scope::Function {
            function: function.to_owned(),
            file: None,
        },
        depth: 0,
        watch: Vec::new(),
        stats: false,
        lines: false,
        for_millis: None,
        steps: None,
        budget_ppm: None,
    }
}

fn tracer(tracer: Tracer, on: Option<bool>, borrowed: bool) -> Call {
    Call::Tracer(TracerCall {
        tracer,
        on,
        borrowed,
    })
}

/// Something that is on, to be taken out.
fn begin_some(client: &mut Client) {
    client.arm(stop(in_function("factorial")));
    let trace = client.ask(Call::Trace(traced("consume")));
    assert!(matches!(trace, Event::Traced(_)), "{trace:?}");
    let memory = client.ask(tracer(Tracer::Memory, Some(true), false));
    assert!(matches!(memory, Event::Tracer(_)), "{memory:?}");
}

/// All that can be asked for and changes something.
fn changes() -> Vec<Call> {
    let place = |place: BreakpointLocation| Call::Arm(arm(place));
    let path = |path: &str| place(BreakpointLocation::Value { path: path.into() });
    vec![
        Call::Arm(stop(in_function("Trainer.fit"))),
        Call::Arm(stop(at("count"))),
        path("trainer.lr"),
        path("loss"),
        place(BreakpointLocation::Local {
            function: "count".into(),
            name: "step".into(),
        }),
        place(BreakpointLocation::Raise {
            exception: Some("ValueError".into()),
        }),
        place(BreakpointLocation::Uncaught),
        place(BreakpointLocation::Environment {
            name: "HOME".into(),
        }),
        Call::Disarm { points: Vec::new() },
        Call::Trace(traced("Trainer.finish")),
        Call::Untrace { traces: Vec::new() },
        Call::Torch(TorchCall::On(TorchOptions {
            nan: true,
            ..TorchOptions::default()
        })),
        Call::Torch(TorchCall::Off),
        tracer(Tracer::Collectives, Some(true), false),
        tracer(Tracer::Heap, Some(true), false),
        tracer(Tracer::Heap, Some(true), true),
        tracer(Tracer::Memory, Some(false), false),
    ]
}

/// What is on: points, traces, tracers.
#[track_caller]
fn what_is_on(client: &mut Client) -> (usize, usize, Vec<bool>) {
    let points = client.points();
    let armed = points.iter().filter(|point| point.note.is_none());
    let traces = match client.ask(Call::Traces) {
        Event::Traces { traces } => traces,
        event => panic!("{event:?}"),
    };
    let on =
        [Tracer::Memory, Tracer::Heap].map(|kind| match client.ask(tracer(kind, None, false)) {
            Event::Tracer(state) => state.on,
            event => panic!("{event:?}"),
        });
    (armed.count(), traces.len(), on.to_vec())
}

#[track_caller]
fn end(mut debugged: Debugged) {
    // The program comes by all that was asked for, and nobody stops it.
    debugged.client.disarm_all();
    assert_eq!(
        debugged.told("trainer.fit(10), consume(), count(3), fails()"),
        "63 2 3 True"
    );
    debugged.client.ask(Call::Untrace { traces: Vec::new() });
    debugged
        .client
        .ask(tracer(Tracer::Memory, Some(false), false));
    debugged.leaves_no_trace();
}

#[test]
fn a_request_that_is_cancelled_while_the_gil_is_held_changes_nothing() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        begin_some(&mut debugged.client);
        let before = what_is_on(&mut debugged.client);
        debugged.begin(HOLD);
        assert_eq!(debugged.target.line(), "holding");
        let calls = changes();
        let ids: Vec<_> = calls
            .into_iter()
            .map(|call| (debugged.client.send(call.clone()), call))
            .collect();
        for (id, call) in &ids {
            assert!(!cancel(&mut debugged.client, *id), "{call:?}");
        }
        let mut other = debugged.another();
        debugged.begin("release");
        // Each is answered when its thread has had the GIL.
        let mut left: Vec<_> = ids.iter().map(|(id, _)| *id).collect();
        while !left.is_empty() {
            let (id, event) = debugged.client.any_answer();
            assert_eq!(event, given_up(), "{:?}", ids.iter().find(|it| it.0 == id));
            left.retain(|it| *it != id);
        }
        debugged.ended();
        assert_eq!(what_is_on(&mut other), before);
        end(debugged);
    });
}

#[test]
fn requests_of_a_client_that_has_gone_change_nothing() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        begin_some(&mut debugged.client);
        let before = what_is_on(&mut debugged.client);
        debugged.begin(HOLD);
        assert_eq!(debugged.target.line(), "holding");
        let mut gone = debugged.another();
        for call in changes() {
            gone.send(call);
        }
        // It was read, since this comes after.
        gone.points();
        drop(gone);
        let waiting = threads_called("probing-eval", &debugged);
        let mut killed = debugged
            .sandbox
            .command()
            .args(["-t", &debugged.target.pid().to_string()])
            .args(["break", "Trainer.fit"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("its request waits for the GIL", || {
            threads_called("probing-eval", &debugged) > waiting
        });
        killed.kill().unwrap();
        killed.wait().unwrap();
        // The probe has heard of it when it has gone around twice.
        debugged.client.points();
        debugged.client.points();
        debugged.begin("release");
        debugged.ended();
        wait_until("nothing is left to do", || {
            threads_called("probing-eval", &debugged) == 0
        });
        assert_eq!(what_is_on(&mut debugged.client), before);
        end(debugged);
    });
}

fn threads_called(name: &str, debugged: &Debugged) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", debugged.target.pid())).unwrap();
    let comms = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    comms.filter(|comm| comm.trim_end() == name).count()
}

#[test]
fn a_stopped_process_does_nothing_for_a_client_that_has_gone_meanwhile() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        begin_some(&mut debugged.client);
        let before = what_is_on(&mut debugged.client);
        debugged.begin("factorial(2)");
        let stopped = debugged.client.stopped();
        // One that goes, and one that stays and cancels.
        let mut gone = debugged.another();
        let mut stays = debugged.another();
        debugged.target.stop();
        let mut calls = changes();
        calls.extend([
            Call::Drive {
                stop: stopped.stop,
                take: true,
            },
            Call::Step(StepCall {
                stop: stopped.stop,
                step: Step::Continue,
                my_code: false,
            }),
            Call::Release { stops: Vec::new() },
            Call::Detach,
        ]);
        for call in calls {
            gone.send(call.clone());
            let request = stays.send(call);
            stays.send(Call::Cancel { request });
        }
        drop(gone);
        debugged.target.signal(Signal::CONT);
        assert_eq!(what_is_on(&mut stays), before);
        let stops = debugged.client.stops();
        assert_eq!(stops.len(), 1, "{stops:?}");
        let value = debugged.client.value(stopped.stop, 0, "number");
        assert_eq!(value, "2");
        debugged.client.disarm_all();
        debugged.client.step(stopped.stop, Step::Continue);
        debugged.ended();
        end(debugged);
    });
}

#[test]
fn a_search_that_is_given_up_sets_nothing() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(in_function("factorial"));
        debugged.client.disarm_all();
        gated(&mut debugged, "_modules");
        let calls = [
            Call::Arm(stop(in_function("fit"))),
            Call::Arm(stop(at("count"))),
            Call::Trace(traced("finish")),
        ];
        for call in calls {
            let id = debugged.client.send(call);
            assert_eq!(debugged.target.line(), "searching");
            assert!(!cancel(&mut debugged.client, id));
            debugged.begin("gate.set()");
            assert_eq!(debugged.client.answer(id), given_up());
            debugged.ended();
            debugged.begin("gate.clear()");
            debugged.ended();
        }
        debugged.begin("own['_modules'] = inner; gate.set()");
        debugged.ended();
        assert_eq!(debugged.client.points(), []);
        end(debugged);
    });
}

#[test]
fn a_breakpoint_whose_client_gives_up_half_way_is_deleted_and_never_stops() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(in_function("factorial"));
        debugged.client.disarm_all();
        // Its functions have been found, and the interpreter tells of them.
        gated(&mut debugged, "forget_globals");
        let half: [SetBreakpoint; 2] = [
            stop(in_function("Trainer.fit")),
            arm(BreakpointLocation::Local {
                function: "count".into(),
                name: "step".into(),
            }),
        ];
        for half in half {
            let id = debugged.client.send(Call::Arm(half));
            assert_eq!(debugged.target.line(), "searching");
            assert_eq!(debugged.told("trainer.fit(10), count(3)"), "63 3");
            assert!(!cancel(&mut debugged.client, id));
            debugged.begin("gate.set()");
            assert_eq!(debugged.client.answer(id), given_up());
            debugged.ended();
            debugged.begin("gate.clear()");
            debugged.ended();
        }
        debugged.begin("own['forget_globals'] = inner; gate.set()");
        debugged.ended();
        assert_eq!(debugged.client.points(), []);
        end(debugged);
    });
}

#[test]
fn a_command_that_gives_up_says_what_became_of_its_request() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        begin_some(&mut debugged.client);
        let before = what_is_on(&mut debugged.client);
        debugged.begin(HOLD);
        assert_eq!(debugged.target.line(), "holding");
        let pid = debugged.target.pid().to_string();
        let given_up = debugged.sandbox.probing(["-t", &pid, "delete", "all"]);
        assert_eq!(given_up.status, 3);
        assert!(
            given_up.stderr.contains(
                "the probe did not answer within 2s: the request was cancelled and changed nothing"
            ),
            "{given_up:?}"
        );
        debugged.begin("release");
        debugged.ended();
        assert_eq!(what_is_on(&mut debugged.client), before);
        end(debugged);
    });
}

#[test]
fn a_search_releases_the_gil_and_is_invisible() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(in_function("factorial"));
        debugged.client.disarm_all();
        debugged.begin(GATE);
        debugged.ended();
        // A thread only gets the GIL from one that gives it back; what the search does is traced from its first call on.
        debugged.begin(
            "import time; beats, lines, at = [0], [0], []; sys.setswitchinterval(1000); \
             many = type(sys)('many'); vars(many).update({f'n{i}': i for i in range(20000)}); sys.modules['many'] = many",
        );
        debugged.ended();
        debugged.begin(
            "beat = lambda: [beats.__setitem__(0, beats[0] + 1) or time.sleep(0.0001) for _ in iter(gate.is_set, True)]; \
             tell = lambda frame, event, arg: lines.__setitem__(0, lines[0] + 1) or tell",
        );
        debugged.ended();
        debugged.begin(
            "modules, nothing = own['_modules'], own['Function']._nothing; \
             own['_modules'] = lambda: (at.append(beats[0]), sys.settrace(tell), modules())[2]; \
             own['Function']._nothing = lambda *args: (at.append(beats[0]), sys.settrace(None), nothing(*args))[2]; \
             threading.Thread(target=beat, daemon=True).start()",
        );
        debugged.ended();
        let point = debugged.client.arm(in_function("nobody_is_called_so"));
        assert_eq!(point.bound, []);
        debugged.begin("own['_modules'], own['Function']._nothing = modules, nothing; gate.set(); del sys.modules['many']; sys.setswitchinterval(0.005)");
        debugged.ended();
        let (beats, lines) = (
            debugged.told("at[-1] - at[0] > 2"),
            debugged.told("lines[0]"),
        );
        assert_eq!((beats.as_str(), lines.as_str()), ("True", "0"));
        end(debugged);
    });
}

#[test]
fn steps_that_wait_at_a_stop_go_with_their_client() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(stop(in_function("factorial")));
        debugged.begin("print(factorial(2))");
        let stopped = debugged.client.stopped();
        for step in [Step::Continue, Step::Over, Step::Jump { line: 1 }] {
            let mut gone = debugged.another();
            let drive = Call::Drive {
                stop: stopped.stop,
                take: true,
            };
            assert_eq!(gone.ask(drive), Event::Done);
            let id = gone.begin_eval(
                stopped.stop,
                0,
                "print('begun', flush=True)\nwhile True: pass",
            );
            gone.printed(id);
            gone.begin_eval(stopped.stop, 0, "number = 7");
            let step = Call::Step(StepCall {
                stop: stopped.stop,
                step,
                my_code: false,
            });
            gone.send(step);
            // All of it was read, since this comes after.
            gone.points();
            drop(gone);
            let driven = |news| match news {
                BreakpointEvent::Driven { driver, .. } => Some(driver),
                _ => None,
            };
            while debugged.client.news(driven) != Controller::You {}
            assert_eq!(debugged.client.stops().len(), 1);
            assert_eq!(debugged.client.value(stopped.stop, 0, "number"), "2");
        }
        debugged.client.disarm_all();
        debugged.client.step(stopped.stop, Step::Continue);
        assert_eq!(debugged.ended(), ["2"]);
        end(debugged);
    });
}

#[test]
fn a_detach_that_is_given_up_while_an_expression_runs_leaves_the_probe() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("held_lock = threading.Lock(); held_lock.acquire()");
        debugged.ended();
        // A call into C, which nothing interrupts.
        let stuck = "print('inside', flush=True) or not held_lock.acquire()";
        debugged.client.arm(SetBreakpoint {
            expression_millis: Some(0),
            condition: Some(stuck.to_owned()),
            ..arm(BreakpointLocation::Function {
                function: "count".to_owned(),
            })
        });
        debugged.begin("print(count(3))");
        assert_eq!(debugged.target.line(), "inside");
        let request = debugged.client.send(Call::Detach);
        debugged.client.send(Call::Cancel { request });
        assert_eq!(debugged.client.answer(request), given_up());
        let points = debugged.client.points();
        assert!(
            points[0]
                .note
                .as_ref()
                .is_none_or(|note| !note.contains("deleted")),
            "{points:?}"
        );
        let event = debugged
            .client
            .ask(Call::Eval(Eval::of("held_lock.release()")));
        assert!(matches!(event, Event::Evaluated(_)), "{event:?}");
        assert_eq!(debugged.ended(), ["3"]);
        // It is still there, and leaves when somebody means it.
        assert_eq!(debugged.client.points().len(), 1);
        end(debugged);
    });
}
