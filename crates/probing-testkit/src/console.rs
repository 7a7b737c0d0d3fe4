//! The terminal blocks of a document, typed into a shell.
//!
//! A block shows what a user types and what comes. What a user has to wait for (the program is where it hangs) is not in
//! the block: it is here, for each program of `examples`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{Sandbox, root, wait_until};

/// When a program has come to what its example is about: a condition of a shell, in which `$!` is the program and
/// `PROBING_TARGET` are its ranks.
const READY: &[(&str, &str)] = &[
    ("train.py", "probing -t $! eval 'assert step > 210'"),
    (
        "stuck.py",
        "probing -t $! backtrace --thread saver | grep recv && probing -t $! backtrace | grep futex",
    ),
    (
        "stuck_rank.py",
        "probing --ranks all backtrace | grep 'odd one out'",
    ),
    (
        "hang.py",
        "probing --ranks all collectives | grep 'waited for [0-9.]* s$'",
    ),
    ("leak.py", "probing -t $! eval 'assert history'"),
];

/// In a document, the process that a block is about.
const SHOWN_PID: &str = "4242";

/// In a document, the folder that a block is typed in.
const SHOWN_FOLDER: &str = "/home/me";

/// One command of a block and what it shows.
#[derive(Debug, Default)]
pub struct Step {
    pub command: String,
    pub shown: Vec<String>,
}

impl Step {
    /// Whether it looks at what a program does for a while, which on a busy machine may be too little.
    fn takes_a_sample(&self) -> bool {
        [" leak", " top"]
            .iter()
            .any(|word| self.command.contains(word))
    }
}

/// The terminal blocks of a document.
///
/// # Panics
///
/// When there is no such document.
pub fn console_blocks(document: &str) -> Vec<Vec<Step>> {
    let text = std::fs::read_to_string(root().join(document)).expect("the document");
    text.split("```console\n")
        .skip(1)
        .map(|block| steps(block.split("```").next().unwrap_or_default()))
        .collect()
}

/// Whether a program of `examples` that the block starts imports torch.
pub fn needs_torch(block: &[Step]) -> bool {
    let commands = block.iter().map(|step| step.command.as_str());
    commands
        .flat_map(str::split_whitespace)
        .filter_map(|word| std::fs::read_to_string(root().join("examples").join(word)).ok())
        .any(|program| program.contains("\nimport torch\n"))
}

fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                shown: Vec::new(),
            });
        } else if let Some(step) = steps.last_mut() {
            match line.strip_prefix("> ").or(line.strip_prefix('>')) {
                Some(more) => step.command = format!("{}\n{more}", step.command),
                None => step.shown.push(line.to_owned()),
            }
        }
    }
    steps
}

/// A shell in the sandbox, with the programs of `examples` in its folder.
#[derive(Debug)]
pub struct Console<'a> {
    sandbox: &'a Sandbox,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// What the document calls [`SHOWN_PID`].
    pid: String,
}

impl<'a> Console<'a> {
    /// Starts a shell that finds its commands in these folders.
    ///
    /// # Panics
    ///
    /// When there is no bash.
    pub fn start(sandbox: &'a Sandbox, folders: &[&Path]) -> Self {
        for entry in std::fs::read_dir(root().join("examples")).expect("the examples") {
            let program = entry.expect("an example").path();
            let name = program.file_name().expect("a name");
            std::fs::copy(&program, sandbox.path().join(name)).expect("a copy");
        }
        let folders: Vec<String> = folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        let mut child = Command::new("bash")
            .current_dir(sandbox.path())
            .env("PROBING_DIR", sandbox.runtime_dir())
            .env("PROBING_PACKAGE", root().join("python"))
            .env("GLOO_SOCKET_IFNAME", "lo")
            .env("OMP_NUM_THREADS", "1")
            .env("PATH", format!("{}:/usr/bin:/bin", folders.join(":")))
            .env_remove("PROBING_TARGET")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash");
        let mut console = Self {
            sandbox,
            stdin: child.stdin.take().expect("its input"),
            stdout: BufReader::new(child.stdout.take().expect("its output")),
            child,
            pid: SHOWN_PID.to_owned(),
        };
        console.run("exec 2>&1; trap 'kill -KILL $(children) $(jobs -p)' EXIT");
        console
            .run("children() { for job in $(jobs -p); do cat /proc/$job/task/*/children; done; }");
        console
    }

