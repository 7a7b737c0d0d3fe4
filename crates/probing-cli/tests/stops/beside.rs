//! Coverage, debuggers and profilers in the same process as breakpoints, each undisturbed by the other.
//!
//! Each sees what it would see without us, and we see what we would see without them; where Python lets only one
//! in, that is said.

use std::path::Path;
use std::process::Command;

use probing_proto::message::breakpoints::{
    Breakpoint, BreakpointEvent, BreakpointLocation, SetBreakpoint,
};
use probing_testkit::{Python, Sandbox, every_python, root, wait_until};

use crate::debugger::{Client, Debugged, arm, at, in_function, line_of, log, sandbox, stop, when};

/// Before 3.12 a thread has one trace function.
fn is_shared(python: &Python) -> bool {
    python.version >= (3, 12)
}

fn raising() -> SetBreakpoint {
    arm(BreakpointLocation::Raise {
        exception: Some("ValueError".to_owned()),
    })
}

/// What a point says where it is left out.
#[track_caller]
fn is_said(point: &Breakpoint) {
    let note = point.note.as_deref().unwrap_or_default();
    assert!(
        note.starts_with("MainThread") && note.contains("traced by another tool"),
        "{point:?}"
    );
}

/// The lines that coverage has seen while the program did something, with breakpoints or without.
fn covered(python: &Python, sandbox: &Sandbox, core: &str, is_armed: bool) -> serde_json::Value {
    let data = sandbox.path().join("coverage");
    let data = data.to_str().unwrap();
    let program = root().join("tests/targets/debugged.py");
    let mut command = Command::new(&python.path);
    command
        .args(["-m", "coverage", "run", "--data-file", data])
        .arg(&program);
    let mut target = sandbox
        .target_command(command)
        .env("PROBING", "1")
        .env("COVERAGE_CORE", core)
        .start();
    let mut client = Client::new(sandbox, &target);
    if is_armed {
        client.arm(log(at("second"), "{total}"));
        client.arm(at("twice"));
        client.arm(in_function("Trainer.finish"));
    }
    target.say("trainer.fit(1), consume(), fails()");
    assert_eq!(target.line(), "done");
    if is_armed {
        let hits: Vec<u64> = client.points().iter().map(|point| point.hits).collect();
        assert_eq!(hits, [1, 2, 1]);
    }
    if is_armed {
        client.disarm_all();
    }
    let ended = target.end();
    assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    report(python, data, &program)
}

fn report(python: &Python, data: &str, program: &Path) -> serde_json::Value {
    let told = python
        .run([
            "-m",
            "coverage",
            "json",
            "--quiet",
            "-o",
            "-",
            "--data-file",
            data,
        ])
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let file = &told["files"][program.to_str().unwrap()];
    assert!(file["executed_lines"].is_array(), "{told}");
    file["executed_lines"].clone()
}

#[test]
fn coverage_sees_the_same_lines_with_breakpoints_and_without() {
    every_python(|python| {
        let cores: &[&str] = if is_shared(python) {
            &["sysmon", "ctrace"]
        } else {
            &["ctrace"]
        };
        for core in cores {
            let sandbox = sandbox();
            let without = covered(python, &sandbox, core, false);
            let with = covered(python, &sandbox, core, true);
            assert_eq!(with, without, "{core}");
        }
    });
}

/// What a run of pytest under pytest-cov says in the end, and what it has covered, with breakpoints or without.
fn tested(python: &Python, core: &str, is_armed: bool) -> (Vec<String>, serde_json::Value) {
    let sandbox = sandbox();
    let folder = root().join("tests/targets/covered");
    let report = sandbox.path().join("report.json");
    let mut command = Command::new(&python.path);
    command.args(["-m", "pytest", "-s", "-q", "--tb=line", "-c", "/dev/null"]);
    command.args(["-p", "no:cacheprovider", "--cov=prices"]);
    command.arg(format!("--cov-report=json:{}", report.display()));
    command.arg("--rootdir").arg(&folder).arg(&folder);
    command.current_dir(sandbox.path());
    let mut target = sandbox
        .target_command(command)
        .env("PROBING", "1")
        .env("COVERAGE_CORE", core)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .start();
    let mut client = Client::new(&sandbox, &target);
    let place = |mark: &str| {
        arm(BreakpointLocation::Line {
            file: "prices.py".to_owned(),
            line: line_of("covered/prices.py", mark),
        })
    };
    if is_armed {
        client.arm(log(place("total"), "{each} {total}"));
        client.arm(when("value > 1", place("rounded")));
        client.arm(in_function("prices.price"));
        client.follow(false);
    }
    target.say("go");
    if is_armed {
        let mut logged = || {
            client.news(|news| match news {
                BreakpointEvent::Logged { text, .. } => Some(text),
                _ => None,
            })
        };
        // Of the counts 1, 4, 2, 3 and 2.
        let expected = "0 0.0|0 0.0|1 0.0|2 0.5|3 1.5|0 0.0|1 0.0|0 0.0|1 0.0|2 0.5|0 0.0|1 0.0";
        let all: Vec<String> = (0..12).map(|_| logged()).collect();
        assert_eq!(all.join("|"), expected);
    }
    let ended = target.end();
    assert_eq!(ended.status, 1, "{ended:?}");
    assert_eq!(ended.stderr, [""; 0]);
    // The last line has a time in it.
    let is_outcome = |line: &String| line.contains("::test") || line.contains("passed");
    let outcome = ended.stdout.into_iter().filter(is_outcome);
    let outcome = outcome.map(|line| line.split(" in ").next().unwrap_or_default().to_owned());
    let told = std::fs::read(report).unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    let files = told["files"].as_object().unwrap();
    assert_eq!(files.len(), 1, "{told}");
    (outcome.collect(), files.values().next().unwrap().clone())
}

