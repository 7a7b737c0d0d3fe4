//! A program whose every name is hostile to a terminal: no command lets anything of it be obeyed.
//!
//! `rows` has a row for each command that `probing --help` lists; each is run through a pipe and on a terminal, as it is
//! and in every format that it has.

mod ends;
mod rows;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use probing_testkit::{
    CommandResult, EVIL, EVIL_SHOWN, Python, Sandbox, Target, Terminal, every_python, evil_in,
    forged, obeyed, wait_until,
};
use rustix::process::Signal;

use self::rows::End::{self, Input, Interrupt, Itself};
use self::rows::ROWS;
use self::rows::Says::{self, Anything, Code, Evil};
use self::rows::Way;
use crate::sandbox;

/// The program, and what the placeholders of rows stand for.
struct Hostile {
    sandbox: Sandbox,
    /// Lives as long as this.
    _target: Target,
    pid: String,
    folder: String,
    line: String,
}

impl Hostile {
    fn start(python: &Python) -> Self {
        let sandbox = sandbox();
        let folder = sandbox.path().join("files");
        fs::create_dir(&folder).unwrap();
        let folder = folder.to_str().unwrap().to_owned();
        let target = sandbox
            .target(python, "hostile.py")
            .arg(&folder)
            .arg(EVIL)
            .env("PROBING", "1")
            .env("EVIL", EVIL)
            .start();
        let source = probing_testkit::root().join("tests/targets/hostile.py");
        let source = fs::read_to_string(source).unwrap();
        let line = source.lines().position(|line| line.contains("# @step"));
        Self {
            pid: target.pid().to_string(),
            line: (line.unwrap() + 1).to_string(),
            sandbox,
            _target: target,
            folder,
        }
    }

    fn command(&self, name: &str, of: Option<&str>, arguments: &[&str]) -> Command {
        let mut command = self.sandbox.command();
        command.args(of.iter().flat_map(|of| ["-t", of])).arg(name);
        command.args(arguments.iter().map(|argument| {
            argument
                .replace("@PID", &self.pid)
                .replace("@FOLDER", &self.folder)
                .replace("@LINE", &self.line)
        }));
        command
            .env("XDG_STATE_HOME", self.sandbox.path().join("state"))
            .env("HOME", self.sandbox.path())
            .current_dir(&self.folder);
        command
    }

    /// Runs one way of a row, through a pipe and on a terminal; what is wrong with what it shows.
    fn check(&self, name: &str, of: Option<&str>, way: Way) -> Vec<String> {
        let (end, says, arguments) = way;
        let said = format!("{name} {}", arguments.join(" "));
        // Those that are typed, as well.
        let words: Vec<&str> = match end {
            Input(lines) => arguments.iter().copied().chain([lines]).collect(),
            Itself | Interrupt => arguments.to_vec(),
        };
        let words = words.as_slice();
        let mut wrong = Vec::new();
        let mut add = |how: &str, text: &str, what: Vec<String>| {
            wrong.extend(
                what.iter()
                    .map(|what| format!("{said:?} {how}: {what}\n{text:?}\n")),
            );
        };
        if end != Interrupt {
            let ran = piped(self.command(name, of, arguments), end);
            // What code printed is all that a pipe gets as it is.
            let all = if says == Code {
                ran.stderr.clone()
            } else {
                format!("{}{}", ran.stdout, ran.stderr)
            };
            let is_code = says == Code && !arguments.contains(&"--json");
            if !(is_code || arguments.contains(&"--arrow")) {
                add("through a pipe", &all, wrong_in(&all, says, words));
            }
            if is_code && !format!("{}{}", ran.stdout, ran.stderr).contains(EVIL) {
                add(
                    "through a pipe",
                    &ran.stdout,
                    vec!["what code printed is not whole".to_owned()],
                );
            }
        }
        if let Input(_) = end {
            return wrong;
        }
        let terminal = Terminal::start(self.command(name, of, arguments));
        if end == Interrupt {
            terminal.wait_for(r"\x1b[35;5m");
            terminal.signal(Signal::INT);
        }
        let (_, shown) = terminal.finish();
        add("on a terminal", &shown, wrong_in(&shown, says, words));
        wrong
    }

