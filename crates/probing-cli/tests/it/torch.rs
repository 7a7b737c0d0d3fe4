//! Programs without torch: asked for what is recorded of it, they say that there is none, and nothing else changes.

use probing_testkit::every_python;

use crate::sandbox;

#[test]
fn without_torch_there_is_a_clear_answer_and_no_harm() {
    every_python(|python| {
        let sandbox = sandbox();
        let program = sandbox.target(python, "recording.py");
        let mut target = program.env("PROBING_TORCH", "1,nan").start();
        let pid = target.pid().to_string();
        let torch = |what: &str| sandbox.probing(["-t", &pid, "torch", what]);
        let status = torch("status");
        assert!(
            status
                .stdout
                .starts_with("waiting for the program to import torch\n"),
            "{status:?}"
        );
        assert_eq!(
            status.stderr,
            "note: torch is not installed in this program's environment\n"
        );
        let on = torch("on");
        assert_eq!((on.status, on.stdout.as_str()), (1, ""));
        assert!(
            on.stderr
                .contains("error: torch is not installed in this program's environment\nhint: "),
            "{on:?}"
        );
        assert_eq!(torch("off").ok(), "off\n");
        let nan = sandbox.probing(["-t", &pid, "watch-nan"]);
        assert_eq!(nan.status, 1, "{nan:?}");
        let recorded = sandbox.probing(["-t", &pid, "watch-nan", "--recorded"]);
        assert_eq!((recorded.status, recorded.stdout.as_str()), (0, ""));
        target.say("probing.torch.enable()");
        assert_eq!(
            target.line(),
            "RuntimeError: torch is not installed in this program's environment"
        );
        target.say("import torch");
        assert_eq!(
            target.line(),
            "ModuleNotFoundError: No module named 'torch'"
        );
        target.say("probing.torch.enable(rate=2)");
        assert_eq!(
            target.line(),
            "ValueError: rate must be more than 0 and at most 1, not 2"
        );
        target.say("probing.hook_tensor([1], name='list')");
        assert_eq!(
            target.line(),
            "TypeError: not a tensor of torch: one of type list"
        );
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}

#[test]
fn unknown_words_of_the_environment_are_reported() {
    every_python(|python| {
        let sandbox = sandbox();
        let program = sandbox.target(python, "waiting.py");
        let target = program
            .env("PROBING_TORCH", "true, grads,collectives")
            .start();
        let pid = target.pid().to_string();
        let status = sandbox.probing(["-t", &pid, "torch", "status"]);
        assert_eq!((status.status, status.stdout.as_str()), (0, "off\n"));
        assert_eq!(
            status.stderr,
            "note: PROBING_TORCH has unknown words: true, grads; known are 1, trace, tensors, nan, collectives\n"
        );
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}

/// A script need not know how many targets it names.
#[test]
fn several_targets_end_with_the_status_of_one() {
    every_python(|python| {
        let sandbox = sandbox();
        let start = || sandbox.probed(python, "waiting.py");
        let (one, other) = (start(), start());
        let both = format!("{},{}", one.pid(), other.pid());
        let one = one.pid().to_string();
        let check = |arguments: &[&str], status: i32, says: &str| {
            for targets in [&one, &both] {
                let ran = sandbox.probing([&["-t", targets], arguments].concat());
                assert_eq!(ran.status, status, "{targets}: {ran:?}");
                assert!(ran.stderr.contains(says), "{targets}: {ran:?}");
            }
        };
        let no_torch = "torch is not installed in this program's environment";
        check(&["torch", "on"], 1, no_torch);
        check(&["watch-nan"], 1, no_torch);
        check(&["untrace", "7"], 1, "7");
        check(&["collectives"], 1, "no operation is recorded");
        let stacks =
            "in a job that hangs already, `probing -t … backtrace` shows where each rank is";
        check(&["collectives"], 1, stacks);
        check(&["collectives", "on"], 1, no_torch);
        check(&["memory", "on"], 0, "");
        other.stop();
        // One of them did it, and the other cannot be reached.
        let stopped = sandbox.probing(["-t", &both, "memory", "off"]);
        assert_eq!(stopped.status, 3, "{stopped:?}");
        // What they lack is not the same.
        let differ = sandbox.probing(["-t", &both, "torch", "on"]);
        assert_eq!(differ.status, 1, "{differ:?}");
        let nobody = other.pid().to_string();
        for command in ["torch", "memory", "trace"] {
            let arguments = if command == "trace" {
                "--list"
            } else {
                "status"
            };
            let ran = sandbox.probing(["-t", &nobody, command, arguments]);
            assert_eq!(ran.status, 3, "{ran:?}");
        }
    });
}
