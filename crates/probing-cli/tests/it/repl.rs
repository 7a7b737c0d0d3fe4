//! The prompt, in a real terminal: typed, pasted, completed, interrupted, and left behind by its target.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use probing_testkit::{CommandResult, Sandbox, Screen, Target, every_python, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox;

/// A prompt on a target, ready to be typed at.
pub(crate) fn prompt(sandbox: &Sandbox, target: &Target) -> Screen {
    let mut command = sandbox.command();
    command
        .args(["-t", &target.pid().to_string(), "repl"])
        .env("XDG_STATE_HOME", sandbox.path().join("state"));
    let screen = Screen::start(&command);
    screen.wait_for(">>>");
    screen
}

fn history(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.path().join("state/probing/history")).unwrap_or_default()
}

#[test]
fn code_runs_in_the_live_program_and_its_value_is_kept() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let screen = prompt(&sandbox, &target);
        screen.enter("loss * 4");
        screen.wait_for("\n1.0\n");
        screen.enter("_ + 1");
        screen.wait_for("\n2.0\n");
        screen.enter("loss = 7.5");
        screen.enter("print('printed', loss)");
        screen.wait_for("\nprinted 7.5\n");
        assert_eq!(sandbox.eval(&target, "loss").ok(), "7.5\n");
        screen.press("C-d");
        screen.wait_for("ended: 0");
    });
}

#[test]
fn blocks_are_indented_and_end_with_an_empty_line() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let screen = prompt(&sandbox, &target);
        screen.enter("for number in range(3):");
        screen.wait_for("...");
        // The editor has put in the four spaces.
        screen.enter("if number:");
        screen.enter("print('got', number)");
        screen.press("Enter");
        screen.wait_for("\ngot 1\ngot 2\n");
    });
}

#[test]
fn a_pasted_block_runs_as_it_is() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let screen = prompt(&sandbox, &target);
        screen.paste("def double(x):\n    y = x * 2\n\n    return y\n\nprint('is', double(21))\n");
        screen.press("Enter");
        screen.wait_for("\nis 42\n");
    });
}

#[test]
fn tab_completes_live_names_attributes_keys_and_keywords() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "objects.py");
        let screen = prompt(&sandbox, &target);
        screen.type_text("print(mod");
        screen.complete("print(model");
        screen.type_text(".layers[0].we");
        screen.complete("print(model.layers[0].weight");
        screen.enter(")");
        screen.wait_for("\n0.5\n");
        screen.type_text("settings['learn");
        screen.complete("settings['learning_rate']");
        screen.press("Enter");
        screen.wait_for("\n0.1\n");
        screen.type_text("%thr");
        screen.complete("threads");
        screen.press("C-c");
        // What only code could tell was not run.
        screen.type_text("model.comp");
        screen.complete("model.computed");
        screen.press("C-c");
        screen.enter("touched");
        screen.wait_for("\n[]\n");
    });
}

#[test]
fn enter_runs_a_line_that_tab_knows_no_completion_for() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let screen = prompt(&sandbox, &target);
        screen.type_at_once(&["loss * 8.0", "Tab", "Enter"]);
        screen.wait_for("\n2.0\n");
        // A menu that was open closes when what is typed fits nothing in it.
        screen.type_text("lo");
        screen.press("Tab");
        screen.type_at_once(&["ss * 12.0", "Tab", "Enter"]);
        screen.wait_for("\n3.0\n");
        assert!(!screen.text().contains("NO RECORDS FOUND"));
    });
}

#[test]
fn what_was_typed_is_there_in_the_next_prompt() {
    let sandbox = sandbox();
    every_python(|python| {
        let target = sandbox.probed(python, "idle.py");
        let first = prompt(&sandbox, &target);
        first.enter("loss * 16");
        first.wait_for("\n4.0\n");
        first.press("C-d");
        first.wait_for("ended: 0");
        let second = prompt(&sandbox, &target);
        second.press("Up");
        second.wait_for(">>> loss * 16");
        second.press("Enter");
        second.wait_for("\n4.0\n");
    });
    assert!(history(&sandbox).contains("loss * 16"));
}

