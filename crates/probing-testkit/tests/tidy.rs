//! Rules of the repository that a compiler does not know.
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/rooms.rs"]
mod rooms;
#[path = "tidy/words.rs"]
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use probing_testkit::{documents, root};

/// Which crates of ours a crate may use. The order is the way of the data.
const EDGES: &[(&str, &[&str])] = &[
    ("probing-proto", &[]),
    ("probing-store", &["probing-proto"]),
    ("probing-trap", &[]),
    (
        "probing-probe",
        &["probing-proto", "probing-store", "probing-trap"],
    ),
    ("probing-process", &["probing-proto"]),
    ("probing-attach", &["probing-proto", "probing-process"]),
    ("probing-stacks", &["probing-proto", "probing-process"]),
    (
        "probing-watchpoint",
        &["probing-proto", "probing-process", "probing-trap"],
    ),
    (
        "probing-client",
        &[
            "probing-proto",
            "probing-watchpoint",
            "probing-store",
            "probing-process",
            "probing-attach",
            "probing-stacks",
            "probing-capture",
        ],
    ),
    (
        "probing-engine",
        &[
            "probing-proto",
            "probing-store",
            "probing-capture",
            "probing-client",
        ],
    ),
    ("probing-capture", &["probing-proto"]),
    ("probing-dap", &["probing-proto", "probing-client"]),
    (
        "probing-agent",
        &[
            "probing-proto",
            "probing-store",
            "probing-client",
            "probing-engine",
        ],
    ),
    (
        "probing-cli",
        &[
            "probing-proto",
            "probing-store",
            "probing-client",
            "probing-engine",
            "probing-agent",
            "probing-capture",
            "probing-dap",
        ],
    ),
    ("probing-testkit", &["probing-proto", "probing-engine"]),
];

/// What must not be in a crate's tree, at any depth.
const BANS: &[(&str, &[&str])] = &[
    (
        "probing-probe",
        &[
            "tokio",
            "axum",
            "hyper",
            "datafusion",
            "arrow",
            "clap",
            "rustls",
            "anyhow",
            "regex",
        ],
    ),
    ("probing-proto", &["pyo3", "tokio", "rustix", "libc"]),
    ("probing-store", &["pyo3", "tokio", "arrow", "datafusion"]),
    ("probing-process", &["pyo3", "tokio"]),
    ("probing-attach", &["pyo3", "tokio"]),
    ("probing-stacks", &["pyo3", "tokio"]),
    ("probing-client", &["pyo3", "tokio", "clap", "datafusion"]),
    (
        "probing-dap",
        &["pyo3", "tokio", "clap", "datafusion", "anyhow"],
    ),
    ("probing-engine", &["pyo3", "clap", "rcgen"]),
    ("probing-agent", &["pyo3", "clap"]),
    ("probing-cli", &["pyo3"]),
];

#[test]
fn crates_use_only_what_they_may() {
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let (_, allowed) = EDGES
            .iter()
            .find(|(from, _)| *from == name)
            .unwrap_or_else(|| panic!("{name} is not in EDGES: decide what it may use"));
        for used in ours(package) {
            assert!(
                allowed.contains(&used.as_str()),
                "{name} must not use {used}"
            );
        }
    }
}

#[test]
fn heavy_things_stay_out_of_the_target() {
    let metadata = metadata();
    for (name, banned) in BANS {
        let tree = tree_of(&metadata, name);
        for ban in *banned {
            assert!(!tree.contains(*ban), "{name} has {ban} in its tree");
        }
    }
}

/// Cargo gives a crate the features that the packages being built ask for. Were they others for the engine alone than
/// for the workspace, `DataFusion` would be compiled anew for each choice of packages: ten minutes each time.
#[test]
fn the_engines_crates_are_compiled_once_whatever_is_built() {
    let features = |choice: &[&str]| -> BTreeSet<String> {
        let ran = Command::new(env!("CARGO"))
            .current_dir(root())
            .args([
                "tree",
                "--locked",
                "--offline",
                "--prefix",
                "none",
                "--edges",
                "normal",
            ])
            .args(["--format", "{p} [{f}]", "--target"])
            .arg(format!("{ARCH}-unknown-linux-gnu"))
            .args(choice)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let lines = text.lines().map(|line| line.trim_end_matches(" (*)"));
        // Ours are named with their folders.
        lines
            .filter(|line| !line.contains("(/"))
            .map(str::to_owned)
            .collect()
    };
    let alone = features(&["--package", "probing-engine"]);
    for choice in [
        ["--workspace"].as_slice(),
        &["--package", "probing-cli"],
        &["--package", "probing-testkit"],
    ] {
        let together = features(choice);
        let other: Vec<&String> = alone.difference(&together).collect();
        assert!(
            other.is_empty(),
            "give these, in crates/probing-engine/Cargo.toml, the features that `cargo tree {}` shows: {other:#?}",
            choice.join(" ")
        );
    }
}

