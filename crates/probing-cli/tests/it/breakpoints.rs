//! Breakpoints and watches from the command line: armed, listed, hit, followed, disarmed.

use probing_testkit::{CommandResult, Sandbox, Target, Terminal, every_python, root, wait_until};
use rustix::process::Signal;

use crate::sandbox;
use crate::sets::Job;

/// The line of `steps.py` that carries this mark.
pub(crate) fn line(mark: &str) -> usize {
    let source = std::fs::read_to_string(root().join("tests/targets/steps.py")).unwrap();
    let mark = format!("# @{mark}");
    1 + source
        .lines()
        .position(|line| line.ends_with(&mark))
        .unwrap()
}

/// `probing -t PID …`
pub(crate) fn probing(sandbox: &Sandbox, target: &Target, arguments: &[&str]) -> CommandResult {
    let pid = target.pid().to_string();
    sandbox.probing([&["-t", &pid], arguments].concat())
}

/// Without the folder that the checkout is in.
fn short(text: &str) -> String {
    text.replace(&format!("{}/tests/targets/", root().display()), "")
}

#[test]
fn a_log_breakpoint_is_set_hit_listed_and_deleted() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let place = format!("steps.py:{}", line("sum"));
        let armed = probing(
            &sandbox,
            &target,
            &[
                "break",
                &place,
                "--if",
                "item > 0",
                "--action",
                "log:{item} {found}",
            ],
        );
        let said = short(armed.ok());
        let expected = format!(
            "breakpoint 1: add_up ({place}): logs \"{{item}} {{found}}\"; if item > 0; cost: "
        );
        assert!(said.starts_with(&expected), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        target.say("3");
        assert_eq!(target.line(), "total 6");
        let listed = probing(&sandbox, &target, &["breakpoints"]);
        let listed = short(listed.ok());
        assert!(
            listed.contains("if item > 0; hit 2 times, logged 2 times"),
            "{listed}"
        );
        let sql = "SELECT text FROM python.captures ORDER BY ts";
        let rows = probing(&sandbox, &target, &["query", "--csv", sql]);
        assert_eq!(rows.stdout, "text\n1 0\n2 2\n");
        let sql = "SELECT point, kind, action, func, lineno, hits, fired FROM python.breakpoints";
        let rows = probing(&sandbox, &target, &["query", "--csv", sql]);
        let expected = format!(
            "point,kind,action,func,lineno,hits,fired\n1,line,log,add_up,{},2,2\n",
            line("sum")
        );
        assert_eq!(rows.stdout, expected);
        let disarmed = probing(&sandbox, &target, &["delete", "1"]);
        let expected =
            format!("breakpoint 1 deleted: add_up ({place}); hit 2 times, logged 2 times\n");
        assert_eq!(short(disarmed.ok()), expected);
        target.say("3");
        assert_eq!(target.line(), "total 6");
        assert_eq!(
            probing(&sandbox, &target, &["breakpoints"]).stderr,
            "no breakpoints are set\n"
        );
        let again = probing(&sandbox, &target, &["delete", "1"]);
        assert_eq!(again.status, 1, "{again:?}");
        assert!(again.stderr.contains("no such breakpoint: 1"), "{again:?}");
    });
}

#[test]
fn a_breakpoint_that_was_to_be_met_once_is_over_when_it_was() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let place = format!("steps.py:{}", line("begin"));
        let once = ["break", &place, "--once", "--action", "count"];
        let armed = probing(&sandbox, &target, &once);
        assert!(armed.ok().contains("set until deleted"), "{armed:?}");
        target.say("3");
        assert_eq!(target.line(), "total 6");
        let listed = probing(&sandbox, &target, &["breakpoints"]);
        let end = "; once; hit once; deleted: it was set for one hit\n";
        assert!(listed.ok().ends_with(end), "{listed:?}");
        let listed = probing(&sandbox, &target, &["breakpoints", "--json"]).json();
        assert_eq!(listed["points"][0]["over"], true, "{listed}");
    });
}

#[test]
fn a_place_without_python_code_is_called_what_it_is_at_once() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "steps.py");
        for (place, name) in [("time.sleep", "time.sleep"), ("print", "builtins.print")] {
            let armed = probing(&sandbox, &target, &["break", place, "--action", "count"]);
            let said = format!(": {place} ({name} is a C function, in which Python has no lines: ");
            assert!(armed.stdout.contains(&said), "{armed:?}");
            assert!(!armed.stdout.contains("loaded yet"), "{armed:?}");
        }
        let refused = probing(&sandbox, &target, &["break", "steps.py"]);
        assert_eq!(refused.status, 2, "{refused:?}");
        let said = "no line: write steps.py:LINE";
        assert!(refused.stderr.contains(said), "{refused:?}");
    });
}

