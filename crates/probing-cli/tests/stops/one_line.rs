//! Lines that are a whole loop or a whole function: a thread comes to them anew without leaving them.

use probing_proto::message::breakpoints::{BreakpointLocation, Step, StopReason};
use probing_testkit::every_python;

use crate::debugger::{Debugged, arm, stop};

/// Programs of one line each, in a file that is nowhere: calls of `tick` are what the loop does.
const LOOPS: [&str; 3] = [
    "while going: tick()",
    "for _ in iter(lambda: going, False): tick()",
    "[tick() for _ in iter(lambda: going, False)]",
];

/// Code that a thread runs, which says when it is in there, and goes on until `going` is false.
fn begin(debugged: &mut Debugged, source: &str, file: &str) {
    debugged.begin("import time; going = True; inside = threading.Event()");
    debugged.ended();
    debugged.begin("tick = lambda: (inside.set(), time.sleep(0.001))");
    debugged.ended();
    let run = format!("exec(compile({source:?}, {file:?}, 'exec'), globals())");
    debugged.begin(&format!(
        "worker = threading.Thread(target=lambda: {run}); worker.start(); inside.wait()"
    ));
    debugged.ended();
}

#[test]
fn a_breakpoint_on_a_loop_of_one_line_is_met_at_each_turn() {
    every_python(|python| {
        for (index, source) in LOOPS.iter().enumerate() {
            let mut debugged = Debugged::start(python);
            let file = format!("/nowhere/loop{index}.py");
            begin(&mut debugged, source, &file);
            let at = |line| {
                let file = file.clone();
                arm(BreakpointLocation::Line { file, line })
            };
            let point = debugged.client.arm(stop(at(1))).point;
            let mut stopped = debugged.client.stopped();
            for step in [Step::Continue, Step::Continue, Step::Over] {
                debugged.client.step(stopped.stop, step);
                stopped = debugged.client.stopped();
                assert_eq!(stopped.frames[0].file, file, "{source}: {stopped:?}");
                assert_eq!(stopped.why, StopReason::Breakpoint { point }, "{source}");
            }
            debugged.client.disarm_all();
            debugged.client.step(stopped.stop, Step::Continue);
            debugged.begin("going = False; worker.join()");
            debugged.ended();
            debugged.leaves_no_trace();
        }
    });
}

#[test]
fn a_function_of_one_line_is_met_at_each_call() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let file = "/nowhere/functions.py";
        let source = "def g(x): return x * 2\nf = lambda x: x + 1\ndef h(): yield 1; yield 2\n";
        debugged.begin(&format!(
            "exec(compile({source:?}, {file:?}, 'exec'), globals())"
        ));
        debugged.ended();
        // As often as a search for other code, and its end, have code tell again what it was told not to.
        for round in 1..=3u64 {
            for line in 1..=3 {
                let file = file.to_owned();
                debugged
                    .client
                    .arm(arm(BreakpointLocation::Line { file, line }));
            }
            debugged.begin("[(g(i), f(i), list(h())) for i in range(150)]");
            debugged.ended();
            let hits: Vec<u64> = debugged
                .client
                .disarm_all()
                .iter()
                .map(|it| it.hits)
                .collect();
            assert_eq!(hits, [150; 3], "round {round}");
        }
        debugged.leaves_no_trace();
    });
}

/// Before 3.12 only the main thread, and threads with a loop of asyncio, run code for others.
#[test]
fn code_is_run_on_a_thread_that_is_in_a_loop_of_one_line() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        begin(&mut debugged, LOOPS[0], "/nowhere/loop.py");
        let pid = debugged.target.pid().to_string();
        let name = "threading.current_thread() is worker";
        let thread = debugged.told("worker.name");
        let arguments = ["-t", &pid, "eval", "--thread", &thread, name];
        let ran = debugged.sandbox.probing(arguments);
        let expected = if python.version >= (3, 12) {
            "True\n"
        } else {
            ""
        };
        assert_eq!(ran.stdout, expected, "{ran:?}");
        debugged.begin("going = False; worker.join()");
        debugged.ended();
        debugged.leaves_no_trace();
    });
}
