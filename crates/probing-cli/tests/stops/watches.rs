//! Watches: what changes is recorded, with where and by whom; and may stop who changes it.

use probing_proto::message::Call;
use probing_proto::message::breakpoints::{
    Action, Breakpoint, BreakpointEvent, BreakpointLocation, SetBreakpoint, Step, StopReason,
};
use probing_testkit::{Python, every_python};

use crate::debugger::{Debugged, arm, line_of, stop, when};

const PROGRAM: &str = "watched.py";

/// A change: old, new, and the mark of the line that made it.
type Row = (&'static str, &'static str, &'static str);

struct Watched {
    debugged: Debugged,
}

impl Watched {
    fn start(python: &Python) -> Self {
        Self {
            debugged: Debugged::start_program(python, PROGRAM),
        }
    }

    fn arm(&mut self, arm: SetBreakpoint) -> Breakpoint {
        self.debugged.client.arm(arm)
    }

    fn run(&mut self, code: &str) {
        self.debugged.begin(code);
        let said = self.debugged.ended();
        assert_eq!(said, Vec::<String>::new(), "{code}");
    }

    /// What a watch has recorded, in order.
    fn rows(&self, point: &Breakpoint, columns: &str) -> Vec<String> {
        let pid = self.debugged.target.pid().to_string();
        let sql = format!(
            "SELECT {columns} FROM python.variables WHERE point = {} ORDER BY ts",
            point.point.0
        );
        let ran = self
            .debugged
            .sandbox
            .probing(["-t", &pid, "query", "--csv", &sql]);
        assert_eq!(ran.status, 0, "{ran:?}");
        let rows = ran.stdout.lines().skip(1);
        rows.map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(&self, point: &Breakpoint, expected: &[Row]) {
        let rows = self.rows(point, "coalesce(old, '-'), coalesce(new, '-'), lineno");
        let line = |mark: &str| line_of(PROGRAM, mark);
        let expected: Vec<String> = expected
            .iter()
            .map(|(old, new, mark)| format!("{old},{new},{}", line(mark)))
            .collect();
        assert_eq!(rows, expected);
    }

    /// Nothing is left of any watch.
    fn end(mut self) {
        self.debugged.client.disarm_all();
        self.debugged.leaves_no_trace();
    }
}

fn local(function: &str, name: &str) -> SetBreakpoint {
    arm(BreakpointLocation::Local {
        function: function.to_owned(),
        name: name.to_owned(),
    })
}

fn value(path: &str) -> SetBreakpoint {
    arm(BreakpointLocation::Value {
        path: path.to_owned(),
    })
}

#[test]
fn each_change_of_a_local_is_a_row_with_the_line_that_wrote_it() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        let lr = watched.arm(local("schedule", "lr"));
        assert_eq!(lr.bound[0].func, "schedule");
        let best = watched.arm(local("best_of", "best"));
        let total = watched.arm(local("shared", "total"));
        let twice = watched.arm(local("numbers", "twice"));
        watched.run("schedule(8.0, 6)");
        watched.run("schedule(1.0, 1)");
        watched.run("__import__('probing').step(), __import__('probing').step(41)");
        watched.run("best_of([3, 2, 5, 5, 4])");
        watched.run("shared()");
        watched.run("list(numbers(3))");
        let rows = watched.rows(&lr, "coalesce(old, '-'), new");
        assert_eq!(rows, ["-,8.0", "8.0,4.0", "4.0,2.0", "2.0,1.0"]);
        assert_eq!(watched.rows(&lr, "coalesce(step, -1)"), ["-1"; 4]);
        assert_eq!(watched.rows(&best, "step"), ["41"; 3]);
        let lines = watched.rows(&lr, "lineno");
        let halve = line_of(PROGRAM, "halve").to_string();
        assert_eq!(lines[1..], [halve.clone(), halve.clone(), halve]);
        watched.check(
            &best,
            &[
                ("-", "None", "none"),
                ("None", "3", "best"),
                ("3", "5", "best"),
            ],
        );
        watched.check(
            &total,
            &[
                ("-", "0", "zero"),
                ("0", "1", "nonlocal"),
                ("1", "3", "nonlocal"),
            ],
        );
        watched.check(
            &twice,
            &[
                ("-", "0", "twice"),
                ("0", "2", "twice"),
                ("2", "4", "twice"),
            ],
        );
        let told = watched.debugged.client.points();
        let told: Vec<_> = told.iter().map(|it| (it.hits, it.fired)).collect();
        assert_eq!(told, [(4, 4), (3, 3), (3, 3), (3, 3)]);
        let names = watched.rows(&total, "name, func, thread_name, file LIKE '%watched.py'");
        assert!(
            names[0].starts_with("total,shared,MainThread,true"),
            "{names:?}"
        );
        watched.end();
    });
}

