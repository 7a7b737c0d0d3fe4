//! The process ends as it would have ended without the probe, whatever evals do at that moment.

use std::os::unix::net::UnixStream;

use probing_testkit::{EndedTarget, Python, RawClient, Sandbox, Target, wait_until};
use rustix::process::Signal;

use crate::host::{
    all_pythons_at_once, ask, client_of, ended_in_silence, order, probed, sandbox, socket_of,
    unprobed, value, wait_until_in,
};

/// The ends of a target with the probe and of one without.
#[track_caller]
fn check_same_end(python: &Python, end: impl Fn(Target) -> EndedTarget) -> EndedTarget {
    let sandbox = sandbox();
    let target = probed(&sandbox, python);
    value(&mut client_of(&sandbox, &target), "loss");
    let ended = end(target);
    assert_eq!(ended, end(unprobed(&sandbox, python)));
    ended
}

fn after(code: &str) -> impl Fn(Target) -> EndedTarget {
    move |mut target| {
        target.say(code);
        target.wait()
    }
}

fn by(signal: Signal) -> impl Fn(Target) -> EndedTarget {
    move |target| {
        target.signal(signal);
        target.wait()
    }
}

#[test]
fn every_end_is_as_without_the_probe() {
    all_pythons_at_once(|python| {
        let check = |status, end: &dyn Fn(Target) -> EndedTarget| {
            assert_eq!(check_same_end(python, end).status, status);
        };
        check(0, &Target::end);
        check(3, &after("sys.exit(3)"));
        check(1, &after("train_step(0)"));
        check(4, &after("import os; os._exit(4)"));
        check(128 + 15, &by(Signal::TERM));
        check(128 + 9, &by(Signal::KILL));
        check(128 + 6, &after("import os; os.abort()"));
    });
}

#[test]
fn an_interrupted_program_ends_as_without_the_probe() {
    all_pythons_at_once(|python| {
        let ended = check_same_end(python, |target| {
            // In the middle of reading its input; the traceback says so.
            wait_until_in(target.pid(), libc::SYS_read);
            by(Signal::INT)(target)
        });
        assert_eq!(ended.status, 128 + 2);
    });
}

#[test]
fn a_program_that_ends_takes_its_files_along() {
    all_pythons_at_once(|python| {
        for code in [
            "sys.exit(3)",
            "train_step(0)",
            "import probing; probing.stop(); sys.exit()",
        ] {
            let sandbox = sandbox();
            let target = probed(&sandbox, python);
            assert_eq!(sandbox.target_dirs().len(), 1);
            after(code)(target);
            assert_eq!(sandbox.target_dirs(), [""; 0], "{code}");
        }
    });
}

#[test]
fn what_the_dead_left_is_swept_and_what_the_living_have_is_not() {
    all_pythons_at_once(|python| {
        let sandbox = sandbox();
        let start = || probed(&sandbox, python);
        let (living, stopped, killed, left) = (start(), start(), start(), start());
        stopped.stop();
        by(Signal::KILL)(killed);
        after("import os; os._exit(0)")(left);
        // A folder as it would be after its pid was given to another process: pid of the living, start of another.
        let reused = sandbox.runtime_dir().join(format!("{}.1", living.pid()));
        std::fs::create_dir(&reused).unwrap();
        drop(std::os::unix::net::UnixListener::bind(reused.join("probe.sock")).unwrap());
        assert_eq!(sandbox.target_dirs().len(), 5);

        sandbox.probing(["list"]).ok();
        let mut expected = [&living, &stopped].map(|target| {
            let socket = socket_of(&sandbox, target.pid());
            let folder = socket.parent().unwrap();
            folder.file_name().unwrap().to_str().unwrap().to_owned()
        });
        expected.sort();
        assert_eq!(sandbox.target_dirs(), expected);
        assert_eq!(sandbox.eval(&living, "loss").ok(), "0.25\n");
    });
}

/// Starts `code` in a target and waits until it has begun.
fn start_eval(sandbox: &Sandbox, target: &mut Target, code: &str) -> RawClient {
    let mut client = client_of(sandbox, target);
    ask(&mut client, 7, &format!("begun = True\n{code}"));
    wait_until("the eval has begun", || {
        order(target, "print('begun' in globals())") == ["True"]
    });
    client
}

