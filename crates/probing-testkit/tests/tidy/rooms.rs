//! Rooms of crates: how many there may be, and which may use which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use probing_testkit::root;

use super::files;

/// More modules than this at the root of a crate: a room is missing.
const MAX_ROOT_MODULES: usize = 12;

/// A room, and the rooms that it may use.
type Edges = (&'static str, &'static [&'static str]);

/// Which rooms a room may use. What is not here is a step in the wrong direction: move what both need to a lower room.
const ROOM_EDGES: &[(&str, &[Edges])] = &[
    (
        "probing-probe",
        &[
            (
                "breakpoints",
                &[
                    "eval",
                    "inspect",
                    "instrument",
                    "process",
                    "python",
                    "recording",
                    "requests",
                    "watchpoints",
                ],
            ),
            ("eval", &["process", "python", "requests"]),
            ("inspect", &["eval", "process", "python", "requests"]),
            (
                "instrument",
                &["breakpoints", "inspect", "python", "trace", "watchpoints"],
            ),
            ("process", &[]),
            ("python", &["process"]),
            (
                "recorders",
                &[
                    "inspect",
                    "process",
                    "python",
                    "recording",
                    "requests",
                    "trace",
                ],
            ),
            ("recording", &["process", "python", "requests"]),
            ("requests", &["process", "python"]),
            (
                "server",
                &[
                    "breakpoints",
                    "eval",
                    "inspect",
                    "process",
                    "python",
                    "recorders",
                    "recording",
                    "requests",
                    "trace",
                    "watchpoints",
                ],
            ),
            (
                "trace",
                &[
                    "breakpoints",
                    "instrument",
                    "process",
                    "python",
                    "recording",
                    "requests",
                ],
            ),
            (
                "watchpoints",
                &[
                    "breakpoints",
                    "inspect",
                    "instrument",
                    "process",
                    "python",
                    "recording",
                    "requests",
                ],
            ),
        ],
    ),
    (
        "probing-client",
        &[
            ("archive", &[]),
            ("labels", &[]),
            ("parallel", &[]),
            ("error", &["labels"]),
            ("probe", &["error"]),
            ("stacks", &["archive", "error", "labels", "probe"]),
            ("sampling", &["error", "labels", "stacks"]),
            ("storage", &["error", "probe", "stacks"]),
            ("agent", &["error", "probe", "sampling"]),
            (
                "targets",
                &[
                    "agent", "error", "labels", "parallel", "probe", "sampling", "stacks",
                    "storage",
                ],
            ),
            ("watchpoints", &["error", "probe", "stacks", "targets"]),
        ],
    ),
    (
        "probing-engine",
        &[
            ("functions", &[]),
            ("memory", &[]),
            ("test_baseline", &[]),
            ("columns", &[]),
            ("snapshot", &[]),
            ("error", &["snapshot"]),
            ("tables", &["columns", "functions", "snapshot"]),
            (
                "sources",
                &["columns", "error", "memory", "snapshot", "tables"],
            ),
            ("optimizer", &["sources", "test_baseline"]),
            (
                "session",
                &["functions", "optimizer", "snapshot", "sources"],
            ),
            (
                "answer",
                &["columns", "error", "memory", "snapshot", "sources"],
            ),
            (
                "engine",
                &[
                    "answer",
                    "columns",
                    "error",
                    "functions",
                    "memory",
                    "session",
                    "snapshot",
                    "sources",
                    "tables",
                ],
            ),
        ],
    ),
];

/// Names that say nothing alone. The noun of what it holds is a better one.
const VAGUE_NAMES: &[&str] = &[
    "Aim", "Choice", "Doing", "Held", "Kept", "Known", "Left", "Life", "Look", "Place", "Purse",
    "Seen", "Sight", "Told", "Turn", "Twin", "UnderGil", "Unsaid", "Wish", "Wishes",
];

/// Names of modules that say nothing, or that another word of the project has replaced.
const VAGUE_MODULES: &[&str] = &[
    "armed",
    "arming",
    "common",
    "core",
    "door",
    "elsewhere",
    "ext",
    "glance",
    "helpers",
    "kept",
    "lent",
    "manager",
    "misc",
    "points",
    "purse",
    "sight",
    "strangers",
    "told",
    "util",
    "utils",
    "whose",
];

#[test]
fn a_crate_has_at_most_a_dozen_modules_at_its_root() {
    for source in sources() {
        let modules = modules_at_root(&source);
        assert!(
            modules.len() <= MAX_ROOT_MODULES,
            "{} has {} modules: {modules:?}\nput those that belong together into a room",
            source.display(),
            modules.len()
        );
    }
}

#[test]
fn rooms_use_only_rooms_that_they_may() {
    for (name, allowed) in ROOM_EDGES {
        let source = root().join("crates").join(name).join("src");
        let rooms = modules_at_root(&source);
        for room in &rooms {
            let known = allowed.iter().find(|(from, _)| from == room);
            let (_, may) = known.unwrap_or_else(|| {
                panic!("{name} has a new room {room}: decide in ROOM_EDGES what it may use")
            });
            for (used, file) in rooms_used(&source, room, &rooms) {
                assert!(
                    may.contains(&used.as_str()),
                    "{file} uses the room {used}, which {room} of {name} may not: move what both need to a lower room"
                );
            }
        }
    }
}

#[test]
fn types_and_modules_are_named_by_nouns_of_what_they_hold() {
    for source in sources() {
        for file in files(&source, "rs") {
            let text = fs::read_to_string(&file).unwrap();
            for line in text.lines() {
                let mut words =
                    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
                let is_type = words.any(|word| ["struct", "enum", "trait", "type"].contains(&word));
                let name = words.next().unwrap_or_default();
                assert!(
                    !(is_type
                        && !line.trim_start().starts_with("//")
                        && VAGUE_NAMES.contains(&name)),
                    "{} defines {name}: {}\nname it by the noun of what it holds",
                    file.display(),
                    line.trim()
                );
            }
            let module = file.file_stem().unwrap().to_string_lossy().into_owned();
            assert!(
                !VAGUE_MODULES.contains(&&*module),
                "{}: name the module by the noun of what it holds",
                file.display()
            );
        }
    }
}

/// Documents about the code, and files that comments name, lead to what is there.
#[test]
fn documents_and_comments_name_files_that_exist() {
    let repository: BTreeSet<String> = [
        "crates", "python", "scripts", "tests", "examples", "benches", "docs",
    ]
    .iter()
    .flat_map(|folder| all_files(&root().join(folder)))
    .collect();
    for name in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root().join(name)).unwrap();
        for path in quoted_paths(&text) {
            let is_there = root().join(path.trim_end_matches('/')).exists()
                || repository
                    .iter()
                    .any(|file| file.contains(&format!("/{path}")));
            assert!(is_there, "{name} names {path}, which does not exist");
        }
    }
    for source in sources() {
        let home = source.parent().unwrap();
        let own: BTreeSet<String> = all_files(home).into_iter().collect();
        for file in files(&source, "rs") {
            let text = fs::read_to_string(&file).unwrap();
            let comments = text
                .lines()
                .filter(|line| line.trim_start().starts_with("//"));
            for path in comments
                .flat_map(quoted_paths)
                .filter(|path| Path::new(path).extension().is_some_and(|it| it == "rs"))
            {
                assert!(
                    own.iter().any(|other| other.ends_with(&format!("/{path}"))),
                    "a comment of {} names {path}, which does not exist in this crate",
                    file.display()
                );
            }
        }
    }
}