#[test]
fn pytest_cov_reports_the_same_with_breakpoints_and_without() {
    every_python(|python| {
        let cores: &[&str] = if is_shared(python) {
            &["sysmon", "ctrace"]
        } else {
            &["ctrace"]
        };
        for core in cores {
            let without = tested(python, core, false);
            let outcome = without.0.join("\n");
            assert!(outcome.contains("1 failed, 5 passed"), "{outcome}");
            let lines = &without.1["executed_lines"];
            assert!(lines.as_array().unwrap().len() > 10, "{lines}");
            assert_eq!(tested(python, core, true), without, "{core}");
        }
    });
}

#[test]
fn a_profiler_counts_the_same_calls_with_breakpoints_and_without() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(
            "import cProfile, pstats; counted = lambda: sorted((key[2], value[1]) for key, value in \
             pstats.Stats(profile).stats.items() if 'debugged' in key[0])",
        );
        debugged.ended();
        let mut counted = Vec::new();
        for is_armed in [false, true] {
            if is_armed {
                debugged.client.arm(at("second"));
                debugged.client.arm(in_function("Trainer.finish"));
            }
            debugged.begin("profile = cProfile.Profile(); profile.enable(); trainer.fit(1); consume(); profile.disable()");
            debugged.ended();
            counted.push(debugged.told("counted()"));
        }
        assert!(counted[0].contains("('fit', 1)"), "{counted:?}");
        assert_eq!(counted[0], counted[1]);
        let hits: Vec<u64> = debugged
            .client
            .disarm_all()
            .iter()
            .map(|it| it.hits)
            .collect();
        assert_eq!(hits, [1, 1]);
        debugged.leaves_no_trace();
    });
}

#[test]
fn a_watchpoint_stays_when_profilers_and_trace_functions_come_and_go() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin("import cProfile; profile = cProfile.Profile(); look = lambda *_: None");
        debugged.ended();
        debugged.client.arm(arm(BreakpointLocation::Local {
            function: "count".to_owned(),
            name: "step".to_owned(),
        }));
        let beside = [
            "count(2)",
            "profile.enable(); count(2); profile.disable()",
            "sys.setprofile(look); count(2); sys.setprofile(None)",
            "sys.settrace(look); count(2); sys.settrace(None)",
            "count(2)",
        ];
        for (turn, code) in (1..).zip(beside) {
            debugged.begin(code);
            debugged.ended();
            let hits = debugged.client.points()[0].hits;
            assert_eq!(hits, turn * 3, "{code}");
        }
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}

#[test]
fn breakpoints_work_beside_another_debugger() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.begin(
            "import debugpy; debugpy.listen(('127.0.0.1', 0)); debugpy.trace_this_thread(True)",
        );
        debugged.ended();
        let point = debugged.client.arm(stop(at("second")));
        assert_eq!(point.note, None);
        let raised = debugged.client.arm(raising());
        debugged.begin("print(trainer.fit(10), fails())");
        let stopped = debugged.client.stopped();
        assert_eq!(debugged.client.value(stopped.stop, 0, "total"), "20");
        if is_shared(python) {
            debugged.client.step_to(
                stopped.stop,
                probing_proto::message::breakpoints::Step::Over,
                "third",
            );
        } else {
            is_said(&raised);
        }
        debugged.client.step(
            stopped.stop,
            probing_proto::message::breakpoints::Step::Continue,
        );
        assert_eq!(debugged.ended(), ["63 True"]);
        let hits = debugged.client.disarm_all().pop().unwrap().hits;
        assert_eq!(hits, u64::from(is_shared(python)));
        let ended = debugged.target.end();
        assert_eq!(ended.status, 0, "{ended:?}");
    });
}

#[test]
fn a_program_that_sets_a_trace_function_is_told_of_and_met_again_afterwards() {
    every_python(|python| {
        let mut debugged = Debugged::start(python);
        debugged.client.arm(raising());
        debugged.client.arm(at("second"));
        let is_left_out = |debugged: &mut Debugged| {
            let points = debugged.client.points();
            let is_said = |point: &Breakpoint| {
                let note = point.note.as_deref().unwrap_or_default();
                note.contains("traced by another tool")
            };
            assert!(!is_said(&points[1]), "{points:?}");
            is_said(&points[0])
        };
        if !is_shared(python) {
            debugged.begin("sys.settrace(lambda *_: None)");
            debugged.ended();
            wait_until("it is said", || is_left_out(&mut debugged));
        }
        debugged.begin("trainer.fit(1)");
        debugged.ended();
        assert_eq!(debugged.client.points()[1].hits, 1);
        debugged.begin("sys.settrace(None)");
        debugged.ended();
        wait_until("it is met", || {
            debugged.begin("fails()");
            debugged.ended();
            debugged.client.points()[0].hits > 0
        });
        assert!(!is_left_out(&mut debugged));
        debugged.client.disarm_all();
        debugged.leaves_no_trace();
    });
}
