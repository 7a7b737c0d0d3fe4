//! What users of a training program evaluate, as the documents write it, prepared and attached.
//!
//! The target uses torch where a Python under test has it.

use probing_testkit::{Sandbox, Target, every_python};

use crate::sandbox;

const PARAMETERS: &str = "for name, parameter in model.named_parameters():
    print(name, len(parameter.shape), parameter.grad is None)";

const NOT_FINITE: &str = "def finite(grad):
    found = grad.isfinite()
    return bool(found if isinstance(found, bool) else found.all())
[name for name, p in model.named_parameters() if p.grad is not None and not finite(p.grad)]";

const STACKS: &str = "import sys, traceback
for thread_id, frame in sys._current_frames().items():
    print(f'Thread {thread_id}:')
    traceback.print_stack(frame)";

const DISTRIBUTED: &str = "import importlib.util
if importlib.util.find_spec('torch'):
    import torch.distributed as dist
    print(dist.get_rank(), dist.get_world_size(), dist.get_backend()) if dist.is_initialized() else print('not initialized')
else:
    print('not initialized')";

const TIMING: &str = "import time
started = time.time()
if torch and torch.cuda.is_available():
    torch.cuda.synchronize()
print(f'sync took {time.time() - started:.3f} s')";

fn check(sandbox: &Sandbox, target: &Target) {
    let eval = |code: &str| {
        let ran = sandbox.probing(["-t", &target.pid().to_string(), "eval", code]);
        assert_eq!(ran.status, 0, "{code}: {ran:?}");
        (ran.stdout.clone(), ran.stderr.clone())
    };
    let shown = |code: &str| eval(code).0;
    let keys = shown("print(model.state_dict().keys())");
    assert!(keys.contains("'weight', 'bias'"), "{keys}");
    let parameters = shown(PARAMETERS);
    assert!(parameters.starts_with("weight "), "{parameters}");
    assert_eq!(parameters.lines().count(), 2);
    assert!(shown(NOT_FINITE).starts_with('['));
    assert_eq!(shown("optimizer.param_groups[0]['lr'] = 0.0001"), "");
    assert_eq!(shown("optimizer.param_groups[0]['lr']"), "0.0001\n");
    assert_eq!(shown("trainer.save_checkpoint('debug_checkpoint.pt')"), "");
    assert!(sandbox.path().join("debug_checkpoint.pt").exists());
    let threads = shown("import threading\nthreading.enumerate()");
    assert!(
        threads.contains("MainThread") && threads.contains("loader"),
        "{threads}"
    );
    let (headings, stacks) = eval(STACKS);
    assert!(headings.matches("Thread ").count() >= 2, "{headings}");
    assert!(stacks.contains("training.py"), "{stacks}");
    assert!(!stacks.contains("<probing>"), "{stacks}");
    assert_eq!(shown(DISTRIBUTED), "not initialized\n");
    assert_eq!(shown("len(next(iter(train_loader)))"), "2\n");
    assert!(shown("loss").contains('.'));
    assert!(shown(TIMING).starts_with("sync took 0."));
}

#[test]
fn what_users_ask_a_training_program_works_as_written() {
    every_python(|python| {
        for probing in ["1", "0"] {
            let sandbox = sandbox();
            let target = sandbox
                .target(python, "training.py")
                .env("PROBING", probing)
                .env("TRAINING_FOLDER", sandbox.path())
                .start();
            if probing == "0" {
                let pid = target.pid().to_string();
                assert_eq!(sandbox.probing(["-t", &pid, "attach"]).status, 0);
            }
            check(&sandbox, &target);
            let ended = target.end();
            assert_eq!(
                (ended.status, ended.stdout, ended.stderr),
                (0, vec![], vec![])
            );
        }
    });
}
