//! `probing eval --thread` and `--frame`: code on a thread of the program, or with the locals of one of its frames.

use insta::assert_snapshot;
use probing_testkit::{CommandResult, Sandbox, Target, every_python, wait_until};

use crate::sandbox;

fn eval(sandbox: &Sandbox, target: &Target, arguments: &[&str]) -> CommandResult {
    let pid = target.pid().to_string();
    sandbox.probing([&["-t", &pid, "eval"], arguments].concat())
}

const WHERE: &str = "__import__('threading').current_thread().name";

#[test]
fn code_runs_on_the_main_thread_at_its_next_bytecode() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "workers.py");
        let eval = |arguments: &[&str]| eval(&sandbox, &target, arguments);
        assert_eq!(eval(&["--thread", "main", WHERE]).ok(), "'MainThread'\n");
        assert_eq!(
            eval(&["--thread", "MainThread", WHERE]).ok(),
            "'MainThread'\n"
        );
        let pid = target.pid().to_string();
        assert_eq!(eval(&["--thread", &pid, WHERE]).ok(), "'MainThread'\n");
        assert_eq!(
            eval(&["--thread", "main", "print('here')\nseed"]).ok(),
            "here\n42\n"
        );
        let signal = "import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN); 'set'";
        assert_eq!(eval(&["--thread", "main", signal]).ok(), "'set'\n");
        let ran = eval(&["--thread", "main", "raise SystemExit(7)"]);
        assert_eq!(ran.status, 1);
        assert!(ran.stderr.ends_with("SystemExit: 7\n"), "{ran:?}");
        assert!(!ran.stderr.contains("workers.py"), "{ran:?}");
        let ran = eval(&["--thread", "main", "--timeout", "0.9", "while True: pass"]);
        assert_eq!(ran.status, 124, "{ran:?}");
        let alone = "import asyncio\nawait asyncio.sleep(0)\nthreading.current_thread().name";
        assert_eq!(eval(&["--thread", "main", alone]).ok(), "'MainThread'\n");
        let json = eval(&["--thread", "main", "--json", "seed"]).json();
        assert_eq!(
            (&json["thread"], &json["value"]),
            (&"MainThread".into(), &"42".into())
        );
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
    });
}

#[test]
fn a_main_thread_that_is_stuck_in_c_is_shown_and_the_code_never_runs() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "commands.py");
        let ran = eval(
            &sandbox,
            &target,
            &["--thread", "main", "--timeout", "0.9", "late = True"],
        );
        assert_eq!((ran.status, ran.stdout.as_str()), (124, ""));
        let folder = probing_testkit::root().display().to_string();
        let text = ran
            .stderr
            .replace(&folder, "")
            .replace(&target.pid().to_string(), "PID");
        assert_snapshot!(text, @r#"
        error: timed out after 0.9 s: the code has not begun and will not run: thread MainThread (PID) is inside a C call: waits in read
        Thread MainThread (PID), waits in read (most recent call last)
          File "/tests/targets/commands.py", line 13, in <module>
            for line in sys.stdin:
        hint: allow more time with --timeout SECONDS (0 = no limit)
        "#);
        let ran = eval(
            &sandbox,
            &target,
            &[
                "--thread",
                "main",
                "--timeout",
                "0.9",
                "--json",
                "late = True",
            ],
        );
        let stuck = &ran.json()["stuck"];
        assert_eq!((ran.status, &stuck["begun"]), (124, &false.into()));
        assert_eq!(stuck["thread"]["frames"][0]["lineno"], 13);
        for _ in 0..2 {
            target.say("print('late' in globals())");
            assert_eq!(target.line(), "False");
            assert_eq!(target.line(), "done");
        }
    });
}

#[test]
fn code_runs_on_any_thread_from_3_12_on() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "workers.py");
        let eval = |arguments: &[&str]| eval(&sandbox, &target, arguments);
        let ran = eval(&["--thread", "worker", WHERE]);
        if python.version < (3, 12) {
            assert_eq!(ran.status, 1);
            assert!(
                ran.stderr
                    .contains("has no safe way to run code on a thread"),
                "{ran:?}"
            );
            assert!(ran.stderr.contains("hint: "), "{ran:?}");
            return;
        }
        assert_eq!(ran.ok(), "'worker'\n");
        for count in 1..20 {
            let ran = eval(&[
                "--thread",
                "worker",
                "count = globals().get('count', 0) + 1; count",
            ]);
            assert_eq!(ran.ok(), format!("{count}\n"));
        }
        let ran = eval(&["--thread", "worker", "--timeout", "0.9", "while True: pass"]);
        assert_eq!(ran.status, 124, "{ran:?}");
        let ran = eval(&["--thread", "waiter", "--timeout", "0.9", "late = True"]);
        assert_eq!(ran.status, 124, "{ran:?}");
        assert!(
            ran.stderr.contains("is inside a C call: waits in read"),
            "{ran:?}"
        );
        assert!(ran.stderr.contains("os.read(pipe, 1)"), "{ran:?}");
        // The thread goes on. What it was told to tell is taken back by a thread of ours, perhaps just behind the answer.
        let tools = "import sys; [sys.monitoring.get_tool(tool) for tool in range(6)]";
        wait_until("nothing is watched any more", || {
            eval(&[tools]).ok() == "[None, None, None, None, None, None]\n"
        });
        assert_eq!(
            eval(&["computing.is_alive(), 'late' in globals()"]).ok(),
            "(True, False)\n"
        );
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

