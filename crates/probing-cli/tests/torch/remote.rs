//! Eight ranks that torchrun started, behind one port of their machine.

use probing_testkit::{Python, Sandbox, Target, root, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::agent::Agent;
use crate::sandbox;

const RANKS: usize = 8;

/// `torchrun` of an environment that has the package; the pids of the ranks.
fn start(sandbox: &Sandbox) -> (Target, Vec<i32>) {
    let mut command = Python::with_torch().run(["-m", "torch.distributed.run", "--standalone"]);
    command
        .args(["--nproc-per-node", &RANKS.to_string()])
        .arg(root().join("tests/targets/with_torch/job.py"))
        .env("GLOO_SOCKET_IFNAME", "lo")
        .env("OMP_NUM_THREADS", "1");
    let torchrun = sandbox.target_command(command).env("PROBING", "1");
    let mut torchrun = torchrun.start_without_waiting();
    let mut ranks: Vec<(usize, i32)> = (0..RANKS)
        .map(|_| {
            let line = torchrun.line();
            let numbers = line
                .strip_prefix("ready ")
                .unwrap_or_else(|| panic!("{line}"));
            let (rank, pid) = numbers.split_once(' ').unwrap();
            (rank.parse().unwrap(), pid.parse().unwrap())
        })
        .collect();
    ranks.sort_unstable();
    (torchrun, ranks.into_iter().map(|(_, pid)| pid).collect())
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[test]
fn ranks_of_torchrun_answer_through_an_agent() {
    let sandbox = sandbox();
    let (torchrun, pids) = start(&sandbox);
    let agent = Agent::start(&sandbox);
    let probing = |arguments: &[&str]| agent.probing(&sandbox, arguments);
    wait_until("all but one wait in the collective", || {
        let tree = probing(&["--ranks", "all", "backtrace"]);
        tree.stdout.contains("7 of 8: ranks 0,2-7")
    });
    let listed = probing(&["list", "--json"]).json();
    let ranks = listed.as_array().unwrap().iter();
    let mut ranks: Vec<u64> = ranks.filter_map(|one| one["rank"].as_u64()).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, (0..RANKS as u64).collect::<Vec<_>>(), "{listed}");
    let tree = probing(&["--ranks", "all", "backtrace"]);
    for line in [
        "dist.all_reduce(gradient)  # @reduce",
        "loaded.wait()  # @load",
        "1 of 8: rank 1",
    ] {
        assert!(tree.ok().contains(line), "{line}: {tree:?}");
    }
    let each = probing(&["--ranks", "0,2-3", "eval", "dist.get_rank() % 2"]);
    assert_eq!(
        (each.status, each.stdout.as_str()),
        (0, "ranks 0,2: 0\nrank 3: 1\n"),
        "{each:?}"
    );
    let sql = "SELECT rank, count(*) > 0 AS seen FROM python.backtrace WHERE main GROUP BY rank ORDER BY rank";
    let rows = |sql: &str| {
        let asked = json!({"sql": sql, "ranks": "all"});
        agent.post("/query", &asked).json()
    };
    let all: Vec<_> = (0..RANKS).map(|rank| json!([rank, true])).collect();
    assert_eq!(rows(sql)["rows"], json!(all));

    // Its launcher would end all the others: it does not notice.
    torchrun.stop();
    signal(pids[3], Signal::KILL);
    signal(pids[5], Signal::STOP);
    wait_until("the one is dead and the other stopped", || {
        let ran = probing(&["--ranks", "all", "eval", "dist.get_world_size()"]);
        let says = |words: &str| ran.stderr.contains(words);
        ran.stdout == "ranks 0-2,4,6-7: 8\n"
            && says("rank 3: ")
            && says("rank 5: process is stopped by a signal")
    });
    let tree = probing(&["--ranks", "all", "backtrace"]);
    assert!(tree.stdout.contains("6 of 7: ranks 0,2,4-7"), "{tree:?}");
    assert!(
        tree.stdout.contains("rank 3: no process here has it"),
        "{tree:?}"
    );
    let told = rows(sql);
    let left: Vec<_> = (0..RANKS)
        .filter(|rank| *rank != 3)
        .map(|rank| json!([rank, true]))
        .collect();
    assert_eq!(told["rows"], json!(left), "{told}");
    assert_eq!(
        told["missing"][0]["error"], "no process here has rank 3",
        "{told}"
    );
    for pid in pids {
        // All but one are there; none of them needs to end in order.
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
    }
}