/// Folders `src` of all crates.
fn sources() -> Vec<std::path::PathBuf> {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    crates
        .map(|entry| entry.unwrap().path().join("src"))
        .collect()
}

fn modules_at_root(source: &Path) -> Vec<String> {
    let entries = fs::read_dir(source)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let names = files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    let mut names: Vec<String> = names
        .filter(|name| name != "lib" && name != "main")
        .collect();
    names.sort();
    names
}

/// Rooms that the files of a room name, each with the first file that does.
fn rooms_used(source: &Path, room: &str, rooms: &[String]) -> BTreeMap<String, String> {
    let mut used = BTreeMap::new();
    let mut own = vec![source.join(format!("{room}.rs"))];
    let folder = source.join(room);
    if folder.is_dir() {
        own.extend(files(&folder, "rs"));
    }
    for file in own {
        let text = fs::read_to_string(&file).unwrap();
        let code: String = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n");
        for (at, found) in code.match_indices("crate::") {
            for name in first_names(&code[at + found.len()..]) {
                if name != room && rooms.contains(&name) {
                    used.entry(name)
                        .or_insert_with(|| file.display().to_string());
                }
            }
        }
    }
    used
}

/// The first name of a path, or of each path of a list in braces.
fn first_names(path: &str) -> Vec<String> {
    let name_of = |text: &str| -> String {
        let is_part = |letter: &char| letter.is_alphanumeric() || *letter == '_';
        text.trim_start().chars().take_while(is_part).collect()
    };
    let Some(list) = path.strip_prefix('{') else {
        return vec![name_of(path)];
    };
    let (mut names, mut depth, mut begin) = (Vec::new(), 0_usize, 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(name_of(&list[begin..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(name_of(&list[begin..at]));
                begin = at + 1;
            }
            _ => {}
        }
    }
    names
}

/// Paths between backticks: of files and folders, without patterns and placeholders.
fn quoted_paths(text: &str) -> Vec<String> {
    let pieces = text.split('`').skip(1).step_by(2);
    let is_path = |piece: &&str| {
        let is_plain = |letter: char| letter.is_alphanumeric() || "_-./".contains(letter);
        let is_file = [".rs", ".py", ".md", ".toml", ".pth"]
            .iter()
            .any(|end| piece.ends_with(end));
        piece.chars().all(is_plain)
            && (is_file || piece.ends_with('/') && piece.len() > 1)
            && !piece.starts_with('/')
            && !piece.starts_with('.')
    };
    pieces.filter(is_path).map(str::to_owned).collect()
}

/// All files below a folder, as paths from the root of the repository.
fn all_files(folder: &Path) -> Vec<String> {
    let mut open = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir()
                && path
                    .file_name()
                    .is_none_or(|name| name != "target" && name != "node_modules")
            {
                open.push(path);
            } else if path.is_file() {
                found.push(path.display().to_string());
            }
        }
    }
    found
}
