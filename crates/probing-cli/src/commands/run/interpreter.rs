//! Whether the Python that a command starts loads the probe: options, `env` and `#!` lines can keep it from that.
//!
//! A command is followed through `env`, through launchers such as `uv run`, and through the first lines of scripts. What
//! a program starts later is not known before it does.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use probing_proto::env::{PATH, PROBING, PYTHONPATH};

/// Programs that start the command among their arguments. What their own options mean is not known here: the first argument
/// that is a Python is taken for the command.
const LAUNCHERS: [&str; 20] = [
    "chrt",
    "conda",
    "doas",
    "hatch",
    "ionice",
    "micromamba",
    "nice",
    "nohup",
    "numactl",
    "pdm",
    "pipenv",
    "poetry",
    "prlimit",
    "rye",
    "setsid",
    "stdbuf",
    "taskset",
    "time",
    "timeout",
    "uv",
];
/// Of scripts that start scripts, and launchers that start launchers.
const MAX_DEPTH: usize = 8;
/// What the kernel reads of a script's first line.
const MAX_FIRST_LINE: u64 = 256;

/// What keeps the hook from being loaded: `python3 -I`, `env -i`.
pub(super) fn without_hook(command: &[OsString]) -> Option<String> {
    let mut command = command.to_vec();
    for _ in 0..MAX_DEPTH {
        let (program, arguments) = command.split_first()?;
        let name = Path::new(program).file_name()?.to_str()?.to_owned();
        if is_python(&name) {
            return option_of_python(&name, arguments);
        }
        command = if name == "env" {
            match command_of_env(arguments) {
                Env::Command(command) => command,
                Env::Without(option) => return Some(option),
            }
        } else if LAUNCHERS.contains(&&*name) {
            let is_command = |word: &OsString| {
                let name = Path::new(word).file_name().and_then(OsStr::to_str);
                name.is_some_and(|name| is_python(name) || name == "env")
            };
            let at = arguments.iter().position(is_command)?;
            arguments[at..].to_vec()
        } else {
            command_of_script(program, arguments)?
        };
    }
    None
}

/// `python`, `python3`, `python3.12`, `python3.13t`
fn is_python(name: &str) -> bool {
    let version = name
        .strip_prefix("python")
        .map(|rest| rest.trim_end_matches('t'));
    version.is_some_and(|rest| {
        rest.chars()
            .all(|letter| letter.is_ascii_digit() || letter == '.')
    })
}

/// The option that makes a Python ignore `PYTHONPATH` (`-E`, `-I`) or `sitecustomize` (`-S`).
fn option_of_python(name: &str, arguments: &[OsString]) -> Option<String> {
    let mut arguments = arguments.iter().map_while(|word| word.to_str());
    while let Some(word) = arguments.next() {
        let letters = word.strip_prefix('-').filter(|rest| !rest.is_empty())?;
        if letters.starts_with('-') {
            continue;
        }
        for (at, letter) in letters.char_indices() {
            match letter {
                'E' | 'I' | 'S' => return Some(format!("{name} -{letter}")),
                // The program begins here.
                'c' | 'm' => return None,
                'W' | 'X' if at + 1 == letters.len() => {
                    arguments.next();
                }
                'W' | 'X' => break,
                // On a `#!` line the kernel gives all that follows as one argument, which Python takes letter by letter.
                _ => {}
            }
        }
    }
    None
}

/// What `env` starts.
enum Env {
    Command(Vec<OsString>),
    /// It takes away what the hook needs.
    Without(String),
}

