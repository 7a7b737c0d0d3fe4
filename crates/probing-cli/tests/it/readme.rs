//! The terminal blocks and the picture of README.md are what a user sees.

use std::path::Path;
use std::process::Command;

use probing_testkit::{CommandResult, Console, Python, console_blocks, needs_torch, root};

use crate::sandbox;

fn python() -> Python {
    let mut all = Python::all();
    let usual = all.iter().position(|python| python.version == (3, 12));
    all.swap_remove(usual.unwrap_or(0))
}

/// Where the command under test is.
fn command() -> &'static Path {
    let command = Path::new(env!("CARGO_BIN_EXE_probing"));
    command.parent().unwrap()
}

/// The command under test and the interpreter as `probing` and `python`.
fn path(python: &Python) -> String {
    let folders = [command(), python.path.parent().unwrap()];
    let [command, python] = folders.map(|folder| folder.display().to_string());
    format!("{command}:{python}:/usr/bin:/bin")
}

#[test]
fn every_block_of_the_readme_happens_as_shown() {
    let python = python();
    let blocks = console_blocks("README.md");
    let blocks: Vec<_> = blocks.iter().filter(|block| !needs_torch(block)).collect();
    assert!(blocks.len() >= 3, "{blocks:?}");
    for block in blocks {
        let sandbox = sandbox();
        let folders = [command(), python.path.parent().unwrap()];
        Console::start(&sandbox, &folders).check(block);
    }
}

/// The outputs of a block are short: a README is read, not studied.
#[test]
fn no_block_of_the_readme_shows_more_than_eight_lines() {
    for block in console_blocks("README.md") {
        let shown: usize = block.iter().map(|step| step.shown.len()).sum();
        assert!(shown <= 8, "{shown} lines: {block:?}");
    }
}

#[test]
fn the_picture_of_the_readme_is_a_session_that_happens() {
    let mut script = Command::new(root().join("scripts/terminal-picture"));
    script
        .env("PROBING_PACKAGE", root().join("python"))
        .env("PATH", path(&python()));
    let ran = CommandResult::to_the_end(script);
    let picture = std::fs::read_to_string(root().join("docs/terminal.svg")).unwrap();
    assert_eq!(
        ran.ok(),
        picture,
        "docs/terminal.svg is stale: scripts/terminal-picture > docs/terminal.svg"
    );
}

#[test]
fn the_demo_tells_its_story() {
    let sandbox = sandbox();
    let mut command = Command::new(root().join("examples/demo"));
    command
        .env("PROBING_DIR", sandbox.runtime_dir())
        .env("PROBING_PACKAGE", root().join("python"))
        .env("PATH", path(&Python::all()[0]));
    let ran = CommandResult::to_the_end(command);
    assert_eq!(ran.status, 0, "{ran:?}");
    for expected in [
        "attached to",
        "running",
        "loss nan",
        "[nan, nan, nan, nan]",
        "\n[3]\n",
        "TypeError: 'int' object is not iterable",
        "none",
    ] {
        assert!(ran.stdout.contains(expected), "no `{expected}` in {ran:?}");
    }
}