#[test]
fn every_file_says_why_it_is_there() {
    for file in files(&root().join("crates"), "rs") {
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("//! "),
            "no `//!` at the top of {}",
            file.display()
        );
    }
    for file in files(&root().join("python"), "py") {
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("\"\"\""),
            "no docstring at the top of {}",
            file.display()
        );
    }
}

/// Functions of Python that may run the program's code, and with it the end of a thread. `pyo3` declares them as ones that
/// never unwind; the compiler, which knows one function by a name, has believed that of guarded calls, too.
const GUARDED: [&str; 2] = ["Py_DecRef", "PyObject_Call"];

#[test]
fn code_of_the_program_is_called_through_one_file_of_the_probe() {
    let probe = root().join("crates/probing-probe");
    let guarded = probe.join("src/python/call.rs");
    let text = fs::read_to_string(&guarded).unwrap();
    for name in GUARDED {
        assert!(!mentions(&text, name).is_empty(), "{name} moved: where to?");
    }
    for file in files(&probe, "rs").iter().filter(|file| **file != guarded) {
        let text = fs::read_to_string(file).unwrap();
        let found: Vec<_> = GUARDED
            .iter()
            .flat_map(|name| mentions(&text, name))
            .collect();
        assert!(
            found.is_empty(),
            "{} names {found:?}: the compiler would believe that it never unwinds, and a program that ends while a thread of \
             ours is in it would crash; use `python::call::release` or `python::call::call` (call.rs says why)",
            file.display()
        );
    }
}

/// Crates whose processes look at targets of other users, as root perhaps.
const OUTSIDE: [&str; 6] = [
    "probing-attach",
    "probing-capture",
    "probing-client",
    "probing-process",
    "probing-stacks",
    "probing-watchpoint",
];
/// What changes files.
const CHANGES: [&str; 18] = [
    "fs::remove_",
    "fs::create_dir",
    "fs::rename",
    "fs::write",
    "fs::copy",
    "fs::hard_link",
    "fs::set_permissions",
    "fs::symlink(",
    "symlinkat(",
    "File::create",
    "DirBuilder",
    "chown(",
    "chmod(",
    "mkdirat(",
    "openat(",
    "renameat(",
    "unlinkat(",
    ".create",
];
/// The one way to do so where another user may have put a link; what only our own user can reach; and what opens names
/// without reading or writing (`O_PATH`).
const CHANGERS: [&str; 3] = [
    "crates/probing-process/src/access/foreign_files.rs",
    "crates/probing-client/src/agent/known_agents.rs",
    "crates/probing-client/src/probe/private_socket.rs",
];

#[test]
fn files_that_another_user_controls_are_changed_through_one_file() {
    for file in OUTSIDE
        .map(|name| files(&root().join("crates").join(name).join("src"), "rs"))
        .concat()
    {
        let name = file
            .strip_prefix(root())
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let is_test = ["tests.rs", "hostile.rs"]
            .iter()
            .any(|end| name.ends_with(end));
        if is_test || CHANGERS.contains(&&*name) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in lines {
            let found: Vec<_> = CHANGES
                .iter()
                .filter(|change| line.contains(**change))
                .collect();
            assert!(
                found.is_empty(),
                "{name} has {found:?}: {}\nuse `probing_process::access::foreign_files::ForeignDir`: it follows no link, and touches \
                 nothing that the target's user could not",
                line.trim()
            );
        }
    }
}

/// The lines, counted from 1, in which this is a whole word.
fn mentions<'a>(text: &str, name: &'a str) -> Vec<(&'a str, usize)> {
    let is_name = |word: &str| word == name;
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let lines = text.lines().zip(1..);
    lines
        .filter(|(line, _)| line.split(|letter| !is_part(letter)).any(is_name))
        .map(|(_, number)| (name, number))
        .collect()
}

