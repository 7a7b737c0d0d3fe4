//! Scalar tensors by their values: in locals, watches and log lines.
//!
//! Data of other devices is not touched.

use probing_testkit::every_torch;

use crate::sandbox;

/// Locals of the program, and how they are shown.
const SCALARS: [(&str, &str); 9] = [
    ("scalar", "tensor(0.25)"),
    ("parameter", "Parameter(2.0)"),
    ("half", "tensor(-1.5, dtype=float16)"),
    ("item", "tensor(3)"),
    ("loss", "tensor(0.5)"),
    ("inferred", "tensor(True)"),
    ("opposite", "Tensor(shape=(), dtype=float32, device=cpu)"),
    ("nowhere", "Tensor(shape=(), dtype=float32, device=meta)"),
    ("gone", "Tensor(shape=(), dtype=float32, device=cpu)"),
];

#[test]
fn a_scalar_of_the_cpu_is_shown_by_its_value_from_outside_and_by_the_probe() {
    every_torch(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "with_torch/small.py").start();
        assert_eq!(target.line(), "waiting");
        let pid = target.pid().to_string();
        let probing = |arguments: &[&str]| sandbox.probing([&["-t", &pid], arguments].concat());
        for is_attached in [false, true] {
            let shown = probing(&["backtrace", "--locals"]).ok().to_owned();
            for (name, value) in SCALARS {
                let line = format!(" {name} = {value}\n");
                assert!(shown.contains(&line), "{is_attached}: {line}{shown}");
            }
            assert_eq!(probing(&["attach"]).status, 0);
        }
        probing(&["watch", "train:loss"]).ok();
        probing(&["break", "trained", "--action", "log:loss is {loss}"]).ok();
        target.say("");
        target.say("train");
        assert_eq!(target.line(), "changed");
        let rows = |sql: &str| probing(&["query", "--csv", sql]).stdout;
        let changes = rows("SELECT old, new FROM python.variables ORDER BY ts");
        assert_eq!(
            changes,
            "old,new\n,tensor(0.5) version=0\ntensor(0.5) version=0,tensor(0.25) version=1\n"
        );
        let logged = rows("SELECT text FROM python.captures WHERE kind = 'log'");
        assert_eq!(logged, "text\nloss is 0.25\n");
        target.end();
    });
}
