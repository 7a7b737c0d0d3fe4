//! Traces of functions, on every Python: what is recorded of calls, what it costs, and that the program does not notice.

mod beside;
mod budget;
mod files;
mod lines;
mod several;
mod suspends;

use rustix::process::Signal;

use probing_testkit::{Python, Sandbox, Target, every_python, wait_until};

use crate::recording::run;
use crate::sandbox;

/// A program that runs what it is told.
pub(crate) struct Traced {
    pub(crate) sandbox: Sandbox,
    pub(crate) target: Target,
}

impl Traced {
    pub(crate) fn start(python: &Python) -> Self {
        let sandbox = sandbox();
        let target = sandbox.target(python, "traced.py").start();
        Self { sandbox, target }
    }

    /// What a command says that must succeed.
    pub(crate) fn probing(&self, arguments: &[&str]) -> String {
        let pid = self.target.pid().to_string();
        let all = [&["-t", &pid], arguments].concat();
        let ran = self.sandbox.probing(all);
        assert_eq!(ran.status, 0, "{arguments:?}: {ran:?}");
        ran.stdout
    }

    /// What one says that must not.
    fn refused(&self, arguments: &[&str]) -> String {
        let pid = self.target.pid().to_string();
        let all = [&["-t", &pid], arguments].concat();
        let ran = self.sandbox.probing(all);
        assert_ne!(ran.status, 0, "{arguments:?}: {ran:?}");
        ran.stderr
    }

    pub(crate) fn query(&self, sql: &str) -> Vec<String> {
        let told = self.probing(&["query", "--csv", sql]);
        told.lines().skip(1).map(str::to_owned).collect()
    }

    pub(crate) fn run(&mut self, line: &str) {
        run(&mut self.target, line);
    }

    /// Rows of the tracer, in the order in which they were recorded.
    pub(crate) fn rows(&self) -> Vec<String> {
        self.query("select kind, func, depth from python.trace_event order by ts")
    }
}

#[test]
fn calls_and_returns_of_a_function_are_rows() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        let begun = traced.probing(&["trace", "traced.py:Trainer.fit"]);
        assert!(begun.starts_with("trace 1: "), "{begun}");
        assert!(begun.contains("traced.py:") && begun.contains(" ns a call; nothing elsewhere"));
        traced.run("assert trainer.fit(1.0) == 4.5; middle(3)");
        assert_eq!(
            traced.rows(),
            ["call,Trainer.fit,0", "return,Trainer.fit,0"]
        );
        let row = traced.query(
            "select lineno, thread_id, duration_ns > 0, file like '%traced.py', name from python.trace_event where kind = 'return'",
        );
        let pid = traced.target.pid();
        assert_eq!(row, [format!("21,{pid},true,true,Trainer.fit")]);
        let listed = traced.probing(&["trace", "--list"]);
        assert!(listed.contains("2 events; cost so far"), "{listed}");
        let ended = traced.probing(&["untrace", "1"]);
        assert!(
            ended.starts_with("trace 1 ended: traced.py:Trainer.fit; 2 events"),
            "{ended}"
        );
        traced.run("trainer.fit(1.0)");
        assert_eq!(traced.rows().len(), 2);
        assert!(
            traced
                .refused(&["untrace", "1"])
                .contains("no such trace: 1")
        );
    });
}

#[test]
fn what_a_function_calls_is_followed_as_deep_as_asked() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "Trainer.fit", "--depth", "1", "--watch", "rate"]);
        traced.run("trainer.fit(1.0); middle(5)");
        let shallow = [
            "call,Trainer.fit,0",
            "call,middle,1",
            "return,middle,1",
            "return,Trainer.fit,0",
        ];
        assert_eq!(traced.rows(), shallow);
        let changes = traced.query("select name, old, new, func from python.variables order by ts");
        assert_eq!(changes.len(), 2, "{changes:?}");
        assert!(changes[0].starts_with("rate,,0.5,"), "{changes:?}");
        assert!(changes[1].starts_with("rate,0.5,4.5,"), "{changes:?}");
        traced.probing(&["untrace", "all"]);
        traced.probing(&["trace", "traced.py:caught", "--depth", "2"]);
        traced.run("caught(3); trainer.fit(1.0)");
        assert_eq!(
            traced.rows()[4..],
            [
                "call,caught,0",
                "call,failing,1",
                "exception,failing,1",
                "call,leaf,1",
                "return,leaf,1",
                "return,caught,0",
            ]
        );
        traced.probing(&["untrace", "all"]);
        traced.probing(&["trace", "__main__:leaf"]);
        traced.run("leaf(1)");
        assert_eq!(traced.rows()[10..], ["call,leaf,0", "return,leaf,0"]);
        let waits = traced.probing(&["trace", "elsewhere:leaf"]);
        let note = "no loaded function is named leaf in elsewhere: waits for when one is loaded; near: __main__.leaf";
        assert!(waits.contains(note), "{waits}");
    });
}

