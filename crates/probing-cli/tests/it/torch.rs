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
        let (first, _) = status.ok().split_once('\n').unwrap();
        assert_eq!(first, "waiting for the program to import torch");
        let on = torch("on");
        assert_eq!((on.status, on.stdout.as_str()), (1, ""));
        assert!(
            on.stderr
                .contains("error: torch is not installed where this program runs\nhint: "),
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
            "RuntimeError: torch is not installed where this program runs"
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
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}
