//! Whose output goes where while evaluated code runs.

use probing_testkit::every_python;

use crate::sandbox;

#[test]
fn what_code_prints_comes_here_and_what_others_print_stays_there() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "chatter.py");
        // The eval lasts until the other thread has printed fifty more lines.
        let code = "import time\nfor i in range(50):\n    print('mine', i)\n    time.sleep(0.002)";
        let expected: String = (0..50).map(|i| format!("mine {i}\n")).collect();
        assert_eq!(sandbox.eval(&target, code).ok(), expected);
        assert_eq!(target.line(), "chatter 0");
        let ended = target.end();
        for (number, line) in ended.stdout.iter().enumerate() {
            assert_eq!(line, &format!("chatter {}", number + 1));
        }
        assert!(ended.stdout.len() > 20, "{ended:?}");
        assert_eq!(ended.stderr, [""; 0]);
    });
}

#[test]
fn helpers_and_log_handlers_that_were_there_before_print_to_us_too() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "chatter.py");
        let ran = sandbox.eval(&target, "helper('hello')");
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "helper: hello\n"));
        assert_eq!(ran.stderr, "logged: hello\n");
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

#[test]
fn the_streams_of_the_program_stay_the_objects_they_are() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "commands.py");
        target.say("before = sys.stdout, sys.stderr, dict(sys.stdout.__dict__)");
        assert_eq!(target.line(), "done");
        let check = "(sys.stdout is before[0], sys.stderr is before[1])";
        assert_eq!(sandbox.eval(&target, check).ok(), "(True, True)\n");
        target.say(&format!("print({check}, sys.stdout.__dict__ == before[2])"));
        assert_eq!(target.line(), "(True, True) True");
    });
}

#[test]
fn a_stream_that_is_none_or_cannot_be_changed_is_covered_too() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "commands.py");
        assert_eq!(
            sandbox
                .eval(&target, "real, sys.stdout = sys.stdout, None")
                .ok(),
            ""
        );
        assert_eq!(sandbox.eval(&target, "print('to us')").ok(), "to us\n");
        let fixed = "class Fixed:\n    __slots__ = ()\n    write, flush = real.write, real.flush\nsys.stdout = Fixed()";
        assert_eq!(sandbox.eval(&target, fixed).ok(), "");
        assert_eq!(
            sandbox.eval(&target, "print('to us again')").ok(),
            "to us again\n"
        );
        target.say("print(type(sys.stdout).__name__)");
        assert_eq!(target.line(), "Fixed");
    });
}

#[test]
fn ten_megabytes_arrive_in_order() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let ran = sandbox.eval(&target, "for i in range(100_000):\n    print(i, 'x' * 94)");
        assert_eq!(ran.status, 0);
        let mut lines = 0;
        for (number, line) in ran.stdout.lines().enumerate() {
            assert!(
                line.starts_with(&format!("{number} x")),
                "line {number}: {line}"
            );
            lines += 1;
        }
        assert_eq!(lines, 100_000);
    });
}

#[test]
fn bytes_and_other_handles_on_the_streams_are_covered_too() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "chatter.py");
        let check = |code, stdout: &str, stderr: &str| {
            let ran = sandbox.eval(&target, code);
            assert_eq!(
                (ran.status, ran.stdout.as_str()),
                (0, stdout),
                "{code}: {ran:?}"
            );
            assert_eq!(ran.stderr, stderr, "{code}");
        };
        check("sys.stdout.buffer.write(b'bytes\\n')", "bytes\n6\n", "");
        check(
            "sys.stderr.buffer.write(memoryview(b'bytes\\n')); None",
            "",
            "bytes\n",
        );
        check("sys.stdout.writelines(['a\\n', 'b\\n'])", "a\nb\n", "");
        check("print('words', file=sys.stderr)", "", "words\n");
        check(
            "print('begun', file=sys.__stdout__, flush=True)",
            "begun\n",
            "",
        );
        check("logging.error('heard')", "", "heard\n");
        let handler = "handler = logging.StreamHandler(); logging.getLogger('own').addHandler(handler); logging.getLogger('own').propagate = False";
        check(handler, "", "");
        check("logging.getLogger('own').error('heard')", "", "heard\n");
        check(
            "import warnings; warnings.warn_explicit('mind', UserWarning, 'file', 1)",
            "",
            "file:1: UserWarning: mind\n",
        );
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

#[test]
fn what_the_program_has_not_flushed_stays_its_own() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox
            .target(python, "commands.py")
            .with(|command| {
                command.env_remove("PYTHONUNBUFFERED");
            })
            .env("PROBING", "1")
            .start();
        target.say("print('of the program', end=' ')");
        assert_eq!(target.line(), "of the program done");
        target.say("print('once more', end=' '); sys.stdout.flush = lambda: None; sys.stdin.readline(); del sys.stdout.flush");
        let flushed = sandbox.eval(&target, "print('ours', flush=True); sys.__stdout__.flush()");
        assert_eq!(flushed.ok(), "ours\n");
        target.say("");
        assert_eq!(target.line(), "once more done");
    });
}

#[test]
fn evaluated_code_does_not_take_the_programs_input() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "commands.py");
        for code in [
            "input()",
            "input('name? ')",
            "sys.stdin.read()",
            "sys.stdin.readline()",
            "sys.stdin.buffer.read1()",
            "import os; os.read(sys.stdin.fileno(), 1)",
        ] {
            let ran = sandbox.eval(&target, code);
            assert_eq!(ran.status, 1, "{code}: {ran:?}");
            let says = "EOFError: evaluated code has no standard input\n";
            assert!(ran.stderr.ends_with(says), "{code}: {ran:?}");
        }
        target.say("print('heard')");
        assert_eq!(target.line(), "heard");
    });
}

#[test]
fn output_is_cut_where_asked_and_says_so() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        let eval = |most, code| sandbox.probing(["-t", &pid, "eval", "--max-output", most, code]);
        let ran = eval("10", "print('12345678é', end=''); print('more'); step");
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "12345678é7\n"));
        assert_eq!(
            ran.stderr,
            "\nnote: 5 more bytes of output are not shown (see --max-output)\n"
        );
        // A character is not cut in two, and what comes after a cut is not shown either.
        let ran = eval("9", "print('12345678é', end=''); print('1', end='')");
        assert_eq!((ran.status, ran.stdout.as_str()), (0, "12345678"));
        let ran = sandbox.probing([
            "-t",
            &pid,
            "eval",
            "--max-output",
            "1K",
            "--json",
            "print('x' * 5000)",
        ]);
        let json = ran.json();
        assert_eq!(json["output_dropped"], 5001 - 1024);
        assert_eq!(json["output"].as_str().unwrap().len(), 1024);
        // The default; and memory stays small however much is printed.
        let before = target.usage().rss_kib;
        let ran = sandbox.eval(&target, "for i in range(40): print('x' * 1_000_000)");
        assert_eq!(ran.stdout.len(), 10 << 20);
        assert_eq!(
            ran.stderr,
            format!(
                "\nnote: {} more bytes of output are not shown (see --max-output)\n",
                40 * 1_000_001 - (10 << 20)
            )
        );
        let grown = target.usage().rss_kib.saturating_sub(before);
        assert!(grown < 16 << 10, "{grown} KiB");
    });
}
