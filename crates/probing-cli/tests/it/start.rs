//! The ways in: `PROBING=1`, `probing.start()`, and what does not start it.

use probing_testkit::every_python;

use crate::sandbox;

#[test]
fn the_variable_decides_before_the_first_line() {
    every_python(|python| {
        let sandbox = sandbox();
        let reached = |name: &str, value: &str| {
            let target = sandbox.target(python, "idle.py").env(name, value).start();
            let pid = target.pid().to_string();
            let ran = sandbox.probing(["-t", &pid, "--no-attach", "eval", "loss"]);
            assert_eq!(target.end().stderr, [""; 0]);
            ran.status == 0
        };
        assert!(reached("PROBING", "1"));
        // No address: the agent that it asks for does not start, and outlives no test.
        assert!(reached("PROBING_PORT", "nowhere"));
        assert!(!reached("PROBING", "0"));
        assert!(!reached("PROBING", ""));
        assert!(!reached("SOMETHING", "else"));
    });
}

#[test]
fn a_program_starts_and_stops_it_by_hand() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "commands.py").start();
        let mut says = |line: &str, answer: &str| {
            target.say(line);
            assert_eq!(
                (target.line().as_str(), target.line().as_str()),
                (answer, "done"),
                "{line}"
            );
        };
        says("import probing; print(probing.start())", "True");
        says("print(probing.start())", "False");
        says("print(probing.__version__)", env!("CARGO_PKG_VERSION"));
        assert_eq!(sandbox.eval(&target, "probing.stop()").status, 3);
        target.say("print(probing.stop(), probing.start(), probing.stop(), probing.stop())");
        assert_eq!(target.line(), "False True True False");
        assert_eq!(target.end().status, 0);
        assert_eq!(sandbox.target_dirs(), [""; 0]);
    });
}

#[test]
fn a_program_may_have_a_module_that_is_called_probing() {
    every_python(|python| {
        let sandbox = sandbox();
        let script = sandbox.path().join("main.py");
        std::fs::copy(
            probing_testkit::root().join("tests/targets/commands.py"),
            &script,
        )
        .unwrap();
        std::fs::write(sandbox.path().join("probing.py"), "mine = 'its own'\n").unwrap();
        let mut target = sandbox
            .target_command(python.run([script]))
            .env("PROBING", "1")
            .start();
        // On the path before the hook looks, too.
        let early = sandbox.target_command(
            python.run(["-c", "import probing; print('ready', flush=True); input()"]),
        );
        let early = early
            .env("PROBING", "1")
            .env("PYTHONPATH", sandbox.path())
            .start()
            .end();
        assert!(
            early
                .stderr
                .iter()
                .all(|line| !line.contains("probing_start")),
            "{early:?}"
        );
        target.say("import probing; print(probing.mine)");
        assert_eq!(target.line(), "its own");
        assert_eq!(sandbox.eval(&target, "probing.mine").ok(), "'its own'\n");
    });
}