#[test]
fn generated_documents_are_fresh() {
    for document in documents() {
        let text = fs::read_to_string(&document.path).unwrap_or_default();
        assert!(
            text == document.text,
            "{} is stale: run `make docs`",
            document.path.display()
        );
    }
}

#[test]
fn documents_keep_to_their_size() {
    for (name, limit) in [
        ("README.md", 150),
        ("ARCHITECTURE.md", 250),
        ("CONTRIBUTING.md", 200),
    ] {
        let lines = fs::read_to_string(root().join(name))
            .unwrap()
            .lines()
            .count();
        assert!(
            lines <= limit,
            "{name} has {lines} lines, more than {limit}"
        );
    }
}

#[test]
fn every_line_of_the_safety_document_names_a_test_that_exists() {
    check_lines("docs/safety.md");
}

#[test]
fn every_line_of_the_security_document_names_a_test_that_exists() {
    check_lines("docs/security.md");
}

/// That each line of a table whose last column is `test` names, in that cell, tests that exist.
fn check_lines(document: &str) {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let in_rust = files(&root().join("crates"), "rs");
    let in_python = files(&root().join("tests/python"), "py");
    let tests: String = in_rust
        .iter()
        .chain(&in_python)
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let last_cell = |line: &str| -> String {
        let cells = line.trim_end_matches(" |").rsplit("| ").next();
        cells.unwrap().to_owned()
    };
    let (mut before, mut has_tests) = ("", false);
    let mut tests_named: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_row = line.starts_with('|');
        if is_row && !before.starts_with('|') {
            has_tests = last_cell(line) == "test";
        } else if is_row && has_tests && !line.contains("---") {
            let cell = last_cell(line);
            assert!(cell.starts_with('`'), "a line without a test: {line}");
            let names = cell.split(", ").map(|name| name.trim_matches('`'));
            tests_named.extend(names.map(str::to_owned));
        }
        before = line;
    }
    let count = tests_named.len();
    assert!(count > 10, "{document} names {count} tests");
    for name in tests_named {
        let is_there = |keyword: &str| tests.contains(&format!("{keyword} {name}("));
        assert!(
            is_there("fn") || is_there("def"),
            "no test is called {name}"
        );
    }
}

/// On the Python package index, `probing` is another project's.
#[test]
fn no_hint_installs_the_project_of_another() {
    let texts = [
        ("crates", "rs"),
        ("crates", "py"),
        ("python", "py"),
        ("docs", "md"),
        ("examples", "py"),
    ];
    let files = texts
        .iter()
        .flat_map(|(folder, ending)| files(&root().join(folder), ending));
    let scripts = fs::read_dir(root().join("scripts")).unwrap();
    let scripts = scripts.map(|entry| entry.unwrap().path());
    let single = ["README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"]
        .map(|name| root().join(name));
    let wrong: Vec<PathBuf> = files
        .chain(scripts)
        .chain(single)
        .filter(|path| {
            fs::read_to_string(path).is_ok_and(|text| text.lines().any(installs_probing))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn installs_probing(line: &str) -> bool {
    let Some((_, rest)) = line.split_once(concat!("pip ", "install ")) else {
        return false;
    };
    let mut words =
        rest.split(|letter: char| letter.is_whitespace() || "`'\",.;)".contains(letter));
    words.find(|word| !word.starts_with('-')) == Some("probing")
}

fn metadata() -> cargo_metadata::Metadata {
    MetadataCommand::new()
        .current_dir(root())
        // What other systems would need is not even downloaded.
        .other_options([
            "--locked".to_owned(),
            "--offline".to_owned(),
            format!("--filter-platform={ARCH}-unknown-linux-gnu"),
        ])
        .exec()
        .unwrap()
}

/// Crates of ours among a package's dependencies; tests may also use the testkit.
fn ours(package: &Package) -> Vec<String> {
    let normal =
        |name: &str, kind| !(kind == DependencyKind::Development && name == "probing-testkit");
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.name.starts_with("probing-"))
        .filter(|dependency| normal(&dependency.name, dependency.kind))
        .map(|dependency| dependency.name.clone())
        .collect()
}

/// Everything that is linked into a crate.
fn tree_of(metadata: &cargo_metadata::Metadata, name: &str) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().unwrap();
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let names: BTreeMap<_, _> = metadata
        .packages
        .iter()
        .map(|package| (&package.id, package.name.as_str()))
        .collect();
    let root = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == name)
        .unwrap();
    let (mut tree, mut open) = (BTreeSet::new(), vec![&root.id]);
    while let Some(id) = open.pop() {
        if tree.insert(names[id].to_owned()) {
            let linked = nodes[id].deps.iter().filter(|dep| {
                dep.dep_kinds
                    .iter()
                    .any(|kind| kind.kind == DependencyKind::Normal)
            });
            open.extend(linked.map(|dep| &dep.pkg));
        }
    }
    tree
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path
            .extension()
            .is_some_and(|extension| extension == ending)
        {
            found.push(path);
        }
    }
    found
}

