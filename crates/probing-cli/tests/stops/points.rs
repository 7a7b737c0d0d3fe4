//! Points that count, log and take snapshots; where they are found.

use std::time::Instant;

use probing_proto::message::Call;
use probing_proto::message::breakpoints::{
    Action, BreakpointEvent, BreakpointLocation, NO_PYTHON_CODE, SetBreakpoint,
};
use probing_testkit::every_python;

use crate::debugger::{Debugged, arm, at, in_function, line, log, stop, when};

#[test]
fn a_line_and_a_function_are_counted_and_nothing_stays() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let second = debugged.client.arm(at("second"));
        assert_eq!(second.bound[0].lineno, line("second"));
        assert!(second.bound[0].func.ends_with("fit"), "{second:?}");
        assert_eq!(second.note, None);
        let finish = debugged.client.arm(in_function("Trainer.finish"));
        assert_eq!(finish.bound.len(), 1, "{finish:?}");
        let hits = SetBreakpoint {
            hits: 3,
            ..at("third")
        };
        debugged.client.arm(hits);
        for _ in 0..4 {
            debugged.begin("trainer.fit(1)");
            debugged.ended();
        }
        let counts =
            |points: Vec<probing_proto::message::breakpoints::Breakpoint>| -> Vec<(u64, u64)> {
                points.iter().map(|it| (it.hits, it.fired)).collect()
            };
        assert_eq!(counts(debugged.client.points()), [(4, 4), (4, 4), (4, 2)]);
        let gone = debugged.client.disarm_all();
        assert_eq!(counts(gone), [(4, 4), (4, 4), (4, 2)]);
        assert!(debugged.client.points().is_empty());
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_log_line_has_the_text_of_an_f_string() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let text = "{batch!r:>4} {total:.1f} {self.lr} {{x}} {[total + n for n in (1, 2)]} {loss}";
        debugged.client.arm(log(at("second"), text));
        debugged.begin("trainer.fit(3)");
        let logged = debugged.client.news(|news| match news {
            BreakpointEvent::Logged {
                text,
                at,
                thread_name,
                ..
            } => Some((text, at.lineno, thread_name)),
            _ => None,
        });
        let (text, lineno, thread) = logged;
        assert_eq!(text, "   3 6.0 0.1 {x} [7, 8] 0.25");
        assert_eq!((lineno, thread.as_str()), (line("second"), "MainThread"));
        debugged.ended();
        debugged.client.disarm_all();
        let broken = log(at("second"), "{nobody}");
        debugged.client.arm(broken);
        debugged.begin("trainer.fit(3)");
        let text = debugged.client.news(|news| match news {
            BreakpointEvent::Logged { text, .. } => Some(text),
            _ => None,
        });
        assert!(text.starts_with("<raised NameError"), "{text}");
        debugged.ended();
        debugged.client.disarm_all();
        // A part that fails leaves the others as they are; what is not bound yet is such a part, too.
        let broken =
            "{batch}: {1 / 0:>{batch}} {total!r} {squares} {'x':d} {[n for n in (batch, 2)]}";
        debugged.client.arm(log(at("first"), broken));
        debugged.begin("trainer.fit(3)");
        let text = debugged.client.news(|news| match news {
            BreakpointEvent::Logged { text, .. } => Some(text),
            _ => None,
        });
        let expected = "3: <raised ZeroDivisionError: division by zero> <raised NameError: name 'total' is not defined> \
                        <raised NameError: name 'squares' is not defined> <raised ValueError: Unknown format code 'd' for object of type 'str'> [3, 2]";
        assert_eq!(text, expected);
        debugged.ended();
        let refused = debugged
            .client
            .refused(Call::Arm(log(at("second"), "{total")));
        assert_eq!(refused, "not an expression: {total");
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn rows_of_breakpoints_are_read_with_sql() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(log(at("count"), "step {step}"));
        let snapshot = SetBreakpoint {
            action: Action::Snapshot,
            ..at("second")
        };
        debugged.client.arm(snapshot);
        let in_body = log(in_function("Trainer.finish"), "value {value}");
        let in_body = debugged.client.arm(in_body).point.0;
        debugged.begin("count(1500)");
        debugged.ended();
        debugged.begin("trainer.fit(21)");
        debugged.ended();
        let points = debugged.client.points();
        assert_eq!(points[0].hits, 1500);
        let pid = debugged.target.pid().to_string();
        let query = |sql: &str| {
            let ran = debugged
                .sandbox
                .probing(["-t", &pid, "query", "--csv", sql]);
            assert_eq!(ran.status, 0, "{ran:?}");
            ran.stdout
        };
        // A function is met at the first line of its body, not where it is defined.
        let lines = format!("select text, lineno from python.captures where point = {in_body}");
        let expected = format!("text,lineno\nvalue 43,{}\n", line("finish"));
        assert_eq!(query(&lines), expected);
        let count = query("select count(*) from python.captures where kind = 'log' and point = 1");
        let count: u64 = count.lines().last().unwrap().parse().unwrap();
        assert_eq!(count + points[0].dropped, 1500);
        let first = query("select text, func, lineno from python.captures limit 1");
        let first = first.lines().last().unwrap();
        assert_eq!(first, format!("step 0,count,{}", line("count")));
        let snapshot = query("select frames from python.captures where kind = 'snapshot'");
        assert!(
            snapshot.contains("total") && snapshot.contains("42"),
            "{snapshot}"
        );
        assert!(snapshot.contains("<module>"), "{snapshot}");
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

