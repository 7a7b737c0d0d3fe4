//! `trace --lines`: each line that a function comes to is a row, with how long it took.

use probing_testkit::{every_python, wait_until};
use rustix::process::Signal;
use serde_json::Value;

use super::Traced;

impl Traced {
    fn lines(&self, of: &str) -> Vec<String> {
        self.query(&format!(
            "select lineno, depth, duration_ns > 0 from python.trace_event where kind = 'line' and func = '{of}' order by ts"
        ))
    }
}

#[test]
fn lines_of_a_function_are_rows_with_how_long_they_took() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        let begun = traced.probing(&["trace", "Trainer.fit", "--lines", "--depth", "1"]);
        assert!(begun.contains("; each of its lines; "), "{begun}");
        assert!(begun.contains(" ns a line; "), "{begun}");
        traced.run("assert trainer.fit(1.0) == 4.5");
        let rows =
            traced.query("select kind, func, lineno, depth from python.trace_event order by ts");
        let expected = [
            "call,Trainer.fit,21,0",
            "line,Trainer.fit,22,0",
            "line,Trainer.fit,23,0",
            // Of what it calls there are no lines.
            "call,middle,16,1",
            "return,middle,16,1",
            "line,Trainer.fit,24,0",
            "return,Trainer.fit,21,0",
        ];
        assert_eq!(rows, expected);
        // All that it did it did in one of its lines, that with the call among them.
        let times = traced.query(
            "select sum(duration_ns) filter (where kind = 'line') <= sum(duration_ns) filter (where kind = 'return' and depth = 0), \
             max(duration_ns) filter (where lineno = 23) >= max(duration_ns) filter (where func = 'middle'), \
             count(*) filter (where kind = 'line' and duration_ns is null) from python.trace_event",
        );
        assert_eq!(times, ["true,true,0"]);
        let sums = {
            let listed = traced.probing(&["trace", "--list"]);
            assert!(listed.contains("7 events; "), "{listed}");
            traced.query("select sum(calls) from python.trace_stats where func = 'Trainer.fit'")
        };
        assert_eq!(sums, ["1"]);
        traced.probing(&["untrace", "all"]);
        traced.run("trainer.fit(1.0)");
        assert_eq!(traced.lines("Trainer.fit").len(), 3);
    });
}

#[test]
fn a_line_ends_when_its_function_is_left_however_that_is() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        for function in [
            "failing",
            "caught",
            "counted",
            "failing_coroutine",
            "recursive",
        ] {
            traced.probing(&["trace", function, "--lines"]);
        }
        traced.run("caught(1)");
        assert_eq!(traced.lines("failing"), ["36,1,true"]);
        let caught = ["40,0,true", "41,0,true", "42,0,true", "43,0,true"];
        assert_eq!(traced.lines("caught"), caught);
        traced.run("assert list(counted(2)) == [0, 1]");
        // What it yields to is no part of it.
        assert_eq!(traced.lines("counted"), ["47,0,true"]);
        traced.run("assert refused(failing_coroutine(1)) == 2");
        let lines = ["63,0,true", "64,0,true", "65,0,true", "66,0,true"];
        assert_eq!(traced.lines("failing_coroutine"), lines);
        traced.run("recursive(2)");
        let lines = ["94,0,true", "94,1,true", "94,2,true"];
        assert_eq!(traced.lines("recursive"), lines);
        let outer = "select bool_and(inner_one.duration_ns < outer_one.duration_ns) from python.trace_event inner_one \
                     join python.trace_event outer_one on inner_one.depth = outer_one.depth + 1 \
                     where inner_one.kind = 'line' and outer_one.kind = 'line' and inner_one.func = 'recursive' and outer_one.func = 'recursive'";
        assert_eq!(traced.query(outer), ["true"]);
    });
}

/// From 3.12 on also of a call that is under way; before that, of those that begin from then on.
#[test]
fn a_function_that_runs_for_ever_tells_its_lines_and_the_last_one_survives_it() {
    every_python(|python| {
        if python.version < (3, 12) {
            return;
        }
        let mut traced = Traced::start(python);
        traced.target.say("forever()");
        traced.probing(&["eval", "import sys\nwhile sys._current_frames()[threading.main_thread().ident].f_code.co_name not in ('forever', 'middle', 'leaf'): time.sleep(0.001)"]);
        traced.probing(&["trace", "forever", "--lines", "--budget", "none"]);
        wait_until("it tells", || traced.lines("forever").len() > 10);
        let Traced { sandbox, target } = traced;
        let pid = target.pid().to_string();
        target.signal(Signal::KILL);
        target.wait();
        let sql = "select count(distinct lineno) <= 2, count(*) > 10, bool_and(coalesce(duration_ns, 1) > 0) \
                   from python.trace_event where kind = 'line'";
        let ran = sandbox.probing(["-t", &pid, "query", "--csv", sql]);
        assert!(ran.stdout.ends_with("true,true,true\n"), "{ran:?}");
    });
}

