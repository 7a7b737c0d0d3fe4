//! The private folder lets nobody else in, and the probe asks everybody who they are.
#![expect(clippy::print_stderr, reason = "says what was left out")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use probing_testkit::{CommandResult, Python, Sandbox, every_python};

use crate::host::{client_of, ended_in_silence, order, probed, sandbox, socket_of, told, value};

const NOBODY: u32 = 65534;

/// Whether tests can become someone else; says so when they cannot.
fn can_be_nobody() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("left out: only root can act as another user");
    }
    root
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_folder_and_the_socket_are_for_their_owner_only() {
    every_python(|python| {
        // Whatever the program's umask is.
        for umask in ["0o0", "0o777"] {
            let sandbox = sandbox();
            let mut target = sandbox.target(python, "commands.py").start();
            order(
                &mut target,
                &format!("import os, probing; os.umask({umask}); probing.start()"),
            );
            let own = rustix::process::geteuid().as_raw();
            let socket = socket_of(&sandbox, target.pid());
            for (path, mode) in [
                (sandbox.runtime_dir().as_path(), 0o700),
                (socket.parent().unwrap(), 0o700),
                (&socket, 0o600),
            ] {
                let metadata = fs::symlink_metadata(path).unwrap();
                assert_eq!(
                    (metadata.mode() & 0o7777, metadata.uid()),
                    (mode, own),
                    "{}",
                    path.display()
                );
            }
            assert_eq!(value(&mut client_of(&sandbox, &target), "loss"), "0.25");
            assert_eq!(told(&mut target, "oct(os.umask(0))"), umask);
            ended_in_silence(target.end());
        }
    });
}

/// Checks that a target whose folder is not private runs on without the probe and without a word, and that everybody
/// who asks for the probe hears why there is none, and what to do.
#[track_caller]
fn check_refused(python: &Python, spoil: impl Fn(&Sandbox), error: &str, hint: &str) {
    let sandbox = sandbox();
    spoil(&sandbox);
    let mut target = probed(&sandbox, python);
    assert_eq!(target.usage().threads, 1);

    order(&mut target, "import contextlib, probing, traceback");
    order(&mut target, "failed = contextlib.ExitStack(); why = []");
    order(
        &mut target,
        "failed.push(lambda kind, error, _: why.append(error) or True)",
    );
    order(&mut target, "with failed: probing.start()");
    let raised = told(
        &mut target,
        "type(why[0]).__name__, *why[0].args, sep='\\n'",
    );
    let path = sandbox.runtime_dir().display().to_string();
    let (error, hint) = (error.replace("PATH", &path), hint.replace("PATH", &path));
    assert_eq!(raised, format!("OSError\n{error}\nhint: {hint}"));

    let ran = sandbox.eval(&target, "1");
    assert_eq!(
        (ran.status, ran.stderr),
        (3, format!("error: {error}\nhint: {hint}\n"))
    );
    ended_in_silence(target.end());
}

const REMOVE_IT: &str =
    "remove PATH, or set PROBING_DIR to a folder of your own for the target and for `probing`";

#[test]
fn a_symbolic_link_is_refused() {
    every_python(|python| {
        let spoil = |sandbox: &Sandbox| {
            let elsewhere = sandbox.path().join("elsewhere");
            fs::create_dir(&elsewhere).unwrap();
            set_mode(&elsewhere, 0o700);
            symlink(&elsewhere, sandbox.runtime_dir()).unwrap();
        };
        check_refused(
            python,
            spoil,
            "a symbolic link where a private folder belongs: PATH",
            REMOVE_IT,
        );
    });
}

#[test]
fn a_folder_that_others_may_enter_is_refused() {
    every_python(|python| {
        let spoil = |sandbox: &Sandbox| {
            fs::create_dir(sandbox.runtime_dir()).unwrap();
            set_mode(&sandbox.runtime_dir(), 0o755);
        };
        check_refused(
            python,
            spoil,
            "private folder is open to others (mode 755): PATH",
            "run: chmod 700 PATH",
        );
    });
}

#[test]
fn a_folder_of_someone_else_is_refused() {
    if !can_be_nobody() {
        return;
    }
    every_python(|python| {
        let spoil = |sandbox: &Sandbox| {
            fs::create_dir(sandbox.runtime_dir()).unwrap();
            set_mode(&sandbox.runtime_dir(), 0o700);
            chown(sandbox.runtime_dir(), Some(NOBODY), Some(NOBODY)).unwrap();
        };
        let error = "private folder belongs to uid 65534, not to uid 0: PATH";
        check_refused(python, spoil, error, REMOVE_IT);
    });
}

#[test]
fn a_file_in_the_place_of_the_folder_is_refused() {
    every_python(|python| {
        let spoil = |sandbox: &Sandbox| fs::write(sandbox.runtime_dir(), "a file").unwrap();
        check_refused(python, spoil, "not a folder: PATH", REMOVE_IT);
    });
}

/// Runs the command as another user, from a folder that everybody can read.
fn as_nobody(sandbox: &Sandbox, arguments: &[&str]) -> CommandResult {
    let command = sandbox.path().join("probing");
    if !command.exists() {
        fs::copy(env!("CARGO_BIN_EXE_probing"), &command).unwrap();
        set_mode(&command, 0o755);
        set_mode(sandbox.path(), 0o755);
    }
    let mut command = Command::new(command);
    command
        .args(arguments)
        .env("PROBING_DIR", sandbox.runtime_dir())
        .env_remove("PROBING_TARGET")
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY);
    CommandResult::to_the_end(command)
}

#[test]
fn another_user_is_told_that_the_process_is_not_theirs() {
    if !can_be_nobody() {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let pid = target.pid().to_string();
        for command in [&["eval", "1"][..], &["detach"]] {
            let ran = as_nobody(&sandbox, &[&["-t", &pid][..], command].concat());
            let expected = format!(
                "error: process belongs to another user (uid 0): {pid}\nhint: run `probing` as that user, or as root\n"
            );
            assert_eq!((ran.status, ran.stderr), (3, expected));
        }
        // Behind the folder's back there is no way either.
        let socket = format!("unix:{}", socket_of(&sandbox, target.pid()).display());
        let ran = as_nobody(&sandbox, &["-t", &socket, "eval", "1"]);
        assert_eq!(ran.status, 3, "{ran:?}");
        assert!(ran.stderr.contains("Permission denied"), "{ran:?}");
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
        ended_in_silence(target.end());
    });
}

#[test]
fn another_user_is_refused_even_when_the_folder_is_open() {
    if !can_be_nobody() {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let socket = socket_of(&sandbox, target.pid());
        set_mode(&sandbox.runtime_dir(), 0o755);
        set_mode(socket.parent().unwrap(), 0o755);
        set_mode(&socket, 0o666);
        let socket = format!("unix:{}", socket.display());
        for command in [&["eval", "1"][..], &["detach"]] {
            let ran = as_nobody(&sandbox, &[&["-t", &socket][..], command].concat());
            let expected = "error: not permitted for uid 65534\n\
                            hint: run `probing` as uid 0, who owns the process, or as root\n";
            assert_eq!((ran.status, ran.stderr.as_str()), (3, expected));
        }
        set_mode(&sandbox.runtime_dir(), 0o700);
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
        ended_in_silence(target.end());
    });
}
