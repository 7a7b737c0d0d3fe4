//! Exceptions, as they are raised and where nobody catches them.

use probing_proto::message::Call;
use probing_proto::message::breakpoints::{BreakpointLocation, Step, StopReason};
use probing_testkit::every_python;

use crate::debugger::{Debugged, arm, check_at, stop, when};

fn on_raise(exception: Option<&str>) -> BreakpointLocation {
    BreakpointLocation::Raise {
        exception: exception.map(str::to_owned),
    }
}

#[test]
fn an_exception_is_met_once_where_it_is_raised() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(arm(on_raise(Some("ValueError"))));
        debugged.client.arm(arm(on_raise(Some("Exception"))));
        debugged.client.arm(arm(on_raise(Some("KeyError"))));
        debugged.client.arm(arm(on_raise(None)));
        debugged.begin("print(fails())");
        assert_eq!(debugged.ended(), ["True"]);
        let points = debugged.client.disarm_all();
        let fired: Vec<u64> = points.iter().map(|point| point.fired).collect();
        assert_eq!(fired, [1, 1, 0, 1], "{points:?}");
        let point = debugged.client.arm(stop(arm(on_raise(Some("ValueError")))));
        debugged.begin("print(fails())");
        let stopped = debugged.client.stopped();
        check_at(&stopped, "raise");
        let why = StopReason::Raised {
            point: point.point,
            exception: "ValueError".to_owned(),
            message: "no such thing".to_owned(),
            uncaught: false,
        };
        assert_eq!(stopped.why, why);
        assert_eq!(
            debugged.client.value(stopped.stop, 0, "problem"),
            "'no such thing'"
        );
        debugged.client.disarm_all();
        debugged.client.step_to(stopped.stop, Step::Over, "except");
        debugged.client.step(stopped.stop, Step::Continue);
        assert_eq!(debugged.ended(), ["True"]);
        let pid = debugged.target.pid().to_string();
        let sql = "select kind, exception, message, func, frames from python.exceptions";
        let rows = debugged
            .sandbox
            .probing(["-t", &pid, "query", "--csv", sql])
            .stdout;
        let expected = "raised,ValueError,no such thing,breaks,";
        assert_eq!(rows.matches(expected).count(), 4, "{rows}");
        assert!(rows.contains("problem"), "{rows}");
        debugged.leaves_no_trace();
    });
}

/// Has something end with an exception that nobody catches; what is told of it, with the program's own hook behind ours.
#[track_caller]
fn not_caught(own_hook: &str, code: &str, kind: &str) {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(own_hook);
        debugged.ended();
        debugged.client.arm(arm(BreakpointLocation::Uncaught));
        debugged.begin(code);
        assert_eq!(debugged.ended(), ["own"]);
        let points = debugged.client.disarm_all();
        assert_eq!(points[0].fired, 1, "{points:?}");
        let pid = debugged.target.pid().to_string();
        let sql = "select kind, exception, message, func from python.exceptions";
        let rows = debugged
            .sandbox
            .probing(["-t", &pid, "query", "--csv", sql])
            .stdout;
        assert!(
            rows.contains(&format!("{kind},ValueError,by accident,breaks\n")),
            "{rows}"
        );
        // Ours is out again: nothing more is kept.
        debugged.begin(code);
        assert_eq!(debugged.ended(), ["own"]);
        let again = debugged
            .sandbox
            .probing(["-t", &pid, "query", "--csv", sql])
            .stdout;
        assert_eq!(again, rows);
        debugged.leaves_no_trace();
    });
}

#[test]
fn an_exception_that_ends_a_task_is_kept_and_the_loops_own_handler_runs() {
    not_caught(
        "import gc",
        "loop = asyncio.new_event_loop(); loop.set_exception_handler(lambda *_: print('own', flush=True)); \
         loop.call_soon(breaks, 'by accident'); loop.call_soon(loop.stop); loop.run_forever(); loop.close()",
        "task",
    );
}

#[test]
fn an_exception_in_a_destructor_is_kept_and_the_programs_own_hook_runs() {
    not_caught(
        "sys.unraisablehook = lambda *_: print('own', flush=True); lost = type('Lost', (), {'__del__': lambda self: breaks('by accident')})",
        "lost()",
        "unraisable",
    );
}

#[test]
fn an_exception_that_ends_the_program_is_kept_and_its_own_hook_runs() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("sys.excepthook = lambda *_: print('own', flush=True)");
        debugged.ended();
        debugged.client.arm(stop(arm(BreakpointLocation::Uncaught)));
        debugged.begin("breaks('by accident')");
        let stopped = debugged.client.stopped();
        check_at(&stopped, "raise");
        assert_eq!(
            debugged.client.value(stopped.stop, 0, "problem"),
            "'by accident'"
        );
        debugged.client.step(stopped.stop, Step::Continue);
        assert_eq!(debugged.target.line(), "own");
        let ended = debugged.target.wait();
        assert_eq!((ended.status, ended.stderr), (1, Vec::new()));
    });
}

