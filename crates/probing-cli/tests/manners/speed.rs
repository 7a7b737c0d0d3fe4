//! What the probe costs in CPU: at start-up, when nobody asked for it, and while the program computes.
//!
//! CPU time of whole processes, the best of several runs that take turns; more runs when the machine is noisy. The
//! budgets are printed beside what was measured; what fails a test is a multiple of them, so that a busy machine does
//! not.
#![expect(clippy::print_stderr, reason = "says what was measured")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use probing_testkit::{CommandResult, Python, Target, every_python};

use crate::host::{client_of, ended_in_silence, order, probed, sandbox, told, unprobed, value};

/// Starting a program with the probe: what it may cost, and what fails.
const START: Budget = Budget {
    promised: Duration::from_millis(15),
    failing: Duration::from_millis(45),
};
/// Starting a program without it, in an environment that has the hook.
const HOOK: Budget = Budget {
    promised: Duration::from_millis(1),
    failing: Duration::from_millis(3),
};
/// A hook on every call makes `fib` twice as slow; a look for something pending at every call, 1.18 times.
const FAILING_RATIO: f64 = 1.15;
/// Runs of each kind before the first look, and before giving up.
const RUNS: (usize, usize) = (8, 48);

struct Budget {
    promised: Duration,
    failing: Duration,
}

/// The best of several runs of both, in turns, until the second is `good` enough beside the first.
fn best_of_both(
    mut first: impl FnMut() -> Duration,
    mut second: impl FnMut() -> Duration,
    good: impl Fn(Duration, Duration) -> bool,
) -> (Duration, Duration) {
    let mut best = (first(), second());
    for run in 1..RUNS.1 {
        best = (best.0.min(first()), best.1.min(second()));
        if run >= RUNS.0 && good(best.0, best.1) {
            break;
        }
    }
    best
}

impl Budget {
    #[track_caller]
    fn check(&self, python: &Python, without: &mut Command, with: &mut Command) {
        let extra = |without: Duration, with: Duration| with.saturating_sub(without);
        let (without, with) = best_of_both(
            || cpu_of(without),
            || cpu_of(with),
            |without, with| extra(without, with) <= self.promised,
        );
        let extra = extra(without, with);
        eprintln!(
            "{:?}: {without:?} without, {with:?} with: {extra:?} more, {:?} promised",
            python.version, self.promised
        );
        assert!(extra <= self.failing, "{extra:?} more");
    }
}

/// Runs a command to its end; gives the CPU time it used.
#[expect(unsafe_code, reason = "wait4 tells what one child used")]
#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
fn cpu_of(command: &mut Command) -> Duration {
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: zeroes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid, and the pid is that of a child nobody else waits for.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert_eq!((waited, status), (pid, 0));
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// `python -c pass` with a given environment.
fn pass(python: &Path, folder: &Path, probing: &str) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-c", "pass"])
        .env_remove("PYTHONPATH")
        .env("PROBING_DIR", folder)
        .env("PROBING", probing);
    command
}

#[test]
fn starting_with_the_probe_costs_little() {
    every_python(|python| {
        let sandbox = sandbox();
        let started = |probing| pass(&python.path, &sandbox.runtime_dir(), probing);
        START.check(python, &mut started("0"), &mut started("1"));
    });
}

/// The virtual environment of `python` once more, by links, without the files called `left_out`.
fn mirrored(python: &Python, folder: &Path, left_out: &str) -> PathBuf {
    let original = python.path.ancestors().nth(2).unwrap();
    let library = format!(
        "lib/python{}.{}/site-packages",
        python.version.0, python.version.1
    );
    fs::create_dir_all(folder.join("bin")).unwrap();
    fs::create_dir_all(folder.join(&library)).unwrap();
    fs::copy(original.join("pyvenv.cfg"), folder.join("pyvenv.cfg")).unwrap();
    for entry in fs::read_dir(original.join(&library)).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != left_out {
            symlink(entry.path(), folder.join(&library).join(entry.file_name())).unwrap();
        }
    }
    let interpreter = folder.join("bin/python");
    symlink(fs::canonicalize(&python.path).unwrap(), &interpreter).unwrap();
    interpreter
}

