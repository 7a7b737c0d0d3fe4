//! Nothing that the program can see or that its user can read has changed because of the probe.

use std::process::Stdio;

use probing_testkit::{Python, RawClient, every_python, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::host::{
    all_pythons_at_once, answer, ask, client_of, ended_in_silence, order, probed, sandbox,
    socket_of, told, unprobed, value, wait_until_idle,
};

/// Evals of every kind.
fn live_through_evals(client: &mut RawClient) {
    for code in [
        "loss",
        "print('seen by the client only')",
        "import sys; print('this too', file=sys.stderr)",
        "train_step(0)",
        "raise SystemExit(9)",
        "x = (",
        "import warnings; warnings.warn('a warning')",
        "import threading; threading.current_thread().name",
        "def deeper(): deeper()\ndeeper()",
    ] {
        ask(client, 1, code);
        answer(client, 1);
    }
}

#[test]
fn nothing_is_ever_printed() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        live_through_evals(&mut client_of(&sandbox, &target));
        let pid = target.pid().to_string();
        for arguments in [
            &["-t", &pid, "eval", "print(1); train_step(0)"][..],
            &["-t", &pid, "eval", "x = ("],
            &["-t", &pid, "eval", "--timeout", "0.01", "while True: pass"],
            &["-t", &pid, "detach"],
            &["-t", &pid, "eval", "1"],
        ] {
            sandbox.probing(arguments);
        }
        order(
            &mut target,
            "import probing; probing.start(); probing.start()",
        );
        live_through_evals(&mut client_of(&sandbox, &target));
        order(&mut target, "probing.stop(); probing.stop()");
        ended_in_silence(target.end());
    });
}

#[test]
fn a_killed_client_leaves_no_word_and_no_eval_behind() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        // A program that has SIGPIPE end it, as `head` would have it.
        order(
            &mut target,
            "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL); turns = 0",
        );
        let mut client = sandbox.command();
        client.args(["-t", &target.pid().to_string(), "eval"]);
        client.arg("while True: turns += 1; print('turn', turns)");
        let mut client = client.stdout(Stdio::null()).spawn().unwrap();
        wait_until("the eval prints", || {
            told(&mut target, "turns > 100") == "True"
        });
        let pid = Pid::from_child(&client);
        kill_process(pid, Signal::KILL).unwrap();
        client.wait().unwrap();
        wait_until_idle(target.pid());
        ended_in_silence(target.end());
    });
}

/// Checks that an expression has the same value in a target that lives through evals and in one without the probe.
#[track_caller]
fn check_same(python: &Python, prepare: &str, expression: &str) {
    let sandbox = sandbox();
    let (mut with, mut without) = (probed(&sandbox, python), unprobed(&sandbox, python));
    order(&mut with, prepare);
    order(&mut without, prepare);
    let at_first = told(&mut with, expression);
    live_through_evals(&mut client_of(&sandbox, &with));
    wait_until_idle(with.pid());
    assert_eq!(at_first, told(&mut without, expression));
    assert_eq!(told(&mut with, expression), at_first);
}

#[test]
fn no_environment_variable_is_changed() {
    all_pythons_at_once(|python| {
        // The one difference between the two is the variable that asks for the probe.
        check_same(
            python,
            "import os; os.environ.pop('PROBING', None)",
            "sorted(os.environ.items()), sorted(os.listdir('.')), os.getcwd(), os.umask(0o22)",
        );
        let seen_by_c = "import ctypes, itertools; \
             environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), 'environ'); \
             entries = lambda: itertools.takewhile(bool, map(environ.__getitem__, itertools.count()))";
        check_same(
            python,
            seen_by_c,
            "sorted(entry for entry in entries() if not entry.startswith(b'PROBING='))",
        );
    });
}

#[test]
fn the_interpreter_is_set_as_before() {
    every_python(|python| {
        check_same(
            python,
            "import sys, threading, gc, warnings, linecache",
            "sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), threading.gettrace() if sys.version_info > (3, 10) else 0, \
             sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, \
             sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, 'write' in vars(sys.stdout), \
             gc.isenabled(), gc.get_threshold(), gc.callbacks, warnings.filters, sys.path, len(sys.meta_path), \
             threading.excepthook is threading.__excepthook__, threading.active_count(), \
             [name for name in linecache.cache if name.startswith('<eval')], sys.unraisablehook is sys.__unraisablehook__",
        );
    });
}

#[test]
fn the_main_thread_stays_the_main_thread() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        // Whoever imports it first is the main thread to it, before 3.13.
        value(&mut client_of(&sandbox, &target), "import threading");
        let is_main = "threading.current_thread() is threading.main_thread()";
        assert_eq!(told(&mut target, is_main), "True");
        ended_in_silence(target.end());
    });
}

#[test]
fn recursion_goes_as_deep_as_before() {
    every_python(|python| {
        let count = "deep = lambda n=0: attempt(n) if globals().update(deepest=n) is None else 0; attempt = lambda n: deep(n + 1)";
        let reach = "[exec('try: deep()\\nexcept RecursionError: pass'), deepest][1]";
        check_same(python, count, reach);
    });
}

#[test]
fn endless_recursion_in_an_eval_is_an_exception() {
    all_pythons_at_once(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        for code in [
            "def deeper(): deeper()\ndeeper()",
            "nested = []\nfor _ in range(100000): nested = [nested]\nrepr(nested)",
            "class Deep:\n    def __repr__(self): return repr(self)\nDeep()",
        ] {
            let ran = sandbox.eval(&target, code);
            assert_eq!(ran.status, 1, "{ran:?}");
            assert!(ran.stderr.contains("RecursionError"), "{ran:?}");
        }
        let mut client = client_of(&sandbox, &target);
        value(&mut client, "nested = 0");
        assert!(socket_of(&sandbox, target.pid()).exists());
        ended_in_silence(target.end());
    });
}