#[test]
fn an_exception_that_nobody_catches_is_kept_and_the_programs_own_hooks_run() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(
            "own = sys.excepthook = threading.excepthook = lambda *_: __import__('os').write(1, b'own\\n')",
        );
        debugged.ended();
        debugged.client.arm(stop(arm(BreakpointLocation::Uncaught)));
        debugged.begin("in_thread(breaks, 'by accident')");
        let stopped = debugged.client.stopped();
        check_at(&stopped, "raise");
        assert_eq!(stopped.thread_name, "worker");
        assert!(
            matches!(stopped.why, StopReason::Raised { uncaught: true, .. }),
            "{stopped:?}"
        );
        assert_eq!(
            debugged.client.value(stopped.stop, 0, "problem"),
            "'by accident'"
        );
        // The main thread has only started the other one; two that print at once may mix their lines.
        assert_eq!(debugged.ended(), [""; 0]);
        debugged.client.step(stopped.stop, Step::Continue);
        assert_eq!(debugged.target.line(), "own");
        debugged.client.disarm_all();
        assert_eq!(debugged.told("threading.excepthook is own"), "True");
        debugged.leaves_no_trace();
    });
}

#[test]
fn an_exception_at_the_recursion_limit_is_met() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(arm(on_raise(Some("RecursionError"))));
        let deep = "\
            def deep(n):\n    return deep(n + 1)\n\
            def at_the_limit():\n    try:\n        deep(0)\n    except RecursionError:\n        return 'caught'\n\
            def mine():\n    try:\n        raise RecursionError('mine')\n    except RecursionError as error:\n        return str(error)\n";
        debugged.begin(&format!("exec({deep:?}, globals())"));
        assert_eq!(debugged.ended(), [""; 0]);
        for fired in [1, 3] {
            debugged.begin("print(at_the_limit())");
            assert_eq!(debugged.ended(), ["caught"]);
            assert_eq!(debugged.client.points()[0].fired, fired);
            debugged.begin("print(mine())");
            assert_eq!(debugged.ended(), ["mine"]);
            assert_eq!(debugged.client.points()[0].fired, fired + 1);
        }
        let pid = debugged.target.pid().to_string();
        let sql = "select distinct exception, message, func, frames is not null from python.exceptions order by message";
        let rows = debugged
            .sandbox
            .probing(["-t", &pid, "query", "--csv", sql])
            .stdout;
        let expected = "RecursionError,mine,mine,true\n";
        assert!(rows.contains(expected), "{rows}");
        let expected = "RecursionError,maximum recursion depth exceeded";
        assert!(rows.contains(expected), "{rows}");
        assert!(rows.contains(",deep,true\n"), "{rows}");
        debugged.client.disarm_all();
        // A thread that stops there can still be asked, and a condition has room, too.
        debugged
            .client
            .arm(stop(when("sum([n, 1]) > 0", arm(on_raise(None)))));
        debugged.begin("print(at_the_limit())");
        let stopped = debugged.client.stopped();
        let value = debugged.client.value(stopped.stop, 0, "factorial(20)");
        assert_eq!(value, "2432902008176640000");
        debugged.client.disarm_all();
        debugged.client.step(stopped.stop, Step::Continue);
        assert_eq!(debugged.ended(), ["caught"]);
        // What the program may do afterwards is what it could before.
        debugged.begin("print(sys.getrecursionlimit(), at_the_limit())");
        assert_eq!(debugged.ended(), ["1000 caught"]);
        debugged.leaves_no_trace();
    });
}

#[test]
fn an_exception_is_met_by_the_name_that_the_program_has_for_it() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        // One is loaded later.
        let names = [
            ("queue.Empty", "import queue; queue.Queue().get_nowait()"),
            (
                "asyncio.TimeoutError",
                "asyncio.run(asyncio.wait_for(asyncio.sleep(9), 0.001))",
            ),
            ("socket.timeout", "import socket; raise socket.timeout()"),
            ("json.JSONDecodeError", "import json; json.loads('{')"),
            ("ValueError", "import json; json.loads('{')"),
            ("JSONDecodeError", "import json; json.loads('{')"),
            (
                "decimal.InvalidOperation",
                "__import__('decimal').Decimal('x')",
            ),
        ];
        for (name, code) in names {
            debugged.client.arm(arm(on_raise(Some(name))));
            debugged
                .client
                .arm(arm(on_raise(Some("NotImplementedError"))));
            // The class of a name that is not known yet is known before.
            debugged
                .begin("exec('try:\\n    raise TimeoutError\\nexcept TimeoutError:\\n    pass')");
            debugged.ended();
            let before = debugged.client.points()[0].fired;
            debugged.begin(&format!(
                "exec({:?})",
                format!("try:\n    {code}\nexcept Exception:\n    pass")
            ));
            debugged.ended();
            let points = debugged.client.disarm_all();
            assert!(points[0].fired > before, "{name}: {points:?}");
            assert_eq!(points[1].fired, 0, "{points:?}");
        }
        debugged.leaves_no_trace();
    });
}

#[test]
fn what_is_no_exception_class_is_refused() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let wrong = ["", "1", "int", "sys.exit", "a b", "threading.Thread", "."];
        for name in wrong {
            let refused = debugged
                .client
                .refused(Call::Arm(arm(on_raise(Some(name)))));
            let shown = if name.is_empty() { "''" } else { name };
            assert_eq!(refused, format!("not an exception class: {shown}"));
        }
        assert_eq!(debugged.client.points(), []);
        let unknown = debugged.client.arm(arm(on_raise(Some("ValueErrors"))));
        assert_eq!(
            unknown.note.as_deref(),
            Some("no exception class named ValueErrors is loaded: set for when one is")
        );
        let near = debugged.client.arm(arm(on_raise(Some("no.such.Keyerror"))));
        let note = near.note.unwrap();
        assert!(note.ends_with("; near: builtins.KeyError"), "{note}");
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}