/// What Python code of ours in a target may import: what the interpreter itself has, or loads at its start; what a
/// traceback needs; and what is there because something else is.
const MODULES_OF_TARGETS: &[&str] = &[
    "_functools",
    "_ast",
    "_collections",
    "_frozen_importlib",
    "_thread",
    "_weakref",
    "builtins",
    "gc",
    "itertools",
    "posix",
    "sys",
    "time",
    "os",
    "types",
    "linecache",
    "traceback",
    // Before 3.13 evaluated code may import it; its absence is survived (threading.rs).
    "threading",
    // For code that awaits, where it is not there that code cannot await either.
    "asyncio",
    // Only described objects, and only where it is there (objects.py); it imports `contextlib`.
    "inspect",
    "contextlib",
    // Where torch is, which imports it.
    "dis",
    "torch",
];

/// What Rust code of ours in a target may import beside that, or instead: modules that every interpreter has built in, and
/// some whose absence is survived where they are used.
const MODULES_OF_RUST: &[&str] = &[
    "_ast",
    "_io",
    "_signal",
    "atexit",
    "builtins",
    "gc",
    "os",
    "sys",
    // Only what a traced call is of is not told apart without it (callees.rs).
    "types",
    // Without it warnings of evaluated code are not caught (warned.rs).
    "warnings",
    // Without it there is no asyncio, whose tasks would carry the mark of an eval on (sink.rs).
    "contextvars",
    // Where torch is.
    "torch",
];

/// The modules that Rust code imports by name; what is no plain text stands for itself.
fn imports_of_rust(text: &str) -> Vec<String> {
    let calls = [".import(", "ImportModule("];
    let found = calls.into_iter().flat_map(|call| {
        text.match_indices(call)
            .map(move |(at, _)| &text[at + call.len()..])
    });
    found
        .map(|rest| {
            let argument = rest.trim_start().trim_start_matches("interned!(py, ");
            let name = argument.trim_start_matches('c').strip_prefix('"');
            let name = name.and_then(|name| name.split('"').next());
            name.map_or_else(
                || argument.lines().next().unwrap_or_default().to_owned(),
                |name| name.split('.').next().unwrap_or(name).to_owned(),
            )
        })
        .collect()
}

#[test]
fn rust_code_in_targets_imports_only_what_is_there() {
    let mut found = Vec::new();
    for file in files(&root().join("crates/probing-probe/src"), "rs") {
        let text = fs::read_to_string(&file).unwrap();
        let imports = imports_of_rust(&text).into_iter();
        let wrong = imports.filter(|module| !MODULES_OF_RUST.contains(&&**module));
        found.extend(wrong.map(|module| format!("{}: {module}", file.display())));
    }
    assert_eq!(found, [""; 0], "imports that a target may not have");
    // The test sees them, whatever they are called with.
    let text = r#"py.import("json.decoder")?; py.import(interned!(py, "os")); PyImport_ImportModule(c"re"); py
        .import(name)"#;
    assert_eq!(imports_of_rust(text), ["json", "os", "name)", "re"]);
}

/// A program that is packed (by `PyInstaller`, say) has only the modules that it imports itself.
#[test]
fn python_code_in_targets_imports_only_what_is_there() {
    let mut found = Vec::new();
    for file in files(&root().join("crates/probing-probe/python"), "py") {
        let text = fs::read_to_string(&file).unwrap();
        let mut only_for_types = false;
        for line in text.lines() {
            if !line.starts_with(' ') && !line.is_empty() {
                only_for_types = line == "if TYPE_CHECKING:";
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let (["import", module, ..] | ["from", module, "import", ..]) = words[..] else {
                continue;
            };
            let package = module.split('.').next().unwrap_or(module);
            if !only_for_types && !MODULES_OF_TARGETS.contains(&package) {
                found.push(format!("{}: {module}", file.display()));
            }
        }
    }
    assert_eq!(found, [""; 0], "imports that a target may not have");
}