    fn check_all(&self, name: &str, needs_target: bool, ways: &[Way]) -> Vec<String> {
        let help = self.sandbox.probing([name, "--help"]).stdout;
        let of = needs_target.then_some(self.pid.as_str());
        let mut wrong = Vec::new();
        for (end, says, arguments) in ways.iter().copied() {
            wrong.extend(self.check(name, of, (end, says, arguments)));
            let has_format =
                |option: &&str| ["--csv", "--arrow", "--wide", "--help"].contains(option);
            let takes_json =
                help.contains("--json") && end == Itself && !arguments.iter().any(has_format);
            if takes_json {
                let json: Vec<&'static str> = arguments.iter().copied().chain(["--json"]).collect();
                wrong.extend(self.check(name, of, (end, says, json.leak())));
            }
        }
        wrong
    }
}

fn piped(mut command: Command, end: End) -> CommandResult {
    let Input(lines) = end else {
        return CommandResult::to_the_end(command);
    };
    let file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut &file, lines.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut &file).unwrap();
    let child = command
        .stdin(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    CommandResult::finished(child.unwrap())
}

/// Every character that a terminal would obey and that is not ours; a line that the program forged; nothing hostile at
/// all where some must be.
fn wrong_in(text: &str, says: Says, arguments: &[&str]) -> Vec<String> {
    let mut wrong = obeyed(text);
    wrong.truncate(3);
    // Output of code may have line breaks; so may a quoted field of CSV, and the text of an exception.
    let breaks = |argument: &&str| {
        *argument == "--csv" || argument.contains("raise ") || argument.contains("fail()")
    };
    let may_break = says == Code || arguments.iter().any(breaks);
    if !may_break && let Some(line) = forged(text) {
        wrong.push(format!("a forged line: {line:?}"));
    }
    let shown = text.contains(r"\x1b[35") || text.contains(r"\u001b[35");
    if says == Evil && !shown {
        wrong.push("nothing of the program's words".to_owned());
    }
    wrong
}

