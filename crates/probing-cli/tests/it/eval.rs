//! `probing eval`: values, namespaces, errors, where code comes from.

use insta::assert_snapshot;
use probing_testkit::{CommandResult, every_python};
use std::io::Write as _;
use std::process::Stdio;

use crate::sandbox;

#[test]
fn the_value_of_a_last_expression_is_shown_like_at_a_prompt() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let check = |code, shown| assert_eq!(sandbox.eval(&target, code).ok(), shown, "{code}");
        check("loss", "0.25\n");
        check("'text'", "'text'\n");
        check("None", "");
        check("x = 3", "");
        check("x = 3; x * 2", "6\n");
        check("1; 2; 3", "3\n");
        check("", "");
        check("# nothing", "");
    });
}

#[test]
fn a_target_may_be_the_first_word_a_name_or_a_socket() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        assert_eq!(sandbox.probing([&pid, "eval", "step"]).ok(), "7\n");
        let folder = sandbox.runtime_dir().join(&sandbox.target_dirs()[0]);
        let socket = format!("unix:{}/probe.sock", folder.display());
        assert_eq!(sandbox.probing(["-t", &socket, "eval", "step"]).ok(), "7\n");
        let mut command = sandbox.command();
        command.env("PROBING_TARGET", &pid).args(["eval", "step"]);
        assert_eq!(CommandResult::to_the_end(command).ok(), "7\n");
    });
}

#[test]
fn the_namespace_is_the_live_one_in_both_directions() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "commands.py");
        assert_eq!(sandbox.eval(&target, "loss = 0.5").ok(), "");
        target.say("print(loss, train_step(2))");
        assert_eq!(target.line(), "0.5 0.25");
        assert_eq!(target.line(), "done");
        target.say("loss = 8.0");
        assert_eq!(target.line(), "done");
        assert_eq!(sandbox.eval(&target, "train_step(2)").ok(), "4.0\n");
        assert_eq!(sandbox.eval(&target, "__name__").ok(), "'__main__'\n");
    });
}

#[test]
fn blocks_run_at_once_with_or_without_a_final_newline() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let check = |code, printed| assert_eq!(sandbox.eval(&target, code).ok(), printed, "{code}");
        check("for i in range(3):\n    print(i)", "0\n1\n2\n");
        check("for i in range(3):\n    print(i)\n", "0\n1\n2\n");
        check(
            "if step > 5:\n    print('late')\nelse:\n    print('early')",
            "late\n",
        );
        check("def double(x):\n    return 2 * x\n\ndouble(step)", "14\n");
        check(
            "with open('/dev/null') as f:\n    print(f.name)",
            "/dev/null\n",
        );
        check(
            "import math\n[math.floor(x)\n for x in (1.5, 2.5)]",
            "[1, 2]\n",
        );
        check(
            "'a string first'\nx = 1\n__doc__",
            "'Waits for its standard input to end, and does nothing else.'\n",
        );
    });
}

#[test]
fn a_traceback_shows_the_users_code_and_none_of_ours() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let ran = sandbox.eval(
            &target,
            "def outer(x):\n    return train_step(x)\n\nouter(0)",
        );
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
        let lines: Vec<&str> = ran
            .stderr
            .lines()
            .filter(|line| !line.trim_matches([' ', '~', '^']).is_empty())
            .collect();
        let text = lines
            .join("\n")
            .replace(&probing_testkit::root().display().to_string(), "")
            .replace("float division", "division");
        assert_snapshot!(text, @r#"
        Traceback (most recent call last):
          File "<eval 1>", line 4, in <module>
            outer(0)
          File "<eval 1>", line 2, in outer
            return train_step(x)
          File "/tests/targets/idle.py", line 10, in train_step
            return loss / batch
        ZeroDivisionError: division by zero
        "#);
        // A function defined by an earlier eval still shows its lines.
        let ran = sandbox.eval(&target, "outer(0)");
        assert!(ran.stderr.contains("return train_step(x)"), "{ran:?}");
    });
}

#[test]
fn marks_stand_below_what_raised() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let ran = sandbox.eval(&target, "step / 0");
        if python.version >= (3, 11) {
            assert!(
                ran.stderr.contains("\n    step / 0\n    ~~~~~^~~\n"),
                "{ran:?}"
            );
        }
    });
}

#[test]
fn exit_statuses_tell_exceptions_from_syntax_errors() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let check = |code, status, says: &str| {
            let ran = sandbox.eval(&target, code);
            assert_eq!(ran.status, status, "{code}: {ran:?}");
            assert!(ran.stderr.contains(says), "{code}: {ran:?}");
        };
        check("1 / 0", 1, "ZeroDivisionError: division by zero");
        check("raise SystemExit(7)", 1, "SystemExit: 7");
        check("raise KeyboardInterrupt", 1, "KeyboardInterrupt");
        check(
            "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
            1,
            "E",
        );
        check("x = (", 2, "SyntaxError");
        check("for i in range(3):\nprint(i)", 2, "IndentationError");
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
    });
}

