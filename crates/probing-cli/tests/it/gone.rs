//! What is no living process any more: a core file, a zombie, a pid that nobody has.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use probing_testkit::{every_python, wait_until};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{sandbox, scrubbed};

/// Ends with a core file in its working directory, if the kernel is set to write them there.
const CRASH: &str = "
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
os.abort()
";

/// Whether core files go to the working directory: not to a program, not to a folder.
fn leaves_core_files() -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    !pattern.contains(['|', '/']) && pattern.starts_with("core")
}

fn core_in(folder: &TempDir) -> PathBuf {
    let entry = fs::read_dir(folder).unwrap().next().unwrap();
    entry.unwrap().path()
}

#[test]
fn a_core_file_tells_whose_it_is_and_who_can_read_it() {
    if !leaves_core_files() {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        let folder = TempDir::new().unwrap();
        let crashed = Command::new(&python.path)
            .args(["-c", CRASH])
            .current_dir(&folder)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(!crashed.success());
        let core = core_in(&folder);
        let path = core.to_str().unwrap();
        for command in ["backtrace", "flamegraph", "detach"] {
            let ran = sandbox.probing(["-t", path, command]);
            assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{ran:?}");
            let error = scrubbed(ran.stderr.lines().next().unwrap());
            assert!(
                error.starts_with("error: a core file of process N ("),
                "{ran:?}"
            );
            assert!(ran.stderr.contains(" -c"), "its command is there: {ran:?}");
            assert!(
                ran.stderr
                    .contains(&format!("ended by SIGABRT, not a process: {path}\n")),
                "{ran:?}"
            );
            assert!(
                ran.stderr.contains(&format!(
                    "hint: this version reads living processes only; for Python stacks use `pystack core {path}`"
                )),
                "{ran:?}"
            );
        }
    });
}

#[test]
fn a_process_that_nobody_has_taken_notice_of_has_ended() {
    let sandbox = sandbox();
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id().to_string();
    // Not waited for, it is a zombie.
    wait_until("it has ended", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        probing_proto::process::Stat::parse(&stat)
            .unwrap()
            .is_dead()
    });
    let ran = sandbox.probing(["-t", &pid, "backtrace"]);
    assert_eq!(ran.status, 3);
    assert_eq!(
        ran.stderr,
        format!(
            "error: process has ended; its parent has not collected its status yet: {pid}\n\
             hint: a process that has ended has no stacks\n"
        )
    );
    child.wait().unwrap();
    let ran = sandbox.probing(["-t", &pid, "backtrace"]);
    assert!(
        ran.stderr.starts_with("error: no such process: "),
        "{ran:?}"
    );
}

#[test]
fn a_killed_process_is_known_by_what_its_probe_left() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        target.signal(Signal::KILL);
        target.wait();
        let ran = sandbox.probing(["-t", &pid, "backtrace"]);
        assert_eq!(ran.status, 3);
        assert!(
            ran.stderr
                .starts_with("error: process has ended; its probe left a folder behind: ")
                && ran.stderr.contains(&format!("/{pid}.")),
            "{ran:?}"
        );
        // Swept, it is forgotten.
        sandbox.probing(["list"]);
        let ran = sandbox.probing(["-t", &pid, "backtrace"]);
        assert!(
            ran.stderr.starts_with("error: no such process: "),
            "{ran:?}"
        );
    });
}
