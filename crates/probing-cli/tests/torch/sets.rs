//! Two ranks of a training on two machines, behind an agent each: recorded, watched and explained as one job.

use std::io::Read;
use std::process::{Command, Stdio};

use probing_testkit::{CommandResult, Python, Sandbox, Target, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::sandbox;

const TOKEN: &str = "one token for both machines";

/// One machine: a rank, and an agent. What they use goes last.
struct Machine {
    rank: Target,
    agent: Agent,
    _sandbox: Sandbox,
}

struct Job {
    here: Sandbox,
    machines: Vec<Machine>,
    names: Vec<String>,
}

impl Job {
    fn start() -> Self {
        let here = sandbox();
        let meeting = here.path().join("meeting");
        let start = |rank: u32| {
            let sandbox = sandbox();
            let target = sandbox.target(&Python::with_torch(), "with_torch/turns.py");
            let target = target.env("RANK", rank.to_string()).env("WORLD_SIZE", "2");
            let target = target
                .env("MEETING", &meeting)
                .env("GLOO_SOCKET_IFNAME", "lo");
            (target.env("PROBING", "1").start_without_waiting(), sandbox)
        };
        let ranks: Vec<(Target, Sandbox)> = (0..2).map(start).collect();
        let machine = |(mut rank, sandbox): (Target, Sandbox)| {
            assert_eq!(rank.line(), "ready");
            let agent = Agent::with(&sandbox, &["--listen", "127.0.0.1:0"], |command| {
                command.env("PROBING_TOKEN", TOKEN);
            });
            Machine {
                rank,
                agent,
                _sandbox: sandbox,
            }
        };
        let machines: Vec<Machine> = ranks.into_iter().map(machine).collect();
        let names = machines
            .iter()
            .map(|machine| machine.agent.name())
            .collect();
        Self {
            here,
            machines,
            names,
        }
    }

    /// `probing -t A -t B …`
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.here.command();
        for name in &self.names {
            command.args(["-t", name]);
        }
        command.args(arguments);
        command
            .env("PROBING_TOKEN", TOKEN)
            .env("PROBING_TLS", "off");
        command
    }

    fn ask(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::to_the_end(self.command(arguments))
    }

    #[track_caller]
    fn told(&self, arguments: &[&str]) -> String {
        let ran = self.ask(arguments);
        assert_eq!(ran.status, 0, "{arguments:?}: {ran:?}");
        ran.stdout
    }

    /// Has ranks run a line.
    fn eval(&self, ranks: &str, code: &str) -> String {
        self.told(&["--ranks", ranks, "eval", code])
    }
}

/// What it says until it watches.
fn said_first(pipe: &mut impl Read) -> String {
    let mut said = Vec::new();
    let mut byte = [0];
    while !said.ends_with(b"(Ctrl-C exits)\n") {
        assert_eq!(
            pipe.read(&mut byte).unwrap(),
            1,
            "{}",
            String::from_utf8_lossy(&said)
        );
        said.extend(byte);
    }
    String::from_utf8(said).unwrap()
}

#[test]
fn a_training_on_two_machines_is_recorded_watched_and_explained() {
    let mut job = Job::start();
    recorded(&job);
    first_nan(&job);
    hang(&job);
    lost(&mut job);
}

/// `torch on` and `collectives` over both, and who does what.
fn recorded(job: &Job) {
    let nothing = job.ask(&["collectives"]);
    assert_eq!(nothing.status, 1, "{nothing:?}");
    assert!(
        nothing
            .stderr
            .contains("`probing -t … collectives on` records"),
        "{nothing:?}"
    );
    let on = job.told(&["torch", "on"]);
    assert!(on.starts_with("ranks 0-1:\n  on, by "), "{on}");
    let on = job.told(&["collectives", "on"]);
    assert!(on.starts_with("ranks 0-1: collectives is on now; "), "{on}");
    let none = job.ask(&["collectives"]);
    assert_eq!(none.status, 1, "{none:?}");
    assert!(
        none.stderr
            .contains("recording is on in ranks 0-1, and none has begun since"),
        "{none:?}"
    );
    job.eval("all", "turns.release(3)");
    wait_until("three steps", || {
        job.eval("all", "steps") == "ranks 0-1: 3\n"
    });
    let status = job.told(&["torch", "status"]);
    assert!(status.starts_with("ranks 0-1:\n"), "{status}");
    let line = "\n  step: 3, counted by steps of SGD\n";
    assert!(status.contains(line), "{status}");
    let steps = "SELECT rank, module, count(DISTINCT step) AS steps FROM python.torch_trace \
                 WHERE stage = 'post forward' AND module = 'module.0' GROUP BY rank, module ORDER BY rank";
    assert_eq!(
        job.told(&["query", "--csv", steps]),
        "rank,module,steps\n0,module.0,3\n1,module.0,3\n"
    );
    let report = job.ask(&["--ranks", "0-1", "collectives", "--json"]).json();
    let world = &report["jobs"][0]["groups"][0];
    assert_eq!(world["ranks"], json!([0, 1]), "{report:#}");
    assert_eq!(world["verdict"]["verdict"], "in_step", "{report:#}");
}

