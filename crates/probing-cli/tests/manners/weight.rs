//! What the probe weighs: bytes, memory, threads, open files, and the CPU of doing nothing.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use probing_testkit::{Python, every_python, wait_until};

use crate::host::{
    answer, ask, client_of, ended_in_silence, extra_threads, order, probe_thread, probed, sandbox,
    socket_of, told, unprobed, value, wait_until_idle,
};

const MEGABYTE: u64 = 1 << 20;

/// A file of the installed wheel.
fn installed(python: &Python, name: &str) -> PathBuf {
    let code = "import sysconfig; print(sysconfig.get_path('purelib'), end='')";
    let site = python.run(["-c", code]).output().unwrap().stdout;
    PathBuf::from(String::from_utf8(site).unwrap()).join(name)
}

#[test]
fn the_library_has_at_most_three_megabytes() {
    every_python(|python| {
        let sandbox = sandbox();
        let copy = sandbox.path().join("stripped.so");
        fs::copy(installed(python, "probing/_probe.abi3.so"), &copy).unwrap();
        let stripped = Command::new("strip").arg(&copy).status().unwrap();
        assert!(stripped.success());
        let length = fs::metadata(&copy).unwrap().len();
        assert!(length <= 3 * MEGABYTE, "{length} bytes");
    });
}

/// In KiB.
const FOUR_MEGABYTES: u64 = 4 << 10;
const EVALS_THAT_END_WELL: [&str; 2] = ["[loss] * 100", "print('x' * 1000, train_step)"];
const EVALS_THAT_FAIL: [&str; 2] = ["train_step(0)", "x = ("];

/// What a hundred evals cost a program that has run `first`, beside a twin without the probe.
///
/// Around a page of libc or libm that is asked for the kernel maps sixteen, counted from an address that is another one in
/// each process: of one program that makes up to 300 KiB from run to run. So both have theirs at the same addresses.
#[track_caller]
fn check_a_hundred(python: &Python, first: &str, evals: &[&str], limit_kib: u64) {
    let sandbox = sandbox();
    have_fixed_addresses();
    let (mut with, mut without) = (probed(&sandbox, python), unprobed(&sandbox, python));
    order(&mut with, first);
    order(&mut without, first);
    let mut client = client_of(&sandbox, &with);
    for (id, code) in (0..100).zip(evals.iter().cycle()) {
        ask(&mut client, id, code);
        answer(&mut client, id);
    }
    let extra = with.usage().rss_kib.saturating_sub(without.usage().rss_kib);
    assert!(extra <= limit_kib, "{extra} KiB more after {evals:?}");
}

/// From now on, for what this thread starts.
#[expect(unsafe_code, reason = "personality has no safe face")]
fn have_fixed_addresses() {
    // SAFETY: it takes a number; programs that are started from here on are laid out without chance, and nothing else.
    let before = unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
    assert!(before >= 0, "{}", io::Error::last_os_error());
}

#[test]
fn a_hundred_evals_cost_at_most_four_megabytes() {
    every_python(|python| {
        check_a_hundred(python, "pass", &EVALS_THAT_END_WELL, FOUR_MEGABYTES);
        // What the standard library shows tracebacks with grows: in a program that has not loaded it, the first traceback
        // alone brings it beyond the limit from 3.11 on, and costs 6 MB on 3.14, without cached bytecode 13.
        let limit = match python.version {
            version if version >= (3, 14) => 14 << 10,
            (3, 11..=13) => FOUR_MEGABYTES + 1536,
            _ => FOUR_MEGABYTES,
        };
        check_a_hundred(python, "pass", &EVALS_THAT_FAIL, limit);
        // Nearly every program has loaded it, with this.
        let all = [EVALS_THAT_END_WELL, EVALS_THAT_FAIL].concat();
        check_a_hundred(python, "import logging", &all, FOUR_MEGABYTES);
    });
}

