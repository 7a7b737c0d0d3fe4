//! What is met at points, and what arming looks through, is let go of at once: nobody may ever ask the probe again.

use std::fs;

use probing_proto::message::breakpoints::{Action, BreakpointLocation, SetBreakpoint};
use probing_testkit::{Python, every_python};

use crate::debugger::{Debugged, arm, log};

/// Where `later` is not bound yet, and `thing` has no such attribute: to look at the one and to log the other raises.
const THINGS: &str = "import gc, threading

class Thing:
    pass

def make():
    def inner():
        return later
    for _ in range(20):
        thing = Thing()
        things = [thing]
    later = 1
    return inner

def left(*kinds):
    return sum(type(it) in kinds for it in gc.get_objects())

def names_of_threads():
    return sum(type(it) is dict and '_target' in it for it in gc.get_objects())

def names_of(function):
    return [it for it in gc.get_referents(function) if it == {}]
";

/// In the line of [`THINGS`] in which both are so.
fn there() -> SetBreakpoint {
    let before = THINGS.split("things = [thing]").next().unwrap();
    arm(BreakpointLocation::Line {
        file: "things.py".to_owned(),
        line: before.lines().count() as u32,
    })
}

fn making_things(python: &Python) -> Debugged {
    let mut debugged = Debugged::start(python);
    let folder = debugged.sandbox.path().join("modules");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("things.py"), THINGS).unwrap();
    let folder = folder.to_str().unwrap();
    debugged.begin(&format!("sys.path.insert(0, {folder:?}); import things"));
    debugged.ended();
    debugged
}

#[test]
fn objects_that_breakpoints_meet_are_released_at_once() {
    every_python(|python| {
        let mut debugged = making_things(python);
        let named = debugged.told("things.names_of_threads()");
        debugged.client.arm(log(there(), "{thing.no_such_name}"));
        debugged.client.arm(SetBreakpoint {
            action: Action::Snapshot,
            ..there()
        });
        debugged.begin("made = things.make()");
        debugged.ended();
        let left = "things.left(things.Thing, ValueError, AttributeError)";
        assert_eq!(debugged.told(left), "0");
        // A snapshot tells the function in there, which has no attributes, and gets no room for any.
        assert_eq!(debugged.told("things.names_of(made)"), "[]");
        // Nor has Python been made to keep what it has made to tell the thread's name.
        let fired: Vec<u64> = debugged.client.points().iter().map(|it| it.fired).collect();
        assert_eq!(fired, [20, 20]);
        assert_eq!(debugged.told("things.names_of_threads()"), named);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn looking_for_code_leaves_functions_as_they_are() {
    every_python(|python| {
        let mut debugged = making_things(python);
        assert_eq!(debugged.told("things.names_of(things.make)"), "[]");
        debugged.client.arm(there());
        assert_eq!(debugged.told("things.names_of(things.make)"), "[]");
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}
