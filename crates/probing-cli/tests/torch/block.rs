//! `with probing.trace("collective_ops"):` around operations of a program: those are recorded, and no others.

use probing_testkit::every_torch;

use crate::sandbox;

#[test]
fn operations_in_a_block_are_recorded_and_no_others() {
    every_torch(|python| {
        let sandbox = sandbox();
        let target = sandbox
            .target(python, "with_torch/block.py")
            .env("GLOO_SOCKET_IFNAME", "lo")
            .start();
        let pid = target.pid().to_string();
        let query = |sql: &str| {
            let ran = sandbox.probing(["-t", &pid, "query", "--csv", sql]);
            assert_eq!(ran.status, 0, "{ran:?}");
            ran.stdout
                .lines()
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let seen = query("select distinct seq, op, shapes from python.collectives order by seq");
        let seen: Vec<&str> = seen
            .iter()
            .filter_map(|row| row.split_once(',').map(|(_, rest)| rest))
            .collect();
        assert_eq!(seen, ["allreduce,[2]", "broadcast,[5]"]);
        let span = query("select name, kind from python.trace_event order by ts, kind");
        assert_eq!(span, ["collective_ops,begin", "collective_ops,span"]);
    });
}