/// A thousand lines in a second, and no more, whatever a second is worth on the machine.
#[test]
fn log_lines_that_come_too_fast_are_counted_and_left_out() {
    const PASSED: u64 = 100_000;
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(log(at("count"), "step {step}"));
        let snapshot = SetBreakpoint {
            action: Action::Snapshot,
            ..at("count")
        };
        debugged.client.arm(snapshot);
        let began = Instant::now();
        debugged.begin(&format!("count({PASSED})"));
        debugged.ended();
        let seconds = began.elapsed().as_secs() + 2;
        let pid = debugged.target.pid().to_string();
        for point in debugged.client.points() {
            let id = point.point.0;
            let sql = format!("select count(*) from python.captures where point = {id}");
            let told = debugged
                .sandbox
                .probing(["-t", &pid, "query", "--csv", &sql]);
            let rows: u64 = told.stdout.lines().last().unwrap().parse().unwrap();
            assert_eq!((point.hits, point.fired), (PASSED, PASSED));
            assert!(rows > 0 && rows <= 1000 * seconds, "{rows} in {seconds} s");
            // Older rows may have gone from a full ring; none was recorded that was counted as left out.
            assert!(rows + point.dropped <= PASSED, "{rows}, {point:?}");
            assert!(
                point.dropped >= PASSED.saturating_sub(1000 * seconds),
                "{point:?}"
            );
            let listed = debugged.sandbox.probing(["-t", &pid, "breakpoints"]);
            let left_out = format!("{} dropped", point.dropped);
            assert!(listed.ok().contains(&left_out), "{listed:?}");
        }
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_breakpoint_reports_its_code_or_what_it_waits_for() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let empty = line("first") + 1;
        let moved = debugged.client.arm(arm(BreakpointLocation::Line {
            file: "debugged.py".to_owned(),
            line: empty,
        }));
        assert_eq!(moved.bound[0].lineno, line("second"));
        let note = moved.note.unwrap();
        assert_eq!(
            note,
            format!("line {empty} has no code: moved to line {}", line("second"))
        );
        let waits = debugged.client.arm(in_function("finis"));
        let note = waits.note.unwrap();
        assert!(
            note.contains("no loaded function is named finis") && note.contains("Trainer.finish"),
            "{note}"
        );
        let waits = debugged.client.arm(arm(BreakpointLocation::Line {
            file: "later.py".to_owned(),
            line: 2,
        }));
        assert!(
            waits
                .note
                .unwrap()
                .starts_with("no code from later.py is loaded yet")
        );
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_name_means_a_function_of_the_program_before_one_of_a_library() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let own = debugged.client.arm(in_function("gather"));
        assert_eq!(own.bound.len(), 1, "{own:?}");
        assert_eq!(own.bound[0].lineno, line("await"));
        let note = own.note.unwrap_or_default();
        assert!(note.contains("asyncio.tasks.gather"), "{note}");
        for function in ["asyncio.tasks.gather", "to_thread"] {
            let library = debugged.client.arm(in_function(function));
            assert_eq!(library.bound.len(), 1, "{library:?}");
            assert!(library.bound[0].file.contains("asyncio"), "{library:?}");
            assert_eq!(library.note, None);
        }
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn code_that_comes_later_is_found_when_it_begins() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let waiting = arm(BreakpointLocation::Line {
            file: "<later>".to_owned(),
            line: 2,
        });
        debugged.client.arm(waiting);
        debugged.client.arm(in_function("later"));
        debugged.begin(
            "exec(compile('def later(x):\\n    return x + 1\\n', '<later>', 'exec'), globals())",
        );
        debugged.ended();
        assert_eq!(debugged.told("later(1), later(2)"), "2 3");
        let points = debugged.client.points();
        assert_eq!((points[0].hits, points[1].hits), (2, 2), "{points:?}");
        assert_eq!((&points[0].note, points[0].bound[0].lineno), (&None, 2));
        // What is held by something else than a module, too: here a list.
        let inner = debugged.client.arm(at("inner"));
        assert_eq!(debugged.told("held[0](2)"), "20");
        let found = debugged.client.points().pop().unwrap();
        assert_eq!((found.point, found.hits), (inner.point, 1));
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_function_that_loops_already_is_met_at_its_next_line() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("worker = in_thread(count, 10**12)");
        debugged.ended();
        let once = SetBreakpoint {
            once: true,
            ..stop(at("count"))
        };
        let point = debugged.client.arm(once);
        let stopped = debugged.client.stopped();
        assert_eq!(stopped.thread_name, "worker");
        let disarmed = debugged.client.points().pop().unwrap();
        assert_eq!(disarmed.point, point.point);
        assert!(disarmed.note.unwrap().starts_with("deleted: "));
        assert_eq!(debugged.client.value(stopped.stop, 0, "step > 0"), "True");
        debugged.client.value(stopped.stop, 0, "limit = 0");
        debugged.client.step(
            stopped.stop,
            probing_proto::message::breakpoints::Step::Continue,
        );
        assert_eq!(debugged.told("worker.join()"), "None");
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_breakpoint_expires() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let short = SetBreakpoint {
            ttl_millis: Some(1),
            ..when("batch == 1", stop(at("second")))
        };
        let point = debugged.client.arm(short);
        let (id, reason) = debugged.client.news(|news| match news {
            BreakpointEvent::Disarmed { point, reason } => Some((point, reason)),
            _ => None,
        });
        assert_eq!((id, reason.as_str()), (point.point, "expired"));
        debugged.begin("trainer.fit(1)");
        debugged.ended();
        assert_eq!(debugged.client.points()[0].hits, 0);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn no_python_of_ours_runs_where_a_breakpoint_is_passed() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let by_name = when("limit < 0", in_function("count"));
        let client = &mut debugged.client;
        let points = [
            client.arm(by_name.clone()),
            client.arm(in_function("debugged.count")),
            // Called so, too, and another one.
            client.arm(when("limit < 0", in_function("Nobody.count"))),
            client.arm(when("step < 0", at("count"))),
        ];
        // Every function of ours that looks for code counts its calls.
        debugged.begin(
            "import gc, types; calls = []; own = next(it for it in gc.get_objects() if isinstance(it, type) \
             and it.__name__ == 'Function' and hasattr(it, 'find') and it.find.__code__.co_filename == '<probing>')",
        );
        debugged.ended();
        debugged.begin(
            "counted = lambda function: lambda *args: (calls.append(function.__name__), function(*args))[1]; \
             [setattr(own, name, counted(it)) for name, it in list(vars(own).items()) if isinstance(it, types.FunctionType)]",
        );
        debugged.ended();
        // What there is to bind is bound by then.
        assert_eq!(debugged.told("count(3)"), "3");
        assert_eq!(debugged.told("calls.clear()"), "None");
        debugged.begin("all(count(1) for _ in range(1000))");
        debugged.ended();
        assert_eq!(debugged.told("calls"), "[]");
        let passed = debugged.client.points();
        assert_eq!(passed[1].hits, 1001, "{passed:?}");
        let unmet = [0, 2, 3].map(|place| passed[place].hits);
        assert_eq!(unmet, [0, 0, 0], "{passed:?}");
        assert_eq!(points[2].bound, []);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_name_that_begins_with_its_module_is_found_without_a_search() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(
            "import types; inner = types.ModuleType('net.inner'); exec('class Model:\\n def fit(self): return self.name()\\n def name(self): return 7\\n\
             def build(): return Model()', vars(inner)); sys.modules['net.inner'] = inner; net = types.ModuleType('net'); \
             net.Model, net.build, net.made = inner.Model, inner.build, inner.build; sys.modules['net'] = net",
        );
        debugged.ended();
        // The first search loads our own code; from then on, nobody goes through modules.
        debugged.client.arm(in_function("nobody_is_called_so"));
        debugged.begin(
            "import gc; own = next(it.find.__globals__ for it in gc.get_objects() if isinstance(it, type) and it.__name__ == 'Function' \
             and hasattr(it, 'find') and it.find.__code__.co_filename == '<probing>'); searched = []; modules = own['_modules']; \
             own['_modules'] = lambda: (searched.append(1), modules())[1]",
        );
        debugged.ended();
        // Where it is, and where it was imported to.
        for (name, bound) in [
            ("net.inner.Model.fit", "Model.fit"),
            ("net.Model.fit", "Model.fit"),
            ("net.build", "build"),
        ] {
            let point = debugged.client.arm(in_function(name));
            let bound_to: Vec<&str> = point.bound.iter().map(|it| it.func.as_str()).collect();
            assert_eq!(bound_to, [bound], "{name}: {point:?}");
            assert_eq!(point.note, None);
        }
        assert_eq!(debugged.told("searched"), "[]");
        assert_eq!(debugged.told("net.build().fit()"), "7");
        let hits: Vec<u64> = debugged.client.points().iter().map(|it| it.hits).collect();
        assert_eq!(hits, [0, 1, 1, 1]);
        debugged.begin("own['_modules'] = modules");
        debugged.ended();
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn what_has_no_python_code_is_called_what_it_is() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        // Of libraries that are not here, what their objects are called.
        debugged.begin(
            "import types; kind = lambda module, name: type(name, (), {'__module__': module, '__call__': abs})(); \
             sys.modules['fast'] = fast = types.ModuleType('fast'); fast.jit = kind('numba.core.registry', 'CPUDispatcher'); \
             fast.remote = kind('ray.actor', 'ActorMethod'); fast.cython = kind('_cython_3_0', 'cython_function_or_method'); \
             fast.other = kind('fast', 'Other')",
        );
        debugged.ended();
        for (name, what) in [
            (
                "time.sleep",
                "time.sleep is a C function, in which Python has no lines",
            ),
            (
                "globals",
                "builtins.globals is a C function, in which Python has no lines",
            ),
            (
                "str.join",
                "builtins.str.join is a C function, in which Python has no lines",
            ),
            (
                "threading.Thread",
                "threading.Thread is a class, whose functions are CLASS.METHOD",
            ),
            (
                "fast.jit",
                "fast.jit is compiled by numba: Python does not run its lines (NUMBA_DISABLE_JIT=1 leaves it as it is)",
            ),
            (
                "fast.remote",
                "fast.remote is run by Ray in a process of its own: it can be stopped in that one",
            ),
            (
                "fast.cython",
                "fast.cython is compiled by Cython: Python has no lines there",
            ),
            (
                "fast.other",
                "fast.other is an object of fast.Other, which has no Python code",
            ),
        ] {
            let point = debugged.client.arm(in_function(name));
            assert_eq!(
                point.note,
                Some(format!("{what}{NO_PYTHON_CODE}")),
                "{name}"
            );
            assert_eq!(point.bound, []);
        }
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}
