//! Programs in odd surroundings: below a `chroot`, in a time namespace, in an archive, packed with little of Python.

use std::io::Write as _;
use std::process::{Command, Stdio};

use probing_testkit::{CommandResult, Sandbox, Target, every_python, root};

use crate::sandbox;

fn probing(sandbox: &Sandbox, target: &Target, words: &[&str]) -> CommandResult {
    let pid = target.pid().to_string();
    sandbox.probing([&["-t", pid.as_str()], words].concat())
}

fn program(name: &str) -> String {
    let path = root().join("tests/targets").join(name);
    path.display().to_string()
}

/// What a command prints that does what it is asked to.
#[track_caller]
fn done(ran: &CommandResult) -> &str {
    assert_eq!(ran.status, 0, "{ran:?}");
    &ran.stdout
}

/// Whether this user may run a command in namespaces of its own.
fn can(words: &[&str]) -> bool {
    let ran = Command::new(words[0]).args(&words[1..]).output();
    ran.is_ok_and(|output| output.status.success())
}

#[test]
fn a_program_below_a_plain_chroot_is_reached() {
    let namespace = ["unshare", "--mount", "--propagation", "private"];
    if !can(&[&namespace[..], &["mount", "--rbind", "/", "/mnt"]].concat()) {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        let mut command = Command::new(namespace[0]);
        let script = "mount --rbind / /mnt && exec chroot /mnt \"$@\"";
        command
            .args(&namespace[1..])
            .args(["sh", "-c", script, "sh"]);
        command.arg(&python.path).arg(program("idle.py"));
        let target = sandbox.target_command(command).start();
        let pid = target.pid().to_string();
        // From the namespace in which that is a plain chroot, and from one in which it is not.
        let mut inside = Command::new("nsenter");
        let command = sandbox.command();
        inside.args(["--mount", "-t", &pid]);
        inside.arg(command.get_program()).args(["-t", &pid]);
        for (name, value) in command.get_envs() {
            value.map(|value| inside.env(name, value));
        }
        let stack = CommandResult::to_the_end({
            inside.arg("backtrace");
            inside
        });
        assert!(done(&stack).contains("idle.py"), "{stack:?}");
        let outside = probing(&sandbox, &target, &["backtrace"]);
        assert!(done(&outside).contains("idle.py"), "{outside:?}");
        assert_eq!(done(&sandbox.eval(&target, "loss")), "0.25\n");
        assert_eq!(probing(&sandbox, &target, &["detach"]).status, 0);
    });
}

#[test]
fn a_program_in_a_time_namespace_is_reached() {
    let namespace = ["unshare", "--time", "--boottime", "86400", "--fork"];
    if !can(&[&namespace[..], &["true"]].concat()) {
        return;
    }
    every_python(|python| {
        let sandbox = sandbox();
        let mut command = Command::new(namespace[0]);
        command.args(&namespace[1..]).arg("--kill-child");
        command.arg(&python.path).arg(program("family.py"));
        let mut target = sandbox.target_command(command).env("PROBING", "1").start();
        let child = target.line();
        let ran = sandbox.probing(["-t", &child, "eval", "--no-attach", "6 * 7"]);
        assert_eq!(done(&ran), "42\n");
    });
}

