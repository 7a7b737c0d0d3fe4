//! Ranks that have failed, and sets over several machines.

use std::fs;

use probing_testkit::{CommandResult, Python, Sandbox, Target, every_python};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::sandbox;

const TOKEN: &str = "the same token on both machines";

/// Ranks of a job of four that have each recorded a row.
fn start(sandbox: &Sandbox, python: &Python, ranks: &[u32]) -> Vec<Target> {
    let start = |rank: &u32| {
        let target = sandbox.target(python, "rank.py").env("PROBING", "1");
        let target = target.env("RANK", rank.to_string()).env("WORLD_SIZE", "4");
        target.start_without_waiting()
    };
    let mut targets: Vec<Target> = ranks.iter().map(start).collect();
    for target in &mut targets {
        assert_eq!(target.line(), "ready");
    }
    targets
}

fn record(sandbox: &Sandbox, target: &Target, table: &str) {
    let code = format!("import probing; probing.record('{table}', value=10.0 * RANK)");
    assert_eq!(sandbox.eval(target, &code).status, 0);
}

#[test]
fn failed_ranks_are_named_and_their_rows_are_read() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut ranks = start(&sandbox, python, &[0, 1, 2, 3]);
        for rank in &ranks[..2] {
            record(&sandbox, rank, "loss");
        }
        let agent = Agent::start(&sandbox);
        let living = format!("{},{}", ranks[0].pid(), ranks[3].pid());
        let here = |arguments: &[&str]| {
            let named = ["-t", living.as_str(), "--ranks", "failed"];
            sandbox.probing([&named, arguments].concat())
        };
        let there = |arguments: &[&str]| {
            agent.probing(&sandbox, [&["--ranks", "failed"], arguments].concat())
        };
        let none = there(&["backtrace"]);
        assert_eq!(none.status, 3);
        assert!(
            none.stderr.starts_with("error: no rank has failed\nhint: "),
            "{none:?}"
        );
        // One that has recorded, and one that has not.
        for _ in 0..2 {
            let killed = ranks.remove(1);
            killed.signal(Signal::KILL);
            killed.wait();
        }
        let sql = "SELECT rank, value FROM loss";
        for asked in [
            here(&["query", "--csv", sql]),
            there(&["query", "--csv", sql]),
        ] {
            assert_eq!(
                (asked.status, asked.stdout.as_str()),
                (0, "rank,value\n1,10.0\n"),
                "{asked:?}"
            );
            assert!(
                asked.stderr.contains("rank 2: no process here has it"),
                "{asked:?}"
            );
        }
        for asked in [here(&["backtrace"]), there(&["backtrace"])] {
            assert_eq!(asked.status, 3, "{asked:?}");
            let told = asked.stdout + &asked.stderr;
            assert!(told.contains("  rank 1: "), "{told}");
            assert!(told.contains("rank 2: no process here has it"), "{told}");
        }
        let rows = agent
            .post("/query", &json!({"sql": sql, "ranks": "failed"}))
            .json();
        assert_eq!(rows["rows"], json!([[1, 10.0]]), "{rows}");
        let stacks = agent.get("/backtrace?ranks=failed").json();
        assert_eq!(
            (&stacks["targets"][0]["rank"], &stacks["missing_ranks"]),
            (&json!(1), &json!("2")),
            "{stacks}"
        );
        let dead = agent.probing(&sandbox, ["list", "--dead", "--json"]).json();
        assert_eq!(
            (dead.as_array().unwrap().len(), &dead[0]["rank"]),
            (1, &json!(1)),
            "{dead}"
        );
        let known_here = sandbox.probing(["list", "--dead", "--json"]).json();
        for part in ["pid", "tables", "command"] {
            assert_eq!(dead[0][part], known_here[0][part]);
        }
        // What all of them recorded can be taken away, too; the dead by their rank.
        let folder = sandbox.path().join("rows");
        let export = ["export", "--parquet", folder.to_str().unwrap()];
        let ran = there(&export);
        assert!(ran.stdout.contains("user.loss.parquet: 1 row, "), "{ran:?}");
        let ran = agent.probing(&sandbox, export);
        assert!(ran.ok().contains("user.loss.parquet: 1 row, "), "{ran:?}");
        assert!(
            fs::read(folder.join("user.loss.parquet"))
                .unwrap()
                .starts_with(b"PAR1")
        );
    });
}