fn command_of_env(arguments: &[OsString]) -> Env {
    let mut words: Vec<OsString> = arguments.iter().rev().cloned().collect();
    while let Some(word) = words.pop() {
        let Some(text) = word.to_str() else {
            words.push(word);
            break;
        };
        let is_needed = |name: &str| [PYTHONPATH.name, PROBING.name].contains(&name);
        let split = text
            .strip_prefix("-S")
            .or_else(|| text.strip_prefix("-vS"))
            .or_else(|| text.strip_prefix("--split-string="));
        let unset = text.strip_prefix("--unset=").filter(|name| is_needed(name));
        match (text, split, unset) {
            ("-i" | "-" | "--ignore-environment", ..) => {
                return Env::Without(format!("env {text}"));
            }
            ("-S" | "--split-string", ..) => {
                let string = words.pop().unwrap_or_default();
                push_split(&mut words, &string.to_string_lossy());
            }
            (_, Some(string), _) => push_split(&mut words, string),
            ("-u" | "--unset", ..) => {
                let name = words.pop().unwrap_or_default();
                if name.to_str().is_some_and(is_needed) {
                    return Env::Without(format!("env -u {}", name.display()));
                }
            }
            (_, _, Some(name)) => return Env::Without(format!("env -u {name}")),
            ("-C" | "--chdir" | "-a" | "--argv0", ..) => drop(words.pop()),
            _ if text.starts_with('-') => {}
            _ => match text.split_once('=') {
                Some((name, _)) if is_needed(name) => {
                    return Env::Without(format!("env {name}=…"));
                }
                Some(_) => {}
                None => {
                    words.push(word);
                    break;
                }
            },
        }
    }
    words.reverse();
    Env::Command(words)
}

/// The words of a string, before what follows; quotes are rare there, and their words are no options.
fn push_split(words: &mut Vec<OsString>, string: &str) {
    words.extend(string.split_whitespace().rev().map(OsString::from));
}

/// The interpreter on the first line of a script, with its argument and the script.
fn command_of_script(program: &OsStr, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let script = find(program)?;
    let mut first = Vec::new();
    let file = File::open(&script).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.take(MAX_FIRST_LINE).read_to_end(&mut first).ok()?;
    let line = first
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = line.trim_ascii();
    let end = line
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let words = [interpreter, argument.trim_ascii()]
        .into_iter()
        .filter(|word| !word.is_empty());
    let words = words.map(|word| OsString::from_vec(word.to_vec()));
    Some(
        words
            .chain([script.into_os_string()])
            .chain(arguments.iter().cloned())
            .collect(),
    )
}

/// The file that `exec` would find.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = PATH.value()?;
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str, option: Option<&str>) {
        let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        assert_eq!(without_hook(&words).as_deref(), option, "{command}");
    }

    #[test]
    fn options_of_python_that_disable_the_hook_are_known() {
        check("python3 -I train.py", Some("python3 -I"));
        check("/usr/bin/python3.12 -uS train.py", Some("python3.12 -S"));
        check("python -W error -X dev -E -m pkg", Some("python -E"));
        check("python train.py -I", None);
        check("python -m pkg -S", None);
        check("python -Werror -Xdev --version", None);
        check("python -WIgnore -c pass -E", None);
        check("torchrun -I train.py", None);
    }

    #[test]
    fn env_and_launchers_are_followed_to_the_python_that_they_start() {
        check("env python -I train.py", Some("python -I"));
        check(
            "/usr/bin/env A=1 -u HOME python3 -E x.py",
            Some("python3 -E"),
        );
        check("env -S python -I x.py", Some("python -I"));
        check("env -i python x.py", Some("env -i"));
        check("env -u PYTHONPATH python x.py", Some("env -u PYTHONPATH"));
        check("env PYTHONPATH=/x python x.py", Some("env PYTHONPATH=…"));
        check("env python x.py -I", None);
        check("env -", Some("env -"));
        check("env", None);
        check("uv run --with numpy python -I x.py", Some("python -I"));
        check(
            "nice -n 5 env timeout 9 python3.13t -S x.py",
            Some("python3.13t -S"),
        );
        check("uv run x.py", None);
        check("pythonize -I", None);
    }

    #[test]
    fn the_first_line_of_a_script_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("tool");
        let check_line = |line: &str, option: Option<&str>| {
            std::fs::write(&script, format!("{line}\nprint()\n")).unwrap();
            check(&format!("{} -S", script.display()), option);
        };
        check_line("#!/usr/bin/env -S python -I", Some("python -I"));
        check_line("#!/usr/bin/python3 -Es", Some("python3 -E"));
        check_line("#! /usr/bin/env python", None);
        check_line("#!/usr/bin/python3", None);
        check_line("#!/bin/sh -E", None);
        check_line("print()", None);
        check_line("", None);
        // One that is its own interpreter ends.
        check_line(&format!("#!{}", script.display()), None);
    }
}
