//! `probing run -- COMMAND`: any program, with nothing installed in its environment.

use std::path::PathBuf;
use std::process::Command;

use probing_testkit::{Python, Sandbox, TargetBuilder, every_python, root};
use rustix::process::Signal;

use crate::sandbox;

/// An interpreter of the same version that knows nothing of us.
fn bare(sandbox: &Sandbox, python: &Python) -> PathBuf {
    let folder = sandbox.path().join("bare");
    let made = python
        .run(["-m", "venv", "--without-pip"])
        .arg(&folder)
        .status()
        .unwrap();
    assert!(made.success());
    let interpreter = folder.join("bin/python");
    let knows = Command::new(&interpreter)
        .args(["-c", "import probing"])
        .output()
        .unwrap();
    assert!(
        !knows.status.success(),
        "the bare environment has the package"
    );
    interpreter
}

fn run(sandbox: &Sandbox, words: &[&str]) -> TargetBuilder {
    let mut command = sandbox.command();
    command.args(["run", "--"]).args(words);
    sandbox.target_command(command)
}

fn target(name: &str) -> String {
    root()
        .join("tests/targets")
        .join(name)
        .display()
        .to_string()
}

#[test]
fn a_program_of_a_bare_environment_gets_the_probe() {
    every_python(|python| {
        let sandbox = sandbox();
        let interpreter = bare(&sandbox, python);
        let target = run(
            &sandbox,
            &[interpreter.to_str().unwrap(), &target("idle.py")],
        )
        .start();
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
        let code =
            "import sys; [p for p in sys.path if p.endswith('_boot')], 'probing' in sys.modules";
        assert_eq!(sandbox.eval(&target, code).ok(), "([], False)\n");
        let ended = target.end();
        assert_eq!(
            (ended.status, ended.stdout, ended.stderr),
            (0, vec![], vec![])
        );
        assert_eq!(sandbox.target_dirs(), [""; 0]);
    });
}

#[test]
fn python_children_get_it_too() {
    every_python(|python| {
        let sandbox = sandbox();
        let interpreter = bare(&sandbox, python);
        let mut target = run(
            &sandbox,
            &[interpreter.to_str().unwrap(), &target("family.py")],
        )
        .start();
        let child = target.line();
        assert_eq!(
            sandbox
                .probing([
                    "-t",
                    &child,
                    "eval",
                    "WAIT if 'WAIT' in globals() else 'child'"
                ])
                .ok(),
            "'child'\n"
        );
        assert_eq!(
            sandbox.eval(&target, "child.pid").ok(),
            format!("{child}\n")
        );
    });
}

#[test]
fn a_python_that_ignores_the_hook_is_said_to_start_without_the_probe() {
    every_python(|python| {
        let sandbox = sandbox();
        let python = python.path.to_str().unwrap();
        let name = python.rsplit('/').next().unwrap();
        for option in ["-I", "-S", "-E"] {
            let target = run(&sandbox, &[python, option, &target("idle.py")]).start();
            let pid = target.pid().to_string();
            assert_eq!(sandbox.probing(["-t", &pid, "attach"]).status, 0);
            assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
            let words = [
                format!(
                    "warning: {name} {option} disables the start-up hook: the program starts without the probe"
                ),
                format!("hint: attach after the start: probing -t {pid} attach"),
            ];
            assert_eq!(target.end().stderr, words);
        }
    });
}

#[test]
fn exit_status_and_signals_are_the_programs_own() {
    every_python(|python| {
        let sandbox = sandbox();
        let python = python.path.to_str().unwrap();
        let status = |words: &[&str]| run(&sandbox, words).start_without_waiting().wait();
        assert_eq!(status(&[python, "-c", "raise SystemExit(7)"]).status, 7);
        assert_eq!(status(&["bash", "-c", "exit 5"]).status, 5);
        let target = run(&sandbox, &[python, &target("idle.py")]).start();
        target.signal(Signal::TERM);
        assert_eq!(target.wait().status, 128 + 15);
    });
}

#[test]
fn the_programs_own_sitecustomize_still_runs() {
    every_python(|python| {
        let sandbox = sandbox();
        let site = sandbox.path().join("site");
        std::fs::create_dir(&site).unwrap();
        std::fs::write(
            site.join("sitecustomize.py"),
            "import builtins; builtins.customized = True\n",
        )
        .unwrap();
        let target = run(
            &sandbox,
            &[python.path.to_str().unwrap(), &target("idle.py")],
        )
        .env("PYTHONPATH", &site)
        .start();
        assert_eq!(sandbox.eval(&target, "customized").ok(), "True\n");
        let code = "import sys; sys.modules['sitecustomize'].__file__";
        assert_eq!(
            sandbox.eval(&target, code).ok(),
            format!("'{}/sitecustomize.py'\n", site.display())
        );
    });
}

#[test]
fn a_command_that_cannot_be_run_is_told_like_a_shell_does() {
    let sandbox = sandbox();
    let ran = sandbox.probing(["run", "--", "no-such-program"]);
    assert_eq!(ran.status, 127);
    insta::assert_snapshot!(ran.stderr, @"error: cannot run no-such-program: No such file or directory (os error 2)");
    assert_eq!(sandbox.probing(["run", "--", "/etc/passwd"]).status, 126);
    assert_eq!(sandbox.probing(["run"]).status, 2);
}
