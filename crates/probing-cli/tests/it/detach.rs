//! `probing detach`: the probe leaves nothing behind, and can come again.

use probing_testkit::{every_python, wait_until};

use crate::sandbox;

#[test]
fn nothing_of_the_probe_is_left_after_detach() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "commands.py");
        let pid = target.pid().to_string();
        assert_eq!(target.usage().threads, 2);
        let ran = sandbox.probing(["-t", &pid, "detach"]);
        assert_eq!(
            (ran.status, ran.stdout, ran.stderr),
            (0, String::new(), format!("detached from {pid}\n"))
        );
        assert_eq!(sandbox.target_dirs(), [""; 0]);
        assert_eq!(target.usage().threads, 1);

        target.say("import probing; print(probing.start())");
        assert_eq!(
            (target.line(), target.line()),
            ("True".into(), "done".into())
        );
        assert_eq!(sandbox.eval(&target, "loss").ok(), "0.25\n");
        assert_eq!(target.end().stderr, [""; 0]);
    });
}

/// The kernel knows both by the same name.
const NAMESAKE: &str = "import ctypes, threading
named = threading.Event()
def work():
    ctypes.CDLL(None).prctl(15, b'probing', 0, 0, 0)
    named.set()
    threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
named.wait(60)";

#[test]
fn a_thread_of_the_program_that_is_called_like_the_probe_does_not_matter_to_detach() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        sandbox.eval(&target, NAMESAKE).ok();
        let ran = sandbox.probing(["-t", &pid, "detach"]);
        assert_eq!(
            (ran.status, ran.stderr),
            (0, format!("detached from {pid}\n"))
        );
        // Main and that one.
        wait_until("workers have ended", || target.usage().threads == 2);
        assert_eq!(target.end().status, 0);
    });
}

#[test]
fn detach_interrupts_what_still_runs() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        let mut command = sandbox.command();
        command.args([
            "-t",
            &pid,
            "eval",
            "--timeout",
            "0",
            "begun = True\nwhile True: pass",
        ]);
        command.stderr(std::process::Stdio::piped());
        let eval = command.spawn().unwrap();
        wait_until("the eval runs", || {
            sandbox.eval(&target, "'begun' in globals()").ok() == "True\n"
        });
        assert_eq!(sandbox.probing(["-t", &pid, "detach"]).status, 0);
        let ran = probing_testkit::CommandResult::finished(eval);
        assert_eq!(ran.status, 3, "{ran:?}");
        wait_until("the threads are gone", || target.usage().threads == 1);
    });
}