#[test]
fn targets_of_several_machines_are_one_set() {
    every_python(|python| {
        let (here, one, other) = (sandbox(), sandbox(), sandbox());
        let first = start(&one, python, &[0, 1]);
        let second = start(&other, python, &[2, 3]);
        for (sandbox, targets) in [(&one, &first), (&other, &second)] {
            for target in targets {
                record(sandbox, target, "loss");
            }
        }
        record(&other, &second[0], "only_there");
        let agent = |sandbox: &Sandbox| {
            Agent::with(sandbox, &["--listen", "127.0.0.1:0"], |command| {
                command.env("PROBING_TOKEN", TOKEN);
            })
        };
        let (near, far) = (agent(&one), agent(&other));
        let names = [near.name(), far.name()];
        let ask = |arguments: &[&str]| {
            let mut command = here.command();
            command
                .args(["-t", &names[0], "-t", &names[1]])
                .args(arguments);
            command
                .env("PROBING_TOKEN", TOKEN)
                .env("PROBING_TLS", "off");
            CommandResult::to_the_end(command)
        };
        let rows = |sql: &str| ask(&["query", "--json", sql]).json();
        let listed = ask(&["list", "--json"]).json();
        let ranks: Vec<&Value> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["rank"])
            .collect();
        assert_eq!(ranks.len(), 4, "{listed}");
        assert_eq!(listed[3]["node"], far.name(), "{listed}");
        assert!(ask(&["list"]).ok().contains(&far.name()));
        let evaluated = ask(&["--ranks", "all", "eval", "RANK % 2"]);
        assert_eq!(evaluated.ok(), "ranks 0,2: 0\nranks 1,3: 1\n");
        let tree = ask(&["backtrace"]);
        assert!(tree.ok().contains("of 4: ranks 0-3"), "{tree:?}");
        // Over all rows at once, not over those of each machine.
        let sql =
            "SELECT count(*) AS n, count(DISTINCT rank) AS ranks, avg(value) AS mean FROM loss";
        assert_eq!(rows(sql), json!([{"n": 4, "ranks": 4, "mean": 15.0}]));
        let sql =
            "SELECT a.rank, b.value FROM loss a JOIN loss b ON a.rank = b.rank + 1 ORDER BY 1";
        let pairs = json!([{"rank": 1, "value": 0.0}, {"rank": 2, "value": 10.0}, {"rank": 3, "value": 20.0}]);
        assert_eq!(rows(sql), pairs);
        let sql = "SELECT rank, func FROM python.backtrace WHERE main AND depth = 0 AND rank IN (1, 2) ORDER BY rank DESC LIMIT 1";
        assert_eq!(rows(sql), json!([{"rank": 2, "func": "all_reduce"}]));
        let sql = "SELECT rank, rank() OVER (ORDER BY value DESC) AS place FROM loss ORDER BY rank LIMIT 2";
        assert_eq!(
            rows(sql),
            json!([{"rank": 0, "place": 4}, {"rank": 1, "place": 3}])
        );
        assert_eq!(rows("SELECT rank FROM only_there"), json!([{"rank": 2}]));
        assert_eq!(
            rows("SELECT count(*) AS n FROM process.info"),
            json!([{"n": 4}])
        );
        let tables = ask(&["query", "--csv", "SHOW TABLES"]);
        assert!(tables.stdout.contains("user.only_there,"), "{tables:?}");
        let unknown = ask(&["query", "SELECT 1 FROM nothing_like_that"]);
        assert_eq!(unknown.status, 1, "{unknown:?}");
        let mixed = ask(&[
            "-t",
            &far.name(),
            "query",
            "--json",
            "SELECT count(*) AS n FROM loss",
        ]);
        assert_eq!(mixed.json(), json!([{"n": 4}]));
        // One that is down is named, and the others answer.
        let down = far.name();
        drop(far);
        for (arguments, shown) in [
            (["list"].as_slice(), near.name()),
            (&["backtrace"], "ranks 0-1".to_owned()),
            (&["--ranks", "all", "eval", "RANK"], "rank 1: 1".to_owned()),
            (&["query", "SELECT count(*) FROM loss"], "2".to_owned()),
        ] {
            let ran = ask(arguments);
            assert!(ran.stdout.contains(&shown), "{ran:?}");
            let told = format!("{down}: cannot reach an agent at {down}");
            assert!(
                ran.stdout.contains(&told) || ran.stderr.contains(&told),
                "{ran:?}"
            );
        }
    });
}

#[test]
fn a_heavy_query_is_ended_and_touches_no_target() {
    let sandbox = sandbox();
    let python = Python::all().into_iter().next_back().unwrap();
    let target = sandbox.probed(&python, "idle.py");
    let check = |limit: [&str; 2], sql: &str, expected: u16| {
        let listen = ["--listen", "127.0.0.1:0"];
        let agent = Agent::with(&sandbox, &[listen, limit].concat(), |_| {});
        let (status, error) = agent.post("/query", &json!({"sql": sql})).refusal();
        assert_eq!(status, expected, "{error}");
        let ran = agent.probing(&sandbox, ["query", sql]);
        assert_ne!(ran.status, 0, "{ran:?}");
        assert!(ran.stderr.starts_with("error: "), "{ran:?}");
    };
    let long = "SELECT count(*) FROM generate_series(1, 1000000000000) AS a(x) WHERE x % 7 = 3";
    check(["--query-time", "100ms"], long, 504);
    let large =
        "SELECT x % 1000000, count(*) FROM generate_series(1, 1000000000) AS s(x) GROUP BY 1";
    check(["--query-memory", "4M"], large, 400);
    assert_eq!(sandbox.eval(&target, "6 * 7").ok(), "42\n");
    let ended = target.end();
    assert_eq!((ended.status, ended.stderr), (0, Vec::new()));
}