#[test]
fn ctrl_c_interrupts_the_code_and_the_prompt_stays() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let screen = prompt(&sandbox, &target);
        screen.enter("print('begun'); exec('while True: pass')");
        screen.wait_for("\nbegun");
        screen.press("C-c");
        screen.wait_for("KeyboardInterrupt");
        screen.enter("loss * 8");
        screen.wait_for("\n2.0\n");
        // At the prompt it drops what is typed, and only that.
        screen.type_at_once(&["nonsense(", "C-c", "loss * 12", "Enter"]);
        screen.wait_for("\n3.0\n");
        screen.enter("for x in range(3):");
        screen.wait_for("...");
        screen.type_at_once(&["C-c", "loss * 16", "Enter"]);
        screen.wait_for("\n4.0\n");
    });
}

#[test]
fn lines_that_are_typed_while_code_runs_are_the_next_ones() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let screen = prompt(&sandbox, &target);
        let held = sandbox.path().join("held");
        let code = format!(
            "import os; print('holds'); exec('while not os.path.exists({:?}): pass')",
            held.display().to_string()
        );
        screen.enter(&code);
        screen.wait_for("\nholds");
        for number in 1..4 {
            screen.enter(&format!("print('line', {number})"));
        }
        fs::write(held, "").unwrap();
        screen.wait_for("\nline 3\n");
        let shown = screen.text();
        let at = |text: &str| {
            shown
                .find(text)
                .unwrap_or_else(|| panic!("no {text:?} in:\n{shown}"))
        };
        assert!(at("\nline 1\n") < at("\nline 2\n") && at("\nline 2\n") < at("\nline 3\n"));
        screen.press("C-d");
        screen.wait_for("ended: 0");
    });
}

#[test]
fn code_that_is_stuck_in_c_can_be_abandoned() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let screen = prompt(&sandbox, &target);
        screen.enter("import threading; held = threading.Lock(); held.acquire(); print('begun'); held.acquire()");
        screen.wait_for("\nbegun");
        screen.press("C-c");
        screen.wait_for("Ctrl-C again abandons it");
        screen.press("C-c");
        screen.wait_for("abandoned: the code is interrupted");
        screen.enter("loss * 4");
        screen.wait_for("\n1.0\n");
    });
}

#[test]
fn questions_and_commands_are_answered() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "objects.py");
        let screen = prompt(&sandbox, &target);
        screen.enter("?model.forward");
        screen.wait_for("forward(self, x, *, scale=1.0)");
        screen.wait_for("Goes through all layers.");
        screen.wait_for("objects.py:");
        screen.enter("settings?");
        screen.wait_for("length");
        screen.press("C-l");
        screen.enter("%bt");
        screen.wait_for("MainThread");
        screen.wait_for("wait_for_the_end");
        screen.enter("%threads");
        screen.wait_for("wait_for_the_end (");
        screen.press("C-l");
        screen.enter("%who");
        screen.wait_for("settings          dict");
        screen.enter("%time sum(range(10))");
        screen.wait_for("took");
        screen.enter("%nonsense");
        screen.wait_for("no such command: %nonsense");
        screen.enter("%help");
        screen.wait_for("list threads with their innermost frames");
    });
}

