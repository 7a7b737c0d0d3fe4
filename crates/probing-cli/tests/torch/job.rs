//! Ranks that torchrun started: found, told apart, asked, and helped out of a hang.

use probing_testkit::{Python, Sandbox, Target, root, wait_until};
use serde_json::Value;

use crate::sandbox;

/// Two ranks that talk over loopback. Rank 1 never comes to the collective that rank 0 waits in.
struct Job {
    sandbox: Sandbox,
    torchrun: Target,
    /// By their ranks.
    pids: Vec<String>,
}

impl Job {
    /// `probing run -- torchrun …`, of an environment that does not have the package.
    fn start() -> Self {
        Self::of("job.py", "")
    }

    /// The same of another program, and what is recorded of torch.
    fn of(program: &str, recorded: &str) -> Self {
        let sandbox = sandbox();
        let program = root().join("tests/targets/with_torch").join(program);
        let mut command = sandbox.command();
        command
            .args(["run", "--"])
            .arg(torchrun())
            .args(["--standalone", "--nproc-per-node", "2"])
            .arg(program)
            .env("GLOO_SOCKET_IFNAME", "lo")
            .env("OMP_NUM_THREADS", "1")
            .env("PROBING_TORCH", recorded);
        let mut torchrun = sandbox.target_command(command).start_without_waiting();
        let mut said = [torchrun.line(), torchrun.line()];
        said.sort();
        let pids = said.iter().enumerate().map(|(rank, line)| {
            let pid = line.strip_prefix(&format!("ready {rank} "));
            pid.unwrap_or_else(|| panic!("{line}")).to_owned()
        });
        let pids = pids.collect();
        Self {
            sandbox,
            torchrun,
            pids,
        }
    }

    /// `probing` with both ranks as targets; others may run on this machine.
    fn probing(&self, arguments: &[&str]) -> probing_testkit::CommandResult {
        let both = self.pids.join(",");
        self.sandbox.probing([&["-t", &both], arguments].concat())
    }
}

/// The one beside torch, which knows nothing of us.
pub(crate) fn torchrun() -> std::path::PathBuf {
    let code =
        "import pathlib, torch; print(pathlib.Path(torch.__file__).parents[4] / 'bin/torchrun')";
    let printed = Python::with_torch().run(["-c", code]).output().unwrap();
    String::from_utf8(printed.stdout).unwrap().trim_end().into()
}

const DISTRIBUTED: &str =
    "print(f'{dist.get_rank()} of {dist.get_world_size()}, {dist.get_backend()}')";

#[test]
fn ranks_of_torchrun_are_found_asked_and_helped() {
    let job = Job::start();
    let listed = job.sandbox.probing(["list", "--json"]).json();
    let of_pid = |pid: &str| {
        let pid: u64 = pid.parse().unwrap();
        let mut all = listed.as_array().unwrap().iter();
        all.find(|process| process["pid"] == pid).unwrap()
    };
    for (rank, pid) in job.pids.iter().enumerate() {
        let process = of_pid(pid);
        assert_eq!(process["rank"], rank, "{process}");
        assert_eq!(process["probe"], "running", "{process}");
    }
    let launcher = of_pid(&job.torchrun.pid().to_string());
    assert_eq!(launcher["rank"], Value::Null, "{launcher}");

    wait_until("rank 0 waits in the collective", || {
        let ran = job.probing(&["--ranks", "0", "backtrace"]);
        ran.stdout.contains("in all_reduce")
    });
    let one = job.probing(&["--ranks", "0", "eval", DISTRIBUTED]);
    assert_eq!(one.ok(), "0 of 2, gloo\n");
    let both = job.probing(&["--ranks", "0-1", "eval", "dist.get_world_size()"]);
    assert_eq!(both.ok(), "ranks 0-1: 2\n");
    let each = job.probing(&["--ranks", "0-1", "eval", DISTRIBUTED]);
    assert_eq!(each.ok(), "rank 0: 0 of 2, gloo\nrank 1: 1 of 2, gloo\n");

    let merged = job.probing(&["backtrace"]);
    for line in [
        "Thread MainThread of 2: ranks 0-1",
        "dist.all_reduce(gradient)  # @reduce",
        "loaded.wait()  # @load",
    ] {
        assert!(merged.ok().contains(line), "{line}: {merged:?}");
    }

    // A main thread that is stuck in a collective changes no gradients: who asks for them is answered.
    let gradients = job.probing(&["--ranks", "0", "eval", "torch.ones(1).grad is None"]);
    assert_eq!((gradients.status, &*gradients.stdout), (0, "True\n"));

    let freed = job.probing(&["--ranks", "1", "eval", "loaded.set()"]);
    assert_eq!(freed.ok(), "");
    wait_until("both ranks have passed the collective", || {
        job.probing(&["--ranks", "0-1", "eval", "rounds"]).stdout == "ranks 0-1: 1\n"
    });
    let ended = job.torchrun.end();
    assert_eq!(ended.status, 0, "{ended:?}");
}

/// `PROBING_TORCH` counts before torch is imported, in every rank.
#[test]
fn each_rank_of_a_training_is_recorded() {
    let job = Job::of("ranks.py", "1");
    let rows = |sql: &str| {
        let ran = job.probing(&["query", "--csv", sql]);
        assert_eq!(ran.status, 0, "{ran:?}");
        let rows = ran.stdout.lines().skip(1);
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let steps = "SELECT rank, stage, count(DISTINCT step), count(*) FROM python.torch_trace \
                 WHERE stage LIKE 'post%' AND module IN ('module.0', 'SGD') GROUP BY rank, stage ORDER BY rank, stage";
    assert_eq!(
        rows(steps),
        [
            "0,post backward,3,3",
            "0,post forward,3,3",
            "0,post step,3,3",
            "1,post backward,3,3",
            "1,post forward,3,3",
            "1,post step,3,3",
        ]
    );
    let modules = "SELECT DISTINCT module, class FROM python.torch_trace WHERE stage = 'post forward' ORDER BY module";
    assert_eq!(
        rows(modules),
        [
            "DistributedDataParallel,DistributedDataParallel",
            "module,Sequential",
            "module.0,Linear",
            "module.1,ReLU",
            "module.2,Linear",
        ]
    );
    let status = job.probing(&["torch", "status"]);
    assert!(status.ok().starts_with("ranks 0-1:\n"), "{status:?}");
    let step = "\n  step: 3, counted by steps of SGD\n";
    assert!(status.ok().contains(step), "{status:?}");
    assert_eq!(job.torchrun.end().status, 0);
}