#[test]
fn a_stopped_thread_is_seen_from_outside_and_released() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let pid = target.pid().to_string();
        let place = format!("steps.py:{}", line("begin"));
        probing(&sandbox, &target, &["break", &place, "--once"]).ok();
        assert_eq!(
            probing(&sandbox, &target, &["stops"]).stderr,
            "no thread is stopped\n"
        );
        target.say("3");
        wait_until("it has stopped", || {
            !probing(&sandbox, &target, &["stops"]).stdout.is_empty()
        });
        let stops = probing(&sandbox, &target, &["stops"]);
        let said = short(stops.ok());
        let expected = format!(
            "stop 1: MainThread in add_up (steps.py:{}): breakpoint 1; no controlling client",
            line("begin")
        );
        assert!(said.starts_with(&expected), "{said}");
        let json = probing(&sandbox, &target, &["stops", "--json"]).json();
        assert_eq!(json["stops"][0]["frames"][0]["func"], "add_up", "{json}");
        assert_eq!(json["stops"][0]["frames"][1]["func"], "main", "{json}");
        let list = sandbox.probing(["list"]);
        let own = list
            .stdout
            .lines()
            .find(|line| line.trim_start().starts_with(&pid));
        assert!(
            own.unwrap().contains("running (1 thread at a breakpoint)"),
            "{list:?}"
        );
        let list = sandbox.probing(["list", "--json"]).json();
        let own = list
            .as_array()
            .unwrap()
            .iter()
            .find(|process| process["pid"] == target.pid());
        assert_eq!(own.unwrap()["stops"], 1);
        // The rest of the program answers.
        assert_eq!(sandbox.eval(&target, "rate").ok(), "0.5\n");
        let released = probing(&sandbox, &target, &["resume", "all"]);
        assert!(
            released
                .ok()
                .starts_with("stop 1: MainThread resumed at add_up"),
            "{released:?}"
        );
        assert_eq!(target.line(), "total 6");
        assert_eq!(
            probing(&sandbox, &target, &["resume", "all"]).stderr,
            "no thread was stopped\n"
        );
        let wrong = probing(&sandbox, &target, &["resume", "7"]);
        assert_eq!(
            (wrong.status, wrong.stderr.contains("no such stop: 7")),
            (1, true),
            "{wrong:?}"
        );
    });
}

#[test]
fn follow_shows_hits_as_they_happen_and_the_breakpoint_stays() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let place = format!("steps.py:{}", line("price"));
        let mut command = sandbox.command();
        command.args(["-t", &target.pid().to_string(), "break", &place]);
        command.args(["--action", "log:costs {item}", "--follow"]);
        let terminal = Terminal::start(command);
        terminal.wait_for("breakpoint 1: price_of");
        target.say("2");
        terminal.wait_for(&format!("steps.py:{}: costs 0\r\n", line("price")));
        terminal.wait_for("costs 1\r\n");
        terminal.signal(Signal::INT);
        let (status, shown) = terminal.finish();
        assert_eq!(status, 130, "{shown}");
        assert!(shown.contains("the breakpoint stays set"), "{shown}");
        assert_eq!(target.line(), "total 2");
        let armed = probing(&sandbox, &target, &["breakpoints", "--json"]).json();
        assert_eq!(armed["points"][0]["passed"], 2, "{armed}");
    });
}

#[test]
fn a_watchpoint_is_set_followed_and_read_with_sql() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let armed = probing(
            &sandbox,
            &target,
            &["watch", "add_up:found", "--if", "found > 0"],
        );
        let said = short(armed.ok());
        assert!(
            said.starts_with("watch 1: found in add_up (steps.py:"),
            "{said}"
        );
        assert!(
            said.contains("): records changes; if found > 0; cost: "),
            "{said}"
        );
        let mut command = sandbox.command();
        command.args(["-t", &target.pid().to_string(), "watch", "rate", "--follow"]);
        let terminal = Terminal::start(command);
        terminal.wait_for("note: now 0.5");
        target.say("3");
        assert_eq!(target.line(), "total 6");
        assert_eq!(sandbox.eval(&target, "rate = 0.75").ok(), "");
        // Before 3.12 it is seen when a thread of the program runs its next line.
        target.say("0");
        assert_eq!(target.line(), "total 0");
        terminal.wait_for("rate: 0.5 → 0.75\r\n");
        terminal.signal(Signal::INT);
        assert_eq!(terminal.finish().0, 130);
        let listed = probing(&sandbox, &target, &["breakpoints"]);
        assert!(listed.stdout.contains("note: now 0.75"), "{listed:?}");
        let sql = "SELECT name, new FROM python.variables ORDER BY ts";
        let rows = probing(&sandbox, &target, &["query", "--csv", sql]);
        assert_eq!(rows.stdout, "name,new\nfound,2\nfound,6\nrate,0.75\n");
        let sql = "SELECT point, kind, place, hits FROM python.breakpoints";
        let rows = probing(&sandbox, &target, &["query", "--csv", sql]);
        assert_eq!(
            rows.stdout,
            "point,kind,place,hits\n1,local,add_up:found,2\n2,value,rate,1\n"
        );
        let disarmed = probing(&sandbox, &target, &["delete", "all"]);
        assert!(
            disarmed.ok().contains("watch 2 deleted: rate; hit once"),
            "{disarmed:?}"
        );
    });
}

