//! Steps come to the lines that pdb comes to, in every kind of code.

use probing_proto::message::breakpoints::{BreakpointLocation, Step, StepCall};
use probing_proto::message::{Call, Event};
use probing_testkit::every_python;

use crate::debugger::{Debugged, arm, line_of, stop};

const PROGRAM: &str = "stepped.py";
const CASES: [&str; 9] = [
    "generators",
    "driven",
    "comprehensions",
    "loops",
    "contexts",
    "tries",
    "decorators",
    "coroutines",
    "recursion",
];
/// Steps after which a walk is lost.
const MAX_STEPS: usize = 1000;

/// The lines at which we stop between the first line of `go` and its last one.
fn walked(debugged: &mut Debugged, case: &str, step: Step) -> Vec<u32> {
    let (first, last) = (line_of(PROGRAM, "go"), line_of(PROGRAM, "over"));
    let file = PROGRAM.to_owned();
    let line = first;
    debugged
        .client
        .arm(stop(arm(BreakpointLocation::Line { file, line })));
    debugged.begin(&format!("go({case})"));
    let mut stopped = debugged.client.stopped();
    debugged.client.disarm_all();
    let mut lines = Vec::new();
    for _ in 0..MAX_STEPS {
        let at = &stopped.frames[0];
        // The library makes code up, too, that is in no file.
        let line = at.file.ends_with(PROGRAM).then_some(at.lineno);
        lines.extend(line);
        if line == Some(last) {
            break;
        }
        let step = if line == Some(first) {
            Step::Into
        } else {
            step
        };
        let call = Call::Step(StepCall {
            stop: stopped.stop,
            step,
            my_code: true,
        });
        assert_eq!(debugged.client.ask(call), Event::Done);
        stopped = debugged.client.stopped();
    }
    debugged.client.step(stopped.stop, Step::Continue);
    debugged.ended();
    lines
}

#[test]
fn steps_come_to_the_lines_that_pdb_comes_to() {
    every_python(|python| {
        let mut debugged = Debugged::start_program(python, PROGRAM);
        let mut others = String::new();
        for case in CASES {
            for (step, into) in [(Step::Into, "True"), (Step::Over, "False")] {
                let expected = debugged.told(&format!("json.dumps(stepped({case}, {into}))"));
                let expected: Vec<u32> = serde_json::from_str(&expected).unwrap();
                let lines = walked(&mut debugged, case, step);
                if lines != expected {
                    others += &format!("\n{case}, {step:?}:\npdb  {expected:?}\nours {lines:?}");
                }
            }
        }
        assert!(others.is_empty(), "{others}");
        debugged.leaves_no_trace();
    });
}
