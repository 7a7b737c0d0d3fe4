//! The programs with a fault in `examples`, and the commands of its README that find it.

use std::process::Command;

use probing_testkit::{
    CommandResult, Console, Python, Sandbox, console_blocks, needs_torch, root, wait_until,
};

use crate::{job, sandbox};

/// The commands of a section, with the process that they are for.
fn commands(section: &str, pid: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("examples/README.md")).unwrap();
    let (_, from) = readme.split_once(&format!("\n## {section}\n")).unwrap();
    let text = from.split("\n## ").next().unwrap();
    let commands: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .map(|command| command.replace("4242", pid))
        .collect();
    assert!(commands.len() > 1, "{section}");
    commands
}

/// In the folder of the project, where `python` has torch.
fn shell(sandbox: &Sandbox, command: &str) -> Command {
    let ours = std::path::Path::new(env!("CARGO_BIN_EXE_probing"));
    let python = Python::with_torch().path;
    let path = [ours, &python].map(|program| program.parent().unwrap().display().to_string());
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &format!("exec {command}")])
        .current_dir(root())
        .env("PROBING_DIR", sandbox.runtime_dir())
        .env("PROBING_PACKAGE", root().join("python"))
        .env("PATH", format!("{}:/usr/bin:/bin", path.join(":")));
    shell
}

fn pid_in(line: &str) -> String {
    let pid = line.strip_prefix("training, as process ");
    pid.unwrap_or_else(|| panic!("{line}")).to_owned()
}

#[test]
fn a_slow_module_is_found() {
    let sandbox = sandbox();
    let start = &commands("A slow module", "")[0];
    let start = start.strip_suffix(" &").unwrap().to_owned();
    let mut target = sandbox
        .target_command(shell(&sandbox, &start))
        .start_without_waiting();
    let pid = pid_in(&target.line());
    let run = |command: &str| CommandResult::to_the_end(shell(&sandbox, command));
    let commands = commands("A slow module", &pid);
    let [_, on, slowest, off] = commands.as_slice() else {
        panic!("{commands:?}");
    };
    assert_eq!(run(on).status, 0);
    wait_until("all four were called", || {
        run(slowest).stdout.contains("blocks.3.rescale")
    });
    let slowest = run(slowest);
    let rows: Vec<Vec<&str>> = slowest
        .stdout
        .lines()
        .skip(2)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 4, "{slowest:?}");
    assert_eq!(rows[0][..2], ["blocks.2.rescale", "SlowRescale"]);
    assert!(run(off).ok().starts_with("off"));
}

#[test]
fn where_a_nan_began_is_found_after_the_end() {
    let sandbox = sandbox();
    let start = &commands("A NaN", "")[0];
    // A shell cannot `exec` an assignment.
    let ran = CommandResult::to_the_end(shell(&sandbox, &format!("env {start}")));
    assert_eq!(
        (ran.status, ran.stderr.as_str()),
        (1, "step 57: the loss is nan\n")
    );
    let pid = pid_in(ran.stdout.trim_end());
    let found = CommandResult::to_the_end(shell(&sandbox, &commands("A NaN", &pid)[1]));
    let mut lines = found.ok().lines();
    assert_eq!(
        lines.next().unwrap(),
        format!("step 57: output of 2.standardize has 16 NaN, 0 Inf of 128 (pid {pid})")
    );
    let input = lines
        .find(|line| line.trim_start().starts_with("input"))
        .unwrap();
    assert!(input.contains("(8, 16) float32"), "{found:?}");
}

#[test]
fn the_blocks_of_the_readme_that_need_torch_happen_as_shown() {
    let command = std::path::Path::new(env!("CARGO_BIN_EXE_probing"));
    let (python, torchrun) = (Python::with_torch().path, job::torchrun());
    let folders = [command, &python, &torchrun].map(|program| program.parent().unwrap());
    let blocks = console_blocks("README.md");
    let blocks: Vec<_> = blocks.iter().filter(|block| needs_torch(block)).collect();
    assert!(blocks.len() >= 2, "{blocks:?}");
    for block in blocks {
        let sandbox = sandbox();
        Console::start(&sandbox, &folders).check(block);
    }
}