#[test]
fn writes_within_one_line_and_in_loops_are_told_one_by_one() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        let point = watched.arm(local("busily", "value"));
        let by = if python.version >= (3, 12) {
            "sys.monitoring"
        } else {
            "bytecode instrumentation"
        };
        assert_eq!(point.by, by);
        watched.run("assert busily(0) == 5");
        watched.check(
            &point,
            &[
                ("-", "0", "busily"),
                ("0", "1", "twice_in_it"),
                ("1", "2", "twice_in_it"),
                ("2", "3", "chain"),
                ("3", "4", "loop"),
                ("4", "5", "loop"),
                ("5", "-", "gone"),
            ],
        );
        watched.end();
    });
}

/// Each write stops before anything else is done, and from there one steps as from anywhere.
#[test]
fn a_thread_that_writes_a_local_stops_right_after_the_write() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        watched.arm(stop(local("busily", "value")));
        watched.debugged.begin("busily(0)");
        for (value, mark) in [
            ("0", "twice_in_it"),
            ("1", "twice_in_it"),
            ("2", "twice_in_it"),
            ("3", "loop"),
            ("4", "body"),
        ] {
            let stopped = watched.debugged.client.stopped();
            assert!(matches!(&stopped.why, StopReason::Changed { new, .. } if new == value));
            assert_eq!(stopped.frames[0].lineno, line_of(PROGRAM, mark), "{value}");
            let seen = watched.debugged.client.value(stopped.stop, 0, "value");
            assert_eq!(seen, value);
            if value != "4" {
                watched.debugged.client.step(stopped.stop, Step::Continue);
                continue;
            }
            watched.debugged.client.disarm_all();
            watched.debugged.client.step(stopped.stop, Step::Over);
            let stopped = watched.debugged.client.stopped();
            assert_eq!(stopped.why, StopReason::Step);
            assert_eq!(stopped.frames[0].lineno, line_of(PROGRAM, "loop"));
            watched.debugged.client.step(stopped.stop, Step::Continue);
        }
        watched.debugged.ended();
        watched.end();
    });
}

#[test]
fn a_local_of_a_function_that_loops_already_is_watched_from_its_next_line_on() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        let limit = "limit = [True]; thread = threading.Thread(target=forever, args=(limit,), name='worker')";
        watched.run(limit);
        watched.run("thread.start()");
        let point = watched.arm(local("forever", "turn"));
        let (at, func, thread) = watched.debugged.client.news(|news| match news {
            BreakpointEvent::Changed {
                at, thread_name, ..
            } => Some((at.lineno, at.func, thread_name)),
            _ => None,
        });
        assert_eq!((func.as_str(), thread.as_str()), ("forever", "worker"));
        assert_eq!(at, line_of(PROGRAM, "turn"));
        watched.run("limit[0] = False; thread.join()");
        // A call that begins now tells the same, in its own way.
        let before = watched.debugged.client.points()[0].hits;
        watched.run("forever([False])");
        let points = watched.debugged.client.points();
        assert_eq!(points[0].hits, before + 1);
        assert_eq!(points[0].point, point.point);
        watched.end();
    });
}

#[test]
fn a_variable_of_a_comprehension_is_not_that_of_the_function() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        let x = watched.arm(local("comprehended", "x"));
        let other = watched.arm(local("comprehended", "other"));
        watched.run("assert comprehended(5) == (7, [0, 1, 4], 8)");
        let rows = watched.rows(&x, "coalesce(old, '-'), coalesce(new, '-')");
        assert_eq!(rows, ["-,5", "5,7"]);
        watched.check(&other, &[("-", "8", "both")]);
        // A variable of a function around it, which it only reads, is its own nevertheless.
        let read = watched.arm(local("read_around", "x"));
        assert_eq!(read.bound.len(), 1);
        watched.end();
    });
}