#[test]
fn what_a_function_calls_through_c_is_followed_too() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "through_c", "--depth", "1"]);
        // Called by others first, and not followed there.
        traced.run("negative(1); leaf(2); middle(3); Number() + 1");
        assert!(traced.rows().is_empty());
        traced.run("assert through_c() == ([2, 1], [2], 8, 2)");
        assert_eq!(
            traced.rows(),
            [
                "call,through_c,0",
                "call,negative,1",
                "return,negative,1",
                "call,negative,1",
                "return,negative,1",
                "call,leaf,1",
                "return,leaf,1",
                "call,middle,1",
                "return,middle,1",
                "call,Number.__add__,1",
                "return,Number.__add__,1",
                "return,through_c,0",
            ]
        );
    });
}

#[test]
fn what_a_function_calls_is_followed_though_something_else_called_it_first() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "first_elsewhere", "--depth", "1"]);
        traced.run("assert first_elsewhere() == 2");
        assert_eq!(
            traced.rows(),
            [
                "call,first_elsewhere,0",
                "call,summed,1",
                "return,summed,1",
                "call,leaf,1",
                "return,leaf,1",
                "return,first_elsewhere,0",
            ]
        );
    });
}

/// While a trace waits for code, or follows what functions call, all code is asked whether it is wanted, once.
#[test]
fn a_function_is_traced_that_ran_while_another_trace_looked_for_code() {
    every_python(|python| {
        for other in [
            &["trace", "later"][..],
            &["trace", "middle", "--depth", "1"],
        ] {
            let mut traced = Traced::start(python);
            traced.probing(other);
            traced.run("middle(1); recursive(1); negative(1)");
            let before = traced.rows().len();
            traced.probing(&["trace", "negative"]);
            traced.probing(&["trace", "caught", "--depth", "1"]);
            traced.run("negative(1); recursive(1); caught(1)");
            assert_eq!(
                traced.rows()[before..],
                [
                    "call,negative,0",
                    "return,negative,0",
                    "call,caught,0",
                    "call,failing,1",
                    "exception,failing,1",
                    "call,leaf,1",
                    "return,leaf,1",
                    "return,caught,0",
                ],
                "{other:?}"
            );
        }
    });
}

#[test]
fn threads_beyond_those_with_rings_of_their_own_have_rows_too() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "meeting"]);
        traced.run("at_once(40); at_once(40)");
        let counted = "select count(*), count(distinct thread_id) >= 40, sum(case kind when 'call' then 1 else 0 end) from python.trace_event";
        assert_eq!(traced.query(counted), ["160,true,80"]);
    });
}

#[test]
fn results_are_the_same_to_the_last_bit_with_all_of_it_and_without_any() {
    every_python(|python| {
        let without = {
            let mut plain = Traced::start(python);
            plain.target.say("print(trained(300), flush=True)");
            plain.target.line()
        };
        let mut traced = Traced::start(python);
        let all = ["--depth", "3", "--watch", "weight", "--budget", "none"];
        traced.probing(&[&["trace", "trained"], all.as_slice()].concat());
        traced.probing(&["trace", "--module", "random", "--stats"]);
        traced.target.say("print(trained(300), flush=True)");
        assert_eq!(traced.target.line(), without);
        assert_eq!(traced.target.line(), "done");
        // It was followed indeed: middle and leaf are called five times a step.
        let seen = traced.query(
            "select name, count(*) from python.trace_event where kind = 'call' and name in ('trained', 'middle', 'leaf') group by name order by name",
        );
        assert_eq!(seen, ["leaf,1500", "middle,1500", "trained,1"]);
        let changes = traced.query("select count(*) > 100 from python.variables");
        assert_eq!(changes, ["true"]);
    });
}