#[test]
fn code_comes_from_a_file_or_from_standard_input() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        let file = sandbox.path().join("look.py");
        std::fs::write(&file, "for i in range(2):\n    print(i, step)").unwrap();
        assert_eq!(
            sandbox
                .probing(["-t", &pid, "eval", "-f", file.to_str().unwrap()])
                .ok(),
            "0 7\n1 7\n"
        );

        let mut command = sandbox.command();
        command
            .args(["-t", &pid, "eval", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"step + 1").unwrap();
        assert_eq!(CommandResult::finished(child).ok(), "8\n");

        let missing = sandbox.probing(["-t", &pid, "eval", "-f", "/nowhere/look.py"]);
        assert_eq!(missing.status, 1);
        assert_snapshot!(missing.stderr, @"error: cannot read /nowhere/look.py: No such file or directory (os error 2)");
    });
}

#[test]
fn json_has_value_output_exception_and_time() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        let eval = |code| sandbox.probing(["-t", &pid, "eval", "--json", code]);

        let ran = eval("print('seen'); step");
        let json = ran.json();
        assert_eq!(
            (ran.status, &json["value"], &json["output"]),
            (0, &"7".into(), &"seen\n".into())
        );
        assert_eq!(
            (&json["exception"], &json["timed_out"]),
            (&serde_json::Value::Null, &false.into())
        );
        assert!(json["took_seconds"].as_f64().unwrap() > 0.0);

        let ran = eval("print('before'); train_step(0)");
        let exception = &ran.json()["exception"];
        assert_eq!(ran.status, 1);
        assert_eq!(ran.json()["output"], "before\n");
        assert_eq!(exception["type"], "ZeroDivisionError");
        let frames = exception["frames"].as_array().unwrap();
        assert_eq!(
            (&frames[0]["func"], &frames[0]["lineno"]),
            (&"<module>".into(), &1.into())
        );
        assert_eq!(
            (&frames[1]["func"], &frames[1]["lineno"]),
            (&"train_step".into(), &10.into())
        );

        let ran = eval("x = (");
        assert_eq!(
            (ran.status, &ran.json()["exception"]["type"]),
            (2, &"SyntaxError".into())
        );
    });
}

#[test]
fn odd_text_arrives_whole() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        assert_eq!(
            sandbox.eval(&target, "print('é🐍\\0\\x1b')").ok(),
            "é🐍\0\u{1b}\n"
        );
        assert_eq!(sandbox.eval(&target, "print('\\udc80')").ok(), "\\udc80\n");
        assert_eq!(sandbox.eval(&target, "'\\udc80'").ok(), "'\\udc80'\n");
        let long = sandbox.eval(&target, "'x' * 10_000_000");
        assert!(
            long.ok().ends_with("… (5805698 bytes more)\n"),
            "{}",
            &long.stdout[long.stdout.len() - 60..]
        );
    });
}

#[test]
fn a_program_that_breaks_its_builtins_can_still_be_debugged() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "commands.py");
        target.say("import builtins; keep = print, exec; builtins.compile = builtins.repr = builtins.eval = None");
        assert_eq!(target.line(), "done");
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
        assert!(
            sandbox
                .eval(&target, "1 / 0")
                .stderr
                .contains("ZeroDivisionError")
        );
    });
}

#[test]
fn the_last_value_is_called_underscore() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let check = |code, shown| assert_eq!(sandbox.eval(&target, code).ok(), shown, "{code}");
        check("6 * 7", "42\n");
        check("x = 1", "");
        check("None", "");
        check("_ + 1", "43\n");
        check("[_ + i for i in range(2)]", "[43, 44]\n");
        check(
            "_[1], sum(_ for i in range(2)) if isinstance(_, int) else 0",
            "(44, 0)\n",
        );
        check("print(_)", "(44, 0)\n");
        check("class Big: pass\n\nbig = Big()", "");
        assert!(sandbox.eval(&target, "big").ok().contains("Big object"));
        check("_ is big", "True\n");
        check(
            "'_' in globals(), '_' in dir(__builtins__)",
            "(False, False)\n",
        );
        // What nobody else holds is not kept alive.
        check(
            "import weakref\nweak = weakref.ref(big)\ndel big\nweak()",
            "",
        );
        let ran = sandbox.eval(&target, "{'a': Big()}");
        assert_eq!(ran.status, 0);
        let ran = sandbox.eval(&target, "_");
        assert!(
            ran.stderr.contains("NameError: name '_' is not defined"),
            "{ran:?}"
        );
    });
}

#[test]
fn an_underscore_of_the_program_is_the_programs() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let check = |code, shown| assert_eq!(sandbox.eval(&target, code).ok(), shown, "{code}");
        check("6 * 7", "42\n");
        check("import builtins; builtins._ = str.upper", "");
        check(
            "_('translated'), [_(c) for c in 'ab']",
            "('TRANSLATED', ['A', 'B'])\n",
        );
        check("del builtins._", "");
        check("_[1]", "['A', 'B']\n");
        check("for _ in range(3): pass", "");
        check("6 * 7", "42\n");
        check("_", "2\n");
        check("del _", "");
        check("_", "2\n");
    });
}