#[test]
fn the_debugger_shows_source_of_a_zipapp() {
    every_python(|python| {
        let sandbox = sandbox();
        let (folder, app) = (sandbox.path().join("app"), sandbox.path().join("app.pyz"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::copy(program("commands.py"), folder.join("__main__.py")).unwrap();
        let source = "def stepped(x):\n    y = x + 1  # @here\n    return y\n";
        std::fs::write(folder.join("steps.py"), source).unwrap();
        let mut packed = python.run(["-m", "zipapp"]);
        packed.arg(&folder).arg("-o").arg(&app);
        assert!(packed.status().unwrap().success());
        let mut command = Command::new(&python.path);
        command.arg(&app);
        let mut target = sandbox.target_command(command).env("PROBING", "1").start();
        target.say("import steps");
        assert_eq!(target.line(), "done");
        done(&probing(
            &sandbox,
            &target,
            &["break", "steps.stepped", "--once"],
        ));
        target.say("steps.stepped(1)");
        let shown = debug(&sandbox, &target, "c\n");
        assert!(shown.stdout.contains("y = x + 1  # @here"), "{shown:?}");
        assert_eq!(target.line(), "done");
    });
}

#[test]
fn backtrace_shows_source_of_a_zipapp() {
    every_python(|python| {
        for compressed in [&[][..], &["-c"]] {
            let sandbox = sandbox();
            let (folder, app) = (sandbox.path().join("app"), sandbox.path().join("app.pyz"));
            std::fs::create_dir_all(folder.join("pkg")).unwrap();
            let source =
                "def waits():\n    print('ready', flush=True)\n    return input()  # @here\n";
            std::fs::write(folder.join("pkg/__init__.py"), source).unwrap();
            let main = "import pkg\npkg.waits()  # @main\n";
            std::fs::write(folder.join("__main__.py"), main).unwrap();
            let mut packed = python.run(["-m", "zipapp", "-p", "/usr/bin/env python3"]);
            packed.args(compressed).arg(&folder).arg("-o").arg(&app);
            assert!(packed.status().unwrap().success());
            let mut command = Command::new(&python.path);
            command.arg(&app);
            let target = sandbox.target_command(command).start();
            let shown = probing(&sandbox, &target, &["backtrace"]);
            assert!(
                shown.stdout.contains("app.pyz/pkg/__init__.py"),
                "{shown:?}"
            );
            assert!(
                shown.stdout.contains("return input()  # @here"),
                "{shown:?}"
            );
            assert!(shown.stdout.contains("pkg.waits()  # @main"), "{shown:?}");
        }
    });
}

/// What the debugger says to these commands.
fn debug(sandbox: &Sandbox, target: &Target, commands: &str) -> CommandResult {
    let mut command = sandbox.command();
    command.args(["-t", &target.pid().to_string(), "debug"]);
    command.env("XDG_STATE_HOME", sandbox.path().join("state"));
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(commands.as_bytes()).unwrap();
    drop(input);
    CommandResult::finished(child)
}

#[test]
fn a_program_packed_with_little_of_python_has_every_feature() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut command = Command::new(&python.path);
        command.args(["-I", "-S"]).arg(program("packed.py"));
        let mut target = sandbox.target_command(command).start();
        let ask = |words: &[&str]| probing(&sandbox, &target, words);
        assert_eq!(done(&ask(&["eval", "step(1)"])), "3\n");
        assert!(ask(&["eval", "1 / 0"]).stderr.contains("ZeroDivisionError"));
        done(&ask(&[
            "break",
            "packed.py:23",
            "--action",
            "log:'{value}'",
        ]));
        done(&ask(&["break", "--raise", "KeyError", "--action", "count"]));
        done(&ask(&["watch", "step:value"]));
        done(&ask(&["trace", "failing"]));
        assert!(
            ask(&["backtrace", "--all", "--locals"])
                .ok()
                .contains("packed.py")
        );
        for line in ["caught()", "step(20)"] {
            target.say(line);
            assert_eq!(target.line(), "done");
        }
        let ask = |words: &[&str]| probing(&sandbox, &target, words);
        let rows = |sql: &str| done(&ask(&["query", "--csv", sql])).replace('\r', "");
        assert_eq!(rows("SELECT text FROM python.captures"), "text\n'40'\n");
        assert_eq!(
            rows("SELECT new FROM python.variables WHERE name = 'value'"),
            "new\n40\n41\n"
        );
        assert_eq!(
            rows("SELECT hits FROM python.breakpoints WHERE kind = 'raise'"),
            "hits\n1\n"
        );
        assert_ne!(
            rows("SELECT count(*) FROM python.trace_event"),
            "count(*)\n0\n"
        );
        done(&ask(&["delete", "all"]));
        done(&ask(&["break", "step", "--once"]));
        target.say("step(3)");
        let shown = debug(&sandbox, &target, "n\np value\nc\n");
        assert!(shown.stdout.contains("value += 1  # @here"), "{shown:?}");
        assert_eq!(target.line(), "done");
        assert_eq!(probing(&sandbox, &target, &["detach"]).status, 0);
        assert_eq!(target.end().stderr, [""; 0]);
    });
}