/// `watch-nan` waits, and names the rank that was first.
fn first_nan(job: &Job) {
    // What others look for goes on after the first is found.
    job.eval("all", "import probing; probing.torch.enable(nan=True)");
    let mut command = job.command(&["watch-nan"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watching = command.spawn().unwrap();
    assert_eq!(
        said_first(watching.stderr.as_mut().unwrap()),
        "watching outputs, gradients and parameters in ranks 0-1 for the first NaN or Inf (Ctrl-C exits)\n"
    );
    job.eval("1", "is_bad = True");
    job.eval("all", "turns.release()");
    let found = CommandResult::finished(watching);
    assert_eq!(found.status, 0, "{found:?}");
    assert!(!found.stderr.contains("aligned"), "{found:?}");
    let first = found.stdout.lines().next().unwrap();
    assert!(
        first.starts_with("step 3: output of module.0 has 0 NaN, 8 Inf of 64 (rank 1, pid "),
        "{found:?}"
    );
    wait_until("the step is done", || {
        job.eval("all", "steps") == "ranks 0-1: 4\n"
    });
    let told = job.ask(&["watch-nan", "--recorded", "--json"]).json();
    assert_eq!(told["missing"], Value::Null, "{told:#}");
    let ranks: Vec<&Value> = told["found"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["rank"])
        .collect();
    // DDP brings it to the others.
    assert_eq!(ranks[0], 1, "{told:#}");
    assert!(ranks.contains(&&json!(0)), "{told:#}");
    assert_eq!(told["found"][0]["context"][0]["inf"], 1, "{told:#}");
}

/// Rank 1 is given no turn, and rank 0 waits for it.
fn hang(job: &Job) {
    job.eval("0", "turns.release()");
    wait_until("rank 0 waits", || {
        let said = job.ask(&["collectives"]).stdout;
        said.contains("group 0: rank 1 has not come to ")
            && said.contains(", in which rank 0 has waited for ")
    });
    job.eval("1", "turns.release()");
    wait_until("both have come", || {
        job.eval("all", "steps") == "ranks 0-1: 5\n"
    });
}

/// A rank that stops, and then its whole machine, are named; the other one answers.
fn lost(job: &mut Job) {
    job.machines[1].rank.stop();
    let commands = [
        ["torch", "status"].as_slice(),
        &["collectives", "on"],
        &["watch-nan", "--for", "10ms"],
    ];
    for arguments in commands {
        let ran = job.ask(arguments);
        assert!(
            ran.stderr
                .contains("rank 1: process is stopped by a signal and cannot answer"),
            "{ran:?}"
        );
        // What was found before is found.
        let expected = if arguments[0] == "watch-nan" { 0 } else { 3 };
        assert_eq!(ran.status, expected, "{ran:?}");
    }
    job.machines[1].rank.signal(Signal::KILL);
    let far = job.machines.pop().unwrap();
    far.rank.wait();
    let failed = job.ask(&["--ranks", "failed", "watch-nan", "--recorded"]);
    assert!(failed.ok().contains("(rank 1, pid "), "{failed:?}");
    // What it did in the job is told beside what the living do.
    let told = job.ask(&["collectives", "--json"]).json();
    let world = &told["jobs"][0]["groups"][0];
    assert_eq!(
        (&world["ranks"], &world["ended"]),
        (&json!([0, 1]), &json!([1])),
        "{told:#}"
    );
    drop(far.agent);
    let off = job.ask(&["torch", "off"]);
    assert_eq!(off.status, 3, "{off:?}");
    assert!(off.stdout.starts_with("rank 0: off"), "{off:?}");
    let down = format!("cannot reach an agent at {}", job.names[1]);
    assert!(off.stderr.contains(&down), "{off:?}");
}