#[test]
fn globals_attributes_items_and_the_environment_tell_who_changed_them() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        let rate = watched.arm(value("rate"));
        assert_eq!(rate.note.as_deref(), Some("now 0.1"));
        let lr = watched.arm(value("options.lr"));
        let deep = watched.arm(value("network.fc.lr"));
        let item = watched.arm(value("config['lr']"));
        let environment = watched.arm(arm(BreakpointLocation::Environment {
            name: "WATCHED".to_owned(),
        }));
        assert!(
            environment
                .note
                .as_ref()
                .unwrap()
                .starts_with("not bound yet")
        );
        let environ = watched.arm(value("os.environ['WATCHED']"));
        watched.run("set_global(0.2); set_global(0.2); set_global('a')");
        watched.run("options.set_rate(3); options.other = 5; options.set_rate(4)");
        watched.run("set_item(1.5); set_all(2.5)");
        // The same value once more is no change.
        watched.run("set_variable('x'); set_variable('x'); set_variable('y')");
        watched.run("set_variable('y'); os.environ.pop('WATCHED')");
        // What is on the way may be replaced, and is followed.
        watched.run("network._modules['fc'].set_rate(9); options = Options(); options.set_rate(7)");
        watched.run("network._modules['fc'] = Options(); network._modules['fc'].set_rate(0.7)");
        watched.run("config.clear(); set_item(6)");
        watched.check(&rate, &[("0.1", "0.2", "global"), ("0.2", "'a'", "global")]);
        let rows = watched.rows(&lr, "coalesce(old, '-'), coalesce(new, '-')");
        assert_eq!(rows, ["0.1,3", "3,4", "4,0.1", "0.1,7"]);
        let rows = watched.rows(&deep, "coalesce(old, '-'), coalesce(new, '-')");
        assert_eq!(rows, ["0.1,9", "9,0.1", "0.1,0.7"]);
        let rows = watched.rows(&item, "coalesce(old, '-'), coalesce(new, '-')");
        assert_eq!(rows, ["0.5,1.5", "1.5,2.5", "2.5,-", "-,6"]);
        let lines = watched.rows(&item, "lineno");
        let line = |mark: &str| line_of(PROGRAM, mark).to_string();
        assert_eq!(lines[..2], [line("item"), line("update")]);
        let rows = watched.rows(&environ, "coalesce(old, '-'), coalesce(new, '-')");
        assert_eq!(rows, ["-,b'x'", "b'x',b'y'", "b'y',-"]);
        let same = watched.rows(&environment, "coalesce(old, '-'), coalesce(new, '-')");
        assert_eq!(same, ["-,'x'", "'x','y'", "'y',-"]);
        watched.run("set_variable('ü' * 90); set_variable('ü' * 90); set_variable('18')");
        let rows = watched.rows(&environment, "new");
        assert_eq!(
            rows[3..],
            [format!("'{}'", "ü".repeat(90)), "'18'".to_owned()]
        );
        let long = "set_variable('a' * 3000); set_variable('a' * 3000)";
        watched.run(long);
        assert_eq!(watched.rows(&environment, "new").len(), 6);
        let functions = watched.rows(&environment, "lineno");
        assert!(!functions[0].is_empty(), "{functions:?}");
        watched.end();
    });
}

#[test]
fn a_watch_says_what_its_value_is_now() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        watched.arm(value("rate"));
        watched.arm(when("value == 'never'", value("layers[-2]")));
        let notes = |watched: &mut Watched| {
            let points = watched.debugged.client.points();
            let notes = points.into_iter().map(|point| point.note.unwrap());
            notes.collect::<Vec<_>>()
        };
        assert_eq!(notes(&mut watched), ["now 0.1", "now 2"]);
        watched.run("set_global(0.2); set_layer(20); set_layer(20)");
        assert_eq!(notes(&mut watched), ["now 0.2", "now 20"]);
        // More than are recorded in a second; the last one may be in the next.
        watched.run("for value in range(5000): set_global(value)");
        let said = notes(&mut watched).remove(0);
        let is_behind = said.ends_with(" when a change was last recorded");
        assert!(is_behind || said == "now 4999", "{said}");
        watched.run("del rate; set_layer(20)");
        let said = notes(&mut watched).remove(0);
        assert!(!said.starts_with("now"), "{said}");
        watched.run("rate = 0.1");
        watched.end();
    });
}

#[test]
fn what_is_in_no_dictionary_is_compared_at_each_line() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        let layer = watched.arm(value("layers[-2]"));
        let slot = watched.arm(value("slotted.lr"));
        assert!(!layer.cost.is_empty() && layer.note.as_deref() == Some("now 2"));
        watched.run("set_layer(2); set_layer(20)");
        watched.run("set_slot(1); set_slot(None)");
        watched.check(&layer, &[("2", "20", "layer")]);
        watched.check(&slot, &[("1", "None", "slot")]);
        watched.end();
    });
}