/// Those that `probing --help` lists.
fn commands(sandbox: &Sandbox) -> BTreeSet<String> {
    let help = sandbox.probing(["--help"]);
    let (_, groups) = help.ok().split_once("Look:\n").unwrap();
    let (groups, _) = groups.split_once("\n\nArguments:").unwrap();
    let names = groups
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

#[test]
fn every_command_has_a_row() {
    let rows: BTreeSet<String> = ROWS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(rows, commands(&sandbox()));
}

/// Through all commands, on the last Python.
#[test]
fn no_command_lets_a_terminal_obey_a_program() {
    let hostile = Hostile::start(Python::all().last().unwrap());
    let mut wrong = Vec::new();
    for (name, needs_target, ways) in ROWS {
        wrong.extend(hostile.check_all(name, *needs_target, ways));
    }
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// What is cheap, on every Python.
#[test]
fn names_and_values_of_every_python_are_shown_and_not_obeyed() {
    every_python(|python| {
        let hostile = Hostile::start(python);
        let of = Some(hostile.pid.as_str());
        let ways: [(&str, Way); 7] = [
            ("backtrace", (Itself, Evil, &["--all", "--locals"])),
            (
                "backtrace",
                (Itself, Evil, &["--all", "--locals", "--json"]),
            ),
            ("backtrace", (Itself, Evil, &["--tasks"])),
            ("eval", (Itself, Code, &["odd"])),
            ("eval", (Itself, Evil, &["fail()"])),
            (
                "query",
                (Itself, Evil, &["SELECT * FROM python.backtrace", "--csv"]),
            ),
            (
                "break",
                (
                    Itself,
                    Anything,
                    &["hostile.py:@LINE", "--action", "log:{value} {odd}"],
                ),
            ),
        ];
        let wrong: Vec<String> = ways
            .into_iter()
            .flat_map(|(name, way)| hostile.check(name, of, way))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// How long a completion may take.
const AGAIN: Duration = Duration::from_secs(2);

/// What is shown, without the line editor's styles and moves.
fn words(shown: &str) -> String {
    let mut parts = shown.split("\x1b[");
    let mut words = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|letter: char| letter.is_ascii_alphabetic());
        words.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    words
}

/// What completion offers, what the prompt names, what is printed while somebody types.
#[test]
fn prompts_show_what_a_program_calls_its_things() {
    let hostile = Hostile::start(Python::all().last().unwrap());
    let of = Some(hostile.pid.as_str());
    let prompt = Terminal::interactive(hostile.command("repl", of, &[]));
    prompt.wait_for(">>>");
    prompt.type_text("odd\r");
    prompt.wait_for(EVIL_SHOWN);
    prompt.type_text("import sys; print(value, file=sys.stderr); 40 + 2\r");
    prompt.wait_for("\n42");
    prompt.type_text("fail()\r");
    prompt.wait_for("in fail");
    // The names that begin so, one of them hostile.
    prompt.type_text("od");
    // An answer that comes too late for a person is none, and is asked for again: on a loaded machine that happens.
    let mut pressed: Option<Instant> = None;
    wait_until("it offers odder", || {
        let is_there = words(&prompt.shown()).contains("odder");
        if !is_there && pressed.is_none_or(|pressed| pressed.elapsed() > AGAIN) {
            prompt.type_text("\t");
            pressed = Some(Instant::now());
        }
        is_there
    });
    prompt.type_text("\x03");
    prompt.type_text("\x04");
    let (status, shown) = prompt.finish();
    assert_eq!((status, evil_in(&shown)), (0, None), "{shown:?}");

    let debugger = Terminal::interactive(hostile.command("debug", of, &["hostile.py:@LINE"]));
    debugger.wait_for("step (/");
    // Into the function that has a hostile name.
    debugger.type_text("s\r");
    debugger.wait_for(r"FORGED <script>& (/");
    debugger.type_text("display odd\r");
    debugger.wait_for("display odd: ");
    debugger.type_text("w\r");
    debugger.wait_for(r"   0  \x1b[35;5m");
    debugger.type_text("q\r");
    let (_, shown) = debugger.finish();
    assert_eq!(evil_in(&shown), None, "{shown:?}");
}

/// A file that somebody sent, and names of files that are made of what a program says.
#[test]
fn a_hostile_capture_is_shown_and_names_no_files() {
    let hostile = Hostile::start(Python::all().last().unwrap());
    let files = |folder: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect()
    };
    let folder = Path::new(&hostile.folder).to_owned();
    let before = files(&folder);
    let of = Some(hostile.pid.as_str());
    let mut wrong = Vec::new();
    wrong.extend(hostile.check(
        "capture",
        of,
        (Itself, Anything, &["-o", "taken.probe", "--reason", EVIL]),
    ));
    wrong.extend(hostile.check("export", of, (Itself, Anything, &["--parquet", "exported"])));
    wrong.extend(hostile.check("flamegraph", of, (Itself, Anything, &["--for", "0.2"])));
    for name in files(&folder)
        .difference(&before)
        .chain(&files(&folder.join("exported")))
    {
        assert!(obeyed(name).is_empty() && !name.contains(".."), "{name:?}");
    }
    let capture = Some("taken.probe");
    let ways: [(&str, Way); 6] = [
        ("backtrace", (Itself, Evil, &["--all", "--locals"])),
        ("backtrace", (Itself, Evil, &["--tasks"])),
        ("backtrace", (Itself, Evil, &["--all", "--json"])),
        (
            "query",
            (Itself, Evil, &["SELECT * FROM python.threads", "--csv"]),
        ),
        (
            "query",
            (
                Itself,
                Anything,
                &["SELECT * FROM hostile LIMIT 2", "--json"],
            ),
        ),
        (
            "debug",
            (Input("w\na\nl\nstops\np EVIL\np value\nq\n"), Evil, &[]),
        ),
    ];
    for (name, way) in ways {
        wrong.extend(hostile.check(name, capture, way));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