#[test]
fn an_idle_probe_is_one_thread_that_waits_outside_the_interpreter() {
    every_python(|python| {
        let sandbox = sandbox();
        let (mut with, without) = (probed(&sandbox, python), unprobed(&sandbox, python));
        assert_eq!(extra_threads(without.pid()), [""; 0]);
        wait_until_idle(with.pid());

        let mut client = client_of(&sandbox, &with);
        order(&mut with, "import sys, threading");
        value(&mut client, "loss");
        ask(&mut client, 1, "threading.current_thread().no_such_name");
        answer(&mut client, 1);
        wait_until_idle(with.pid());

        // A thread that the interpreter does not know cannot hold the GIL.
        let known = "sys._current_frames().keys() == {threading.get_ident()}";
        assert_eq!(told(&mut with, known), "True");
        assert_eq!(told(&mut with, "len(threading.enumerate())"), "1");
        waits_in_poll_without_a_timeout(with.pid());
    });
}

/// The system call that the probe's thread sits in, as the kernel shows it: number, then arguments.
fn waits_in_poll_without_a_timeout(pid: u32) {
    let file = format!("/proc/{pid}/task/{}/syscall", probe_thread(pid).tid);
    wait_until("the probe sleeps", || {
        fs::read_to_string(&file).unwrap().trim() != "running"
    });
    let line = fs::read_to_string(&file).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let number: i64 = words[0].parse().unwrap();
    let timeout = words[3];
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_poll {
        assert!(timeout.ends_with("ffffffff"), "a timeout: {line}");
        return;
    }
    assert_eq!(number, libc::SYS_ppoll, "{line}");
    assert_eq!(timeout, "0x0", "a timeout: {line}");
}

#[test]
fn an_idle_probe_never_runs() {
    every_python(|python| {
        let sandbox = sandbox();
        // Nobody finds this target: its variable for the folder is not in the block that others can read.
        let mut target = sandbox
            .target(python, "commands.py")
            .with(|command| {
                command.env_remove("PROBING_DIR");
            })
            .start();
        let folder = sandbox.runtime_dir();
        order(&mut target, "import os, probing");
        order(
            &mut target,
            &format!(
                "os.environ['PROBING_DIR'] = {:?}",
                folder.display().to_string()
            ),
        );
        order(&mut target, "probing.start()");
        value(&mut client_of(&sandbox, &target), "loss");
        wait_until_idle(target.pid());
        waits_in_poll_without_a_timeout(target.pid());

        let before = probe_thread(target.pid());
        for number in 0..500 {
            assert_eq!(told(&mut target, &number.to_string()), number.to_string());
        }
        // Switches and CPU time, exactly: it has not run at all.
        assert_eq!(probe_thread(target.pid()), before);
    });
}

#[test]
fn clients_that_left_leave_no_open_files() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let before = target.usage().open_files;
        let mut clients: Vec<_> = (0..10).map(|_| client_of(&sandbox, &target)).collect();
        assert_eq!(target.usage().open_files, before + 10);
        for client in &mut clients {
            value(client, "loss");
        }
        drop(clients);
        wait_until("the files are closed", || {
            target.usage().open_files == before
        });
    });
}

#[test]
fn a_detached_probe_leaves_nothing() {
    every_python(|python| {
        let sandbox = sandbox();
        let (target, without) = (probed(&sandbox, python), unprobed(&sandbox, python));
        let socket = socket_of(&sandbox, target.pid());
        value(&mut client_of(&sandbox, &target), "loss");
        let ran = sandbox.probing(["-t", &target.pid().to_string(), "detach"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        wait_until("the threads are gone", || {
            extra_threads(target.pid()).is_empty()
        });
        assert_eq!(target.usage().open_files, without.usage().open_files);
        assert!(!socket.exists());
        assert_eq!(sandbox.target_dirs(), [""; 0]);
        ended_in_silence(target.end());
    });
}