    /// Types each command of a block and compares what comes with what the block shows: each of its lines, in that order.
    /// Numbers may differ, and lines may come that the block leaves out; a command after which the block shows nothing
    /// shows nothing.
    ///
    /// # Panics
    ///
    /// When something else comes.
    pub fn check(&mut self, block: &[Step]) {
        for step in block {
            let command = step.command.replace(SHOWN_PID, &self.pid);
            let mut seen = self.run(&command);
            if step.takes_a_sample() {
                wait_until("it shows", || {
                    let shows = self.missing(step, &seen).is_none();
                    if !shows {
                        seen = self.run(&command);
                    }
                    shows
                });
            }
            let shown = seen.join("\n");
            let is_silent = shown.trim().is_empty();
            assert!(
                is_silent || !step.shown.is_empty(),
                "`{command}` shows:\n{shown}"
            );
            if let Some(missing) = self.missing(step, &seen) {
                panic!("`{command}` does not show `{missing}`:\n{shown}");
            }
            let said = seen.iter().find_map(|line| line.split_once("as process "));
            if let Some((_, pid)) = said {
                pid.clone_into(&mut self.pid);
            }
        }
    }

    /// The first line of a step that did not come.
    fn missing<'s>(&self, step: &'s Step, seen: &[String]) -> Option<&'s str> {
        let folder = self.sandbox.path().display().to_string();
        let mut lines = seen
            .iter()
            .map(|line| scrubbed(&line.replace(&folder, SHOWN_FOLDER)));
        let shown = step.shown.iter().map(String::as_str);
        shown
            .filter(|line| !matches!(line.trim(), "" | "…"))
            .find(|line| !lines.any(|seen| seen.trim() == scrubbed(line).trim()))
    }

    /// What the command shows. A program that it starts is given time to come to what it is about, and is then as it was.
    fn run(&mut self, command: &str) -> Vec<String> {
        writeln!(self.stdin, "{command}\necho; echo over").expect("a shell");
        let mut seen = self.until_over();
        if let Some(started) = command.strip_suffix('&') {
            seen.extend(self.settle(started));
        }
        seen
    }

    /// Waits for a program that runs in the background.
    fn settle(&mut self, command: &str) -> Vec<String> {
        let is_started = |name: &str| command.split_whitespace().any(|word| word == name);
        let ready = READY.iter().find(|(name, _)| is_started(name));
        let (_, ready) = ready.unwrap_or_else(|| panic!("when is it ready? {command}"));
        // Nothing else of this machine is meant by `--ranks all`.
        let ranks =
            "export PROBING_TARGET=$(children | tr -s ' ' '\\n' | sed '/^$/d' | paste -sd,)";
        let leave = if command.contains("PROBING") || command.contains("probing run") {
            "true"
        } else {
            "probing -t $! detach"
        };
        writeln!(
            self.stdin,
            "{{ until {ranks}; {ready}; do kill -0 $! || break; done; {leave}; }} >/dev/null 2>&1; echo $!; echo over"
        )
        .expect("a shell");
        let mut said = self.until_over();
        self.pid = said.pop().expect("a pid");
        said
    }

    fn until_over(&mut self) -> Vec<String> {
        let lines = self.stdout.by_ref().lines().map(|line| line.expect("text"));
        // Bash notices at some time that a program was killed, and says so then.
        let is_notice = |line: &String| line.starts_with("bash: ") && line.contains("Killed");
        lines
            .take_while(|line| line != "over")
            .filter(|line| !is_notice(line))
            .collect()
    }
}

impl Drop for Console<'_> {
    fn drop(&mut self) {
        writeln!(self.stdin, "exit").ok();
        self.child.wait().ok();
    }
}

/// Numbers that differ from run to run (pids, ages, times) as `N`, runs of spaces as one.
pub fn scrubbed(text: &str) -> String {
    let mut scrubbed = String::new();
    for character in text.chars() {
        match (character, scrubbed.chars().last()) {
            ('0'..='9', Some('N')) | (' ', Some(' ')) => {}
            ('0'..='9', _) => scrubbed.push('N'),
            _ => scrubbed.push(character),
        }
    }
    scrubbed
}
