//! Expressions that do not end: each has a deadline, and is interrupted with what it belongs to; the program goes on.

use probing_proto::message::breakpoints::{
    BreakpointEvent, BreakpointId, BreakpointLocation, SetBreakpoint,
};
use probing_proto::message::{Call, Eval, Event, Outcome};
use probing_testkit::every_python;
use rustix::process::Signal;

use crate::debugger::{Client, Debugged, arm, at, in_function, log, when};

const ENDLESS: &str = "any(False for _ in iter(int, 1))";
/// Says that it has begun first.
const BEGUN: &str = "print('inside', flush=True) or any(False for _ in iter(int, 1))";
/// A call into C that waits for what the program holds.
const STUCK: &str = "print('inside', flush=True) or held_lock.acquire()";

fn within(millis: u64, arm: SetBreakpoint) -> SetBreakpoint {
    SetBreakpoint {
        expression_millis: Some(millis),
        ..arm
    }
}

/// As long as it takes.
fn without_limit(arm: SetBreakpoint) -> SetBreakpoint {
    within(0, arm)
}

#[track_caller]
fn disarmed(client: &mut Client) -> (BreakpointId, String) {
    client.news(|news| match news {
        BreakpointEvent::Disarmed { point, reason } => Some((point, reason)),
        _ => None,
    })
}

fn watch(path: &str) -> SetBreakpoint {
    arm(BreakpointLocation::Value {
        path: path.to_owned(),
    })
}

#[test]
fn an_expression_that_never_ends_is_interrupted_and_its_breakpoint_is_off() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let local = BreakpointLocation::Local {
            function: "Trainer.fit".to_owned(),
            name: "total".to_owned(),
        };
        let cases = [
            (when(ENDLESS, in_function("Trainer.fit")), "its condition"),
            (when(ENDLESS, at("second")), "its condition"),
            (
                log(at("second"), "{any(False for _ in iter(int, 1))}"),
                "its log text",
            ),
            (when(ENDLESS, arm(local)), "its condition"),
            (when(ENDLESS, watch("trainer._step")), "its condition"),
        ];
        for (endless, what) in cases {
            let point = debugged.client.arm(within(100, endless));
            debugged.begin("trainer._step += 1; print(trainer.fit(1))");
            assert_eq!(debugged.ended(), ["9"]);
            let reason = format!("{what} did not end within 0.1 s");
            assert_eq!(
                disarmed(&mut debugged.client),
                (point.point, reason.clone())
            );
            let told = debugged.client.points().remove(0);
            let note = told.note.unwrap();
            assert!(note.starts_with(&format!("deleted: {reason}")), "{note}");
            // What it cost is told from then on.
            assert!(note.contains("ms on average"), "{note}");
            debugged.client.disarm_all();
        }
        // Others are not concerned: threads do not wait for each other, either.
        debugged.client.arm(when("value > 0", at("sum")));
        debugged.begin("print(trainer.fit(1))");
        assert_eq!(debugged.ended(), ["9"]);
        assert_eq!(debugged.client.points()[0].hits, 1);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn an_expression_has_a_second_unless_a_timeout_is_set() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(when(ENDLESS, at("second")));
        debugged.begin("print(trainer.fit(1))");
        assert_eq!(debugged.ended(), ["9"]);
        assert_eq!(
            disarmed(&mut debugged.client).1,
            "its condition did not end within 1 s"
        );
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn delete_interrupts_an_expression() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        for endless in [
            when(BEGUN, at("second")),
            when(BEGUN, in_function("Trainer.fit")),
        ] {
            debugged.client.arm(without_limit(endless));
            debugged.begin("print(trainer.fit(1))");
            assert_eq!(debugged.target.line(), "inside");
            assert_eq!(debugged.client.disarm_all().len(), 1);
            assert_eq!(debugged.ended(), ["9"]);
            assert_eq!(debugged.client.points(), []);
        }
        debugged.leaves_no_trace();
    });
}

#[test]
fn detach_interrupts_an_expression() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged
            .client
            .arm(without_limit(when(BEGUN, at("second"))));
        debugged.begin("print(trainer.fit(1))");
        assert_eq!(debugged.target.line(), "inside");
        let pid = debugged.target.pid().to_string();
        let detached = debugged.sandbox.probing(["-t", &pid, "detach"]);
        assert_eq!(detached.status, 0, "{}", detached.stderr);
        assert_eq!(debugged.ended(), ["9"]);
        debugged.leaves_no_trace();
    });
}

#[test]
fn the_loss_of_its_client_interrupts_an_expression() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let mut owner = debugged.another();
        owner.arm(SetBreakpoint {
            own: true,
            ..without_limit(when(BEGUN, at("second")))
        });
        debugged.begin("print(trainer.fit(1))");
        assert_eq!(debugged.target.line(), "inside");
        drop(owner);
        assert_eq!(debugged.ended(), ["9"]);
        assert_eq!(debugged.client.points(), []);
        debugged.leaves_no_trace();
    });
}