#[test]
fn a_watch_stops_who_changes_it_and_asks_conditions_there() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        let point = watched.arm(when("value > 1", stop(value("rate"))));
        watched.run("set_global(0.5)");
        watched.debugged.begin("in_thread(set_global, 2)");
        let stopped = watched.debugged.client.stopped();
        let why = StopReason::Changed {
            point: point.point,
            name: "rate".to_owned(),
            old: "0.5".to_owned(),
            new: "2".to_owned(),
        };
        assert_eq!(
            (&stopped.why, stopped.thread_name.as_str()),
            (&why, "worker")
        );
        assert_eq!(stopped.frames[0].func, "set_global");
        assert_eq!(
            watched
                .debugged
                .client
                .value(stopped.stop, 0, "rate, value"),
            "(2, 2)"
        );
        watched.debugged.client.step(stopped.stop, Step::Continue);
        watched.debugged.ended();
        let once = SetBreakpoint {
            once: true,
            hits: 2,
            ..stop(local("count", "step"))
        };
        watched.arm(once);
        watched.debugged.begin("count(4)");
        let stopped = watched.debugged.client.stopped();
        assert_eq!(watched.debugged.client.value(stopped.stop, 0, "step"), "1");
        watched.debugged.client.step(stopped.stop, Step::Continue);
        watched.debugged.ended();
        let told = watched.debugged.client.points();
        let note = told[1].note.as_deref().unwrap();
        assert!(
            note.starts_with("deleted: it was set for one hit"),
            "{note}"
        );
        watched.end();
    });
}

#[test]
fn changes_are_told_as_they_come_and_too_many_are_counted() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        let point = watched.arm(local("count", "step"));
        watched.debugged.begin("in_thread(count, 5000)");
        let news = watched.debugged.client.news(|news| match news {
            BreakpointEvent::Changed {
                name,
                old,
                new,
                at,
                thread_name,
                ..
            } => Some((name, old, new, at.func, thread_name)),
            _ => None,
        });
        let text = |text: &str| text.to_owned();
        let expected = ("step", "<not bound>", "0", "count", "worker");
        let (name, old, new, func, thread) = expected;
        assert_eq!(
            news,
            (text(name), text(old), text(new), text(func), text(thread))
        );
        watched.debugged.ended();
        let told = watched.debugged.client.points();
        assert_eq!((told[0].hits, told[0].fired), (5001, 5001));
        let rows = watched.rows(&point, "new");
        assert_eq!(rows.len() as u64 + told[0].dropped, 5001);
        watched.end();
    });
}

#[test]
fn values_are_told_without_any_code_of_the_program() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        let voice = watched.arm(local("loudly", "voice"));
        let logged = SetBreakpoint {
            action: Action::Snapshot,
            ..value("options.kind")
        };
        let kind = watched.arm(logged);
        watched.run("loudly()");
        watched.run("options.kind = 'x' * 300");
        let rows = watched.rows(&voice, "new");
        assert!(rows[0].starts_with("<Loud object at 0x"), "{rows:?}");
        assert!(rows[1].contains("{'a': (1, 2.5)}]"), "{rows:?}");
        let rows = watched.rows(&kind, "old, new");
        assert!(
            rows[0].starts_with("'adam','xxx") && rows[0].ends_with("… (100 more)"),
            "{rows:?}"
        );
        watched.end();
    });
}

#[test]
fn what_cannot_be_watched_is_refused_with_the_reason() {
    every_python(|python| {
        let mut watched = Watched::start(python);
        // Its code is part of the function's from 3.12 on.
        let (no_each, no_made) = if python.version >= (3, 12) {
            (
                "squares_of has each only inside a comprehension",
                "makers_of has made only inside a comprehension",
            )
        } else {
            (
                "squares_of has no variable each",
                "makers_of has no variable made",
            )
        };
        for (place, said) in [
            (local("count", "stepp"), "count has no variable stepp"),
            (local("squares_of", "each"), no_each),
            (local("makers_of", "made"), no_made),
            (
                value("options.half"),
                "cannot watch options.half: half is a property: only its code knows its value",
            ),
            (
                value("rate[3]"),
                "cannot watch rate[3]: only its own code knows the items of a float",
            ),
            (value("abc"), "a module is not a variable: abc"),
            (
                value("rate + 1"),
                "not a name with attributes and items: rate + 1",
            ),
        ] {
            let refused = watched.debugged.client.refused(Call::Arm(place));
            assert_eq!(refused, said);
        }
        let later = watched.arm(local("not_yet", "x"));
        assert!(later.note.unwrap().contains("set for when one is"));
        let unbound = watched.arm(value("not_yet.lr"));
        assert_eq!(
            unbound.note.as_deref(),
            Some("not bound yet: set for when it is")
        );
        watched.run("not_yet = Options(); not_yet.set_rate(2)");
        let rows = watched.rows(&unbound, "coalesce(old, '-'), new");
        assert_eq!(rows, ["-,0.1", "0.1,2"]);
        watched.end();
    });
}
