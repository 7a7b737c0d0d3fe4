//! The debugger: commands from a pipe and keys in a terminal, at threads that stop.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use probing_testkit::{CommandResult, Sandbox, Screen, Target, every_python, wait_until};

use crate::breakpoints::{line, probing};
use crate::sandbox;

/// A debugger that reads these commands, started before its target is told to `go`.
fn debugged(
    sandbox: &Sandbox,
    target: &mut Target,
    place: &[&str],
    (go, commands): (&str, &str),
) -> CommandResult {
    let mut command = sandbox.command();
    command
        .args(["-t", &target.pid().to_string(), "debug"])
        .args(place);
    command.env("XDG_STATE_HOME", sandbox.path().join("state"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it is armed", || {
        let armed = probing(sandbox, target, &["breakpoints"]);
        !armed.stdout.is_empty()
    });
    target.say(go);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(commands.as_bytes())
        .unwrap();
    CommandResult::finished(child)
}

/// Numbered source lines, places and values, without paths and what costs and times are.
fn seen(ran: &CommandResult) -> Vec<String> {
    let lines = ran.stdout.lines();
    lines
        .map(|line| {
            line.split("  [MainThread")
                .next()
                .unwrap_or(line)
                .trim_end()
                .to_owned()
        })
        .collect()
}

#[track_caller]
fn expect(ran: &CommandResult, wanted: &[&str]) {
    let seen = seen(ran);
    let mut rest = seen.iter();
    for wanted in wanted {
        assert!(
            rest.any(|line| line.contains(wanted)),
            "{wanted:?} is missing, or in another order: {ran:?}"
        );
    }
}

#[test]
fn a_script_looks_around_steps_and_lets_go() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        looks_around(&sandbox, &mut target);
    });
}

#[test]
fn a_script_steps_where_lines_are_recorded_as_anywhere() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        for function in ["add_up", "price_of"] {
            probing(&sandbox, &target, &["trace", function, "--lines"]);
        }
        looks_around(&sandbox, &mut target);
        let sql = "select func, count(*) from python.trace_event where kind = 'line' group by func order by 1";
        let counted = probing(&sandbox, &target, &["query", "--csv", sql]);
        assert!(
            counted.stdout.ends_with("add_up,7\nprice_of,4\n"),
            "{counted:?}"
        );
    });
}

/// Stops, steps in and out, assigns.
fn looks_around(sandbox: &Sandbox, target: &mut Target) {
    let (begin, sum, price) = (line("begin"), line("sum"), line("price"));
    let commands = "w\na\np count\nn\nn\ns\np item\nu\np item, found\nd\nr\nn\nfound = 40\np None\nwhatis found\nq\n";
    let place = format!("steps.py:{begin}");
    let ran = debugged(sandbox, target, &[&place], ("2", commands));
    assert_eq!(ran.status, 0, "{ran:?}");
    expect(
        &ran,
        &[
            "> add_up (",
            &format!("{begin} ->     found = extra"),
            "main (",
            ">   0  add_up (",
            "count = 2",
            "extra = 0",
            "more = ()",
            "2",
            &format!("{} ->     for item in range(count)", begin + 1),
            &format!("{sum} ->         found += price_of(item)"),
            &format!("{price} ->     cost = item * 2"),
            "0",
            "> add_up (",
            "(0, 0)",
            "> price_of (",
            "  returns 0",
            &format!("{} ->", begin + 1),
            "None",
            "<class 'int'>",
        ],
    );
    assert!(ran.stderr.contains("the program runs"), "{ran:?}");
    // What was assigned at the stop the program has used, and nothing is left armed.
    assert_eq!(target.line(), "total 42");
    let armed = probing(sandbox, target, &["breakpoints"]);
    assert_eq!(armed.stderr, "no breakpoints are set\n");
}

#[test]
fn breakpoints_come_and_go_at_the_prompt() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let (begin, price) = (line("begin"), line("price"));
        let commands = format!("tbreak {price}, item == 1\nb\nc\np item\nq\n");
        let place = format!("steps.py:{begin}");
        let ran = debugged(&sandbox, &mut target, &[&place], ("3", &commands));
        assert_eq!(ran.status, 0, "{ran:?}");
        expect(
            &ran,
            &[
                "> add_up (",
                "breakpoint 2: price_of (",
                "> price_of (",
                "1",
            ],
        );
        assert!(ran.stderr.contains("breakpoint 2"), "{ran:?}");
        assert_eq!(target.line(), "total 6");
        let armed = probing(&sandbox, &target, &["breakpoints"]);
        assert!(!armed.stdout.contains("add_up"), "{armed:?}");
    });
}

