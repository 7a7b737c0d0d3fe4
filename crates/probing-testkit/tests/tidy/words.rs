//! Words: the first line of a file names what it holds, and texts that people read avoid phrases nobody searches for.

use std::fs;
use std::path::{Path, PathBuf};

use probing_testkit::root;

use crate::files;

/// Phrases that say less than the word of the field, and that word.
const REFUSED: &[(&str, &str)] = &[
    ("stranger", "another user, another program"),
    ("goes on", "resumes, keeps running, continues"),
    ("went on", "resumed, continued"),
    ("who only looks", "observer"),
    ("what one does", "Usage, Actions"),
    ("vouches", "certificate not trusted"),
    ("without ado", "at once"),
    ("so many", "N"),
    ("so long", "TIME"),
    ("somebody else", "another client"),
    ("nobody drives", "no controlling client"),
    ("looking on", "observing"),
    ("armed for", "set until"),
    ("brought in", "attached"),
    ("cannot be told", "is unknown"),
];

#[test]
fn the_first_line_of_a_file_is_one_sentence() {
    let found: Vec<String> = files(&root().join("crates"), "rs")
        .iter()
        .filter_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            let first = text.lines().next().unwrap_or_default();
            (!is_one_sentence(first)).then(|| format!("{}: {first}", file.display()))
        })
        .collect();
    assert_eq!(
        found, [""; 0],
        "a file begins with one line: a sentence or a noun that says what it holds, and a period"
    );
}

fn is_one_sentence(line: &str) -> bool {
    let Some(sentence) = line.strip_prefix("//! ") else {
        return false;
    };
    let inside = sentence.trim_end_matches('.');
    let ends = [". ", "? ", "! "];
    let words = inside.split_whitespace().count();
    sentence.ends_with('.') && words > 1 && !ends.iter().any(|end| inside.contains(end))
}

#[test]
fn texts_that_people_read_avoid_phrases_that_say_less() {
    let mut found = Vec::new();
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            found.extend(refused(line).map(|(phrase, better)| {
                let (path, number) = (path.display(), number + 1);
                format!(
                    "{path}:{number}: \"{phrase}\" (better: {better}): {}",
                    line.trim()
                )
            }));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn refused(line: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let line = line.to_lowercase();
    let holds = move |phrase: &str| {
        line.match_indices(phrase).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(char::is_alphanumeric)
        })
    };
    REFUSED.iter().filter(move |(phrase, _)| holds(phrase))
}

/// Documents, help, messages of Rust code as its literals, and the Python package as it is.
fn texts() -> Vec<(PathBuf, String)> {
    let read = |file: &Path| fs::read_to_string(file).unwrap();
    let mut texts = Vec::new();
    let documents =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    let pages = ["docs", "examples"].map(|folder| files(&root().join(folder), "md"));
    let package = files(&root().join("python/probing"), "py");
    let whole = documents
        .into_iter()
        .chain(pages.into_iter().flatten())
        .chain(package);
    texts.extend(whole.map(|file| (file.clone(), read(&file))));
    for file in files(&root().join("crates"), "rs") {
        let name = file
            .strip_prefix(root())
            .unwrap()
            .to_string_lossy()
            .into_owned();
        if !name.contains("/src/") || name.ends_with("tests.rs") {
            continue;
        }
        let text = read(&file);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_help = name.contains("/arguments");
        let text = if is_help {
            code.to_owned()
        } else {
            literals(code)
        };
        texts.push((file, text));
    }
    texts
}

/// The lines of a file with their string literals only.
fn literals(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut is_inside = false;
    for line in code.lines() {
        let is_comment = !is_inside && line.trim_start().starts_with("//");
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next().filter(|_| !is_comment) {
            match letter {
                '\\' if is_inside => {
                    letters.next();
                    kept.push(' ');
                }
                // A quote that is a character, not the end of a text.
                '\'' if !is_inside && letters.peek() == Some(&'"') => {
                    letters.next();
                }
                '"' => is_inside = !is_inside,
                _ if is_inside => kept.push(letter),
                _ => {}
            }
        }
        kept.push('\n');
    }
    kept
}

#[test]
fn a_line_that_says_less_is_found() {
    assert!(is_one_sentence("//! The index of breakpoints."));
    for line in [
        "//! The index of breakpoints",
        "//! The index. It is read with the GIL.",
        "//! Index.",
        "use std::fs;",
    ] {
        assert!(!is_one_sentence(line), "{line}");
    }
    let phrases = |line: &str| -> Vec<&str> { refused(line).map(|(phrase, _)| *phrase).collect() };
    assert_eq!(
        phrases("The thread goes on, Strangers too"),
        ["stranger", "goes on"]
    );
    assert_eq!(phrases("it also manages one"), [""; 0]);
    let code =
        "// \"goes on\"\nlet a = \"went\\n on \\\n  so many\"; let b = '\"'; goes_on(\"x\")\n";
    assert_eq!(literals(code), "\nwent  on  \n  so manyx\n");
}