#[test]
fn lines_beside_breakpoints_are_both_told() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        let hits = |traced: &Traced, expected: &str| {
            let told = traced.probing(&["breakpoints"]);
            assert!(told.contains(expected), "{expected}: {told}");
        };
        traced.probing(&["break", "traced.py:23", "--action", "count"]);
        traced.probing(&["trace", "Trainer.fit", "--lines"]);
        traced.run("assert trainer.fit(1.0) == 4.5");
        assert_eq!(traced.lines("Trainer.fit").len(), 3);
        hits(&traced, "hit once");
        traced.probing(&["delete", "all"]);
        traced.run("assert trainer.fit(1.0) == 4.5");
        assert_eq!(traced.lines("Trainer.fit").len(), 6);
        traced.probing(&["break", "traced.py:24", "--action", "count"]);
        traced.run("assert trainer.fit(1.0) == 4.5");
        assert_eq!(traced.lines("Trainer.fit").len(), 9);
        traced.probing(&["untrace", "all"]);
        traced.run("assert trainer.fit(1.0) == 4.5");
        assert_eq!(traced.lines("Trainer.fit").len(), 9);
        hits(&traced, "hit 2 times");
    });
}

#[test]
fn lines_of_a_whole_module_need_an_interpreter_that_tells_them() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        let asked = ["trace", "--module", "__main__", "--lines"];
        if python.version < (3, 12) {
            let refused = traced.refused(&asked);
            assert!(refused.contains("from Python 3.12 on"), "{refused}");
            assert!(refused.contains("hint: name a function"), "{refused}");
            return;
        }
        traced.probing(&asked);
        traced.run("middle(1)");
        assert_eq!(traced.lines("middle"), ["17,0,true"]);
        assert_eq!(traced.lines("leaf"), ["13,1,true"]);
    });
}

/// Before 3.12, functions get code of their own for it, and there are programs in which none may.
#[test]
fn a_trace_says_when_no_line_can_be_told() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.run("sys.modules['greenlet'] = sys");
        let begun = traced.probing(&["trace", "middle", "--lines"]);
        let is_older = python.version < (3, 12);
        assert_eq!(begun.contains("note: no lines: "), is_older, "{begun}");
        traced.run("middle(1)");
        assert_eq!(traced.rows().len(), if is_older { 2 } else { 3 });
    });
}

#[test]
fn lines_stay_within_the_budget() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "leaf", "--lines"]);
        traced.run("hostile(2_000_000)");
        let rows: u64 = traced.query("select count(*) from python.trace_event")[0]
            .parse()
            .unwrap();
        assert!((1_000..1_500_000).contains(&rows), "{rows}");
        let mutings = "select count(*) > 0 from python.probe_budget where action = 'mute'";
        assert_eq!(traced.query(mutings), ["true"]);
        // What was under way when it fell silent is not taken for a line that lasted until it was told of again.
        let longest = traced.query(
            "select max(duration_ns) < 50000000 from python.trace_event where kind = 'line'",
        );
        assert_eq!(longest, ["true"]);
        let count = "select count(*) from python.trace_event where kind = 'line'";
        let before = traced.query(count);
        wait_until("it is told of again", || {
            traced.run("hostile(500_000)");
            traced.query(count) != before
        });
    });
}

#[test]
fn a_program_has_its_own_lines_recorded() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.run("import probing; probing.probe(lines=True, budget=None)(caught)");
        traced.run("caught(1)");
        assert_eq!(traced.lines("caught").len(), 4);
        traced.run("try: probing.probe(lines=True, stats=True)\\nexcept ValueError as error: said = str(error)");
        assert_eq!(
            traced.probing(&["eval", "said"]),
            "'lines and stats exclude each other: choose one'\n"
        );
        let refused = traced.refused(&["trace", "leaf", "--lines", "--stats"]);
        assert!(
            refused.contains("cannot be used with '--stats'"),
            "{refused}"
        );
    });
}

#[test]
fn viewers_show_lines_inside_their_functions() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "Trainer.fit", "--lines", "--depth", "1"]);
        traced.run("trainer.fit(1.0)");
        let file = traced.sandbox.runtime_dir().join("lines.json");
        let path = file.display().to_string();
        traced.probing(&["trace", "--export", "chrome", "-o", &path]);
        let chrome: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let named = |name: &str| {
            let events = chrome["traceEvents"].as_array().unwrap();
            let event = events.iter().find(|event| event["name"] == name);
            let event = event.unwrap_or_else(|| panic!("{name}: {chrome}"));
            let began = event["ts"].as_f64().unwrap();
            (began, began + event["dur"].as_f64().unwrap())
        };
        let around = [
            named("Trainer.fit"),
            named("Trainer.fit:23"),
            named("middle"),
        ];
        // Microseconds as floats: what is told in nanoseconds may be off by less than one.
        let is_inside =
            |pair: &[(f64, f64)]| pair[0].0 <= pair[1].0 + 0.001 && pair[1].1 <= pair[0].1 + 0.001;
        assert!(around.windows(2).all(is_inside), "{around:?}");
        for format in ["speedscope", "perfetto"] {
            traced.probing(&["trace", "--export", format, "-o", &path]);
            let file = std::fs::read(&file).unwrap();
            assert!(
                String::from_utf8_lossy(&file).contains("Trainer.fit:23"),
                "{format}"
            );
        }
    });
}
