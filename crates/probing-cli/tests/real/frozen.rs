//! A Python that is not where Pythons are: in the file that `PyInstaller` makes of a program, and below another root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use probing_testkit::CommandResult;

use crate::program::{Program, python, sandbox, source, tool};
use crate::walk::{Known, Walk};

const KNOWN: Known<'_> = Known {
    ranks: false,
    around: Some("in <module>"),
    function: "work",
    local: ("upto", "2000"),
    trains: false,
    keeps_rows: true,
};

/// Without `/dev/shm` there is no place for rows that others could read.
const KNOWN_IN_CHROOT: Known<'_> = Known {
    keeps_rows: false,
    ..KNOWN
};

fn check(command: impl Fn(&Path) -> Command, known: &Known<'_>) {
    let alone = Program::alone(&command);
    let sandbox = sandbox();
    let command = command(sandbox.path());
    let mut program = Program::start(sandbox, command, 1);
    let walked = Walk::through(&program, known);
    walked.ends(&program.end(), &alone);
}

/// The program that `PyInstaller` makes in `folder`.
fn freeze(folder: &Path, how: &str) -> PathBuf {
    let mut pyinstaller = Command::new(tool("pyinstaller"));
    pyinstaller
        .args(["--log-level", "ERROR", how, "--name", "frozen"])
        .arg("--distpath")
        .arg(folder.join("dist"))
        .arg("--workpath")
        .arg(folder.join("work"))
        .arg("--specpath")
        .arg(folder)
        .arg(source("frozen.py"))
        .env("PYINSTALLER_CONFIG_DIR", folder.join("config"));
    CommandResult::to_the_end(pyinstaller).ok();
    let made = folder.join("dist/frozen");
    if made.is_dir() {
        made.join("frozen")
    } else {
        made
    }
}

#[test]
#[ignore = "make real"]
fn a_folder_that_pyinstaller_made_is_debugged_and_sums_the_same() {
    let made = sandbox();
    let frozen = freeze(made.path(), "--onedir");
    check(|_| Command::new(&frozen), &KNOWN);
}

/// It unpacks itself, and the Python is its child.
#[test]
#[ignore = "make real"]
fn a_file_that_pyinstaller_made_is_debugged_and_sums_the_same() {
    let made = sandbox();
    let frozen = freeze(made.path(), "--onefile");
    check(|_| Command::new(&frozen), &KNOWN);
}

/// Makes a root that has a Python, its libraries, the program and nothing else: no `/proc`, no `/dev`.
fn make_root(root: &Path) {
    let code = "import glob, sys; print(sys.base_prefix, sys._base_executable, \
                *glob.glob(sys.base_prefix + '/lib/python*/lib-dynload/*.so'))";
    let mut printed = Command::new(python());
    printed.args(["-c", code]);
    let printed = CommandResult::to_the_end(printed);
    let (prefix, binaries) = printed.ok().trim_end().split_once(' ').unwrap();
    copy_python(Path::new(prefix), &below(root, prefix));
    // Python itself needs one more library for threads that end: libgcc_s, which nothing names. The probe does.
    let probe = probing_testkit::root().join("python/probing/_probe.abi3.so");
    let mut ldd = Command::new("ldd");
    ldd.args(binaries.split(' ')).arg(probe);
    let libraries = CommandResult::to_the_end(ldd).stdout;
    let words = libraries.split_whitespace();
    for path in words.filter(|word| word.starts_with('/') && !word.ends_with(':')) {
        let to = below(root, path);
        if !to.exists() {
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(path, &to).unwrap();
        }
    }
    symlink(Path::new(prefix).join("bin"), root.join("bin")).unwrap();
    for name in ["frozen.py", "rounds.py"] {
        fs::copy(source(name), root.join(name)).unwrap();
    }
    fs::create_dir(root.join("tmp")).unwrap();
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The interpreter and its library of modules, linked where that can be.
fn copy_python(prefix: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let copied = ["-al", "-a"].into_iter().any(|how| {
        let mut copy = Command::new("cp");
        copy.arg(how)
            .args(["bin", "lib"].map(|part| prefix.join(part)))
            .arg(to);
        CommandResult::to_the_end(copy).status == 0
    });
    assert!(copied);
}

#[test]
#[ignore = "make real"]
fn a_program_in_a_plain_chroot_is_debugged_and_sums_the_same() {
    let made = sandbox();
    let root = made.path().join("root");
    fs::create_dir(&root).unwrap();
    make_root(&root);
    let command = |folder: &Path| {
        // What PROBING_DIR names is also there.
        fs::create_dir_all(below(&root, folder.to_str().unwrap())).unwrap();
        let mut command = Command::new("chroot");
        command.arg(&root).args(["/bin/python3.12", "/frozen.py"]);
        command
    };
    check(command, &KNOWN_IN_CHROOT);
}
