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
