//! The prompt for SQL, in a real terminal.

use std::fs;

use probing_testkit::{Python, Sandbox, Screen, Target, every_python};

use crate::sandbox;

pub(super) fn prompt(sandbox: &Sandbox, target: &Target) -> Screen {
    let mut command = sandbox.command();
    command
        .args(["-t", &target.pid().to_string(), "query"])
        .env("XDG_STATE_HOME", sandbox.path().join("state"));
    let screen = Screen::start(&command);
    screen.wait_for("sql>");
    screen
}

#[test]
fn tables_and_columns_are_completed_and_statements_have_several_lines() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "idle.py").start();
        let screen = prompt(&sandbox, &target);
        screen.wait_for("SQL over 1 target.");
        screen.type_text("SELECT name FROM python.th");
        screen.press("Tab");
        screen.wait_for("FROM python.threads");
        screen.press("Enter");
        screen.wait_for("...");
        screen.type_text("WHERE daem");
        screen.press("Tab");
        screen.wait_for("WHERE daemon");
        screen.enter(" = false;");
        screen.wait_for("\nMainThread\n");
        screen.wait_for("1 row in ");
        screen.press("C-d");
        screen.wait_for("ended: 0");
    });
}

#[test]
fn the_prompt_stays_after_errors_and_keeps_its_history() {
    let python = &Python::all()[0];
    let sandbox = sandbox();
    let target = sandbox.target(python, "idle.py").start();
    let screen = prompt(&sandbox, &target);
    screen.enter("SELECT nonsense;");
    screen.wait_for("error: no such column: nonsense");
    screen.enter("\\d");
    screen.wait_for("python.backtrace");
    screen.enter("\\d process.envs");
    screen.wait_for("<redacted> where");
    screen.enter("\\x");
    screen.wait_for("no such command: \\x");
    screen.enter("SELECT 40 + 2 AS answer;");
    screen.wait_for("    42\n");
    screen.enter("exit");
    screen.wait_for("ended: 0");
    let history = fs::read_to_string(sandbox.path().join("state/probing/sql_history")).unwrap();
    assert!(history.contains("SELECT 40 + 2 AS answer;"), "{history}");
    let screen = prompt(&sandbox, &target);
    // The last that was typed is `exit`.
    screen.press("Up");
    screen.press("Up");
    screen.wait_for("sql> SELECT 40 + 2 AS answer;");
}

#[test]
fn rows_are_shown_in_place_and_follow_the_window() {
    let python = &Python::all()[0];
    let sandbox = sandbox();
    let target = sandbox.target(python, "idle.py").start();
    let mut command = sandbox.command();
    command.args([
        "-t",
        &target.pid().to_string(),
        "query",
        "--every",
        "50ms",
        "SELECT state, 'x' AS y FROM process.info",
    ]);
    let screen = Screen::start(&command);
    screen.wait_for("every 0.05 s (Ctrl-C exits)");
    screen.wait_for("asleep  x");
    target.stop();
    screen.wait_for("stopped  x");
    screen.press("C-c");
    screen.wait_for("ended: 0");
    screen.wait_for("stopped  x");
}