#[test]
fn code_runs_in_a_frame_that_was_chosen() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "objects.py");
        let screen = prompt(&sandbox, &target);
        screen.enter("%frame 1");
        screen.wait_for("frame 1 >>>");
        screen.wait_for("frame 1 of MainThread (");
        screen.enter("'step', step");
        screen.wait_for("\n('step', 17)\n");
        // Its names are there, too.
        screen.type_text("ste");
        screen.complete("frame 1 >>> step");
        screen.press("C-c");
        screen.enter("?step");
        screen.wait_for("value      17");
        screen.press("C-l");
        screen.enter("%who");
        screen.wait_for("\nstep  int\n");
        screen.enter("%frame 99");
        screen.wait_for("no frame 99: the stack of MainThread");
        screen.enter("%frame");
        screen.enter("step");
        screen.wait_for("NameError");
        screen.enter("%thread nobody");
        screen.wait_for("no thread is named nobody; there are: MainThread (");
        screen.enter("%thread main");
        screen.wait_for("thread MainThread (");
        screen.press("C-l");
        screen.enter("%threads");
        screen.wait_for("→");
        screen.enter("%bt");
        screen.wait_for("Thread MainThread (");
    });
}

#[test]
fn a_target_that_dies_says_so_at_once_and_leaves_the_terminal_sane() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "objects.py");
        let screen = prompt(&sandbox, &target);
        screen.type_text("half a li");
        screen.wait_for("half a li");
        kill_process(Pid::from_raw(target.pid() as i32).unwrap(), Signal::KILL).unwrap();
        screen.wait_for("has ended");
        screen.wait_for("its main thread was in");
        screen.wait_for("ended: 3");
        // What is typed is shown again, line by line.
        screen.enter("sane");
        screen.wait_for("sane\nsane");
    });
}

#[test]
fn a_target_that_dies_while_code_runs_says_so() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let screen = prompt(&sandbox, &target);
        screen.enter("import os, signal; os.kill(os.getpid(), signal.SIGKILL)");
        screen.wait_for("has ended");
        screen.wait_for("ended: 3");
    });
}

#[test]
fn a_narrower_screen_is_no_trouble() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let screen = prompt(&sandbox, &target);
        screen.type_text("'abc' * 2 ");
        screen.resize(40, 20);
        screen.enter("+ 'd'");
        screen.wait_for("'abcabcd'");
    });
}

#[test]
fn two_prompts_on_one_target_do_not_disturb_each_other() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let (first, second) = (prompt(&sandbox, &target), prompt(&sandbox, &target));
        first.enter("'first' + ' value'");
        first.wait_for("'first value'");
        second.enter("'second' + ' value'");
        second.wait_for("'second value'");
        first.enter("_ + '!'");
        first.wait_for("'first value!'");
        second.enter("print('begun'); exec('while True: pass')");
        second.wait_for("\nbegun");
        first.enter("loss * 4");
        first.wait_for("\n1.0\n");
        second.press("C-c");
        second.wait_for("KeyboardInterrupt");
        assert!(!first.text().contains("KeyboardInterrupt"));
    });
}

#[test]
fn without_a_terminal_lines_are_read_and_nothing_is_painted() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let mut command = sandbox.command();
        command
            .args(["-t", &target.pid().to_string(), "repl"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = "loss * 4\nfor i in range(2):\n    print(i)\nelse:\n    print('end')\nx = [\n  1]\nx\n1 / 0\n_";
        child
            .stdin
            .take()
            .unwrap()
            .write_all(lines.as_bytes())
            .unwrap();
        let ran = CommandResult::finished(child);
        assert_eq!(ran.stdout, "1.0\n0\n1\nend\n[1]\n[1]\n", "{ran:?}");
        assert!(
            ran.stderr
                .ends_with("ZeroDivisionError: division by zero\n"),
            "{ran:?}"
        );
        assert!(!ran.stderr.contains('\u{1b}'), "{ran:?}");
        assert_eq!(ran.status, 0, "{ran:?}");
    });
}

#[test]
fn a_prompt_attaches_by_itself_and_leaves_no_eval_behind() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "idle.py").start();
        let screen = prompt(&sandbox, &target);
        screen.wait_for("attached to");
        screen.enter("print('begun'); exec('while True: pass')");
        screen.wait_for("\nbegun");
        drop(screen);
        wait_until("the eval is over", || target.usage().threads == 2);
    });
}