#[test]
fn displayed_values_follow_the_steps_and_mistakes_are_said() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let commands = "display found\nn\nundisplay\nn\nnope\nj x\nup 9\nl .\nh n\n";
        let place = format!("steps.py:{}", line("begin"));
        let ran = debugged(&sandbox, &mut target, &[&place], ("2", commands));
        assert_eq!(ran.status, 0, "{ran:?}");
        expect(
            &ran,
            &[
                "display found: raises NameError",
                "display found: 0  [was: raises NameError",
                "> <module> (",
                "-> main()",
                "n, next",
            ],
        );
        assert!(
            ran.stderr.contains("NameError: name 'nope' is not defined"),
            "{ran:?}"
        );
        assert!(ran.stderr.contains("j needs a number: x"), "{ran:?}");
        assert_eq!(target.line(), "total 2");
    });
}

#[test]
fn at_a_terminal_there_are_completion_history_and_a_prompt_in_the_frame() {
    every_python(|python| {
        let place = format!("steps.py:{}", line("begin"));
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let mut command = sandbox.command();
        command
            .args(["-t", &target.pid().to_string(), "debug", &place])
            .env("XDG_STATE_HOME", sandbox.path().join("state"));
        let screen = Screen::start(&command);
        screen.wait_for("waiting for breakpoint 1; Ctrl-C exits");
        target.say("2");
        screen.wait_for("-> ");
        screen.wait_for(&format!("steps.py:{} (", line("begin")));
        screen.type_text("p cou");
        screen.complete("p count");
        screen.press("Enter");
        screen.wait_for("\n2\n");
        screen.type_text("undis");
        screen.complete("undisplay");
        screen.press("C-c");
        screen.enter("n");
        screen.wait_for(&format!("steps.py:{} (", line("begin") + 1));
        // An empty line is the step again.
        screen.press("Enter");
        screen.wait_for(&format!("steps.py:{} (", line("sum")));
        screen.enter("interact");
        screen.wait_for(">>>");
        screen.enter("found + 100");
        screen.wait_for("\n100\n");
        screen.press("C-d");
        let prompt = format!("steps.py:{} (", line("sum"));
        let is_last = |screen: &str| screen.lines().last().is_some_and(|it| it.contains(&prompt));
        screen.wait_until("the prompt of the debugger again", is_last);
        screen.enter("q");
        screen.wait_for("ended: 0");
        assert_eq!(target.line(), "total 2");
        let history =
            fs::read_to_string(sandbox.path().join("state/probing/debug_history")).unwrap();
        assert!(history.contains("p count"), "{history}");
    });
}

#[test]
fn ctrl_c_leaves_while_nothing_stops_and_takes_its_breakpoint_along() {
    every_python(|python| {
        let place = format!("steps.py:{}", line("begin"));
        let sandbox = sandbox();
        let target = sandbox.probed(python, "steps.py");
        let mut command = sandbox.command();
        command.args(["-t", &target.pid().to_string(), "debug", &place]);
        let screen = Screen::start(&command);
        screen.wait_for("waiting for breakpoint 1; Ctrl-C exits");
        screen.press("C-c");
        screen.wait_for("ended: 0");
        assert_eq!(
            probing(&sandbox, &target, &["breakpoints"]).stderr,
            "no breakpoints are set\n"
        );
    });
}

#[test]
fn a_debugger_whose_breakpoint_has_expired_waits_no_longer() {
    every_python(|python| {
        let place = format!("steps.py:{}", line("begin"));
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let mut command = sandbox.command();
        command.args(["-t", &target.pid().to_string(), "debug", &place]);
        let screen = Screen::start(command.args(["--for", "0.2"]));
        screen.wait_for("breakpoint 1 deleted: expired");
        screen.wait_for("no breakpoint is left to wait for");
        let listed = probing(&sandbox, &target, &["breakpoints"]).stdout;
        assert!(listed.contains("deleted: expired"), "{listed}");
        assert!(!listed.contains("expires in"), "{listed}");
        let told = probing(&sandbox, &target, &["breakpoints", "--json"]).stdout;
        assert!(told.contains("\"over\": true"), "{told}");
        assert!(!told.contains("expires_in_millis"), "{told}");
        // It is a prompt as any other; what is met once stops still.
        screen.enter(&format!("tbreak {place}"));
        screen.wait_for("breakpoint 2: add_up");
        screen.enter("c");
        screen.wait_for("waiting for breakpoint 2");
        target.say("2");
        screen.wait_for("-> ");
        screen.enter("q");
        screen.wait_for("ended: 0");
        assert_eq!(target.line(), "total 2");
    });
}