#[test]
fn the_hook_costs_nothing_when_nobody_asks() {
    every_python(|python| {
        let sandbox = sandbox();
        let hooked = mirrored(python, &sandbox.path().join("hooked"), "");
        let unhooked = mirrored(
            python,
            &sandbox.path().join("unhooked"),
            "probing_start.pth",
        );
        let started = |python: &Path| {
            let mut command = pass(python, &sandbox.runtime_dir(), "");
            command.env_remove("PROBING");
            command
        };
        // The hook is what tells them apart.
        let has_probe = |python: &Path| {
            let mut command = Command::new(python);
            command
                .args(["-c", "import sys; print('probing._probe' in sys.modules)"])
                .env("PROBING_DIR", sandbox.runtime_dir())
                .env("PROBING", "1");
            CommandResult::to_the_end(command).ok().trim() == "True"
        };
        assert_eq!((has_probe(&hooked), has_probe(&unhooked)), (true, false));
        HOOK.check(python, &mut started(&unhooked), &mut started(&hooked));
    });
}

#[test]
fn without_being_asked_for_nothing_of_ours_is_there() {
    every_python(|python| {
        let sandbox = sandbox();
        let builder = || sandbox.target(python, "commands.py");
        for builder in [
            builder(),
            builder().env("PROBING", ""),
            builder().env("PROBING", "0"),
            builder().env("PROBING", "0").env("PROBING_PORT", "4000"),
        ] {
            let mut target = builder.start();
            let ours = "[name for name in __import__('sys').modules if 'probing' in name]";
            assert_eq!(told(&mut target, ours), "[]");
            assert_eq!(target.usage().threads, 1);
            assert!(!sandbox.runtime_dir().exists());
            ended_in_silence(target.end());
        }
    });
}

#[test]
fn the_hook_is_one_line() {
    every_python(|python| {
        let code = "import sysconfig; print(sysconfig.get_path('purelib'), end='')";
        let site = python.run(["-c", code]).output().unwrap().stdout;
        let site = PathBuf::from(String::from_utf8(site).unwrap());
        let hook = fs::read_to_string(site.join("probing_start.pth")).unwrap();
        assert_eq!(hook.lines().count(), 1, "{hook}");
    });
}

#[test]
fn calls_are_as_fast_as_before() {
    every_python(|python| {
        // A process may have bad luck with its place in memory for all its life: then another pair.
        let mut best = f64::MAX;
        for _ in 0..5 {
            best = best.min(ratio_of_fib(python));
            if best < 1.03 {
                break;
            }
        }
        eprintln!(
            "{:?}: fib(25) takes {best:.3} times as long",
            python.version
        );
        assert!(best < FAILING_RATIO, "{best:.3} times as slow");
    });
}

/// How much longer many calls take with the probe. The two run on one core, in turns, so that what else the machine does
/// hits both.
fn ratio_of_fib(python: &Python) -> f64 {
    let sandbox = sandbox();
    let (mut with, mut without) = (probed(&sandbox, python), unprobed(&sandbox, python));
    // One eval that ended, one that was interrupted.
    value(&mut client_of(&sandbox, &with), "loss");
    let pid = with.pid().to_string();
    let endless = ["-t", &pid, "eval", "--timeout", "0.01", "while True: pass"];
    assert_eq!(sandbox.probing(endless).status, 124);
    for target in [&mut with, &mut without] {
        order(
            target,
            "import os; os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})",
        );
        order(target, "from time import thread_time_ns as now");
        order(
            target,
            "fib = lambda n: n if n < 2 else fib(n - 1) + fib(n - 2)",
        );
    }
    let time = |target: &mut Target| -> f64 {
        let nanos = told(target, "-now() + (fib(25) and now())");
        nanos.parse().unwrap()
    };
    let mut ratios: Vec<f64> = (0..15)
        .map(|_| (time(&mut without), time(&mut with)))
        .map(|(without, with)| with / without)
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}