/// Lets the program have the lock that an expression waits for.
#[track_caller]
fn release_lock(client: &mut Client) {
    let event = client.ask(Call::Eval(Eval::of("held_lock.release()")));
    let Event::Evaluated(evaluated) = event else {
        panic!("{event:?}");
    };
    assert_eq!(evaluated.outcome, Outcome::Finished { value: None });
}

#[test]
fn a_thread_that_cannot_be_interrupted_is_named_and_no_success_reported() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("held_lock = threading.Lock(); held_lock.acquire()");
        debugged.ended();
        let point = debugged.client.arm(within(100, when(STUCK, at("second"))));
        debugged.begin("print(trainer.fit(1))");
        assert_eq!(debugged.target.line(), "inside");
        // It is off at once, for other threads.
        assert_eq!(disarmed(&mut debugged.client).0, point.point);
        probing_testkit::wait_until("the note says that a thread is inside", || {
            let points = debugged.client.points();
            let note = points[0].note.clone().unwrap_or_default();
            note.contains("still runs it: a call into C")
        });
        let pid = debugged.target.pid().to_string();
        let deleted = debugged.sandbox.probing(["-t", &pid, "delete", "all"]);
        assert_ne!(deleted.status, 0);
        let error = "not ended by an interrupt: thread ";
        assert!(deleted.stderr.contains(error), "{}", deleted.stderr);
        release_lock(&mut debugged.client);
        assert_eq!(debugged.ended(), ["9"]);
        // The same when it is the probe that is to leave. (The lock is the expression's now.)
        debugged
            .client
            .arm(without_limit(when(STUCK, at("second"))));
        debugged.begin("print(trainer.fit(1))");
        assert_eq!(debugged.target.line(), "inside");
        let detached = debugged.sandbox.probing(["-t", &pid, "detach"]);
        assert_ne!(detached.status, 0);
        assert!(detached.stderr.contains(error), "{}", detached.stderr);
        // Ctrl-C is the program's again: it ends the call, and the program gets it.
        debugged.target.signal(Signal::INT);
        let ended = debugged.target.wait();
        assert!(ended.stderr.join("\n").ends_with("KeyboardInterrupt"));
    });
}

#[test]
fn an_interrupt_never_comes_to_the_program() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("exec('import time\\ndef lasts(seconds):\\n    end = time.perf_counter() + seconds\\n    while time.perf_counter() < end: pass\\n    return False')");
        debugged.ended();
        // They end about when their time is over.
        let mut interrupted = 0;
        for each in 0..40 {
            let seconds = format!("lasts({})", 0.0104 + f64::from(each % 8) * 0.0004);
            debugged
                .client
                .arm(within(10, when(&seconds, at("second"))));
            debugged.begin("print(trainer.fit(1), trainer.fit(1))");
            assert_eq!(debugged.ended(), ["9 9"]);
            let note = debugged.client.disarm_all().remove(0).note;
            interrupted += u32::from(note.is_some_and(|note| note.contains("did not end")));
        }
        assert!(interrupted > 0);
        debugged.leaves_no_trace();
    });
}

/// Has whoever looks where the threads are wait until the expression is over, and tell the expression that it looks.
const SLOW_LOOK: &str = "exec('import os, sys\\nlooks, over = threading.Event(), threading.Event()\\n\
    def hook(event, args):\\n    if event == \"sys._current_frames\" and open(\"/proc/thread-self/comm\").read() == \"probing-cancel\\\\n\": looks.set(), over.wait()\\n\
    sys.addaudithook(hook)\\n\
    def comms():\\n    for task in os.listdir(\"/proc/self/task\"):\\n        try: yield open(f\"/proc/self/task/{task}/comm\").read()\\n        except OSError: pass\\n\
    def later():\\n    over.set()\\n    while \"probing-cancel\\\\n\" in comms(): pass\\n    return \"went on\"', globals())";

#[test]
fn an_interrupt_that_comes_late_does_not_come_to_the_program() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(SLOW_LOOK);
        debugged.ended();
        // It ends by itself, when somebody is about to interrupt it.
        debugged
            .client
            .arm(within(50, when("not looks.wait()", at("second"))));
        debugged.begin("print(trainer.fit(1), later())");
        assert_eq!(debugged.ended(), ["9 went on"]);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

/// Raises what stands for a panic of ours, which the binding to Python turns into a panic.
const PANICS: &str = "exec('raise next(it for it in BaseException.__subclasses__() if it.__name__ == \\'PanicException\\')')";

#[test]
fn an_expression_that_panics_leaves_its_thread_as_it_was() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(within(50, when(PANICS, at("second"))));
        debugged
            .begin("import time; print(trainer.fit(1)); time.sleep(0.3); print(sum(range(10)))");
        assert_eq!(debugged.ended(), ["9", "45"]);
        debugged.client.disarm_all();
        // The next one has its deadline.
        debugged.client.arm(within(50, when(ENDLESS, at("second"))));
        debugged.begin("print(trainer.fit(1))");
        assert_eq!(debugged.ended(), ["9"]);
        let note = debugged.client.disarm_all().remove(0).note.unwrap();
        assert!(note.contains("did not end within"), "{note}");
        // Nothing but what the binding says of its panic.
        assert_eq!(debugged.target.end().status, 0);
    });
}
