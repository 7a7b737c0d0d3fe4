//! Points that count, log and take snapshots; where they are found.

use std::time::Instant;

use probing_proto::message::Call;
use probing_proto::stops::{Action, Arm, Place, StopNews};
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
        let hits = Arm {
            hits: 3,
            ..at("third")
        };
        debugged.client.arm(hits);
        for _ in 0..4 {
            debugged.begin("trainer.fit(1)");
            debugged.ended();
        }
        let counts = |points: Vec<probing_proto::stops::Point>| -> Vec<(u64, u64)> {
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
fn a_log_point_writes_what_an_f_string_would() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let text = "{batch!r:>4} {total:.1f} {self.lr} {{x}} {[total + n for n in (1, 2)]} {loss}";
        debugged.client.arm(log(at("second"), text));
        debugged.begin("trainer.fit(3)");
        let logged = debugged.client.news(|news| match news {
            StopNews::Logged {
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
            StopNews::Logged { text, .. } => Some(text),
            _ => None,
        });
        assert!(text.starts_with("<raised NameError"), "{text}");
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
fn what_points_record_is_asked_for_with_sql() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(log(at("count"), "step {step}"));
        let snapshot = Arm {
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
        let snapshot = Arm {
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
            let left_out = format!("{} left out", point.dropped);
            assert!(listed.ok().contains(&left_out), "{listed:?}");
        }
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_point_says_where_it_went_or_what_it_waits_for() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let empty = line("first") + 1;
        let moved = debugged.client.arm(arm(Place::Line {
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
            note.contains("no function that is loaded is called finis")
                && note.contains("Trainer.finish"),
            "{note}"
        );
        let waits = debugged.client.arm(arm(Place::Line {
            file: "later.py".to_owned(),
            line: 2,
        }));
        assert!(
            waits
                .note
                .unwrap()
                .starts_with("nothing from later.py is loaded yet")
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
        let waiting = arm(Place::Line {
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
        let once = Arm {
            once: true,
            ..stop(at("count"))
        };
        let point = debugged.client.arm(once);
        let stopped = debugged.client.stopped();
        assert_eq!(stopped.thread_name, "worker");
        let disarmed = debugged.client.points().pop().unwrap();
        assert_eq!(disarmed.point, point.point);
        assert!(disarmed.note.unwrap().starts_with("disarmed: "));
        assert_eq!(debugged.client.value(stopped.stop, 0, "step > 0"), "True");
        debugged.client.value(stopped.stop, 0, "limit = 0");
        debugged
            .client
            .step(stopped.stop, probing_proto::stops::Step::Continue);
        assert_eq!(debugged.told("worker.join()"), "None");
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_point_ends_when_its_time_is_over() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        let short = Arm {
            ttl_millis: Some(1),
            ..when("batch == 1", stop(at("second")))
        };
        let point = debugged.client.arm(short);
        let (id, reason) = debugged.client.news(|news| match news {
            StopNews::Disarmed { point, reason } => Some((point, reason)),
            _ => None,
        });
        assert_eq!((id, reason.as_str()), (point.point, "its time is over"));
        debugged.begin("trainer.fit(1)");
        debugged.ended();
        assert_eq!(debugged.client.points()[0].hits, 0);
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}
