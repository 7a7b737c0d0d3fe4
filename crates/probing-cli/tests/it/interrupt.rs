//! Code that does not end: deadlines, Ctrl-C, clients that vanish.
//!
//! In no case does anyone else wait.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use probing_testkit::{CommandResult, Sandbox, Target, every_python, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox;

/// Starts an eval that never ends and returns when it runs.
fn endless(sandbox: &Sandbox, target: &mut Target) -> Child {
    let mut command = sandbox.command();
    command
        .args(["-t", &target.pid().to_string(), "eval", "--timeout", "0"])
        .arg("import time\nprint('begun', flush=True)\nwhile True: begun = True")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("the eval runs", || {
        sandbox.eval(target, "'begun' in globals()").ok() == "True\n"
    });
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

/// Only the probe's own thread is left beside the program's.
fn wait_until_calm(target: &Target) {
    wait_until("the evals are over", || target.usage().threads == 2);
}

/// Evaluates code that never ends, with a deadline that comes after its begin: the first that does, of ever longer ones.
fn past_a_deadline(sandbox: &Sandbox, target: &Target, code: &str) -> CommandResult {
    let pid = target.pid().to_string();
    let run = |seconds| sandbox.probing(["-t", &pid, "eval", "--timeout", seconds, code]);
    let mut ran = ["0.1", "0.5", "2.0", "8.0"].into_iter().map(run);
    ran.find(|ran| !ran.stderr.contains("has not begun"))
        .expect("code begins")
}

#[test]
fn code_that_never_ends_blocks_no_other_client() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "idle.py");
        let mut child = endless(&sandbox, &mut target);
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
        assert!(sandbox.probing(["list"]).ok().contains("running"));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_calm(&target);
    });
}

#[test]
fn ctrl_c_interrupts_the_remote_code() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "idle.py");
        let child = endless(&sandbox, &mut target);
        signal(&child, Signal::INT);
        let ran = CommandResult::finished(child);
        assert_eq!(
            (ran.status, ran.stdout.as_str()),
            (130, "begun\n"),
            "{ran:?}"
        );
        assert!(ran.stderr.ends_with("KeyboardInterrupt\n"), "{ran:?}");
        wait_until_calm(&target);
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

#[test]
fn a_client_that_is_killed_takes_its_code_along() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "idle.py");
        let mut child = endless(&sandbox, &mut target);
        signal(&child, Signal::KILL);
        child.wait().unwrap();
        wait_until_calm(&target);
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
    });
}

#[test]
fn a_deadline_interrupts_and_says_so() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        let code = "print('begun')\nwhile True: pass";
        let ran = past_a_deadline(&sandbox, &target, code);
        assert_eq!((ran.status, ran.stdout.as_str()), (124, "begun\n"));
        insta::assert_snapshot!(crate::scrubbed(&ran.stderr), @r"
        error: timed out after N.N s: the code was interrupted
        hint: allow more time with --timeout SECONDS (N = no limit)
        ");
        let ran = sandbox.probing([
            "-t",
            &pid,
            "eval",
            "--timeout",
            "0.2",
            "--json",
            "while True: pass",
        ]);
        assert_eq!((ran.status, &ran.json()["timed_out"]), (124, &true.into()));
        wait_until_calm(&target);
    });
}

#[test]
fn code_that_is_stuck_in_c_is_told_as_such() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let code = "import time\ndef doze(): time.sleep(600)\ndoze()";
        let ran = past_a_deadline(&sandbox, &target, code);
        assert_eq!(ran.status, 124);
        let thread = crate::scrubbed(&ran.stderr)
            .replace("clock_nanosleep", "CALL")
            .replace("pselectN", "CALL");
        insta::assert_snapshot!(thread, @r#"
        error: timed out after N.N s: the code is inside a C call and ends when that returns
        Thread probing-eval (N), waits in CALL (most recent call last)
         File "<eval N>", line N, in <module>
         File "<eval N>", line N, in doze
        hint: allow more time with --timeout SECONDS (N = no limit)
        "#);
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn code_may_catch_the_interrupt() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let code = "def spin():\n    while True: pass\ntry: spin()\nexcept KeyboardInterrupt: print('caught')\n'went on'";
        let ran = past_a_deadline(&sandbox, &target, code);
        assert_eq!(
            (ran.status, ran.stdout.as_str()),
            (124, "caught\n"),
            "{ran:?}"
        );
        wait_until_calm(&target);
    });
}

