//! The terminal blocks of README.md are what one really sees.
//!
//! Each block is typed into a shell of its own. Numbers may differ, and other processes may be listed, too; everything
//! that the block shows must come, in that order.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use probing_testkit::{Python, Sandbox, root};

use crate::{sandbox, scrubbed};

/// One command of a block and what it shows.
#[derive(Debug, Default)]
struct Step {
    command: String,
    shown: Vec<String>,
}

#[test]
fn every_block_of_the_readme_happens_as_shown() {
    let python = Python::all()
        .into_iter()
        .find(|python| python.version == (3, 12))
        .unwrap_or_else(|| Python::all().remove(0));
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks: Vec<&str> = readme
        .split("```console\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap())
        .collect();
    assert!(
        blocks.len() >= 3,
        "README.md has {} terminal blocks",
        blocks.len()
    );
    for block in blocks {
        let sandbox = sandbox();
        let mut shell = Shell::start(&sandbox, &python);
        for step in steps(block) {
            let seen = shell.run(&step.command);
            let silent = seen.iter().all(String::is_empty);
            assert!(
                silent || !step.shown.is_empty(),
                "`{}` shows:\n{}",
                step.command,
                seen.join("\n")
            );
            let folder = sandbox.path().display().to_string();
            let mut lines = seen
                .iter()
                .map(|line| scrubbed(&line.replace(&folder, "/home/me")));
            for shown in &step.shown {
                let shown = scrubbed(shown);
                assert!(
                    lines.any(|line| line.trim() == shown.trim()),
                    "`{}` does not show `{shown}`:\n{}",
                    step.command,
                    seen.join("\n")
                );
            }
        }
    }
}

#[test]
fn the_demo_tells_its_story() {
    let sandbox = sandbox();
    let mut command = Command::new(root().join("examples/demo"));
    command
        .env("PROBING_DIR", sandbox.runtime_dir())
        .env("PROBING_PACKAGE", root().join("python"))
        .env("PATH", path(&Python::all()[0]));
    let ran = probing_testkit::Ran::to_the_end(command);
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

fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                shown: Vec::new(),
            });
        } else if let Some(more) = line.strip_prefix("> ").or(line.strip_prefix('>')) {
            let step = steps.last_mut().unwrap();
            step.command = format!("{}\n{more}", step.command);
        } else {
            steps.last_mut().unwrap().shown.push(line.to_owned());
        }
    }
    steps
}

/// The command under test and the interpreter as `probing` and `python`.
fn path(python: &Python) -> String {
    let command = std::path::Path::new(env!("CARGO_BIN_EXE_probing"))
        .parent()
        .unwrap();
    let python = python.path.parent().unwrap();
    format!("{}:{}:/usr/bin:/bin", command.display(), python.display())
}

struct Shell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Shell {
    fn start(sandbox: &Sandbox, python: &Python) -> Self {
        std::fs::copy(
            root().join("examples/train.py"),
            sandbox.path().join("train.py"),
        )
        .unwrap();
        let mut child = Command::new("bash")
            .current_dir(sandbox.path())
            .env("PROBING_DIR", sandbox.runtime_dir())
            .env("PROBING_PACKAGE", root().join("python"))
            .env("PATH", path(python))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut shell = Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        shell.run("exec 2>&1; trap 'kill -KILL $(jobs -p)' EXIT");
        shell
    }

    /// What the command shows. A program that it starts is given time to begin, and is then as it was; one that it stops
    /// is given time to stop.
    fn run(&mut self, command: &str) -> Vec<String> {
        writeln!(self.stdin, "{command}\necho; echo over").unwrap();
        if command.ends_with('&') {
            let leave = if command.contains("PROBING") {
                "true"
            } else {
                "probing -t $! detach"
            };
            let begin = "until probing -t $! eval 'assert step'; do kill -0 $!; done";
            writeln!(
                self.stdin,
                "{{ {begin}; {leave}; }} >/dev/null 2>&1; echo over"
            )
            .unwrap();
            self.until_over();
        }
        if command.starts_with("kill -STOP") {
            let stopped = "until grep -q '^State:.T' /proc/$!/status; do kill -0 $!; done";
            writeln!(self.stdin, "{stopped}").unwrap();
        }
        self.until_over()
    }

    fn until_over(&mut self) -> Vec<String> {
        let lines = self.stdout.by_ref().lines().map(Result::unwrap);
        // Bash notices at some time that a program was killed, and says so then.
        let is_notice = |line: &String| line.starts_with("bash: ") && line.contains("Killed");
        lines
            .take_while(|line| line != "over")
            .filter(|line| !is_notice(line))
            .collect()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        writeln!(self.stdin, "exit").ok();
        self.child.wait().ok();
    }
}