#[test]
fn an_observer_hears_that_it_now_controls_the_thread() {
    every_python(|python| {
        let place = format!("steps.py:{}", line("begin"));
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let pid = target.pid().to_string();
        let debugger = |arguments: &[&str]| {
            let mut command = sandbox.command();
            command.args(["-t", &pid, "debug"]).args(arguments);
            Screen::start(&command)
        };
        let first = debugger(&[&place]);
        first.wait_for("waiting for breakpoint 1");
        target.say("2");
        first.wait_for("-> ");
        let second = debugger(&[]);
        second.wait_for("another client controls it: observe, or `take` control");
        drop(first);
        second.wait_for("you control it now");
        second.enter("take");
        second.wait_for("you control it already");
        second.enter("q");
        second.wait_for("ended: 0");
        assert_eq!(target.line(), "total 2");
    });
}

#[test]
fn a_second_client_observes_and_may_take_control() {
    every_python(|python| {
        let place = format!("steps.py:{}", line("begin"));
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let pid = target.pid().to_string();
        let debugger = |arguments: &[&str]| {
            let mut command = sandbox.command();
            command.args(["-t", &pid, "debug"]).args(arguments);
            Screen::start(&command)
        };
        let first = debugger(&[&place]);
        first.wait_for("waiting for breakpoint 1");
        target.say("2");
        first.wait_for("-> ");
        let second = debugger(&[]);
        second.wait_for("another client controls it: observe, or `take` control");
        second.enter("n");
        second.wait_for("error");
        second.enter("take");
        second.wait_for("you control it now");
        first.wait_for("another client controls it now; `take` takes control");
        second.enter("n");
        second.wait_for(&format!("{} ->", line("begin") + 1));
        // Who looks on sees the step, too.
        first.wait_for(&format!("{} ->", line("begin") + 1));
        second.enter("q");
        second.wait_for("ended: 0");
        assert_eq!(target.line(), "total 2");
        first.wait_for("thread resumed: a client asked for it");
        first.press("C-c");
        first.wait_for("ended: ");
    });
}

#[test]
fn a_client_that_takes_control_is_not_notified_of_an_older_controller() {
    every_python(|python| {
        let place = format!("steps.py:{}", line("begin"));
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let pid = target.pid().to_string();
        let debugger = |arguments: &[&str]| {
            let mut command = sandbox.command();
            command.args(["-t", &pid, "debug"]).args(arguments);
            Screen::start(&command)
        };
        let first = debugger(&[&place]);
        first.wait_for("waiting for breakpoint 1");
        target.say("2");
        first.wait_for("-> ");
        let second = debugger(&[]);
        second.wait_for("another client controls it: observe, or `take` control");
        let count = |screen: &Screen, words: &str| screen.text().matches(words).count();
        for round in 1..=4 {
            let (taker, other) = if round % 2 == 1 {
                (&second, &first)
            } else {
                (&first, &second)
            };
            let (before, lost) = (
                count(taker, "you control it now"),
                count(other, "another client controls it now"),
            );
            taker.enter("take");
            taker.wait_until("it is taken", |text| {
                text.matches("you control it now").count() == before + 1
            });
            other.wait_until("it is told", |text| {
                text.matches("another client controls it now").count() == lost + 1
            });
            // All that was on its way has been said before the answer to this.
            taker.enter(&format!("p 1000 + {round}"));
            taker.wait_for(&format!("{}", 1000 + round));
            let text = taker.text();
            let (_, after) = text.rsplit_once("you control it now").unwrap();
            assert!(!after.contains("another client controls it"), "{text}");
            taker.enter("take");
            taker.wait_for("you control it already");
        }
        first.enter("q");
        first.wait_for("ended: ");
        second.enter("q");
        second.wait_for("ended: ");
    });
}

#[test]
fn a_script_lists_a_function_runs_until_a_line_jumps_and_clears() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "steps.py");
        let (begin, sum, end) = (line("begin"), line("sum"), line("end"));
        let commands =
            format!("ll\npp {{'a': count}}\nn\nunt\nunt {end}\nj {begin}\np found\ncl 1\nq\n");
        let place = format!("steps.py:{begin}");
        let ran = debugged(&sandbox, &mut target, &[&place], ("2", &commands));
        assert_eq!(ran.status, 0, "{ran:?}");
        expect(
            &ran,
            &[
                &format!("{}    def add_up(count, *more, extra=0):", begin - 1),
                &format!("{begin} ->     found = extra"),
                &format!("{end}        return found"),
                "{'a': 2}",
                &format!("{} ->     for item in range(count)", begin + 1),
                &format!("{sum} ->         found += price_of(item)"),
                &format!("{end} ->     return found"),
                &format!("{begin} ->     found = extra"),
                "2",
            ],
        );
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(said.contains("breakpoint 1 deleted"), "{ran:?}");
        assert_eq!(target.line(), "total 2");
    });
}
