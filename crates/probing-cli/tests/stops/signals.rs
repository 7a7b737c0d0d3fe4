//! Signal handlers of the program run once while expressions, watchpoints, traces and evals run in its main thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use probing_proto::message::breakpoints::{Action, BreakpointLocation, SetBreakpoint};
use probing_proto::message::recorders::{Tracer, TracerCall};
use probing_proto::message::trace::{Scope, Trace};
use probing_proto::message::{Call, Eval, Event};
use probing_testkit::{Python, every_python};
use rustix::process::Signal;

use crate::debugger::{Client, Debugged, arm, in_function, line_of, log, stop, when};

const PROGRAM: &str = "signalled.py";
/// Each handler, raising and not, and Python's own of Ctrl-C, which raises but counts nothing.
const SIGNALS: [(Signal, [u32; 2]); 3] = [
    (Signal::USR1, [1, 0]),
    (Signal::TERM, [1, 1]),
    (Signal::INT, [0, 1]),
];
/// Sent at once: each handler counts, and none raises, as another might run before what it raised is caught.
const BURST: [Signal; 4] = [Signal::USR1, Signal::USR2, Signal::HUP, Signal::WINCH];
/// In the usual run, and in the long one.
const FEW: u32 = 12;
const MANY: u32 = 1000;
/// A condition that only Python can answer, and one that the program answers and that swallows what it can.
const GENERAL: &str = "any(value < 0 for value in values)";
/// One for code of Python's own, which writes the environment and has none of the program's names.
const NAMELESS: &str = "any(value < 0 for value in (1, 2, 3))";
const SWALLOWING: &str = "slow(-1)";

/// What is done to the program meanwhile.
enum Meanwhile {
    Armed(Vec<SetBreakpoint>),
    Traced(Vec<Trace>),
    Recorded(Tracer),
    Evaluated,
    /// Stopped again and again, where a client has code evaluated.
    Stopped(SetBreakpoint),
}

fn at_line() -> SetBreakpoint {
    arm(BreakpointLocation::Line {
        file: PROGRAM.to_owned(),
        line: line_of(PROGRAM, "line"),
    })
}

fn watch_local() -> SetBreakpoint {
    arm(BreakpointLocation::Local {
        function: "busy".to_owned(),
        name: "total".to_owned(),
    })
}

fn watch_value() -> SetBreakpoint {
    arm(BreakpointLocation::Value {
        path: "state['k']".to_owned(),
    })
}

fn watch_environment() -> SetBreakpoint {
    arm(BreakpointLocation::Environment {
        name: "SIGNALLED".to_owned(),
    })
}

fn snapshot(arm: SetBreakpoint) -> SetBreakpoint {
    SetBreakpoint {
        action: Action::Snapshot,
        ..arm
    }
}

fn raising() -> SetBreakpoint {
    let exception = Some("LookupError".to_owned());
    arm(BreakpointLocation::Raise { exception })
}

fn trace(lines: bool) -> Trace {
    Trace {
        scope: Scope::Function {
            function: "busy".to_owned(),
            file: None,
        },
        depth: 0,
        watch: vec!["total".to_owned()],
        stats: false,
        lines,
        for_millis: None,
        steps: None,
        budget_ppm: None,
    }
}

/// Each kind of thing that runs in a thread of the program.
fn kinds() -> Vec<(&'static str, Meanwhile)> {
    let armed = |arm: SetBreakpoint| Meanwhile::Armed(vec![arm]);
    let general = |arm: SetBreakpoint| Meanwhile::Armed(vec![when(GENERAL, arm)]);
    vec![
        ("a line, simple", armed(when("k < 0", at_line()))),
        ("a line, general", general(at_line())),
        ("a line, swallowing", armed(when(SWALLOWING, at_line()))),
        (
            "a function, simple",
            armed(when("k < 0", in_function("busy"))),
        ),
        ("a function, general", general(in_function("busy"))),
        (
            "a log point",
            armed(log(when("slow(9e9)", at_line()), "{k} {sum(values)}")),
        ),
        ("a snapshot", armed(snapshot(when("slow(9e9)", at_line())))),
        ("a local variable", general(watch_local())),
        ("a value", general(watch_value())),
        ("what is raised", general(raising())),
        (
            "many",
            Meanwhile::Armed(vec![
                when(GENERAL, at_line()),
                when(SWALLOWING, in_function("busy")),
                when(GENERAL, watch_local()),
                when(GENERAL, raising()),
            ]),
        ),
        ("a trace", Meanwhile::Traced(vec![trace(false)])),
        ("a trace of lines", Meanwhile::Traced(vec![trace(true)])),
        (
            "a variable of the environment",
            armed(when(NAMELESS, watch_environment())),
        ),
        (
            "what nobody catches",
            general(arm(BreakpointLocation::Uncaught)),
        ),
        ("memory", Meanwhile::Recorded(Tracer::Memory)),
        ("the heap", Meanwhile::Recorded(Tracer::Heap)),
        ("evaluated code", Meanwhile::Evaluated),
        (
            "code at a stop",
            Meanwhile::Stopped(stop(when("k % 100 == 0", at_line()))),
        ),
    ]
}