/// Ends a target while `code` runs in it as an eval.
#[track_caller]
fn check_end_during(python: &Python, prepare: &[&str], code: &str) {
    let sandbox = sandbox();
    let mut target = probed(&sandbox, python);
    for line in prepare {
        order(&mut target, line);
    }
    let client = start_eval(&sandbox, &mut target, code);
    ended_in_silence(target.end());
    assert_eq!(sandbox.target_dirs(), [""; 0]);
    drop(client);
}

#[test]
fn an_eval_that_never_ends_does_not_keep_the_program_from_ending() {
    all_pythons_at_once(|python| {
        for code in [
            "while True: pass",
            "import time\ntime.sleep(3600)",
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            "while True: print('to a client that does not read')",
            "import threading\nthreading.Event().wait()",
            "import threading\nlock = threading.Lock()\nwith lock: lock.acquire()",
        ] {
            check_end_during(python, &[], code);
        }
    });
}

#[test]
fn a_connected_client_sees_the_end_and_does_not_delay_it() {
    all_pythons_at_once(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let mut clients: Vec<RawClient> = (0..3).map(|_| client_of(&sandbox, &target)).collect();
        let silent = UnixStream::connect(socket_of(&sandbox, target.pid())).unwrap();
        ended_in_silence(target.end());
        for client in &mut clients {
            assert_eq!(client.receive(), None);
        }
        drop(silent);
    });
}

/// Makes the end of the interpreter last: an object that goes late goes slowly.
const SLOW_END: [&str; 3] = [
    "import time",
    "class Slow: __del__ = lambda self, sleep=time.sleep: sleep(0.6)",
    "sys.slow = Slow(); del Slow",
];

#[test]
fn an_eval_that_wakes_up_while_the_interpreter_ends_does_not_crash_it() {
    all_pythons_at_once(|python| {
        for code in [
            "time.sleep(0.4)",
            "list(map(time.sleep, [0.05] * 100))",
            "while True:\n    try: time.sleep(0.1)\n    except BaseException: pass",
            "class Slow:\n    def __repr__(self): time.sleep(0.4)\nSlow()",
        ] {
            check_end_during(python, &SLOW_END, code);
        }
    });
}

#[test]
fn what_an_eval_leaves_may_go_slowly_while_the_interpreter_ends() {
    all_pythons_at_once(|python| {
        for (method, end) in [
            ("__del__", "Slow()"),
            ("__del__", "raise Slow()"),
            ("__str__", "raise Slow()"),
        ] {
            let code = format!(
                "class Slow(Exception):\n    def {method}(self, sleep=time.sleep): sleep(0.4)\n{end}"
            );
            check_end_during(python, &SLOW_END, &code);
        }
    });
}

#[test]
fn a_thread_of_the_program_that_prints_while_the_interpreter_ends_does_not_crash_it() {
    all_pythons_at_once(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        for line in SLOW_END {
            order(&mut target, line);
        }
        // A stream that is slow, in Python, and a thread that nobody waits for.
        order(&mut target, "import threading; turns = 0");
        order(
            &mut target,
            "write = lambda self, text: (time.sleep(0.1), globals().update(turns=turns + 1))",
        );
        order(
            &mut target,
            "sys.stderr = type('Stream', (), {'write': write, 'flush': lambda self: None})()",
        );
        order(
            &mut target,
            "chatter = lambda: [print(file=sys.stderr) for _ in iter(int, 1)]",
        );
        order(
            &mut target,
            "threading.Thread(target=chatter, daemon=True).start()",
        );
        // While an eval runs, all that is printed passes through the probe.
        let client = start_eval(&sandbox, &mut target, "turns = 0; time.sleep(3600)");
        wait_until("the thread has printed", || {
            order(&mut target, "print(turns > 1)") == ["True"]
        });
        ended_in_silence(target.end());
        drop(client);
    });
}

#[test]
fn threads_that_the_program_waits_for_are_waited_for() {
    all_pythons_at_once(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        order(&mut target, "import threading; go_on = threading.Event()");
        order(
            &mut target,
            "threading.Thread(target=lambda: (go_on.wait(), print('last words'))).start()",
        );
        let mut client = client_of(&sandbox, &target);
        target.say("sys.exit()");
        // The main thread is over; the probe still answers, and is asked for the thread's sake.
        value(&mut client, "go_on.set()");
        let ended = target.wait();
        assert_eq!(
            (ended.status, ended.stdout),
            (0, vec!["last words".to_owned()])
        );
    });
}
