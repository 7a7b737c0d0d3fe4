//! Several targets at once: naming them, where they are, who is the odd one out.

mod again;
mod eval;
mod tracers;

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use probing_testkit::{CommandResult, Python, Sandbox, Target, every_python, root, wait_until};
use rustix::process::Signal;
use serde_json::Value;

use crate::{sandbox, scrubbed};

/// A job of a few ranks. Other jobs run on the same machine, so its ranks begin with a number of its own.
pub(crate) struct Job {
    pub(crate) sandbox: Sandbox,
    pub(crate) ranks: Vec<Target>,
    first: u32,
}

impl Job {
    /// Starts `rank.py` with these arguments, one rank each; those with `probed` among them have the probe.
    pub(crate) fn start(python: &Python, ranks: &[&str]) -> Self {
        Self::of(python, "rank.py", ranks)
    }

    /// The same of another program.
    pub(crate) fn of(python: &Python, program: &str, ranks: &[&str]) -> Self {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let job = std::process::id() * 100 + JOBS.fetch_add(1, Ordering::Relaxed) % 100;
        let (sandbox, first) = (sandbox(), job * 10);
        let start = |(place, words): (usize, &&str)| {
            let rank = (first + place as u32).to_string();
            let mut target = sandbox.target(python, program).env("RANK", rank);
            for word in words.split_whitespace() {
                target = match word {
                    "probed" => target.env("PROBING", "1"),
                    word => target.arg(word),
                };
            }
            target.start()
        };
        let ranks = ranks.iter().enumerate().map(start).collect();
        Self {
            sandbox,
            ranks,
            first,
        }
    }

    /// These of its ranks, as `--ranks` takes them.
    pub(crate) fn named(&self, first: u32, last: u32) -> String {
        format!("{}-{}", self.first + first, self.first + last)
    }

    pub(crate) fn pid(&self, rank: usize) -> String {
        self.ranks[rank].pid().to_string()
    }

    /// `probing --ranks` with these of its ranks, and more arguments.
    pub(crate) fn probing(&self, (first, last): (u32, u32), arguments: &[&str]) -> CommandResult {
        let named = self.named(first, last);
        let mut all = vec!["--ranks", &named];
        all.extend(arguments);
        self.sandbox.probing(all)
    }

    /// Text with ranks as they are counted in the job (the last digit is its own), without what differs from run to run.
    pub(crate) fn shown(&self, text: &str) -> String {
        let text = text.replace(&root().display().to_string(), "");
        text.replace(&(self.first / 10).to_string(), "")
    }

    /// Waits until all of them wait.
    pub(crate) fn settle(&self) {
        let last = self.ranks.len() as u32 - 1;
        wait_until("all ranks wait", || {
            let json = self.probing((0, last), &["backtrace", "--json"]).json();
            let targets = json["targets"].as_array().unwrap();
            let state = |target: &Value| target["report"]["threads"][0]["state"].clone();
            targets.iter().all(|target| state(target) == "read")
        });
    }
}

const EIGHT: [&str; 8] = ["", "", "probed", "", "", "load", "probed", ""];