#[test]
fn generators_coroutines_recursion_and_threads_are_told_as_they_run() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        for function in ["counted", "waiting", "recursive", "middle"] {
            traced.probing(&["trace", function]);
        }
        traced.run("assert list(counted(2)) == [0, 1]");
        traced.run("assert asyncio.run(waiting(4)) == 4");
        traced.run("assert recursive(2) == 2");
        let mut expected = vec!["call,counted,0", "yield,counted,0", "resume,counted,0"];
        expected.extend(["yield,counted,0", "resume,counted,0", "return,counted,0"]);
        expected.extend(["call,waiting,0", "yield,waiting,0", "resume,waiting,0"]);
        expected.extend(["return,waiting,0", "call,recursive,0", "call,recursive,1"]);
        expected.extend(["call,recursive,2", "return,recursive,2"]);
        expected.extend(["return,recursive,1", "return,recursive,0"]);
        assert_eq!(traced.rows(), expected);
        traced.run("in_threads(20)");
        let threads = traced.query(
            "select count(*), count(distinct thread_id) > 1 from python.trace_event where name = 'middle'",
        );
        assert_eq!(threads, ["40,true"]);
    });
}

#[test]
fn a_whole_module_is_traced_and_summed_up() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        let begun = traced.probing(&["trace", "--module", "__main__", "--stats"]);
        assert!(begun.contains("sums only"), "{begun}");
        traced.run("for _ in range(10): trainer.fit(1.0)");
        traced.run("def later(x):\n    return leaf(x)");
        traced.run("later(1)");
        traced.probing(&["trace", "--list"]);
        let sums = traced.query(
            "select func, sum(calls), sum(total_ns) >= sum(self_ns), min(min_ns) <= max(max_ns) from python.trace_stats group by func order by 1",
        );
        let named = |name: &str| sums.iter().any(|line| line.ends_with(name));
        for expected in [
            "fit,10,true,true",
            "middle,10,true,true",
            "leaf,11,true,true",
            "later,1,true,true",
        ] {
            assert!(named(expected), "{expected}: {sums:?}");
        }
        assert!(traced.rows().is_empty());
        let histogram = traced.query("select histogram from python.trace_stats limit 1");
        assert!(histogram[0].contains("[["), "{histogram:?}");
        let top = traced.probing(&["top", "--once", "--json"]);
        assert!(
            top.contains("\"by\": \"trace\"") && top.contains("middle"),
            "{top}"
        );
        traced.probing(&["untrace", "all"]);
    });
}

#[test]
fn a_decorator_of_another_module_is_not_of_the_module_that_uses_it() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.run("import contextlib\n@contextlib.contextmanager\ndef managed(x): yield leaf(x)");
        traced.probing(&["trace", "--module", "__main__"]);
        traced.run("class Later:\n    def fit(self): return leaf(1)");
        traced.run("with managed(1): Later().fit()");
        let mut expected = vec!["call,managed,0", "call,leaf,1", "return,leaf,1"];
        expected.extend(["yield,managed,0", "call,Later.fit,0", "call,leaf,1"]);
        expected.extend(["return,leaf,1", "return,Later.fit,0", "resume,managed,0"]);
        expected.push("return,managed,0");
        assert_eq!(traced.rows(), expected);
    });
}

#[test]
fn a_trace_ends_by_steps_and_by_time_and_waits_for_code() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        let begun = traced.probing(&["trace", "later", "--steps", "2"]);
        assert!(begun.contains("code not loaded yet"), "{begun}");
        traced.run("def later(x): return x");
        traced.run("for i in range(5): later(i)");
        let rows = traced.rows();
        let calls = rows.iter().filter(|row| row.starts_with("call,later"));
        assert_eq!(calls.count(), 2, "{rows:?}");
        let listed = traced.probing(&["trace", "--list"]);
        assert!(
            listed.contains("ended: all of its steps are recorded"),
            "{listed}"
        );
        traced.probing(&["trace", "leaf", "--for", "100ms"]);
        wait_until("expired", || {
            traced
                .probing(&["trace", "--list"])
                .contains("ended: expired")
        });
        let before = traced.rows().len();
        traced.run("leaf(1)");
        assert_eq!(traced.rows().len(), before);
        assert_eq!(traced.probing(&["untrace", "all"]).lines().count(), 2);
    });
}

#[test]
fn variables_are_watched_in_the_functions_that_are_traced_and_in_no_others() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.run("other = sys.modules['other'] = type(sys)('other')");
        traced.run(
            "exec(compile('''class Trainer:\n    def fit(self, lr): rate = lr''', 'other.py', 'exec'), other.__dict__)",
        );
        traced.probing(&["trace", "traced.py:Trainer.fit", "--watch", "rate"]);
        traced.run("other.Trainer().fit(9.0); trainer.fit(1.0)");
        let changes = traced.query("select new from python.variables order by ts");
        assert_eq!(changes, ["0.5", "4.5"]);
    });
}