/// Sends signals one after the other: each is known to have come, where it was meant to, before the next.
fn send(debugged: &mut Debugged, so_far: &mut [u32; 2], count: u32, kind: &str) {
    for (signal, adds) in SIGNALS.iter().cycle().take(count as usize) {
        debugged.target.signal(*signal);
        so_far[0] += adds[0];
        so_far[1] += adds[1];
        let expected = format!("{} {}", so_far[0], so_far[1]);
        // A handler that counts and raises may be seen in between.
        let between = format!("{} {}", so_far[0], so_far[1] - adds[1]);
        let mut line = debugged.target.line();
        if line == between && line != expected {
            line = debugged.target.line();
        }
        assert_eq!(line, expected, "{kind}: {signal:?}");
    }
    for signal in BURST {
        debugged.target.signal(signal);
    }
    let before = so_far[0];
    so_far[0] += BURST.len() as u32;
    let expected = format!("{} {}", so_far[0], so_far[1]);
    let between: Vec<_> = (before + 1..so_far[0])
        .map(|count| format!("{count} {}", so_far[1]))
        .collect();
    loop {
        let line = debugged.target.line();
        if line == expected {
            return;
        }
        assert!(
            between.contains(&line),
            "{kind}, a burst: {line}, not {expected}"
        );
    }
}

/// Has a stopped thread evaluate code and lets it go on, until nobody wants that any more.
fn stopping(client: &mut Client, goes_on: &AtomicBool) {
    let mut there = client.follow(true);
    loop {
        let stopped = there.pop().unwrap_or_else(|| client.stopped()).stop;
        // A signal may end the stop, or what is evaluated there.
        let (stop, take) = (stopped, true);
        client.ask(Call::Drive { stop, take });
        let evaluated = client.begin_eval(stop, 0, "sum(sum(range(each)) for each in range(200))");
        client.answer(evaluated);
        let is_wanted = goes_on.load(Ordering::Acquire);
        if !is_wanted {
            client.disarm_all();
        }
        client.ask(Call::Release { stops: Vec::new() });
        if !is_wanted {
            return;
        }
    }
}

/// Sends signals beside something that another client does.
fn send_beside(
    debugged: &mut Debugged,
    so_far: &mut [u32; 2],
    (count, kind): (u32, &str),
    work: fn(&mut Client, &AtomicBool),
) {
    let mut another = debugged.another();
    let goes_on = AtomicBool::new(true);
    thread::scope(|scope| {
        let works = scope.spawn(|| work(&mut another, &goes_on));
        let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            send(debugged, so_far, count, kind);
        }));
        goes_on.store(false, Ordering::Release);
        works.join().unwrap();
        sent.unwrap();
    });
}

/// Has the main thread evaluate code without end.
fn evaluating(client: &mut Client, goes_on: &AtomicBool) {
    while goes_on.load(Ordering::Acquire) {
        let event = client.ask(Call::Eval(Eval {
            thread: Some("main".to_owned()),
            ..Eval::of("sum(sum(range(each)) for each in range(200))")
        }));
        assert!(matches!(event, Event::Evaluated(_)), "{event:?}");
    }
}

fn record(client: &mut Client, tracer: Tracer, on: bool) {
    let call = TracerCall {
        tracer,
        on: Some(on),
        borrowed: false,
    };
    let event = client.ask(Call::Tracer(call));
    assert!(matches!(event, Event::Tracer(_)), "{event:?}");
}

fn none_is_lost(python: &Python, count: u32) {
    let mut debugged = Debugged::start_program(python, PROGRAM);
    let mut so_far = [0, 0];
    for (kind, meanwhile) in kinds() {
        match meanwhile {
            Meanwhile::Armed(arms) => {
                let points = arms.len();
                for arm in arms {
                    debugged.client.arm(arm);
                }
                send(&mut debugged, &mut so_far, count, kind);
                let told = debugged.client.disarm_all();
                assert_eq!(told.len(), points, "{kind}");
                for point in told {
                    let note = point.note.unwrap_or_default();
                    assert!(!note.contains("deleted"), "{kind}: {note}");
                }
            }
            Meanwhile::Traced(traces) => {
                for trace in traces {
                    let event = debugged.client.ask(Call::Trace(trace));
                    assert!(!matches!(event, Event::Failed(_)), "{kind}: {event:?}");
                }
                send(&mut debugged, &mut so_far, count, kind);
                debugged.client.ask(Call::Untrace { traces: Vec::new() });
            }
            Meanwhile::Recorded(tracer) => {
                record(&mut debugged.client, tracer, true);
                send(&mut debugged, &mut so_far, count, kind);
                record(&mut debugged.client, tracer, false);
            }
            Meanwhile::Evaluated => {
                send_beside(&mut debugged, &mut so_far, (count, kind), evaluating);
            }
            Meanwhile::Stopped(arm) => {
                debugged.client.arm(arm);
                send_beside(&mut debugged, &mut so_far, (count, kind), stopping);
            }
        }
    }
    // None has come twice: the program has said nothing more.
    debugged.target.say("pass");
    assert_eq!(debugged.target.line(), "done");
    let ended = debugged.target.end();
    assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
}

#[test]
fn every_signal_reaches_the_program_once_whatever_runs_in_its_main_thread() {
    every_python(|python| none_is_lost(python, FEW));
}

#[test]
#[ignore = "some minutes: `make stress`"]
fn a_thousand_signals_reach_the_program_once_with_everything_that_runs_there() {
    every_python(|python| none_is_lost(python, MANY));
}
