//! `probing watch --addr` and `--storage` do no harm: a debug exception that arrives without its cause ends nobody.
//!
//! A hypervisor loses causes now and then. The program sends itself what the kernel makes of such an exception.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};

use probing_proto::env::PROBING_TEST_BURSTS;
use probing_testkit::{Python, every_python, wait_until};
use rustix::process::Signal;

use crate::breakpoints::probing;
use crate::memory::{Program, Watching};
use crate::sandbox;

const PROGRAM: &str = "bytes.py";
const ELEMENT: [&str; 3] = ["watch", "--storage", "memoryview(array)[8:]"];
const ADDRESS: &str = "hex(ctypes.addressof(ctypes.c_char.from_buffer(array)) + 8)";
/// How a shell tells it.
const ENDED_BY_TRAP: i32 = 128 + 5;

impl Program {
    fn does(&mut self, line: &str) {
        self.target.say(line);
        assert_eq!(self.target.line(), "done", "{line}");
    }
}

impl Watching {
    /// Waits until it has told of a write.
    fn tells(&mut self) {
        let mut line = String::new();
        let mut stdout = BufReader::new(self.child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with('{'), "{line}");
        // What it has not read keeps the command waiting, while its watchpoint stays.
        self.child.stdout = Some(stdout.into_inner());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What it says when it cannot go on.
    fn fails(mut self) -> String {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        assert!(!self.child.wait().unwrap().success(), "{said}");
        said
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_debug_exception_without_its_cause_ends_no_program_that_is_or_was_watched() {
    every_python(|python| {
        // That it would: a program that nobody watches.
        let unwatched = Program::start(python);
        let mut target = unwatched.target;
        target.say("stray_trap()");
        assert_eq!(target.wait().status, ENDED_BY_TRAP);

        let mut program = Program::start(python);
        let watching = program.watch(&[ELEMENT[1], ELEMENT[2], "--json"]);
        program.does("in_thread(stray_trap)");
        program.does("stray_trap()");
        program.does("often(1)");
        watching.kill();
        program.does("stray_trap()");
        assert_eq!(
            probing(&program.sandbox, &program.target, &["detach"]).status,
            0
        );
        program.does("stray_trap()");

        // A process that has no probe gets one for it.
        let sandbox = sandbox();
        let target = sandbox.target(python, PROGRAM).start();
        let mut program = Program { sandbox, target };
        let address = program.told(ADDRESS);
        let mut watching = program.watch(&["--addr", &address, "--len", "1", "--json"]);
        program.does("stray_trap()");
        program.does("often(1)");
        watching.tells();
        watching.kill();
        // The machine has been found safe, and that is remembered.
        let proof = program.sandbox.runtime_dir().join("debug-registers");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(fs::read_to_string(proof).unwrap().contains(boot.trim()));
        let ended = program.target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}

#[test]
fn sigtrap_means_to_a_watched_program_what_it_meant_before() {
    every_python(|python| {
        let watched = |prepare: &str| {
            let mut program = Program::start(python);
            if !prepare.is_empty() {
                program.does(prepare);
            }
            program.watch(&[ELEMENT[1], ELEMENT[2]]).kill();
            program
        };
        let mut usual = watched("");
        usual.target.say("trap()");
        assert_eq!(usual.target.wait().status, ENDED_BY_TRAP);
        let mut handled = watched("signal.signal(signal.SIGTRAP, lambda *_: print('trapped'))");
        handled.target.say("trap()");
        assert_eq!(handled.target.line(), "trapped");
        assert_eq!(handled.target.line(), "done");
        assert_eq!(
            handled.told("signal.getsignal(signal.SIGTRAP).__name__"),
            "<lambda>"
        );
        // What it starts has the usual action.
        let mut parent = watched("");
        let child = "__import__('subprocess').run([sys.executable, '-c', 'import os; os.kill(os.getpid(), 5)']).returncode";
        assert_eq!(parent.told(child), "-5");
        assert_eq!(parent.target.end().status, 0);
    });
}

#[test]
fn a_programs_own_handler_still_interrupts_a_system_call() {
    every_python(|python| {
        let mut program = Program::start(python);
        program.does("trapped_reader()");
        program.watch(&[ELEMENT[1], ELEMENT[2]]).kill();
        program.target.say("read_until_trapped()");
        assert_eq!(program.target.line(), "reads");
        wait_until("it sleeps in the call", || program.target.state() == 'S');
        program.target.signal(Signal::TRAP);
        assert_eq!(program.target.line(), "done");
        assert_eq!(program.target.end().status, 0);
    });
}

#[test]
fn what_evaluated_code_writes_is_seen() {
    every_python(|python| {
        let program = Program::start(python);
        let watching = program.watch(&[ELEMENT[1], ELEMENT[2], "--once", "--json"]);
        let ran = probing(&program.sandbox, &program.target, &["eval", "array[8] = 3"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        let printed = watching.printed();
        assert!(printed.contains(r#""new":"0x3""#), "{printed}");
    });
}

#[test]
fn what_a_stray_debug_exception_would_end_is_not_watched_unless_that_is_accepted() {
    every_python(|python| {
        let mut program = Program::start(python);
        program.does("signal.signal(signal.SIGTRAP, signal.SIG_IGN)");
        let refused = probing(&program.sandbox, &program.target, &ELEMENT);
        assert_eq!(refused.status, 1, "{refused:?}");
        assert!(
            refused
                .stderr
                .contains("debug registers are not safe here: the program ignores SIGTRAP"),
            "{refused:?}"
        );
        assert!(
            refused.stderr.contains("--unsafe-debug-registers"),
            "{refused:?}"
        );
        let accepted =
            program.watch(&[ELEMENT[1], ELEMENT[2], "--unsafe-debug-registers", "--once"]);
        program.does("often(1)");
        assert!(accepted.printed().contains("native frames of the write"));
        // A process that may not be entered can have no handler.
        let sandbox = sandbox();
        let mut target = sandbox.target(python, PROGRAM).start();
        target.say(&format!("print({ADDRESS}, flush=True)"));
        let (address, pid) = (target.line(), target.pid().to_string());
        let enter = ["--no-attach", "-t", &pid, "watch", "--addr", &address];
        let refused = sandbox.probing(enter);
        assert_ne!(refused.status, 0, "{refused:?}");
    });
}

#[test]
fn threads_that_block_sigtrap_are_named_and_not_watched() {
    every_python(|python| {
        let mut program = Program::start(python);
        program.does("block_traps()");
        let watching = program.watch(&[ELEMENT[1], ELEMENT[2], "--once"]);
        let said = "; not seen in threads that block SIGTRAP: ";
        assert!(watching.said.contains(said), "{}", watching.said);
        program.does("often(1)");
        assert!(watching.printed().contains("native frames of the write"));
        // One that comes later may have inherited the registers.
        let watching = program.watch(&[ELEMENT[1], ELEMENT[2]]);
        program.does("block_traps()");
        let said = watching.fails();
        assert!(said.contains("a thread that blocks SIGTRAP ("), "{said}");
        let mut other = Program::start(python);
        let watching = other.watch(&[ELEMENT[1], ELEMENT[2]]);
        other.does("signal.signal(signal.SIGTRAP, signal.SIG_DFL)");
        let said = watching.fails();
        assert!(
            said.contains("the program has removed the SIGTRAP handler"),
            "{said}"
        );
        let watching = other.watch(&[ELEMENT[1], ELEMENT[2]]);
        other.does("signal.signal(signal.SIGTRAP, lambda *_: None)");
        let said = watching.fails();
        assert!(said.contains("has replaced the SIGTRAP handler"), "{said}");
        other.does("signal.signal(signal.SIGTRAP, signal.SIG_DFL)");
        // It is installed again, but not beside a handler that may call it.
        other.watch(&[ELEMENT[1], ELEMENT[2]]).kill();
        other.does("signal.signal(signal.SIGTRAP, lambda *_: None)");
        let refused = probing(&other.sandbox, &other.target, &ELEMENT);
        assert!(
            refused.stderr.contains("has replaced the SIGTRAP handler"),
            "{refused:?}"
        );
        assert_eq!(other.target.end().status, 0);
    });
}

/// Bursts of 20,000 writes in each of two threads, while watches come, end, and are killed.
fn bursts(python: &Python, count: usize) {
    const ON_ONE_PROGRAM: usize = 100;
    let mut left = count;
    while left > 0 {
        let mut program = Program::start(python);
        let address = program.told(ADDRESS);
        let watch = ["--addr", &address, "--len", "1", "--json", "--for", "10s"];
        let once = [&watch[..], &["--once"]].concat();
        for number in 0..left.min(ON_ONE_PROGRAM) {
            match number % 10 {
                // Set and removed in the midst of bursts.
                2 => {
                    program.does("start_writing()");
                    assert!(!program.watch(&once).printed().is_empty());
                    program.does("stop_writing()");
                }
                // Set and killed in the midst of bursts.
                3 => {
                    program.does("start_writing()");
                    let mut watching = program.watch(&watch);
                    watching.tells();
                    watching.kill();
                    program.does("stop_writing()");
                }
                // Set before the burst; killed in it.
                even if even % 2 == 0 => {
                    let mut watching = program.watch(&watch);
                    program.target.say("burst(20_000)");
                    watching.tells();
                    watching.kill();
                    assert_eq!(program.target.line(), "done");
                }
                // Set before the burst; removed in it.
                _ => {
                    let watching = program.watch(&once);
                    program.does("burst(20_000)");
                    assert!(!watching.printed().is_empty());
                }
            }
        }
        left -= left.min(ON_ONE_PROGRAM);
        let ended = program.target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn bursts_are_survived_while_watches_come_end_and_are_killed() {
    every_python(|python| bursts(python, 4));
}

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "takes an hour: `make stress`"]
fn two_thousand_bursts_are_survived_while_watches_come_end_and_are_killed() {
    const BURSTS: usize = 2000;
    let asked = PROBING_TEST_BURSTS.value();
    let count = asked.map_or(BURSTS, |count| count.to_str().unwrap().parse().unwrap());
    every_python(|python| bursts(python, count));
}