#[test]
fn a_function_that_is_defined_again_is_traced_again() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        let define = "class Later:\n    def fit(self, x): got = leaf(x); return got";
        traced.run(define);
        traced.probing(&["trace", "Later.fit", "--watch", "got"]);
        traced.run("Later().fit(1)");
        assert_eq!(traced.rows(), ["call,Later.fit,0", "return,Later.fit,0"]);
        traced.run(define);
        let mut calls = 1;
        wait_until("the new one is told of, and its variables are", || {
            calls += 1;
            traced.run(&format!("Later().fit({calls})"));
            let changes = "select new from python.variables where name = 'got'";
            traced.rows().len() > 2 && traced.query(changes).len() > 1
        });
        assert_eq!(
            traced.rows()[2..4],
            ["call,Later.fit,0", "return,Later.fit,0"]
        );
    });
}

#[test]
fn what_was_under_way_when_a_trace_ended_is_not_of_the_next_one() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.run("gate = threading.Event()");
        traced.run("def held(): return gate.wait()");
        let ends_inside = |traced: &mut Traced, next: &[&str]| {
            let before = traced.rows().len();
            traced.probing(&["trace", "held", "--depth", "5"]);
            traced.target.say("held()");
            wait_until("it waits", || traced.rows().len() > before);
            traced.probing(&["untrace", "all"]);
            traced.probing(next);
            traced.probing(&["eval", "gate.set()"]);
            assert_eq!(traced.target.line(), "done");
        };
        ends_inside(&mut traced, &["trace", "held", "--stats"]);
        traced.run("held()");
        traced.probing(&["untrace", "all"]);
        // It began before that trace did: how long it took is not known.
        let calls = "select sum(calls) from python.trace_stats where trace = 2 and func = 'held'";
        assert_eq!(traced.query(calls), ["1"]);
        // Nor does it keep code from being found that comes later.
        traced.run("gate.clear()");
        ends_inside(&mut traced, &["trace", "later"]);
        traced.run("def later(x): return x");
        traced.run("later(1)");
        let found = "select kind, depth from python.trace_event where func = 'later' order by ts";
        assert_eq!(traced.query(found), ["call,0", "return,0"]);
    });
}

#[test]
fn a_hostile_loop_stays_within_its_budget() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "leaf"]);
        traced.run("hostile(3_000_000)");
        // Six million events: at some 50 ns each 0.3 s of CPU time, of which the trace may cost a hundredth.
        let rows: u64 = traced.query("select count(*) from python.trace_event")[0]
            .parse()
            .unwrap();
        assert!((1_000..1_500_000).contains(&rows), "{rows}");
        let budget = traced.query(
            "select action, budget, muted >= 0 from python.probe_budget order by ts limit 1",
        );
        assert_eq!(budget, ["mute,0.01,true"]);
        let listed = traced.probing(&["trace", "--list"]);
        assert!(
            listed.contains("throttled to stay within 1.00 %"),
            "{listed}"
        );
        traced.probing(&["untrace", "all"]);
        traced.probing(&["trace", "middle", "--budget", "none"]);
        traced.run("for i in range(20_000): middle(i)");
        let all = traced.query("select count(*) from python.trace_event where name = 'middle'");
        assert_eq!(all, ["40000"]);
    });
}

#[test]
fn throttled_functions_are_recorded_again_in_a_program_without_an_attach() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "traced.py").start();
        run(
            &mut target,
            "import probing; leaf = probing.probe(leaf)\nthreading.Thread(target=forever, daemon=True).start()",
        );
        let pid = target.pid().to_string();
        wait_until("it was muted, and told of again", || {
            let sql = "select count(distinct action) from python.probe_budget";
            let ran = sandbox.probing(["-t", &pid, "query", "--csv", sql]);
            ran.stdout.lines().nth(1) == Some("2")
        });
    });
}

#[test]
fn a_function_that_nothing_else_keeps_is_traced_each_time_it_is_made() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.run("import probing; [probing.probe(lambda x: x + 1)(each) for each in range(3)]");
        let sql = "select kind, count(*) from python.trace_event where name like '%<lambda>' group by kind order by kind";
        assert_eq!(traced.query(sql), ["call,3", "return,3"]);
    });
}

