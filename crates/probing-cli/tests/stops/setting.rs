//! Points that are set while others come and go.

use probing_proto::message::breakpoints::{BreakpointLocation, SetBreakpoint};
use probing_testkit::every_python;

use crate::debugger::{Debugged, arm, in_function};

/// A function that a thread calls all the time, among so many classes that a search among them takes a while.
const PROGRAM: &str = "
import time
kinds = [type(f'Kind{i}', (), {}) for i in range(20000)]
going = True

def turn():
    count = 0
    count += 1
    return count

def turns():
    while going:
        turn()
        time.sleep(0.003)

worker = threading.Thread(target=turns)
worker.start()
";

#[test]
fn a_watch_sees_writes_though_the_last_breakpoint_ends_while_it_is_set() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(&format!(
            "exec(compile({PROGRAM:?}, '/nowhere/turns.py', 'exec'), globals())"
        ));
        debugged.ended();
        for round in 0..10 {
            debugged.client.arm(SetBreakpoint {
                once: true,
                ..in_function("turn")
            });
            let watch = debugged.client.arm(arm(BreakpointLocation::Local {
                function: "turn".to_owned(),
                name: "count".to_owned(),
            }));
            assert_eq!(debugged.told("turn()"), "1");
            let points = debugged.client.disarm_all();
            let watch = points.iter().find(|it| it.point == watch.point).unwrap();
            assert!(watch.hits >= 2, "round {round}: {watch:?}");
        }
        debugged.begin("going = False; worker.join()");
        debugged.ended();
        debugged.leaves_no_trace();
    });
}
