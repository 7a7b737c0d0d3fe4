//! Two ranks of a training over loopback: by Lightning's own launcher, and by Hugging Face's Trainer under torchrun.

use std::path::Path;
use std::process::Command;

use crate::program::{Program, python, sandbox, source};
use crate::walk::{Known, Walk};

fn over_loopback(mut command: Command) -> Command {
    command
        .env("GLOO_SOCKET_IFNAME", "lo")
        .env("OMP_NUM_THREADS", "1")
        .env("HF_HUB_OFFLINE", "1");
    for variable in [
        "LOCAL_RANK",
        "NODE_RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    ] {
        command.env_remove(variable);
    }
    command
}

fn check(command: impl Fn(&Path) -> Command, known: &Known<'_>) {
    let alone = Program::alone(&command);
    let sandbox = sandbox();
    let command = command(sandbox.path());
    let mut program = Program::start(sandbox, command, 2);
    assert_eq!(program.pids.len(), 2, "{:?}", program.pids);
    let walked = Walk::through(&program, known);
    walked.ends(&program.end(), &alone);
}

/// It sets `LOCAL_RANK`, `NODE_RANK` and `WORLD_SIZE`, and no `RANK`.
#[test]
#[ignore = "make real"]
fn ranks_that_lightning_starts_are_debugged_and_learn_the_same() {
    let lightning = |_: &Path| {
        let mut command = Command::new(python());
        command.arg(source("lightning_ranks.py"));
        over_loopback(command)
    };
    let known = Known {
        ranks: true,
        around: Some("in Trainer.fit"),
        function: "Regression.training_step",
        local: ("tuple(batch[0].shape)", "(4, 4)"),
        trains: true,
        keeps_rows: true,
    };
    check(lightning, &known);
}

#[test]
#[ignore = "make real"]
fn ranks_of_hugging_faces_trainer_are_debugged_and_learn_the_same() {
    let trainer = |folder: &Path| {
        let mut command = Command::new(python());
        command
            .args(["-m", "torch.distributed.run", "--standalone"])
            .args(["--nproc-per-node", "2"])
            .arg(source("hugging_face.py"))
            .env("OUTPUT", folder.join("output"));
        over_loopback(command)
    };
    let known = Known {
        ranks: true,
        around: Some("in Trainer.train"),
        function: "Trainer.compute_loss",
        local: ("tuple(inputs['input_ids'].shape)", "(2, 12)"),
        trains: true,
        keeps_rows: true,
    };
    check(trainer, &known);
}