#[test]
fn rows_survive_a_kill_and_become_files_of_viewers() {
    every_python(|python| {
        let mut traced = Traced::start(python);
        traced.probing(&["trace", "Trainer.fit", "--depth", "2"]);
        traced.run("probing = __import__('probing')\nwith probing.span('epoch'): trainer.fit(1.0)");
        let Traced { sandbox, target } = traced;
        let pid = target.pid().to_string();
        target.signal(Signal::KILL);
        target.wait();
        let folder = sandbox.runtime_dir().clone();
        let export = |format: &str| {
            let file = folder.join(format!("{pid}.{format}"));
            let path = file.display().to_string();
            let ran = sandbox.probing(["-t", &pid, "trace", "--export", format, "-o", &path]);
            assert_eq!(ran.status, 0, "{ran:?}");
            assert!(ran.stdout.contains("8 events"), "{ran:?}");
            std::fs::read(&file).unwrap()
        };
        let chrome: serde_json::Value = serde_json::from_slice(&export("chrome")).unwrap();
        let events = chrome["traceEvents"].as_array().unwrap();
        let names: Vec<&str> = events
            .iter()
            .map(|event| event["name"].as_str().unwrap())
            .collect();
        assert!(
            names.contains(&"epoch") && names.iter().any(|name| name.ends_with("fit")),
            "{names:?}"
        );
        assert!(
            events
                .iter()
                .all(|event| event["ph"] == "X" && event["dur"].as_f64().unwrap() >= 0.0)
        );
        let speedscope: serde_json::Value = serde_json::from_slice(&export("speedscope")).unwrap();
        let profile = &speedscope["profiles"][0];
        let opened: Vec<&str> = profile["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["type"].as_str().unwrap())
            .collect();
        assert_eq!(opened, ["O", "O", "O", "C", "C", "C"]);
        let perfetto = export("perfetto");
        assert!(perfetto.starts_with(&[0x0a]), "a packet of a trace");
        assert!(perfetto.windows(5).any(|bytes| bytes == b"epoch"));
    });
}

#[test]
fn a_program_traces_itself_and_its_functions_stay_what_they_are() {
    every_python(|python| {
        let sandbox = sandbox();
        // It checks itself that results, signatures and kinds of functions are as ever, in a child, too.
        let target = sandbox.target(python, "probed.py").start();
        let pid = target.pid().to_string();
        let query = |sql: &str| {
            let ran = sandbox.probing(["-t", &pid, "query", "--csv", sql]);
            assert_eq!(ran.status, 0, "{ran:?}");
            ran.stdout
                .lines()
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let rows = query("select kind || ' ' || name from python.trace_event order by ts");
        let told = |name: &str| -> Vec<&str> {
            let of_it = rows
                .iter()
                .filter_map(|row| row.strip_suffix(&format!(" {name}")));
            of_it.collect()
        };
        assert_eq!(told("plain"), ["call", "return"]);
        assert_eq!(told("leaf"), ["call", "return"].repeat(5));
        for method in ["Kinds.method", "Kinds.fixed", "Kinds.made"] {
            assert_eq!(told(method), ["call", "return"], "{method}");
        }
        let thrice = ["call", "yield", "resume", "yield", "resume", "return"];
        assert_eq!(told("generator"), thrice);
        assert_eq!(told("closed"), ["call", "yield", "resume", "exception"]);
        assert_eq!(told("coroutine"), ["call", "yield", "resume", "return"]);
        assert_eq!(
            told("stream"),
            ["call", "yield", "resume", "yield", "resume", "return"]
        );
        assert_eq!(told("failing"), ["call", "exception"]);
        // What a decorator wraps, not the decorator, whose code others have, too.
        for inside in ["decorated", "cached"] {
            assert_eq!(told(inside), ["call", "return"], "{inside}");
        }
        assert_eq!(told("block"), ["begin", "span"]);
        let ours = "select count(*) from python.trace_event where file like '%/_tracing.py' or file like '%/_recording.py'";
        assert_eq!(query(ours), ["0"]);
        let changes = query("select name, old, new from python.variables order by ts");
        // Before 3.12 the value that it had before is told, too. What is written after a block is not.
        let told = |change: &&String| *change != "rate,,1";
        let changes: Vec<_> = changes
            .iter()
            .filter(told)
            .map(|it| it.replace("rate,1,2", "rate,,2"))
            .collect();
        assert_eq!(
            changes,
            ["y,,2", "y,2,3", "kept,,8", "rate,,2", "__main__.total,1,5"]
        );
    });
}