#[test]
fn eight_ranks_are_one_tree_and_the_odd_one_is_marked() {
    every_python(|python| {
        let job = Job::start(python, &EIGHT);
        job.settle();
        let ran = job.probing((0, 7), &["backtrace"]);
        insta::assert_snapshot!(job.shown(ran.ok()), @r#"
        Thread MainThread of 8: ranks 0-7 (most recent call last)
          File "/tests/targets/rank.py", line 31, in <module>
            step()
          ├─ 7 of 8: ranks 0-4,6-7, waits in read
          │    File "/tests/targets/rank.py", line 24, in step
          │      all_reduce()  # @step
          │    File "/tests/targets/rank.py", line 18, in all_reduce
          │      return sys.stdin.read()  # @all_reduce
          └─ 1 of 8: rank 5, waits in read  ← odd one out
               File "/tests/targets/rank.py", line 23, in step
                 load()  # @late
               File "/tests/targets/rank.py", line 14, in load
                 return sys.stdin.read()  # @load
        "#);
        let ran = job.probing((0, 7), &["backtrace", "--reverse"]);
        insta::assert_snapshot!(job.shown(ran.ok()), @r#"
        Thread MainThread of 8: ranks 0-7 (most recent call first)
          ┌─ 7 of 8: ranks 0-4,6-7, waits in read
          │    File "/tests/targets/rank.py", line 18, in all_reduce
          │      return sys.stdin.read()  # @all_reduce
          │    File "/tests/targets/rank.py", line 24, in step
          │      all_reduce()  # @step
          ├─ 1 of 8: rank 5, waits in read  ← odd one out
          │    File "/tests/targets/rank.py", line 14, in load
          │      return sys.stdin.read()  # @load
          │    File "/tests/targets/rank.py", line 23, in step
          │      load()  # @late
          File "/tests/targets/rank.py", line 31, in <module>
            step()
        "#);
        // Nothing was brought in for it.
        assert_eq!(job.sandbox.target_dirs().len(), 2);
    });
}

#[test]
fn pids_and_names_make_a_set_too() {
    every_python(|python| {
        let job = Job::start(python, &["", "", "load"]);
        job.settle();
        let (one, other) = (job.pid(0), job.pid(2));
        let ran = job.sandbox.probing(["-t", &one, "backtrace", "-t", &other]);
        let shown = job.shown(ran.ok());
        assert!(
            shown.starts_with("Thread MainThread of 2: ranks 0,2 (most"),
            "{shown}"
        );
        assert!(
            shown.contains("\n  ├─ 1 of 2: rank 0, waits in read\n"),
            "{shown}"
        );
        // Nobody is odd among two.
        assert!(!shown.contains("odd"), "{shown}");
        let both = format!("{one},{other}");
        let by_variable = {
            let mut command = job.sandbox.command();
            command.arg("backtrace").env("PROBING_TARGET", &both);
            CommandResult::to_the_end(command)
        };
        assert_eq!(by_variable.ok(), ran.ok());
        assert_eq!(job.sandbox.probing([&both, "backtrace"]).ok(), ran.ok());
        // All ranks of that name; one is shown as one.
        let named = job.probing((0, 1), &["-t", "rank.py", "backtrace"]);
        assert!(
            job.shown(named.ok())
                .starts_with("Thread MainThread of 2: ranks 0-1, waits in read (most")
        );
        let only = job.probing((2, 2), &["backtrace"]);
        assert!(
            only.ok()
                .starts_with(&format!("Thread MainThread ({other}), waits in read"))
        );
    });
}

#[test]
fn sockets_belong_to_sets_too() {
    every_python(|python| {
        let job = Job::start(python, &["probed", "", "probed"]);
        job.settle();
        let mut sockets = job.sandbox.target_dirs();
        sockets.retain(|folder| folder.starts_with(&format!("{}.", job.pid(0))));
        let socket = job
            .sandbox
            .runtime_dir()
            .join(&sockets[0])
            .join("probe.sock");
        let live = format!("unix:{}", socket.display());
        let dead = format!("unix:{}", job.sandbox.path().join("none.sock").display());
        let set = format!("{live},{dead},{}", job.pid(1));
        let ran = job.sandbox.probing(["-t", &set, "backtrace"]);
        assert_eq!(
            (ran.status, ran.stderr.as_str()),
            (0, "warning: 2 of 3 targets were read\n")
        );
        let shown = job.shown(&ran.stdout);
        assert!(
            shown.starts_with("Thread MainThread of 2: ranks 0-1, waits in read"),
            "{shown}"
        );
        assert!(
            shown.contains(&format!("\n  {dead}: nobody listens at socket: ")),
            "{shown}"
        );
    });
}

#[test]
fn all_of_this_user_are_a_set() {
    every_python(|python| {
        let job = Job::start(python, &["", "probed"]);
        job.settle();
        let json = job
            .sandbox
            .probing(["-t", "all", "backtrace", "--json"])
            .json();
        let targets = json["targets"].as_array().unwrap();
        let pid = |target: &&Target| targets.iter().any(|one| one["pid"] == target.pid());
        assert!(job.ranks.iter().all(|target| pid(&target)), "{json}");
        let all = job.sandbox.probing(["-t", "all", "backtrace"]);
        assert!(all.stdout.contains("Thread MainThread of "), "{all:?}");
    });
}

#[test]
fn a_tree_has_its_promised_shape_in_json() {
    every_python(|python| {
        let job = Job::start(python, &["", "", "", "load"]);
        job.settle();
        let json = job.probing((0, 4), &["backtrace", "--json"]).json();
        assert_eq!(json["missing_ranks"], (job.first + 4).to_string());
        let target = &json["targets"][3];
        assert_eq!(
            (&target["pid"], &target["rank"]),
            (&job.ranks[3].pid().into(), &(job.first + 3).into())
        );
        assert_eq!(
            (&target["target"], &target["error"]),
            (&job.pid(3).into(), &Value::Null)
        );
        assert_eq!(target["report"]["threads"][0]["frames"][0]["func"], "load");
        let tree = &json["trees"][0];
        assert_eq!(tree["threads"], serde_json::json!(["MainThread"]));
        let trunk = &tree["trunk"];
        assert_eq!(
            (&trunk["count"], &trunk["ranks"]),
            (&4.into(), &job.named(0, 3).into())
        );
        assert_eq!(
            (&trunk["end"], trunk["frames"][0]["func"].as_str()),
            (&Value::Null, Some("<module>"))
        );
        let [most, odd] = trunk["branches"].as_array().unwrap().as_slice() else {
            panic!("{trunk}");
        };
        assert_eq!((&most["odd"], &odd["odd"]), (&false.into(), &true.into()));
        assert_eq!(
            (&odd["ranks"], &odd["pids"]),
            (&(job.first + 3).to_string().into(), &serde_json::json!([]))
        );
        assert_eq!(odd["frames"][1]["func"], "load");
        assert_eq!(
            odd["end"],
            serde_json::json!({"state": "read", "gil": "free", "complete": true})
        );
        // One that matches is still a set.
        let one = job.probing((0, 0), &["backtrace", "--json"]).json();
        assert_eq!(one["targets"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn a_rank_that_is_stopped_where_the_others_wait_is_the_odd_one() {
    every_python(|python| {
        let job = Job::start(python, &["", "", "probed", ""]);
        job.settle();
        job.ranks[2].stop();
        let shown = job.shown(job.probing((0, 3), &["backtrace"]).ok());
        assert!(
            shown.contains("├─ 3 of 4: ranks 0-1,3, waits in read here\n"),
            "{shown}"
        );
        assert!(
            shown.ends_with("└─ 1 of 4: rank 2, stopped here  ← odd one out\n"),
            "{shown}"
        );
        assert_eq!(job.ranks[2].state(), 'T');
    });
}

#[test]
fn the_dead_are_named_and_do_not_end_the_answer() {
    every_python(|python| {
        let mut job = Job::start(python, &["", "", ""]);
        job.settle();
        let pids = [job.pid(0), job.pid(1), job.pid(2)];
        job.ranks[1].signal(Signal::KILL);
        let by_rank = {
            wait_until("it is dead", || !job.ranks[1].lives());
            job.probing((0, 2), &["backtrace"])
        };
        assert_eq!(
            (by_rank.status, by_rank.stderr.as_str()),
            (0, "warning: 2 of 3 targets were read\n")
        );
        let shown = job.shown(&by_rank.stdout);
        assert!(
            shown.starts_with("Thread MainThread of 2: ranks 0,2, waits in read"),
            "{shown}"
        );
        assert!(
            shown.contains("\nNot read:\n  rank 1: no process here has it\n    hint: "),
            "{shown}"
        );
        let by_pid = job.sandbox.probing(["-t", &pids.join(","), "backtrace"]);
        assert_eq!(by_pid.status, 0);
        let dead = format!("\n  pid {0}: no such process: {0}\n", pids[1]);
        assert!(by_pid.stdout.contains(&dead), "{by_pid:?}");
        for rank in [0, 2] {
            job.ranks[rank].signal(Signal::KILL);
            wait_until("it is dead", || !job.ranks[rank].lives());
        }
        let none = job.sandbox.probing(["-t", &pids.join(","), "backtrace"]);
        assert_eq!(
            (none.status, none.stderr.as_str()),
            (3, "error: none of 3 targets could be read\n")
        );
        assert!(
            scrubbed(&none.stdout).contains("pids N,N,N: no such process: PID\n"),
            "{none:?}"
        );
        let nobody = job.probing((0, 2), &["backtrace"]);
        assert_eq!(nobody.status, 3);
        assert!(
            job.shown(&nobody.stderr)
                .starts_with("error: no target has one of these ranks: 0-2\n"),
            "{nobody:?}"
        );
    });
}

#[test]
fn of_ranks_that_failed_and_left_nothing_it_is_said_which() {
    every_python(|python| {
        let sandbox = sandbox();
        let living = sandbox.target(python, "rank.py").env("RANK", "1");
        let living = living.env("WORLD_SIZE", "4").start();
        let pid = living.pid().to_string();
        let said = |arguments: &[&str]| {
            let ran = sandbox.probing([&["-t", &pid, "--ranks", "failed"], arguments].concat());
            assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{ran:?}");
            ran.stderr
        };
        let stacks = said(&["backtrace"]);
        insta::assert_snapshot!(stacks, @"
        error: no process here has these ranks, and they left no rows: 0,2-3
        hint: they have ended, or run on another machine: add -t HOST:PORT. A process that was started with PROBING=1 leaves what it recorded; `--ranks all backtrace` shows where the others are
        ");
        assert_eq!(said(&["query", "SELECT 1"]), stacks);
        assert_eq!(said(&["collectives"]), stacks);
    });
}

#[test]
fn processes_that_end_while_they_are_read_are_no_crash() {
    every_python(|python| {
        let mut job = Job::start(python, &[""; 6]);
        let mut command = job.sandbox.command();
        command.args(["--ranks", &job.named(0, 5), "backtrace"]);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        for target in &job.ranks {
            target.signal(Signal::KILL);
        }
        let ran = CommandResult::finished(child);
        assert!([0, 3].contains(&ran.status), "{ran:?}");
        assert!(job.ranks.iter_mut().all(|target| {
            wait_until("it is dead", || !target.lives());
            true
        }));
    });
}

#[test]
fn a_rank_is_not_its_workers() {
    every_python(|python| {
        let job = Job::start(python, &["worker", ""]);
        let json = job.probing((0, 1), &["backtrace", "--json"]).json();
        let pids: Vec<&Value> = json["targets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|target| &target["pid"])
            .collect();
        assert_eq!(
            pids,
            [
                &Value::from(job.ranks[0].pid()),
                &Value::from(job.ranks[1].pid())
            ]
        );
    });
}

#[test]
fn threads_are_merged_by_their_names() {
    every_python(|python| {
        let sandbox = sandbox();
        let targets = [0, 1].map(|_| sandbox.target(python, "waiting.py").start());
        let pids = targets.each_ref().map(|target| target.pid().to_string());
        let both = pids.join(",");
        let shown = |arguments: &[&str]| {
            let ran = sandbox.probing([&["-t", &both, "backtrace"], arguments].concat());
            ran.ok().replace(&both, "PIDS")
        };
        let mut all = String::new();
        wait_until("all threads wait", || {
            all = shown(&["--all"]);
            all.matches(", waits in ").count() == 3 && !all.contains('├')
        });
        let heads: Vec<&str> = all.lines().filter(|line| !line.starts_with(' ')).collect();
        assert_eq!(
            heads,
            [
                "Thread MainThread of 2: pids PIDS, waits in read (most recent call last)",
                "",
                "Threads loader-0, loader-1, loader-2, loader-3 of 2: pids PIDS, waits in futex (most recent call last)",
                "",
                "Thread guard of 2: pids PIDS, waits in futex (most recent call last)",
            ],
            "{all}"
        );
        let guard = shown(&["--thread", "guard"]);
        assert!(
            guard.starts_with("Thread guard of 2: pids PIDS, waits in futex"),
            "{guard}"
        );
        assert!(guard.ends_with("with lock:  # @guard\n"), "{guard}");
    });
}

#[test]
fn what_makes_no_sense_for_a_set_is_refused() {
    let python = Python::all().remove(0);
    let job = Job::start(&python, &["", ""]);
    let repl = job.probing((0, 1), &["repl"]);
    assert_eq!(repl.status, 2);
    insta::assert_snapshot!(job.shown(&repl.stderr), @"
    error: this command takes one target, and these are 2: ranks 0-1
    hint: name one by pid: -t PID; or by rank: --ranks N; to debug the first that reaches a place, set a breakpoint in all of them (`break PLACE`): `stops` shows which it is
    ");
    let debug = job.probing((0, 1), &["debug", "work"]);
    assert_eq!((debug.status, debug.stderr), (2, repl.stderr));
    let check = |ranks: &str, says: &str| {
        let ran = job.sandbox.probing(["--ranks", ranks, "backtrace"]);
        assert_eq!(ran.status, 2);
        assert!(ran.stderr.contains(says), "{ran:?}");
    };
    check("one", "not ranks (0,2-5), all or failed");
    check("5-2", "from the smaller rank to the larger: 5-2");
    let thread = job.probing((0, 1), &["backtrace", "--thread", "nobody"]);
    assert_eq!(thread.status, 3);
    assert!(
        job.shown(&thread.stdout)
            .contains("no thread is named nobody; there are: MainThread ("),
        "{thread:?}"
    );
}

#[test]
fn another_users_processes_are_told_together() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let python = Python::all().remove(0);
    let job = Job::start(&python, &["", ""]);
    let command = job.sandbox.path().join("probing");
    std::fs::copy(env!("CARGO_BIN_EXE_probing"), &command).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(job.sandbox.path(), open).unwrap();
    let mut nobody = Command::new(&command);
    nobody.uid(65534);
    nobody.args(["-t", &job.pid(0), "-t", &job.pid(1), "backtrace"]);
    let ran = CommandResult::to_the_end(nobody);
    assert_eq!(ran.status, 3);
    insta::assert_snapshot!(scrubbed(&ran.stdout), @"
    Not read:
     pids N,N: not permitted to read process PID: it belongs to user N: Permission denied (os error N)
     hint: run as user N, or with CAP_SYS_PTRACE; a program that was started with PROBING=N or `probing run` needs no ptrace for its own user and root (see docs/permissions.md)
    ");
}

#[test]
fn the_probe_goes_into_all_of_a_set_and_out_again() {
    every_python(|python| {
        let mut job = Job::start(python, &["", "probed", "", ""]);
        job.ranks[3].signal(Signal::KILL);
        wait_until("it is dead", || !job.ranks[3].lives());
        let attach = job.probing((0, 3), &["attach"]);
        assert_eq!((attach.status, attach.stdout.as_str()), (3, ""));
        let shown = scrubbed(&job.shown(&attach.stderr));
        let lines: Vec<&str> = shown.lines().collect();
        assert!(
            lines[0].starts_with("rank N: attached to N (Python N.N.N, "),
            "{shown}"
        );
        assert!(
            lines[1].starts_with("rank N: the probe is in N already (Python N.N.N)"),
            "{shown}"
        );
        assert!(
            lines[2].starts_with("rank N: attached to N (Python N.N.N, "),
            "{shown}"
        );
        assert_eq!(lines[3], "rank N: no process here has it");
        assert_eq!(job.sandbox.target_dirs().len(), 3);

        let again = job.probing((0, 2), &["attach", "--json"]);
        assert_eq!(again.status, 0);
        assert_eq!(
            again.json()["targets"][2]["report"]["pid"],
            job.ranks[2].pid()
        );
        assert_eq!(
            again.json()["targets"][2]["report"]["strategy"],
            Value::Null
        );

        assert_eq!(job.sandbox.probing(["-t", &job.pid(0), "detach"]).status, 0);
        let detach = job.probing((0, 2), &["detach"]);
        assert_eq!((detach.status, detach.stdout.as_str()), (0, ""));
        let expected = format!(
            "rank 1: detached from {}\nrank 2: detached from {}\nrank 0: no probe\n",
            job.pid(1),
            job.pid(2)
        );
        assert_eq!(job.shown(&detach.stderr), expected);
        assert_eq!(job.sandbox.target_dirs(), [""; 0]);
        let nothing = job.probing((0, 2), &["detach"]);
        assert_eq!(
            (nothing.status, job.shown(&nothing.stderr).as_str()),
            (3, "ranks 0-2: no probe\n")
        );
    });
}

#[test]
fn a_stopped_member_keeps_nobody_from_being_attached() {
    every_python(|python| {
        let job = Job::start(python, &["", "probed", ""]);
        job.ranks[1].stop();
        let detach = job.probing((0, 1), &["detach"]);
        assert_eq!(detach.status, 3);
        let attach = job.probing((0, 2), &["attach"]);
        assert_eq!(attach.status, 3);
        let shown = scrubbed(&job.shown(&attach.stderr));
        assert_eq!(shown.matches(": attached to").count(), 2, "{shown}");
        let stopped = "rank N: process is stopped by a signal and cannot answer: N\n hint: resume it with: kill -CONT N\n";
        assert!(shown.ends_with(stopped), "{shown}");
    });
}
