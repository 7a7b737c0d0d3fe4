//! Ranks that work together: every operation is seen, the straggler and the one that never came are named, dead or alive.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use probing_testkit::{CommandResult, Sandbox, Target, every_torch, root, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::job::torchrun;
use crate::sandbox;

const RANKS: usize = 3;
const PROGRAM: &str = "tests/targets/with_torch/collectives.py";

pub(crate) struct Job {
    pub(crate) sandbox: Sandbox,
    pub(crate) torchrun: Target,
    pids: Pids,
}

/// By their ranks. They are ended with the job: ranks outlive a `torchrun` that is killed.
struct Pids(Vec<String>);

impl Drop for Pids {
    fn drop(&mut self) {
        for pid in &self.0 {
            let is_rank = std::fs::read_to_string(format!("/proc/{pid}/environ"))
                .is_ok_and(|variables| variables.contains("TORCHELASTIC_RUN_ID="));
            let pid = pid.parse().ok().and_then(Pid::from_raw);
            if let Some(pid) = pid.filter(|_| is_rank) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
}

impl Job {
    fn start(variables: &[(&str, &str)]) -> Self {
        Self::of(PROGRAM, "ready", RANKS, variables)
    }

    /// A program whose ranks say who they are, after `word`.
    pub(crate) fn of(program: &str, word: &str, ranks: usize, variables: &[(&str, &str)]) -> Self {
        let sandbox = sandbox();
        let mut command = sandbox.command();
        command
            .args(["run", "--"])
            .arg(torchrun())
            .args(["--standalone", "--nproc-per-node", &ranks.to_string()])
            .arg(root().join(program))
            .env("GLOO_SOCKET_IFNAME", "lo")
            .env("OMP_NUM_THREADS", "1")
            .envs(variables.iter().copied());
        let mut torchrun = sandbox.target_command(command).start_without_waiting();
        let mut said: Vec<String> = (0..ranks).map(|_| torchrun.line()).collect();
        said.sort();
        let pids = said.iter().enumerate().map(|(rank, line)| {
            let pid = line.strip_prefix(&format!("{word} {rank} "));
            pid.unwrap_or_else(|| panic!("{line}")).to_owned()
        });
        let pids = Pids(pids.collect());
        Self {
            sandbox,
            torchrun,
            pids,
        }
    }

    pub(crate) fn probing(&self, arguments: &[&str]) -> CommandResult {
        let all = self.pids.0.join(",");
        self.sandbox.probing([&["-t", &all], arguments].concat())
    }

    /// The same command, to be started.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.sandbox.command();
        command.args(["-t", &self.pids.0.join(",")]).args(arguments);
        command
    }

    pub(crate) fn kill_rank(&self, rank: usize) {
        let pid = Pid::from_raw(self.pids.0[rank].parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }

    pub(crate) fn rows(&self, sql: &str) -> Vec<Value> {
        let told = self.probing(&["query", "--json", sql]).json();
        told.as_array().unwrap().clone()
    }

    /// Has a phase begin on ranks.
    fn begin(&self, ranks: &str, phase: usize) {
        let code = format!("phases[{phase}].set()");
        let ran = self.probing(&["--ranks", ranks, "eval", &code]);
        assert_eq!(ran.status, 0, "{ran:?}");
    }

    fn wait_for(&self, phase: usize, ranks: &str) {
        wait_until("the phase is done", || {
            let ran = self.probing(&["--ranks", ranks, "eval", "done"]);
            let said = ran.stdout.trim_end();
            // One line: they agree.
            said.lines().count() == 1 && said.rsplit(' ').next() == Some(&phase.to_string())
        });
    }

    /// What has become of the model, to the last bit.
    fn result(&self) -> String {
        let code = "weights.hex(), [loss.hex() for loss in losses]";
        let ran = self.probing(&["--ranks", "all", "eval", code]);
        ran.ok().to_owned()
    }

    /// What is said of the group of all ranks.
    fn world(&self) -> Value {
        let report = self.probing(&["collectives", "--json"]).json();
        world_of(&report["jobs"][0])
    }
}

fn world_of(job: &Value) -> Value {
    let groups = job["groups"].as_array().unwrap();
    let world = groups.iter().find(|group| group["group_name"] == "0");
    world.unwrap_or_else(|| panic!("{job:#}")).clone()
}

fn line_of(mark: &str) -> usize {
    let source = std::fs::read_to_string(root().join(PROGRAM)).unwrap();
    source.lines().position(|line| line.contains(mark)).unwrap() + 1
}

#[track_caller]
fn check_that_all_are_seen(job: &Job) {
    // All that DDP does by itself (9 operations for 3 steps, one to check, one to copy the model), the program's, and those
    // of a smaller group: torch counts them, too.
    let counted = job.probing(&[
        "--ranks",
        "0",
        "eval",
        "dist.group.WORLD._get_sequence_number_for_group()",
    ]);
    let counted: u64 = counted.ok().trim().parse().unwrap();
    // What is passed on to one other is counted by torch, and has no number here.
    let counted = counted - 1;
    let between = "SELECT op, seq, root FROM python.collectives WHERE op IN ('send', 'recv') AND state = 'completed' ORDER BY rank";
    let between: Vec<String> = job.rows(between).iter().map(Value::to_string).collect();
    assert_eq!(
        between,
        [
            r#"{"op":"send","root":1,"seq":null}"#,
            r#"{"op":"recv","root":0,"seq":null}"#
        ]
    );
    let sql = "SELECT rank, count(DISTINCT seq) AS seqs, min(seq) AS least, max(seq) AS most, \
               count(*) FILTER (WHERE state = 'enqueued') AS enqueued FROM python.collectives \
               WHERE group_name = '0' AND seq IS NOT NULL GROUP BY rank ORDER BY rank";
    let rows = job.rows(sql);
    assert_eq!(rows.len(), RANKS);
    for row in &rows {
        assert_eq!(row["seqs"], counted, "{row}");
        assert_eq!(row["enqueued"], counted, "{row}");
        assert_eq!(
            (&row["least"], row["most"].as_u64()),
            (&Value::from(0), Some(counted - 1)),
            "{row}"
        );
    }
    let sql = "SELECT op, shapes, dtype, bytes, func, lineno FROM python.collectives WHERE group_name <> '0' AND op = 'broadcast' AND state = 'enqueued' AND rank = 0";
    let [small] = job.rows(sql).try_into().unwrap();
    assert_eq!(
        (&*small["op"].to_string(), &small["bytes"]),
        ("\"broadcast\"", &Value::from(16))
    );
    assert_eq!(
        (&*small["shapes"].to_string(), &*small["dtype"].to_string()),
        ("\"[2,2]\"", "\"float32\"")
    );
    let sql = format!(
        "SELECT count(*) AS n FROM python.collectives WHERE state = 'completed' AND func = 'straggle' AND lineno = {}",
        line_of("# @late")
    );
    assert_eq!(job.rows(&sql)[0]["n"], 20 * RANKS);
}

#[test]
fn every_operation_is_seen_and_who_never_came_is_named() {
    let job = Job::start(&[("PROBING_TORCH", "collectives")]);
    job.begin("all", 0);
    job.wait_for(1, "all");

    check_that_all_are_seen(&job);

    // One that torch refuses, on all ranks, and one that nobody else comes to.
    let failed = format!(
        "SELECT rank, lineno = {} AS alone FROM python.collectives WHERE state = 'failed' AND op = 'allreduce' ORDER BY rank, ts",
        line_of("# @alone")
    );
    let failed = || {
        let rows = job.rows(&failed);
        let told = rows
            .iter()
            .map(|row| (row["rank"].as_u64().unwrap(), row["alone"] == true));
        told.collect::<Vec<_>>()
    };
    let expected = [(0, false), (0, true), (1, false), (2, false)];
    wait_until("what has failed is told", || failed() == expected);

    let report = job.probing(&["collectives", "--json"]).json();
    assert_eq!(report["jobs"][0]["straggler"], 1, "{report:#}");
    assert_eq!(job.world()["verdict"]["verdict"], "in_step", "{report:#}");

    check_that_who_stays_away_is_named(&job);
    let world = job.world();
    assert_eq!(world["verdict"]["verdict"], "absent", "{world:#}");
    assert_eq!(world["verdict"]["ranks"], Value::from(vec![1]), "{world:#}");
    assert_eq!(
        world["verdict"]["operation"]["lineno"],
        line_of("# @hang"),
        "{world:#}"
    );
    job.begin("1", 2);
    job.wait_for(3, "all");

    // Rank 1 does something else, which makes ranks die.
    job.begin("all", 3);
    job.wait_for(4, "all");
    job.begin("all", 4);
    let said = job.torchrun.wait().stderr;
    // What torch warns of when it is asked too much would be our noise.
    assert!(
        !said.iter().any(|line| line.contains("deprecated")),
        "{said:?}"
    );
    let all = job.pids.0.join(",");
    let told = job
        .sandbox
        .probing(["-t", &all, "collectives", "--json"])
        .json();
    let world = world_of(&told["jobs"][0]);
    assert_eq!(world["verdict"]["verdict"], "differs", "{told:#}");
    let sides = world["verdict"]["sides"].as_array().unwrap();
    assert_eq!(
        (&sides[0]["ranks"], &sides[1]["ranks"]),
        (&Value::from(vec![0, 2]), &Value::from(vec![1])),
        "{told:#}"
    );
    assert_eq!(world["ended"], Value::from(vec![0, 1, 2]), "{told:#}");
    check_that_who_asks_all_hears_of_the_dead(&job.sandbox, &told);
}

/// Who asks all gets the same verdict, whether something else runs or nothing does any more.
#[track_caller]
fn check_that_who_asks_all_hears_of_the_dead(sandbox: &Sandbox, dead: &Value) {
    let all = sandbox.probing(["-t", "all", "collectives", "--json"]);
    let told = all.json();
    assert_eq!(world_of(&told["jobs"][0]), world_of(&dead["jobs"][0]));
    let note = "no running process has recorded an operation: these are the rows of the processes that ended last\n";
    assert!(all.stderr.contains(note), "{all:?}");
    let words = sandbox.probing(["--ranks", "all", "collectives"]);
    let ended = "\n  ended: ranks 0,1,2\n";
    assert!(
        words.status == 0 && words.stdout.contains(ended),
        "{words:?}"
    );
}

#[test]
fn recording_changes_no_bit_and_can_be_switched_in_a_running_job() {
    let variables = [("PROBING_TORCH", "collectives"), ("PROBING_MEMORY", "1")];
    let plain = Job::of(PROGRAM, "ready", 2, &[]);
    let traced = Job::of(PROGRAM, "ready", 2, &variables);
    for job in [&plain, &traced] {
        job.begin("all", 0);
        job.wait_for(1, "all");
    }
    assert_eq!(plain.result(), traced.result());

    let nothing = plain.probing(&["collectives"]);
    assert_eq!(nothing.status, 1, "{nothing:?}");
    assert!(
        nothing.stderr.contains("no operation is recorded"),
        "{nothing:?}"
    );
    let on = plain.probing(&["collectives", "on"]);
    assert_eq!(
        on.ok(),
        "ranks 0-1: collectives is on now; python.collectives: every collective operation\n"
    );
    plain.begin("all", 1);
    plain.wait_for(2, "1");
    wait_until("the others wait", || {
        plain.world()["verdict"]["waiting"] == Value::from(vec![0])
    });
    check_that_jobs_are_told_apart(&plain, &traced);
    let off = plain.probing(&["collectives", "off"]);
    assert_eq!(off.status, 0, "{off:?}");
}

/// Both have a group 0 of two ranks. In one of them rank 1 has not come; the other one is in step.
#[track_caller]
fn check_that_jobs_are_told_apart(hangs: &Job, runs: &Job) {
    let both = [hangs, runs].map(|job| job.pids.0.join(",")).join(",");
    let collectives = |options: &[&str]| {
        let command = [&["-t", &both, "collectives"], options].concat();
        hangs.sandbox.probing(command)
    };
    let report = collectives(&["--json"]).json();
    let jobs = report["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2, "{report:#}");
    for (job, verdict) in [(hangs, "absent"), (runs, "in_step")] {
        let mut pids: Vec<u64> = job.pids.0.iter().map(|pid| pid.parse().unwrap()).collect();
        pids.sort_unstable();
        let told = jobs.iter().find(|told| told["pids"] == Value::from(&*pids));
        let world = world_of(told.unwrap_or_else(|| panic!("{report:#}")));
        assert_eq!(world["verdict"]["verdict"], verdict, "{report:#}");
        assert_eq!(world["ranks"], Value::from(vec![0, 1]), "{report:#}");
    }
    let words = collectives(&[]);
    for told in jobs {
        let named = format!("job {} (pids ", told["job"].as_str().unwrap());
        let (_, own) = words.ok().split_once(&named).unwrap();
        let is_absent = world_of(told)["verdict"]["verdict"] == "absent";
        let verdict = if is_absent {
            "rank 1 has not come to "
        } else {
            "in step, all have done #"
        };
        let line = format!("  group 0: {verdict}");
        assert!(own.lines().nth(1).unwrap().starts_with(&line), "{words:?}");
    }
}

#[test]
fn nothing_is_said_of_jobs_that_cannot_be_told_apart() {
    every_torch(|python| {
        let sandbox = sandbox();
        let start = || {
            let target = sandbox.target(python, "with_torch/alike.py");
            let target = target.env("GLOO_SOCKET_IFNAME", "lo");
            target.env("PROBING_TORCH", "collectives").start()
        };
        let (one, other) = (start(), start());
        let [one, other] = [&one, &other].map(|target| target.pid().to_string());
        let both = format!("{one},{other}");
        let of = |targets: &str| {
            let ran = sandbox.probing(["-t", targets, "collectives"]);
            ran.ok().to_owned()
        };
        assert_eq!(of(&one), "group 0: in step, all have done #0\n");
        insta::assert_snapshot!(of(&both), @"
        several processes have rank 0: of jobs that cannot be distinguished, or of a job that was restarted
          hint: name the processes of one job: -t PID,PID
        ");
    });
}

#[test]
fn the_examples_of_a_hang_and_of_a_straggler_are_found() {
    let variables = [("PROBING_TORCH", "collectives")];
    let hang = Job::of("examples/hang.py", "rank", 2, &variables);
    let straggler = Job::of("examples/straggler.py", "rank", 2, &variables);
    wait_until("rank 0 waits", || {
        let ran = hang.probing(&["collectives"]);
        ran.stdout.contains(
            "group 0: rank 1 has not come to allreduce #4 [1000] float32 at main (hang.py:",
        )
    });
    wait_until("rank 1 is late", || {
        let ran = straggler.probing(&["collectives"]);
        ran.stdout.contains("straggler: rank 1, the last in ")
    });
}

/// A torch without hooks of process groups has its dispatcher tell, what DDP asks for in C++ included. A child of a fork has
/// the parent's functions there.
#[test]
fn operations_are_seen_where_torch_has_no_hooks() {
    every_torch(|python| {
        let sandbox = sandbox();
        let mut target = sandbox
            .target(python, "with_torch/unhooked.py")
            .env("GLOO_SOCKET_IFNAME", "lo")
            .start_without_waiting();
        let child = target.line();
        let child = child.strip_prefix("ready ").unwrap();
        let pid = target.pid().to_string();
        let rows = |pid: &str, sql: &str| {
            let ran = sandbox.probing(["-t", pid, "query", "--csv", sql]);
            assert_eq!(ran.status, 0, "{ran:?}");
            let rows = ran.stdout.lines().skip(1);
            rows.map(str::to_owned).collect::<Vec<_>>()
        };
        let operations = "SELECT op, dtype, shapes, root, is_async, func FROM python.collectives WHERE state = 'enqueued' ORDER BY ts";
        assert_eq!(
            rows(&pid, operations),
            [
                "allreduce,float32,\"[2,3]\",,false,work",
                "broadcast,int64,[4],0,false,work",
                "allgather,float32,[5],,false,work",
                "allgather_base,float32,[6],,false,work",
                "reduce_scatter_base,float32,[4],,false,work",
                "reduce_scatter_base,float32,[3],,true,work",
                "allreduce,float64,[7],,true,work",
                "barrier,,,,false,work",
                "allreduce,int16,[3],,false,work",
                "allreduce,float32,[8],,false,work",
                // DDP orders its buckets anew once, behind the first step.
                "allreduce,float32,[5],,true,train",
                "broadcast,int32,[3],0,true,train",
                "broadcast,int32,[1],0,true,train",
                "allreduce,float32,[5],,true,train",
                "allreduce,float32,[11],,false,<module>",
            ]
        );
        let failed = "SELECT shapes FROM python.collectives WHERE state = 'failed'";
        assert_eq!(rows(&pid, failed), ["[3]"]);
        let over = "SELECT count(*) FROM python.collectives WHERE state = 'completed'";
        assert_eq!(rows(&pid, over), ["14"]);
        assert_eq!(
            rows(child, operations),
            ["allreduce,float32,[10],,false,fork"]
        );
        assert_eq!(rows(child, over), ["1"]);
        // All is seen: there is nothing to say.
        let on = sandbox.probing(["-t", &pid, "collectives", "on"]);
        assert_eq!((on.status, &*on.stderr), (0, ""), "{on:?}");
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}

/// The same of several ranks, in a job that runs.
#[test]
fn a_job_whose_torch_has_no_hooks_is_recorded_to_the_same_bits() {
    let variables = [("UNHOOKED", "1")];
    let plain = Job::of(PROGRAM, "ready", RANKS, &variables);
    let traced = Job::of(PROGRAM, "ready", RANKS, &variables);
    let on = traced.probing(&["collectives", "on"]);
    assert_eq!(on.status, 0, "{on:?}");
    for job in [&plain, &traced] {
        job.begin("all", 0);
        job.wait_for(1, "all");
    }
    assert_eq!(plain.result(), traced.result());
    check_that_all_are_seen(&traced);
    check_that_who_stays_away_is_named(&traced);
    check_that_who_has_sent_before_is_not_ahead(&traced);
}

/// Rank 1 does not come to what the others wait in.
#[track_caller]
fn check_that_who_stays_away_is_named(job: &Job) {
    job.begin("all", 1);
    job.wait_for(2, "1");
    wait_until("the others wait", || {
        job.world()["verdict"]["waiting"] == Value::from(vec![0, 2])
    });
    let words = job.probing(&["collectives"]);
    assert!(
        words
            .stdout
            .contains("group 0: rank 1 has not come to allreduce #"),
        "{words:?}"
    );
    assert!(words.stdout.contains("straggler: rank 1"), "{words:?}");
}

/// Of the send and the recv before this, torch tells only that they were counted.
#[track_caller]
fn check_that_who_has_sent_before_is_not_ahead(job: &Job) {
    job.begin("1", 2);
    job.wait_for(3, "all");
    for word in ["off", "on"] {
        let ran = job.probing(&["collectives", word]);
        assert_eq!(ran.status, 0, "{ran:?}");
    }
    job.begin("all", 3);
    job.wait_for(4, "all");
    wait_until("nobody is waited for", || {
        job.world()["verdict"]["verdict"] == "in_step"
    });
}

/// `with probing.trace("collective_ops")` and `"memory_usage"`: what is recorded is what the blocks are around.
#[test]
fn a_rank_records_itself_for_as_long_as_its_blocks_last() {
    every_torch(|python| {
        let sandbox = sandbox();
        let target = sandbox
            .target(python, "with_torch/alone.py")
            .env("GLOO_SOCKET_IFNAME", "lo")
            .start();
        let pid = target.pid().to_string();
        let rows = |sql: &str| {
            let ran = sandbox.probing(["-t", &pid, "query", "--csv", sql]);
            assert_eq!(ran.status, 0, "{ran:?}");
            ran.stdout
                .lines()
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        // Nothing of what is before and behind the blocks. DDP orders its buckets anew once, behind the first step.
        let operations = "SELECT op, dtype, shapes, step, is_async FROM python.collectives WHERE state = 'enqueued' ORDER BY seq";
        assert_eq!(
            rows(operations),
            [
                "allreduce,float32,[5],0,true",
                "broadcast,int32,[3],1,true",
                "broadcast,int32,[1],1,true",
                "allreduce,float32,[5],1,true",
                "allreduce,float32,[5],2,true",
                "allreduce,int16,[3],3,false",
                "allreduce,float32,[6],3,false",
                "reduce_scatter_base,float32,[4],3,false",
                "reduce_scatter_base,float32,[7],3,true",
                "allreduce,float32,\"[2,3]\",3,false",
            ]
        );
        let over =
            "SELECT state, shapes FROM python.collectives WHERE state <> 'enqueued' ORDER BY seq";
        let [five, three, one] = ["completed,[5]", "completed,[3]", "completed,[1]"];
        let expected = [
            five,
            three,
            one,
            five,
            five,
            "failed,[3]",
            "failed,[6]",
            "completed,[4]",
            "completed,[7]",
            "completed,\"[2,3]\"",
        ];
        assert_eq!(rows(over), expected);
        // Each step has its row; its number is that of the step that begins.
        let steps = "SELECT step FROM python.memory WHERE kind = 'step' ORDER BY ts";
        assert_eq!(rows(steps), ["1", "2", "3"]);
        let modules = "SELECT module, count(*) FROM python.torch_trace WHERE stage = 'post forward' GROUP BY module ORDER BY module";
        assert_eq!(rows(modules), ["DistributedDataParallel,3", "module,3"]);
        let ended = target.end();
        assert_eq!(ended.status, 0, "{ended:?}");
        check_that_another_format_is_told(&sandbox, &pid);
    });
}

/// Rows that a probe of another version has recorded are not said to be none.
fn check_that_another_format_is_told(sandbox: &Sandbox, pid: &str) {
    let collectives = || sandbox.probing(["-t", pid, "collectives"]);
    assert_eq!(collectives().status, 0, "{:?}", collectives());
    // Its loader's worker has one, too.
    let mut folders = sandbox.target_dirs();
    folders.retain(|folder| folder.starts_with(&format!("{pid}.")));
    let [folder] = folders.try_into().unwrap();
    let rings = sandbox.runtime_dir().join(folder).join("rings");
    let paths = std::fs::read_dir(rings)
        .unwrap()
        .map(|it| it.unwrap().path());
    for path in paths.filter(|path| path.to_string_lossy().contains("python.collectives")) {
        let ring = File::options().write(true).open(path).unwrap();
        // Where a ring says what format it is in.
        ring.write_at(&3_u32.to_le_bytes(), 8).unwrap();
    }
    let ran = collectives();
    assert_eq!(ran.status, 3, "{ran:?}");
    insta::assert_snapshot!(ran.stderr, @r"
    error: rows of python.collectives are in format 3, which this version does not read
    hint: use the version of `probing` that the target was started with, or restart the target
    ");
}

/// DDP's operations are asked for in C++ and waited for there: nobody tells when they are over.
#[test]
fn operations_without_an_end_event_are_polled_and_not_held_longer() {
    every_torch(|python| {
        let sandbox = sandbox();
        let mut target = sandbox
            .target(python, "with_torch/unasked.py")
            .env("GLOO_SOCKET_IFNAME", "lo")
            .start();
        let pid = target.pid().to_string();
        let seen = |shape: &str| {
            let sql = format!(
                "SELECT step, duration_ns FROM python.collectives WHERE state = 'completed' AND shapes = '{shape}'"
            );
            let told = sandbox
                .probing(["-t", &pid, "query", "--json", &sql])
                .json();
            told.as_array().unwrap().clone()
        };
        // The program does nothing: the probe's thread comes by.
        wait_until("the first is seen to be over", || seen("[3]").len() == 1);
        for (shape, step, word) in [("[4]", 0, "torch"), ("[5]", 1, "the program")] {
            target.say("");
            let said = target.line();
            let took = said.strip_suffix(&format!(" by a step that {word} tells of"));
            let took: u64 = took.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
            let [over] = seen(shape).try_into().unwrap();
            assert_eq!(over["step"], step, "{over}");
            assert!(
                over["duration_ns"].as_u64().unwrap() <= took,
                "{over} {took}"
            );
        }
        target.say("");
        assert_eq!(target.line(), "0 held");
        target.say("");
        let ended = target.end();
        assert_eq!((ended.status, ended.stderr), (0, vec![]));
    });
}