#[test]
fn code_that_waits_for_the_gil_is_told_as_such_and_does_not_run_late() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "holds_gil.py");
        target.say("hold");
        assert_eq!(target.line(), "holding");
        let pid = target.pid().to_string();
        let ran = sandbox.probing(["-t", &pid, "eval", "--timeout", "0.1", "late = True"]);
        assert_eq!(ran.status, 124, "{ran:?}");
        assert!(ran.stderr.contains("will not run: thread"), "{ran:?}");
        assert!(sandbox.probing(["list"]).ok().contains("running"));
        target.say("release");
        assert_eq!(target.line(), "released");
        assert_eq!(sandbox.eval(&target, "'late' in globals()").ok(), "False\n");
    });
}

#[test]
fn the_holder_of_the_gil_is_named_while_code_waits_for_it() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "holds_gil.py");
        target.say("hold");
        assert_eq!(target.line(), "holding");
        let mut command = sandbox.command();
        command
            .args(["-t", &target.pid().to_string(), "eval", "'it ran'"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let stderr = child.stderr.take().unwrap();
        BufReader::new(stderr).read_line(&mut line).unwrap();
        let told =
            crate::scrubbed(&line.replace(&probing_testkit::root().display().to_string(), ""));
        insta::assert_snapshot!(told, @"note: the code waits to begin: thread N (MainThread) holds the GIL in <module> (/tests/targets/holds_gil.py:N)");
        target.say("release");
        assert_eq!(CommandResult::finished(child).ok(), "'it ran'\n");
    });
}

/// Cancels `code`, which never ends, many times, several at once; then `check` works in another thread, and the process
/// ends.
#[track_caller]
fn cancelled_many_times(prepare: &str, code: &str, check: &str) {
    const ROUNDS: usize = 2;
    const AT_ONCE: usize = 4;
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        sandbox.eval(&target, prepare).ok();
        for _ in 0..ROUNDS {
            let start = || {
                let mut command = sandbox.command();
                command
                    .args(["-t", &target.pid().to_string(), "eval", "--timeout", "0.05"])
                    .arg(code)
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
                command.spawn().unwrap()
            };
            let children: Vec<Child> = std::iter::repeat_with(start).take(AT_ONCE).collect();
            for ran in children.into_iter().map(CommandResult::finished) {
                assert_eq!(ran.status, 124, "{ran:?}");
            }
        }
        wait_until_calm(&target);
        assert_eq!(sandbox.eval(&target, check).ok(), "True\n");
        let interval = "__import__('sys').getswitchinterval()";
        assert_eq!(sandbox.eval(&target, interval).ok(), "0.005\n");
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}

#[test]
fn an_import_that_is_cancelled_leaves_no_lock_behind() {
    cancelled_many_times(
        "import sys",
        // Of several at once, some find that another one has just removed it.
        "while True:\n    sys.modules.pop('colorsys', None)\n    try: import colorsys\n    except (ImportError, KeyError): pass\n    for _ in range(100): pass",
        "sys.modules.pop('colorsys', None)\nimport colorsys\ncolorsys.ONE_THIRD > 0",
    );
}

#[test]
fn code_that_is_cancelled_in_the_standard_library_leaves_no_lock_behind() {
    cancelled_many_times(
        "import io, logging, queue\nlog = logging.getLogger('probed')\nlog.propagate = False\nlog.addHandler(logging.StreamHandler(io.StringIO()))\nitems = queue.Queue()",
        "while True:\n    log.warning('x')\n    items.put(1)\n    items.get()",
        "log.warning('x')\nitems.put(1)\nitems.get() == 1",
    );
}

#[test]
fn an_import_whose_module_never_ends_is_cancelled() {
    every_python(|python| {
        let sandbox = sandbox();
        std::fs::write(sandbox.path().join("endless.py"), "while True: pass\n").unwrap();
        let target = sandbox.probed(python, "idle.py");
        let folder = sandbox.path().display();
        let code = format!("import sys\nsys.path.insert(0, '{folder}')\nimport endless");
        let ran = past_a_deadline(&sandbox, &target, &code);
        assert!(ran.stderr.contains("was interrupted"), "{ran:?}");
        wait_until_calm(&target);
        let check = "'endless' in sys.modules";
        assert_eq!(sandbox.eval(&target, check).ok(), "False\n");
        assert_eq!(target.end().status, 0);
    });
}
