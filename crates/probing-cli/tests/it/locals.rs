//! `probing backtrace --locals` of a target that has a probe.

use probing_testkit::{CommandResult, Python, Sandbox, Target, TargetBuilder, every_python};

use crate::sandbox;

fn waiting(sandbox: &Sandbox, python: &Python, arguments: &[&str]) -> Target {
    let target = sandbox.target(python, "reprs.py").env("PROBING", "1");
    let target = arguments.iter().fold(target, TargetBuilder::arg);
    target.start()
}

fn backtrace(sandbox: &Sandbox, target: &Target) -> CommandResult {
    let pid = target.pid().to_string();
    sandbox.probing(["-t", &pid, "backtrace", "--locals"])
}

#[test]
fn a_probe_tells_locals_in_the_programs_own_words() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = waiting(&sandbox, python, &[]);
        let ran = backtrace(&sandbox, &target);
        assert_eq!(ran.stderr, "");
        for line in [
            "      speaks = Speaks(up)\n",
            "      raises = <Raises, whose repr raised ValueError>\n",
            "      tensor = Tensor(shape=(2, 3), dtype=float32, device=cuda:0)\n",
            "      module_level = 42\n",
        ] {
            assert!(ran.ok().contains(line), "{line}{ran:?}");
        }
        let pid = target.pid().to_string();
        let json = sandbox
            .probing(["-t", &pid, "backtrace", "--locals", "--json"])
            .json();
        let frame = &json["threads"][0]["frames"][0];
        assert_eq!(frame["func"], "wait");
        let locals = frame["locals"].as_array().unwrap();
        let speaks = locals.iter().find(|local| local["name"] == "speaks");
        let speaks = speaks.unwrap();
        assert_eq!(speaks["value"], "Speaks(up)");
        assert_eq!(speaks["type"], "Speaks");
        assert_eq!(target.end().stdout, ["touched: []"]);
    });
}

#[test]
fn without_a_probe_none_is_attached_for_locals() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "reprs.py").start();
        let ran = backtrace(&sandbox, &target);
        assert_eq!(ran.stderr, "");
        assert!(ran.ok().contains("      speaks = <Speaks object at 0x"));
        assert_eq!(sandbox.target_dirs(), [""; 0]);
    });
}

#[test]
fn values_from_outside_remain_when_the_probe_cannot_answer() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.probed(python, "holds_gil.py");
        target.say("hold");
        assert_eq!(target.line(), "holding");
        let pid = target.pid();
        let ran = backtrace(&sandbox, &target);
        let note = format!(
            "note: values of {pid} are those read from outside: the probe did not answer within 1.5s: the request \
             was cancelled and changed nothing\n"
        );
        assert_eq!(ran.stderr, note);
        assert!(ran.stdout.contains("      byte = "), "{ran:?}");
        target.say("release");
        assert_eq!(target.line(), "released");
        assert_eq!(sandbox.eval(&target, "1").ok(), "1\n");
        target.stop();
        let stopped = backtrace(&sandbox, &target);
        let reason = format!("process is stopped by a signal and cannot answer: {pid}\n");
        assert!(stopped.stderr.ends_with(&reason), "{stopped:?}");
        assert!(stopped.stdout.contains("      byte = "), "{stopped:?}");
    });
}

#[test]
fn a_repr_that_never_ends_is_told_and_its_thread_is_not_shown() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = waiting(&sandbox, python, &["sleeps"]);
        let ran = backtrace(&sandbox, &target);
        let endless = "      endless = [<Sleeps, whose repr did not end within 0.2 s>]\n";
        assert!(ran.ok().contains(endless), "{ran:?}");
        let pid = target.pid().to_string();
        let all = sandbox.probing(["-t", &pid, "backtrace", "--all", "--json"]);
        assert_eq!(all.json()["threads"].as_array().unwrap().len(), 1);
        assert_eq!(target.end().stdout, ["touched: []"]);
    });
}