#[test]
fn a_breakpoint_is_set_in_all_targets_at_once_and_failures_are_named() {
    every_python(|python| {
        let job = Job::start(python, &["probed", "probed"]);
        let armed = job.probing((0, 2), &["break", "nowhere_at_all", "--action", "count"]);
        assert_eq!(armed.status, 3, "{armed:?}");
        let told = "ranks 0-1: breakpoint 1: nowhere_at_all (no loaded function is named nowhere_at_all: set for when one is loaded): counts";
        assert!(job.shown(&armed.stdout).starts_with(told), "{armed:?}");
        assert!(armed.stderr.contains("no process here has it"), "{armed:?}");
        let listed = job.probing((0, 1), &["breakpoints", "--json"]).json();
        assert_eq!(
            listed["targets"][1]["report"]["points"][0]["point"], 1,
            "{listed}"
        );
        let disarmed = job.probing((0, 1), &["delete", "all"]);
        let shown = job.shown(&disarmed.stdout);
        assert!(shown.starts_with("ranks 0-1: "), "{disarmed:?}");
    });
}

#[test]
fn a_breakpoint_is_set_in_the_selected_ranks_only() {
    every_python(|python| {
        let mut job = Job::of(python, "steps.py", &["probed", "probed", "probed"]);
        let place = format!("steps.py:{}", line("sum"));
        let arm = [
            "break",
            &place,
            "--if",
            "item > 1",
            "--action",
            "log:{item}",
        ];
        let armed = job.probing((1, 2), &arm);
        assert!(
            job.shown(armed.ok()).starts_with("ranks 1-2: "),
            "{armed:?}"
        );
        for target in &mut job.ranks {
            target.say("3");
            assert_eq!(target.line(), "total 6");
        }
        let asked = |sql: &str| {
            let ran = job.probing((0, 2), &["query", "--csv", sql]);
            job.shown(&ran.stdout)
        };
        let points = asked("SELECT rank, place, hits FROM python.breakpoints ORDER BY rank");
        assert_eq!(
            points,
            format!("rank,place,hits\n1,{place},1\n2,{place},1\n")
        );
        let logged = asked("SELECT rank, text FROM python.captures ORDER BY rank");
        assert_eq!(logged, "rank,text\n1,2\n2,2\n");
        // One is let go, and the other stays armed.
        job.probing((1, 1), &["delete", "all"]).ok();
        let left = asked("SELECT rank FROM python.breakpoints");
        assert_eq!(left, "rank\n2\n");
    });
}

#[test]
fn listing_breakpoints_attaches_no_probe() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "steps.py").start();
        for (command, said) in [
            (&["breakpoints"][..], "no breakpoints are set\n"),
            (&["stops"], "no thread is stopped\n"),
            (&["delete", "all"], "no breakpoints were set\n"),
            (&["resume", "all"], "no thread was stopped\n"),
        ] {
            let ran = probing(&sandbox, &target, command);
            assert_eq!((ran.status, ran.stderr.as_str()), (0, said), "{command:?}");
        }
        let sql = "SELECT count(*) AS armed FROM python.breakpoints";
        let rows = probing(&sandbox, &target, &["query", "--csv", sql]);
        assert_eq!(rows.stdout, "armed\n0\n");
        assert!(sandbox.target_dirs().is_empty());
    });
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_happens() {
    let sandbox = sandbox();
    for (arguments, said) in [
        (&["break", "120"][..], "no file: write train.py:120"),
        (&["break"], "required"),
        (&["break", "f", "--uncaught"], "cannot be used with"),
        (&["break", "f", "--action", "log"], "no text to log"),
        (&["watch"], "required"),
        (
            &["watch", "--addr", "here"],
            "not an address (0x7f0012345678)",
        ),
        (&["delete"], "required"),
        (&["delete", "x"], "not a number from 1 on and not all"),
        (
            &["break", "f", "--stop-timeout", "1,2"],
            "not one time and not three",
        ),
    ] {
        let ran = sandbox.probing([&["-t", "1"], arguments].concat());
        assert_eq!(ran.status, 2, "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{arguments:?}: {ran:?}");
    }
}
