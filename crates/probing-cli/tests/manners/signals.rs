//! The program's signals stay the program's: no handler, no mask, no interrupted system call because of the probe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use probing_testkit::{Sandbox, Target, every_python};
use rustix::process::Signal;

use crate::host::{
    all_pythons_at_once, answer, ask, client_of, ended_in_silence, order, probed, sandbox,
    status_of, told, unprobed, value, wait_until_idle,
};

/// The two signals that libc keeps for itself and handles in every process with more than one thread.
const OF_LIBC: u64 = 0b11 << 31;

/// Lets evals run, one after the other, while `test` looks at the target.
fn while_evals_run(sandbox: &Sandbox, target: &mut Target, test: impl FnOnce(&mut Target)) {
    let mut client = client_of(sandbox, target);
    let running = AtomicBool::new(true);
    thread::scope(|scope| {
        let _ends = OnDrop(|| running.store(false, Ordering::Release));
        scope.spawn(|| {
            while running.load(Ordering::Acquire) {
                assert_eq!(value(&mut client, "sum(range(2000))"), "1999000");
            }
        });
        test(target);
    });
}

/// Does something at the end, even when a test fails before.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn no_signal_handler_is_installed_and_no_signal_is_blocked() {
    every_python(|python| {
        let sandbox = sandbox();
        let (mut with, mut without) = (probed(&sandbox, python), unprobed(&sandbox, python));
        value(
            &mut client_of(&sandbox, &with),
            "import subprocess; subprocess.run(['true']).returncode",
        );
        wait_until_idle(with.pid());
        let signals = |pid, mask| {
            let bits = u64::from_str_radix(&status_of(pid, mask), 16).unwrap();
            bits & !OF_LIBC
        };
        for mask in ["SigCgt:", "SigIgn:", "SigBlk:"] {
            assert_eq!(
                signals(with.pid(), mask),
                signals(without.pid(), mask),
                "{mask}"
            );
        }
        let handlers = "[signal.getsignal(number) for number in sorted(signal.valid_signals())]";
        let [seen, expected] = [&mut with, &mut without].map(|target| {
            order(target, "import signal");
            told(target, handlers)
        });
        assert_eq!(seen, expected);
    });
}

#[test]
fn every_signal_reaches_the_main_threads_handler_while_evals_run() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        order(&mut target, "import signal, threading");
        order(
            &mut target,
            "signal.signal(signal.SIGUSR1, lambda *_: print('caught by', threading.current_thread().name, flush=True))",
        );
        order(
            &mut target,
            "import time; watch = lambda: [time.sleep(0.0005) for _ in iter(lambda: watching, False)]",
        );
        while_evals_run(&sandbox, &mut target, |target| {
            target.say("watching = True; watch()");
            for _ in 0..200 {
                target.signal(Signal::USR1);
                assert_eq!(target.line(), "caught by MainThread");
            }
            sandbox.eval(target, "watching = False").ok();
            assert_eq!(target.line(), "done");
        });
        ended_in_silence(target.end());
    });
}

#[test]
fn a_signal_that_a_thread_waits_for_does_not_end_up_in_an_eval() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        // As servers do it: blocked everywhere, and one thread that waits.
        order(
            &mut target,
            "import signal, threading; numbers = {signal.SIGUSR1}",
        );
        order(
            &mut target,
            "signal.pthread_sigmask(signal.SIG_BLOCK, numbers)",
        );
        order(
            &mut target,
            "wait = lambda: [print('got', int(signal.sigwait(numbers)), flush=True) for _ in range(100)]",
        );
        order(&mut target, "threading.Thread(target=wait).start()");
        while_evals_run(&sandbox, &mut target, |target| {
            for _ in 0..100 {
                target.signal(Signal::USR1);
                assert_eq!(target.line(), format!("got {}", Signal::USR1.as_raw()));
            }
        });
        ended_in_silence(target.end());
    });
}

#[test]
fn system_calls_of_the_program_are_not_interrupted() {
    all_pythons_at_once(|python| {
        let sandbox = sandbox();
        let mut target = probed(&sandbox, python);
        order(
            &mut target,
            "import ctypes, os, struct; libc = ctypes.CDLL(None, use_errno=True)",
        );
        order(
            &mut target,
            "pair = os.pipe(); entry = struct.pack('ihh', pair[0], 1, 0)",
        );
        // Until an eval after fifty others writes to the pipe: 1 file ready, or -1 when a signal came before.
        target.say(
            "print('polling', flush=True); print(libc.poll(entry, 1, -1), ctypes.get_errno())",
        );
        assert_eq!(target.line(), "polling");
        let mut client = client_of(&sandbox, &target);
        for _ in 0..50 {
            ask(&mut client, 1, "print(loss)\ntrain_step(0)");
            answer(&mut client, 1);
        }
        value(&mut client, "os.write(pair[1], b'x')");
        assert_eq!(target.line(), "1 0");
        assert_eq!(target.line(), "done");

        // Sleeps to the end while evals run: 0, or -1 when a signal cut it short.
        while_evals_run(&sandbox, &mut target, |target| {
            let slept = told(
                target,
                "libc.usleep(200_000), libc.sleep(1), ctypes.get_errno()",
            );
            assert_eq!(slept, "0 0 0");
        });
        ended_in_silence(target.end());
    });
}

#[test]
fn what_an_eval_starts_has_no_signals_blocked() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = probed(&sandbox, python);
        let mut client = client_of(&sandbox, &target);
        let code = "import subprocess\n\
                    subprocess.run(['grep', 'SigBlk', '/proc/self/status'], capture_output=True, text=True).stdout.split()[1]";
        assert_eq!(value(&mut client, code), "'0000000000000000'");
        let code = "import threading\n\
                    seen = []\n\
                    thread = threading.Thread(target=lambda: seen.append(open('/proc/thread-self/status').read()))\n\
                    thread.start(); thread.join()\n\
                    [line.split()[1] for line in seen[0].splitlines() if line.startswith('SigBlk')][0]";
        assert_eq!(value(&mut client, code), "'0000000000000000'");
    });
}
