//! `probing eval` of code that awaits: on the program's event loop, or on one of its own.

use insta::assert_snapshot;
use probing_testkit::{Python, Sandbox, Target, every_python};

use crate::sandbox;

/// A target with loops in these threads, whose tasks print all the time.
fn with_loops(sandbox: &Sandbox, python: &Python, threads: &[&str]) -> Target {
    let mut target = sandbox.target(python, "loops.py").env("PROBING", "1");
    for thread in threads {
        target = target.arg(thread);
    }
    target.start()
}

/// What the program's own tasks print stays with the program, all of it.
fn ended_unharmed(target: Target) {
    let ended = target.end();
    assert_eq!(ended.status, 0);
    assert_eq!(ended.stderr, [""; 0]);
    assert!(
        ended.stdout.iter().all(|line| line == "tick"),
        "{:?}",
        ended.stdout
    );
}

const WHERE: &str =
    "import asyncio, threading\nawait asyncio.sleep(0)\nthreading.current_thread().name";

#[test]
fn code_that_awaits_runs_on_the_loop_of_the_main_thread() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = with_loops(&sandbox, python, &["main", "other"]);
        let check = |code, shown| assert_eq!(sandbox.eval(&target, code).ok(), shown, "{code}");
        check(WHERE, "'MainThread'\n");
        check("await asyncio.sleep(0, 'value')", "'value'\n");
        check("await asyncio.sleep(0); x = 3", "");
        check("x; await asyncio.sleep(0)", "");
        check("async with asyncio.Lock():\n    print('held')", "held\n");
        check(
            "async def count():\n    for i in range(3):\n        yield i\n\nasync for i in count():\n    print(i)",
            "0\n1\n2\n",
        );
        check("[i async for i in count()]", "[0, 1, 2]\n");
        check("await asyncio.sleep(0, 7)", "7\n");
        check("_ + 1", "8\n");
        ended_unharmed(target);
    });
}

#[test]
fn what_its_tasks_and_threads_print_comes_here_too_and_nothing_else_does() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = with_loops(&sandbox, python, &["main"]);
        let code = "import asyncio\nasync def say(n):\n    for i in range(3):\n        print('said', n)\n        await asyncio.sleep(0.01)\n\
            await asyncio.gather(say(1), say(2))\nawait asyncio.to_thread(print, 'from a thread')\nprint('end')";
        let printed = sandbox.eval(&target, code).ok().to_owned();
        assert_eq!(printed.matches("said 1\n").count(), 3, "{printed}");
        assert_eq!(printed.matches("said 2\n").count(), 3, "{printed}");
        assert!(printed.ends_with("from a thread\nend\n"), "{printed}");
        assert!(!printed.contains("tick"), "{printed}");
        // A task that outlives its eval prints for the program.
        let code = "async def late(begun):\n    begun.set()\n    await asyncio.sleep(0.05)\n    print('tick')\n\
            begun = asyncio.Event()\nleft = asyncio.create_task(late(begun))\nawait begun.wait()";
        assert_eq!(sandbox.eval(&target, code).ok(), "True\n");
        assert_eq!(sandbox.eval(&target, "await left").ok(), "");
        ended_unharmed(target);
    });
}

#[test]
fn without_a_loop_in_main_the_only_one_is_used_and_of_several_one_must_be_chosen() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = with_loops(&sandbox, python, &["aside"]);
        assert_eq!(sandbox.eval(&target, WHERE).ok(), "'aside'\n");

        let target = with_loops(&sandbox, python, &["left", "right"]);
        let ran = sandbox.eval(&target, WHERE);
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
        assert_snapshot!(ran.stderr, @r"
        error: several event loops run, none of them in the main thread
        hint: choose with --thread, one of: right, left
        ");
        let pid = target.pid().to_string();
        let ran = sandbox.probing(["-t", &pid, "eval", "--thread", "right", WHERE]);
        assert_eq!(ran.ok(), "'right'\n");
        // A thread that runs a loop can run code that awaits nothing, too.
        let name = "__import__('threading').current_thread().name";
        let ran = sandbox.probing(["-t", &pid, "eval", "--thread", "left", name]);
        assert_eq!(ran.ok(), "'left'\n");
    });
}

#[test]
fn without_any_loop_code_has_one_of_its_own() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let check = |code, shown| assert_eq!(sandbox.eval(&target, code).ok(), shown, "{code}");
        check(
            "import asyncio\nprint(await asyncio.sleep(0, 'slept'))\nstep",
            "slept\n7\n",
        );
        check(
            "async def say(n): print(n)\nleft = asyncio.create_task(asyncio.sleep(1000))\nawait say(step)",
            "7\n",
        );
        check("left.cancelled()", "True\n");
        let ran = sandbox.eval(&target, "await asyncio.sleep(0)\n1 / 0");
        assert_eq!(ran.status, 1);
        assert!(
            ran.stderr.starts_with(
                "Traceback (most recent call last):\n  File \"<eval 4>\", line 2, in <module>\n"
            ),
            "{ran:?}"
        );
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

#[test]
fn a_deadline_cancels_what_waits_and_interrupts_what_computes() {
    every_python(|python| {
        let sandbox = sandbox();
        for threads in [&["main"][..], &[]] {
            let target = with_loops(&sandbox, python, threads);
            let pid = target.pid().to_string();
            let eval = |code| sandbox.probing(["-t", &pid, "eval", "--timeout", "0.9", code]);
            assert_eq!(sandbox.eval(&target, "import asyncio").ok(), "");
            let waits = "try: await asyncio.sleep(1000)\nexcept asyncio.CancelledError: print('cancelled'); raise";
            let ran = eval(waits);
            assert_eq!(
                (ran.status, ran.stdout.as_str()),
                (124, "cancelled\n"),
                "{ran:?}"
            );
            let ran = eval("await asyncio.sleep(0)\nprint('begun')\nwhile True: pass");
            assert_eq!(
                (ran.status, ran.stdout.as_str()),
                (124, "begun\n"),
                "{ran:?}"
            );
            assert!(ran.stderr.contains("the code was interrupted"), "{ran:?}");
            assert_eq!(
                sandbox.eval(&target, "await asyncio.sleep(0, 1)").ok(),
                "1\n"
            );
            ended_unharmed(target);
        }
    });
}

#[test]
fn no_exception_ends_the_programs_loop() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = with_loops(&sandbox, python, &["main"]);
        for exception in [
            "SystemExit",
            "KeyboardInterrupt",
            "GeneratorExit",
            "MemoryError",
        ] {
            let ran = sandbox.eval(
                &target,
                &format!("import asyncio\nawait asyncio.sleep(0)\nraise {exception}"),
            );
            assert_eq!(ran.status, 1, "{exception}: {ran:?}");
            assert!(ran.stderr.contains(exception), "{ran:?}");
        }
        assert_eq!(
            sandbox.eval(&target, "await asyncio.sleep(0, 1)").ok(),
            "1\n"
        );
        ended_unharmed(target);
    });
}