#[test]
fn a_thread_that_is_not_there_is_told_with_those_that_are() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "workers.py");
        let ran = eval(&sandbox, &target, &["--thread", "nobody", "1"]);
        assert_eq!(ran.status, 1);
        assert!(
            ran.stderr
                .starts_with("error: no thread is named nobody\nhint: there are: MainThread ("),
            "{ran:?}"
        );
        assert!(
            ran.stderr.contains("waiter (") && ran.stderr.contains("worker ("),
            "{ran:?}"
        );
        let ran = eval(&sandbox, &target, &["--frame", "99", "1"]);
        assert_eq!(ran.status, 1);
        assert!(
            ran.stderr
                .starts_with("error: no frame 99: the stack has 1\n"),
            "{ran:?}"
        );
    });
}

#[test]
fn a_frame_of_any_thread_shows_its_locals() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "workers.py");
        let eval = |arguments: &[&str]| eval(&sandbox, &target, arguments);
        assert_eq!(
            eval(&["--frame", "0", "seed, __name__"]).ok(),
            "(42, '__main__')\n"
        );
        let frame = ["--thread", "worker", "--frame", "0"];
        let check = |code: &str, shown: &str| {
            assert_eq!(eval(&[&frame[..], &[code]].concat()).ok(), shown, "{code}");
        };
        check("limit, items", "(10, [1, 2, 3])\n");
        check("loss", "0.25\n");
        check("[limit + item for item in items]", "[11, 12, 13]\n");
        check("(lambda more: limit + more)(5)", "15\n");
        check("sum(item * limit for item in items)", "60\n");
        check("_ + 1", "61\n");
        check("global extra\nextra = limit", "");
        check("new = 3\nnew + limit", "13\n");
        assert_eq!(eval(&["extra"]).ok(), "10\n");
        assert_eq!(
            eval(&["'limit' in globals(), 'new' in globals()"]).ok(),
            "(False, False)\n"
        );
        // Also of a thread that is stuck.
        let ran = eval(&["--thread", "waiter", "--frame", "0", "purpose"]);
        assert_eq!(ran.ok(), "'waits'\n");
        for frame in ["1", "-3", "run"] {
            let ran = eval(&["--thread", "waiter", "--frame", frame, "self.name"]);
            assert_eq!(ran.ok(), "'waiter'\n", "{frame}");
        }
        let ran = eval(&["--thread", "waiter", "--frame", "none", "1"]);
        assert_eq!(ran.status, 1, "{ran:?}");
        assert!(
            ran.stderr.contains(
                "error: no frame of a function none\nhint: the stack has, innermost first: "
            ),
            "{ran:?}"
        );
        let ran = eval(&["--thread", "waiter", "--frame", "-99", "1"]);
        assert!(
            ran.stderr.contains("no frame -99: the stack has "),
            "{ran:?}"
        );
    });
}

#[test]
fn locals_of_a_frame_change_from_3_13_on_and_before_that_say_that_they_cannot() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "workers.py");
        let frame = |code| {
            eval(
                &sandbox,
                &target,
                &["--thread", "worker", "--frame", "0", code],
            )
        };
        let ran = frame("limit = 3");
        if python.version >= (3, 13) {
            assert_eq!(ran.ok(), "");
            assert_eq!(frame("limit").ok(), "3\n");
            // The function itself sees it: its total grows no more.
            assert_eq!(
                frame("a = total\nimport time; time.sleep(0.02)\nabs(total - a) <= 3").ok(),
                "True\n"
            );
        } else {
            assert_eq!(ran.status, 1);
            let says =
                "cannot change the locals of a function that runs (3.13 and newer can): limit";
            assert!(ran.stderr.contains(says), "{ran:?}");
            assert_eq!(frame("limit").ok(), "10\n");
        }
        // A module's are its globals, which can always be changed.
        assert_eq!(
            eval(&sandbox, &target, &["--frame", "0", "seed = 43"]).ok(),
            ""
        );
        assert_eq!(eval(&sandbox, &target, &["seed"]).ok(), "43\n");
    });
}
