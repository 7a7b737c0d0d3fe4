//! A job of eight ranks behind one port: all of them at once, and what becomes of those that die or hang.

use probing_testkit::{Python, Sandbox, Target, every_python, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::sandbox;

struct Job {
    sandbox: Sandbox,
    ranks: Vec<Target>,
    agent: Agent,
}

impl Job {
    fn start(python: &Python) -> Self {
        let sandbox = sandbox();
        let start = |rank: u32| {
            let target = sandbox.target(python, "rank.py").env("PROBING", "1");
            let target = target.env("RANK", rank.to_string()).env("WORLD_SIZE", "8");
            if rank == 5 {
                target.arg("load")
            } else {
                target
            }
            .start_without_waiting()
        };
        let mut ranks: Vec<Target> = (0..8).map(start).collect();
        for rank in &mut ranks {
            assert_eq!(rank.line(), "ready");
        }
        let agent = Agent::start(&sandbox);
        let job = Self {
            sandbox,
            ranks,
            agent,
        };
        wait_until("all ranks wait", || {
            let stacks = job.agent.get("/backtrace?ranks=all").json();
            let targets = stacks["targets"].as_array().unwrap();
            targets
                .iter()
                .all(|target| target["report"]["threads"][0]["state"] == "read")
        });
        job
    }

    fn rows(&self, sql: &str) -> Value {
        self.agent
            .post("/query", &json!({"sql": sql, "ranks": "all"}))
            .json()
    }
}

#[test]
fn eight_ranks_answer_through_one_port() {
    every_python(|python| {
        let job = Job::start(python);
        let Job { sandbox, agent, .. } = &job;
        let listed = agent.probing(sandbox, ["list", "--json"]).json();
        let mut ranks: Vec<u64> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["rank"].as_u64().unwrap())
            .collect();
        ranks.sort_unstable();
        assert_eq!(ranks, (0..8).collect::<Vec<u64>>());
        let tree = agent.probing(sandbox, ["backtrace"]);
        assert!(
            tree.ok().contains("7 of 8: ranks 0-4,6-7, waits in read"),
            "{tree:?}"
        );
        assert!(
            tree.ok()
                .contains("1 of 8: rank 5, waits in read  ← odd one out"),
            "{tree:?}"
        );
        // Code runs on several only when that is meant.
        let unclear = agent.probing(sandbox, ["eval", "RANK"]);
        assert_eq!(unclear.status, 2, "{unclear:?}");
        assert_eq!(
            agent.post("/eval", &json!({"code": "RANK"})).refusal().0,
            409
        );
        assert_eq!(
            agent.probing(sandbox, ["--rank", "3", "eval", "RANK"]).ok(),
            "3\n"
        );
        let some = agent.probing(sandbox, ["--ranks", "0,2-3", "eval", "learning_rate"]);
        assert_eq!(some.ok(), "ranks 0,2-3: 0.1\n");
        let all = agent.probing(sandbox, ["--ranks", "all", "eval", "RANK % 2"]);
        assert_eq!(all.ok(), "ranks 0,2,4,6: 0\nranks 1,3,5,7: 1\n");
        let rows = job.rows(
            "SELECT rank, count(*) AS frames FROM python.backtrace GROUP BY rank ORDER BY rank",
        );
        let ranks: Vec<u64> = rows["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row[0].as_u64().unwrap())
            .collect();
        assert_eq!(ranks, (0..8).collect::<Vec<u64>>());
        let by_command = agent.probing(
            sandbox,
            [
                "--ranks",
                "1-2",
                "query",
                "--csv",
                "SELECT rank, func FROM python.backtrace WHERE main AND depth = 0 ORDER BY rank",
            ],
        );
        assert_eq!(
            by_command.stdout, "rank,func\n1,all_reduce\n2,all_reduce\n",
            "{by_command:?}"
        );
    });
}

#[test]
fn a_dead_rank_and_a_stopped_one_are_named_and_delay_nobody() {
    every_python(|python| {
        let mut job = Job::start(python);
        job.ranks[3].signal(Signal::KILL);
        job.ranks.remove(3).wait();
        job.ranks[5].stop();
        let Job { sandbox, agent, .. } = &job;
        let ran = agent.probing(sandbox, ["--ranks", "all", "eval", "RANK % 2"]);
        assert_eq!(ran.status, 3, "{ran:?}");
        assert_eq!(ran.stdout, "ranks 0,2,4: 0\nranks 1,5,7: 1\n", "{ran:?}");
        assert!(
            ran.stderr
                .contains("rank 6: process is stopped by a signal and cannot answer"),
            "{ran:?}"
        );
        assert!(
            ran.stderr.contains("rank 3: no process here has it"),
            "{ran:?}"
        );
        // Its stack can be read all the same.
        let tree = agent.probing(sandbox, ["--ranks", "all", "backtrace"]);
        assert!(tree.stdout.contains("of 7: ranks 0-2,4-7"), "{tree:?}");
        assert!(
            tree.stdout.contains("rank 3: no process here has it"),
            "{tree:?}"
        );
        let answer = agent
            .post("/eval", &json!({"code": "RANK", "ranks": "all"}))
            .json();
        assert_eq!(answer["missing_ranks"], "3");
        let stopped = answer["targets"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["rank"] == 6)
            .unwrap();
        assert!(
            stopped["error"]
                .as_str()
                .unwrap()
                .contains("stopped by a signal"),
            "{answer}"
        );
        let rows = job.rows("SELECT DISTINCT rank FROM python.backtrace ORDER BY rank");
        assert_eq!(
            rows["rows"],
            json!([[0], [1], [2], [4], [5], [6], [7]]),
            "{rows}"
        );
        assert_eq!(rows["missing"][0]["error"], "no process here has rank 3");
    });
}
