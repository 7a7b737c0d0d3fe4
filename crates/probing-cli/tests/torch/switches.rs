//! Whatever is recorded of torch is switched on and off beside threads that train and reduce: nobody notices, nothing grows.
//!
//! `make stress` runs the long form and prints what it measured.

use probing_testkit::{Python, Sandbox, Switch, Switchboard, every_torch};
use serde_json::{Value, json};

use crate::sandbox;

const PROGRAM: &str = "with_torch/switched.py";
const CYCLES: u32 = 500;
const FEW_CYCLES: u32 = 30;

fn torch(name: &'static str, mut wanted: Value) -> Switch {
    wanted["op"] = json!("torch");
    wanted["ask"] = json!("on");
    Switch::new(name, wanted, json!({"op": "torch", "ask": "off"}))
}

fn tracer(name: &'static str) -> Switch {
    let to = |on: bool| json!({"op": "tracer", "tracer": name, "on": on});
    Switch::new(name, to(true), to(false))
}

/// All that is recorded of torch.
fn switches() -> Vec<Switch> {
    let eval = |code: &str| json!({"op": "eval", "code": code});
    let kinds = json!(["parameters", "gradients", "activations"]);
    let value = |path: &str| json!({"on": "value", "path": path});
    let count = || json!({"do": "count"});
    let mut with_numbers = Switch::armed("a watch with numbers", value("watched"), count());
    with_numbers.on[0]["stats"] = json!(true);
    let mut all = vec![
        tracer("collectives"),
        torch(
            "modules",
            json!({"trace": {"every": 1, "memory": "module"}}),
        ),
        torch("tensors", json!({"tensors": {"every": 1, "kinds": kinds}})),
        torch("nan", json!({"nan": true})),
        tracer("memory"),
        tracer("heap"),
        Switch::armed("a watch of a tensor", value("watched"), count()),
        Switch::armed("a watch of a parameter", value("model[0].weight"), count()),
        Switch::new(
            "a hook of a tensor",
            eval("hook = probing.hook_tensor(watched, name='watched')"),
            eval("hook.remove()"),
        ),
        with_numbers,
    ];
    all.push(Switch::ended_by_detach(&all[..8]));
    all
}

fn board<'a>(sandbox: &'a Sandbox, python: &Python, variables: &[(&str, &str)]) -> Switchboard<'a> {
    let mut target = sandbox
        .target(python, PROGRAM)
        .env("PROBING", "1")
        .env("GLOO_SOCKET_IFNAME", "lo")
        .env("OMP_NUM_THREADS", "1");
    for (name, value) in variables {
        target = target.env(name, value);
    }
    Switchboard::new(sandbox, target.start())
}

#[test]
fn what_is_recorded_of_torch_is_switched_beside_threads_that_train_and_reduce() {
    every_torch(|python| {
        let sandbox = sandbox();
        let mut board = board(&sandbox, python, &[]);
        for switch in switches() {
            board.turn(&switch, FEW_CYCLES);
        }
        // What optimizers call stays, before 3.12, and does nothing: one may be going through its hooks.
        let of_optimizers = if python.version < (3, 12) { 2 } else { 0 };
        assert_eq!(board.value("own_hooks()"), format!("({of_optimizers}, 0)"));
        // So do those of process groups: one for each group, however often it was switched.
        assert_eq!(board.value("callables('operation_begins')"), "3");
    });
}

/// Modes of torch hear in Python what a tensor is asked, and other threads come in meanwhile: not in the middle of a store.
#[test]
fn tensors_are_watched_beside_threads_with_modes_of_torch() {
    every_torch(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "with_torch/modes.py");
        let target = target.env("PROBING", "1").env("OMP_NUM_THREADS", "1");
        let mut board = Switchboard::new(&sandbox, target.start());
        for path in ["weight", "table['weight']"] {
            let place = json!({"on": "value", "path": path});
            let mut watch = Switch::armed("a watch of a tensor", place, json!({"do": "count"}));
            board.turn(&watch, FEW_CYCLES);
            watch.on[0]["stats"] = json!(true);
            board.turn(&watch, FEW_CYCLES);
        }
        assert_eq!(board.value("heard"), "[]");
    });
}

#[test]
fn collectives_are_switched_where_torch_has_no_hooks() {
    every_torch(|python| {
        let sandbox = sandbox();
        let mut board = board(&sandbox, python, &[("UNHOOKED", "1")]);
        board.turn(&tracer("collectives"), FEW_CYCLES);
    });
}

/// torch goes through a dictionary of hooks in each step: one that is taken out meanwhile makes the step fail.
#[test]
fn an_optimizer_that_goes_through_its_hooks_does_not_fail() {
    every_torch(|python| {
        let sandbox = sandbox();
        let mut board = board(&sandbox, python, &[]);
        let modules = torch("modules", json!({"trace": {"every": 1, "memory": "never"}}));
        board.ask(&modules.on[0]);
        board.value("step_and_be_held(), 1");
        board.ask(&modules.off[0]);
        assert_eq!(board.value("let_go()"), "['trained']");
    });
}

#[test]
#[ignore = "takes ten minutes: 500 times each. Run by `make stress`"]
#[expect(clippy::print_stderr, reason = "figures of a long run")]
fn what_is_recorded_of_torch_is_switched_five_hundred_times() {
    every_torch(|python| {
        let unhooked = [("UNHOOKED", "1")];
        let with_hooks = switches().into_iter().map(|switch| (switch, &[][..]));
        let without = std::iter::once((tracer("collectives"), &unhooked[..]));
        for (switch, variables) in with_hooks.chain(without) {
            let sandbox = sandbox();
            let mut board = board(&sandbox, python, variables);
            board.warm_up();
            let done = board.turn(&switch, CYCLES);
            let (major, minor) = python.version;
            eprintln!("{major}.{minor} {} {variables:?}: {done:?}", switch.name);
            done.assert_flat();
        }
    });
}

/// Torch destroys such a group when the interpreter is gone: hooks that need its GIL must not be freed then.
#[test]
fn a_program_whose_process_group_is_never_destroyed_ends_well() {
    every_torch(|python| {
        let sandbox = sandbox();
        let start = || {
            let target = sandbox.target(python, "with_torch/undestroyed.py");
            target.env("GLOO_SOCKET_IFNAME", "lo").start()
        };
        for leave in [&["collectives", "off"][..], &["detach"], &["eval", "1"]] {
            let target = start();
            let pid = target.pid().to_string();
            for arguments in [&["collectives", "on"][..], leave] {
                let ran = sandbox.probing([&["-t", &pid], arguments].concat());
                assert_eq!(ran.status, 0, "{ran:?}");
            }
            let ended = target.end();
            assert_eq!(
                (ended.status, ended.stdout),
                (0, vec!["child 0".to_owned(), "over".to_owned()])
            );
            assert_eq!(ended.stderr, [""; 0], "{leave:?}");
        }
    });
}
