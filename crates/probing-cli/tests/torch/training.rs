//! A program that trains: what is evaluated in it, as the documents write it, prepared and attached.

use probing_testkit::{Python, Sandbox, Screen, Target};

use crate::sandbox;

const PARAMETERS: &str = "for name, param in model.named_parameters():
    print(f'{name}: {param.shape}, grad is None: {param.grad is None}')";

const NOT_FINITE: &str = "import torch
for name, param in model.named_parameters():
    if param.grad is not None:
        if torch.isnan(param.grad).any():
            print(f'NaN in {name}')
        if torch.isinf(param.grad).any():
            print(f'Inf in {name}')";

const STACKS: &str = "import sys, traceback
for thread_id, frame in sys._current_frames().items():
    print(f'Thread {thread_id}:')
    traceback.print_stack(frame)";

const DISTRIBUTED: &str = "import torch.distributed as dist
if dist.is_initialized():
    print(f'Rank: {dist.get_rank()}, world: {dist.get_world_size()}, backend: {dist.get_backend()}')
else:
    print('not initialized')";

const BATCH: &str = "batch = next(iter(train_loader))
print([part.shape for part in batch])";

const TIMING: &str = "import time, torch
start = time.time()
if torch.cuda.is_available():
    torch.cuda.synchronize()
print(f'sync took {time.time() - start:.3f} s')";

/// What evaluated code printed, to both streams.
fn eval(sandbox: &Sandbox, target: &Target, code: &str) -> (String, String) {
    let ran = sandbox.eval(target, code);
    assert_eq!(ran.status, 0, "{code}: {ran:?}");
    (ran.stdout, ran.stderr)
}

/// Every line of code that the documents promise.
fn evals(sandbox: &Sandbox, target: &Target) {
    let shown = |code: &str| {
        let (stdout, stderr) = eval(sandbox, target, code);
        assert_eq!(stderr, "", "{code}");
        stdout
    };
    assert_eq!(
        shown("print(model.state_dict().keys())"),
        "odict_keys(['seen', 'layers.0.weight', 'layers.0.bias', 'layers.2.weight', 'layers.2.bias'])\n"
    );
    let parameters = shown(PARAMETERS);
    let first = parameters.lines().next().unwrap();
    assert!(
        first.starts_with("layers.0.weight: torch.Size([8, 4]), grad is None: "),
        "{parameters}"
    );
    assert_eq!(parameters.lines().count(), 4);
    // While it trains: torch itself crashes a program whose gradients are read by a second thread.
    for _ in 0..10 {
        assert_eq!(shown(NOT_FINITE), "");
    }
    assert_eq!(shown("optimizer.param_groups[0]['lr'] = 0.0001"), "");
    assert_eq!(shown("optimizer.param_groups[0]['lr']"), "0.0001\n");
    let checkpoint = sandbox.path().join("debug_checkpoint.pt");
    assert_eq!(shown("trainer.save_checkpoint('debug_checkpoint.pt')"), "");
    assert!(checkpoint.exists());
    let threads = shown("import threading\nprint(threading.enumerate())");
    assert!(
        threads.contains("<_MainThread(MainThread, started ")
            && threads.contains("<Thread(evaluation, "),
        "{threads}"
    );
    let (headings, stacks) = eval(sandbox, target, STACKS);
    assert!(headings.matches("Thread ").count() >= 3, "{headings}");
    assert!(stacks.contains("over.wait()"), "{stacks}");
    assert!(!stacks.contains("<probing>"), "{stacks}");
    assert_eq!(shown(DISTRIBUTED), "not initialized\n");
    assert_eq!(shown(BATCH), "[torch.Size([8, 4]), torch.Size([8, 1])]\n");
    let loss: f64 = shown("loss.item()").trim().parse().unwrap();
    assert!(loss.is_finite());
    assert!(shown(TIMING).starts_with("sync took "));
}

fn training(sandbox: &Sandbox, probing: &str) -> Target {
    let program = sandbox.target(&Python::with_torch(), "with_torch/training.py");
    let folder = sandbox.path().to_owned();
    program
        .env("PROBING", probing)
        .with(|command| {
            command.current_dir(folder);
        })
        .start()
}

fn ends_well(target: Target) {
    let ended = target.end();
    assert_eq!(
        (ended.status, ended.stdout, ended.stderr),
        (0, vec![], vec![])
    );
}

#[test]
fn what_users_ask_a_program_works_as_written_when_it_was_not_prepared() {
    let sandbox = sandbox();
    let target = training(&sandbox, "0");
    let pid = target.pid().to_string();
    let tensors = || {
        let ran = sandbox.probing([
            "-t",
            &pid,
            "backtrace",
            "--locals",
            "--thread",
            "evaluation",
        ]);
        lines(ran.ok())
    };
    assert_eq!(tensors(), TENSORS);
    assert_eq!(sandbox.target_dirs(), [""; 0]);
    assert_eq!(sandbox.probing(["-t", &pid, "attach"]).status, 0);
    evals(&sandbox, &target);
    assert_eq!(tensors(), TENSORS);
    completes(&sandbox, &pid);
    ends_well(target);
}

/// What a thread has among its locals, as it is shown from outside and by the probe: no data.
const TENSORS: [&str; 4] = [
    "images = Tensor(shape=(2, 3), dtype=float16, device=cpu)",
    "labels = Tensor(shape=(2,), dtype=int64, device=cpu)",
    "nowhere = Tensor(shape=(1000, 1000), dtype=float32, device=meta)",
    "weight = Parameter(shape=(8, 4), dtype=float32, device=cpu)",
];

/// The tensors among the locals that were shown, sorted.
fn lines(shown: &str) -> Vec<String> {
    let is_tensor = |line: &&str| line.contains("Tensor") || line.contains("Parameter");
    let mut lines: Vec<String> = shown
        .lines()
        .map(str::trim)
        .filter(is_tensor)
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

/// A prompt completes what the modules of a live model keep.
fn completes(sandbox: &Sandbox, pid: &str) {
    let mut command = sandbox.command();
    command
        .args(["-t", pid, "repl"])
        .env("XDG_STATE_HOME", sandbox.path().join("state"));
    let screen = Screen::start(&command);
    screen.wait_for(">>>");
    screen.type_text("model.");
    screen.complete("named_parameters");
    screen.type_text("lay");
    screen.complete("model.layers");
    screen.type_text("[0].wei");
    screen.complete("model.layers[0].weight");
    screen.enter(".shape");
    screen.wait_for("\ntorch.Size([8, 4])\n");
    screen.enter("?model.layers[0].weight");
    screen.wait_for("device     cpu");
    screen.press("C-d");
    screen.wait_for("ended: 0");
}

#[test]
fn what_users_ask_a_prepared_program_works_as_written() {
    let sandbox = sandbox();
    let target = training(&sandbox, "1");
    evals(&sandbox, &target);
    ends_well(target);
}
