//! Exceptions whose classes are the program's: what they say is asked within a time, and their names without running anything.

use probing_proto::message::breakpoints::{
    BreakpointEvent, BreakpointLocation, SetBreakpoint, Step,
};
use probing_proto::message::{Call, Eval, Event};
use probing_testkit::{Python, every_python};
use rustix::process::Signal;

use crate::debugger::{Debugged, arm, stop};

/// A class whose message does not end while `slow` has something in it, and tells that it was asked for.
const SLOW: &str = "exec('import signal\\nslow = [1]\\nclass Slow(Exception):\\n    def __str__(self):\\n        print(\"asked\", flush=True)\\n        while slow: pass\\n        return \"slowly\"\\n\
     def raises():\\n    try:\\n        raise Slow\\n    except Slow:\\n        return \"caught\"\\n\
     def raises_from():\\n    try:\\n        try:\\n            raise Slow\\n        except Slow as slow:\\n            raise ValueError(1) from slow\\n    except ValueError:\\n        return \"caught\"', globals())";

fn on_raise(name: &str) -> SetBreakpoint {
    arm(BreakpointLocation::Raise {
        exception: Some(name.to_owned()),
    })
}

fn disarmed(debugged: &mut Debugged) -> String {
    debugged.client.news(|news| match news {
        BreakpointEvent::Disarmed { reason, .. } => Some(reason),
        _ => None,
    })
}

fn started(python: &Python) -> Debugged {
    let mut debugged = Debugged::start(python);
    debugged.begin(SLOW);
    debugged.ended();
    debugged
}

#[test]
fn a_message_that_never_ends_is_interrupted_and_its_breakpoint_is_off() {
    every_python(|python| {
        let mut debugged = started(python);
        for (class, code) in [("Slow", "raises()"), ("ValueError", "raises_from()")] {
            debugged.client.arm(SetBreakpoint {
                expression_millis: Some(100),
                ..on_raise(class)
            });
            debugged.begin(&format!("print({code})"));
            assert_eq!(debugged.ended(), ["asked", "caught"]);
            assert_eq!(
                disarmed(&mut debugged),
                "the message of its exception did not end within 0.1 s"
            );
            debugged.client.disarm_all();
        }
        debugged.begin("slow.clear()");
        debugged.ended();
        debugged.client.arm(stop(on_raise("Slow")));
        debugged.begin("print(raises())");
        let stopped = debugged.client.stopped();
        assert!(
            stopped.why.to_string().contains("slowly"),
            "{}",
            stopped.why
        );
        debugged.client.disarm_all();
        debugged.client.step(stopped.stop, Step::Continue);
        assert_eq!(debugged.ended(), ["asked", "caught"]);
        debugged.leaves_no_trace();
    });
}

/// Longer than a point that is off may take, by the clock of the program.
const TAKES_TIME: &str = "exec('import time\\nclass Slow(Exception):\\n    def __str__(self):\\n        until = time.process_time() + 0.5\\n        while time.process_time() < until: pass\\n        return \"slowly\"\\n\
     def raises():\\n    try:\\n        raise Slow\\n    except Slow:\\n        return \"caught\"', globals())";

#[test]
fn a_breakpoint_that_is_met_once_shows_a_message_that_takes_time() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(TAKES_TIME);
        debugged.ended();
        debugged.client.arm(SetBreakpoint {
            once: true,
            expression_millis: Some(0),
            ..stop(on_raise("Slow"))
        });
        debugged.begin("print(raises())");
        let stopped = debugged.client.stopped();
        let why = stopped.why.to_string();
        assert!(why.contains("slowly"), "{why}");
        debugged.client.step(stopped.stop, Step::Continue);
        assert_eq!(debugged.ended(), ["caught"]);
        debugged.leaves_no_trace();
    });
}

#[test]
fn delete_interrupts_a_message() {
    every_python(|python| {
        let mut debugged = started(python);
        debugged.client.arm(SetBreakpoint {
            expression_millis: Some(0),
            ..on_raise("Slow")
        });
        debugged.begin("print(raises())");
        assert_eq!(debugged.target.line(), "asked");
        assert_eq!(debugged.client.disarm_all().len(), 1);
        assert_eq!(debugged.ended(), ["caught"]);
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_signal_that_comes_while_a_message_is_asked_for_is_handled_after_it() {
    every_python(|python| {
        let mut debugged = started(python);
        debugged
            .begin("h = signal.signal(signal.SIGUSR1, lambda *_: print('handled', flush=True))");
        debugged.ended();
        debugged.client.arm(SetBreakpoint {
            expression_millis: Some(0),
            ..on_raise("Slow")
        });
        debugged.begin("print(raises())");
        assert_eq!(debugged.target.line(), "asked");
        debugged.target.signal(Signal::USR1);
        let event = debugged.client.ask(Call::Eval(Eval::of("slow.clear()")));
        assert!(matches!(event, Event::Evaluated(_)), "{event:?}");
        let mut lines = debugged.ended();
        lines.sort();
        assert_eq!(lines, ["caught", "handled"]);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn the_name_of_a_class_runs_none_of_its_metaclass() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("exec('class Meta(type):\\n    def __getattribute__(cls, name):\\n        asked.append(name)\\n        return type.__getattribute__(cls, name)\\nasked = []\\nclass Odd(Exception, metaclass=Meta):\\n    pass\\ndef raises():\\n    try:\\n        raise Odd(3)\\n    except Odd:\\n        return \"caught\"', globals())");
        debugged.ended();
        debugged.client.arm(on_raise("KeyError"));
        debugged.client.arm(on_raise("__main__.Odd"));
        debugged.begin("asked.clear(); print(raises(), asked)");
        assert_eq!(debugged.ended(), ["caught []"]);
        let points = debugged.client.disarm_all();
        let fired: Vec<u64> = points.iter().map(|point| point.fired).collect();
        assert_eq!(fired, [0, 1]);
        debugged.leaves_no_trace();
    });
}
