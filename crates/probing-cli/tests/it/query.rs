//! SQL over live processes: every table, every state of a target, every format.

mod prompt;
mod reading;
mod recorded;
mod stopping;

use std::process::{Command, Stdio};

use probing_testkit::{CommandResult, Sandbox, Target, every_python, root};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::sandbox;
use crate::sets::Job;

/// `probing -t PID query …`
fn query(sandbox: &Sandbox, target: &Target, arguments: &[&str]) -> CommandResult {
    let pid = target.pid().to_string();
    let mut all = vec!["-t", &pid, "query"];
    all.extend(arguments);
    sandbox.probing(all)
}

/// The rows as JSON.
#[track_caller]
fn rows(sandbox: &Sandbox, target: &Target, sql: &str) -> Vec<Value> {
    let ran = query(sandbox, target, &["--json", sql]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let Value::Array(rows) = ran.json() else {
        panic!("not rows: {ran:?}")
    };
    rows
}

/// One column of them.
#[track_caller]
fn column(sandbox: &Sandbox, target: &Target, name: &str, sql: &str) -> Vec<Value> {
    let rows = rows(sandbox, target, sql);
    rows.iter().map(|row| row[name].clone()).collect()
}

#[test]
fn the_queries_of_the_contract_work_as_they_stand() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        for condition in ["", "WHERE depth < 5 ", "WHERE depth = 0 "] {
            let sql = format!(
                "SELECT func, file, lineno, depth FROM python.backtrace {condition}ORDER BY depth LIMIT 10"
            );
            let ran = query(&sandbox, &target, &[&sql]);
            assert_eq!(ran.status, 0, "{ran:?}");
            let heading = ran.stdout.lines().next().unwrap_or_default();
            let names: Vec<&str> = heading.split_whitespace().collect();
            assert_eq!(names, ["func", "file", "lineno", "depth"]);
            let depths = column(&sandbox, &target, "depth", &sql);
            assert!(!depths.is_empty() && depths.len() <= 10);
            assert!(depths.iter().is_sorted_by_key(Value::as_u64));
            assert!(depths[0] == 0);
            if condition.contains('=') {
                assert!(depths.iter().all(|depth| *depth == 0), "{depths:?}");
            }
        }
        // Nothing was brought in for it.
        assert!(sandbox.target_dirs().is_empty());
    });
}

#[test]
fn all_threads_are_in_the_backtrace_main_first() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        let sql = "SELECT pid, thread_id, thread_name, depth, func, frame_type, main, locals FROM python.backtrace";
        let all = rows(&sandbox, &target, sql);
        assert_eq!(all[0]["thread_name"], "MainThread");
        assert_eq!(all[0]["thread_id"], target.pid());
        assert_eq!(all[0]["frame_type"], "Python");
        assert!(all.iter().all(|row| row["pid"] == target.pid()));
        let main: Vec<&Value> = all.iter().take_while(|row| row["main"] == true).collect();
        let funcs: Vec<&Value> = main.iter().map(|row| &row["func"]).collect();
        assert!(funcs.ends_with(&[
            &json!("wait_for_the_end"),
            &json!("epoch"),
            &json!("<module>")
        ]));
        let locals = all[0]["locals"].as_str().unwrap_or_default();
        let locals: Value = serde_json::from_str(locals).unwrap();
        assert!(locals.is_object(), "{locals}");
        let sql = "SELECT thread_name, stack(func, depth) AS stack FROM python.backtrace \
                   GROUP BY thread_name ORDER BY thread_name";
        let stacks = rows(&sandbox, &target, sql);
        let names: Vec<&Value> = stacks.iter().map(|row| &row["thread_name"]).collect();
        assert_eq!(
            names,
            [
                "MainThread",
                "guard",
                "loader-0",
                "loader-1",
                "loader-2",
                "loader-3"
            ]
        );
        let main = stacks[0]["stack"].as_str().unwrap();
        assert!(
            main.starts_with("<module>;epoch;wait_for_the_end"),
            "{main}"
        );
    });
}

#[test]
fn threads_tell_who_is_a_daemon_and_who_holds_the_gil() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        let sql =
            "SELECT name, daemon, main, thread_id = native_id AS same, ident FROM python.threads";
        let threads = rows(&sandbox, &target, sql);
        assert_eq!(threads.len(), 6);
        assert_eq!(threads[0]["name"], "MainThread");
        assert_eq!(threads[0]["daemon"], false);
        for thread in &threads[1..] {
            assert_eq!(thread["daemon"], true, "{thread}");
            assert_eq!(thread["same"], true, "{thread}");
        }
        let mut target = sandbox.target(python, "holds_gil.py").start();
        target.say("hold");
        assert_eq!(target.line(), "holding");
        let sql = "SELECT name FROM python.threads WHERE holds_gil";
        assert_eq!(column(&sandbox, &target, "name", sql), ["MainThread"]);
        target.say("");
        assert_eq!(target.line(), "released");
    });
}

#[test]
fn a_target_that_cannot_answer_is_read_all_the_same() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox.target(python, "holds_gil.py").start();
        target.say("hold");
        assert_eq!(target.line(), "holding");
        let everything = "SELECT (SELECT count(*) FROM python.backtrace) AS frames, \
                          (SELECT count(*) FROM python.threads) AS threads, \
                          (SELECT state FROM process.info) AS state, \
                          (SELECT count(*) FROM process.threads) AS kernel_threads, \
                          (SELECT count(*) > 0 FROM process.envs) AS has_envs";
        let row = &rows(&sandbox, &target, everything)[0];
        assert_eq!((&row["frames"], &row["threads"]), (&json!(1), &json!(1)));
        target.stop();
        let row = &rows(&sandbox, &target, everything)[0];
        assert_eq!(
            (&row["frames"], &row["state"]),
            (&json!(1), &json!("stopped"))
        );
        assert_eq!(row["has_envs"], true);
        target.signal(Signal::CONT);
        target.say("");
        assert_eq!(target.line(), "released");
        assert!(sandbox.target_dirs().is_empty(), "nothing was brought in");
    });
}

#[test]
fn the_process_is_told_and_its_secrets_are_not() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox
            .target(python, "idle.py")
            .env("WANDB_API_KEY", "open-sesame")
            .env("DATABASE_URL", "postgres://me:open-sesame@db/x")
            .env("NCCL_DEBUG", "INFO")
            .env("RANK", "5")
            .start();
        let info = &rows(&sandbox, &target, "SELECT * FROM process.info")[0];
        assert_eq!(info["pid"], target.pid());
        assert_eq!(info["rank"], 5);
        assert_eq!(info["parent"], std::process::id());
        let version = format!("{}.{}", python.version.0, python.version.1);
        assert_eq!(info["python"], version);
        assert_eq!(info["probed"], false);
        assert!(info["resident_bytes"].as_u64().unwrap() > 1 << 20);
        assert!(
            info["command"]
                .as_str()
                .unwrap()
                .ends_with("tests/targets/idle.py")
        );
        assert!(info["started_at"].as_str().unwrap().starts_with("20"));
        let sql = "SELECT name, value FROM process.envs \
                   WHERE name IN ('WANDB_API_KEY', 'DATABASE_URL', 'NCCL_DEBUG') ORDER BY name";
        let values = column(&sandbox, &target, "value", sql);
        assert_eq!(
            values,
            ["postgres://me:<redacted>@db/x", "INFO", "<redacted>"]
        );
        let ran = query(&sandbox, &target, &["--csv", "SELECT * FROM process.envs"]);
        assert!(!ran.stdout.contains("open-sesame"), "{ran:?}");
    });
}

#[test]
fn every_example_of_the_documentation_works() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "waiting.py").start();
        let document = std::fs::read_to_string(root().join("docs/tables.md")).unwrap();
        let mut parts = document.split("```");
        let examples: Vec<&str> = std::iter::from_fn(|| parts.nth(1))
            .filter_map(|part| part.strip_prefix("sql\n"))
            .collect();
        assert!(examples.len() > 20, "{examples:?}");
        // All in one command: a wrong one ends it.
        let mut command = sandbox.command();
        command
            .args(["-t", &target.pid().to_string(), "query"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut { input }, examples.join(";").as_bytes()).unwrap();
        let ran = CommandResult::finished(child);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert_eq!(
            ran.stderr.matches(" ms\n").count(),
            examples.len(),
            "{ran:?}"
        );
    });
}

#[test]
fn tables_and_columns_are_listed_with_their_documentation() {
    let python = &probing_testkit::Python::all()[0];
    let sandbox = sandbox();
    let target = sandbox.target(python, "idle.py").start();
    let names = column(&sandbox, &target, "table_name", "SHOW TABLES");
    for name in [
        "python.backtrace",
        "python.threads",
        "process.info",
        "process.threads",
        "process.envs",
        "probing.tables",
        "probing.columns",
    ] {
        assert!(names.contains(&json!(name)), "{names:?}");
    }
    let columns = rows(&sandbox, &target, "DESCRIBE python.backtrace");
    let names: Vec<&Value> = columns.iter().map(|row| &row["column_name"]).collect();
    assert_eq!(
        names[..5],
        ["pid", "rank", "host", "thread_id", "thread_name"]
    );
    assert!(
        columns
            .iter()
            .all(|row| row["description"].as_str().unwrap().len() > 3)
    );
    let documented =
        "SELECT count(*) AS undocumented FROM probing.columns WHERE description IS NULL";
    assert_eq!(rows(&sandbox, &target, documented)[0]["undocumented"], 0);
    let plan = query(
        &sandbox,
        &target,
        &[
            "--wide",
            "EXPLAIN SELECT func FROM python.backtrace WHERE pid > 0",
        ],
    );
    assert!(
        plan.stdout
            .contains("Scan: python.backtrace, columns=[func], targets=1 of 1"),
        "{plan:?}"
    );
}

#[test]
fn the_same_sql_works_on_many_targets() {
    every_python(|python| {
        let job = Job::start(python, &["", "", "load"]);
        job.settle();
        let sql =
            "SELECT rank, pid, func, host FROM python.backtrace WHERE depth = 0 ORDER BY rank";
        let ran = job.probing((0, 2), &["query", "--json", sql]);
        assert_eq!(ran.status, 0, "{ran:?}");
        let pids: Vec<Value> = ran
            .json()
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["pid"].clone())
            .collect();
        assert_eq!(pids, [0, 1, 2].map(|rank| json!(job.ranks[rank].pid())));
        // Answers of all together, not one for each.
        let sql = "SELECT func, count(DISTINCT pid) AS ranks FROM python.backtrace \
                   WHERE func IN ('load', 'all_reduce') GROUP BY func ORDER BY ranks DESC";
        let (one, other, last) = (job.pid(0), job.pid(1), job.pid(2));
        let named = [
            "-t", &one, "-t", &other, "-t", &last, "query", "--json", sql,
        ];
        let found = job.sandbox.probing(named).json();
        assert_eq!(
            found,
            json!([{"func": "all_reduce", "ranks": 2}, {"func": "load", "ranks": 1}])
        );
        // Nobody else is asked.
        let sql = format!("EXPLAIN SELECT func FROM python.backtrace WHERE pid = {one}");
        let plan = job.probing((0, 2), &["query", "--wide", &sql]);
        assert!(plan.stdout.contains("targets=1 of 3"), "{plan:?}");
    });
}

#[test]
fn a_target_that_cannot_be_read_is_named_and_its_rows_are_missing() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "idle.py").start();
        let pid = target.pid().to_string();
        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        let other = sleeper.id().to_string();
        let sql = "SELECT pid FROM process.info";
        let ran = sandbox.probing(["-t", &pid, "-t", &other, "query", "--csv", sql]);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert_eq!(ran.stdout, format!("pid\n{pid}\n"));
        let warning = format!("warning: pid {other}: not a Python process: {other}");
        assert!(ran.stderr.contains(&warning), "{ran:?}");
        // Alone, or with others like it, it is an error.
        let ran = sandbox.probing(["-t", &other, "query", sql]);
        assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{ran:?}");
        assert!(
            ran.stderr.starts_with("error: not a Python process"),
            "{ran:?}"
        );
        let ran = sandbox.probing(["-t", &other, "-t", "999999999", "query", sql]);
        assert_eq!(ran.status, 3, "{ran:?}");
        assert!(
            ran.stderr.contains("none of 2 targets could be read"),
            "{ran:?}"
        );
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    });
}

#[test]
fn rows_come_in_every_format() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.target(python, "idle.py").start();
        let sql = "SELECT 1 AS n, 'a, \"b\"' AS text, NULL AS nothing, 1.5 AS half, true AS yes";
        let ran = query(&sandbox, &target, &[sql]);
        insta::assert_snapshot!(ran.stdout, @r#"
        n  text    nothing  half  yes
        ─  ──────  ───────  ────  ────
        1  a, "b"  NULL      1.5  true
        "#);
        assert!(ran.stderr.starts_with("1 row in "), "{ran:?}");
        let ran = query(&sandbox, &target, &["--json", sql]);
        insta::assert_snapshot!(ran.stdout, @r#"
        [
        {"n": 1, "text": "a, \"b\"", "nothing": null, "half": 1.5, "yes": true}
        ]
        "#);
        let ran = query(&sandbox, &target, &["--csv", sql]);
        insta::assert_snapshot!(ran.stdout, @r#"
        n,text,nothing,half,yes
        1,"a, ""b""",,1.5,true
        "#);
        let none = "SELECT func FROM python.backtrace WHERE depth < 0";
        assert_eq!(query(&sandbox, &target, &["--json", none]).stdout, "[]\n");
        assert_eq!(query(&sandbox, &target, &["--csv", none]).stdout, "func\n");
        let file = sandbox.path().join("rows.parquet");
        let ran = query(
            &sandbox,
            &target,
            &["--parquet", file.to_str().unwrap(), sql],
        );
        assert_eq!((ran.status, ran.stdout.as_str()), (0, ""), "{ran:?}");
        let bytes = std::fs::read(&file).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        let nowhere = "/nowhere/rows.parquet";
        let ran = query(&sandbox, &target, &["--parquet", nowhere, sql]);
        assert_eq!(ran.status, 1, "{ran:?}");
        assert!(ran.stderr.contains("cannot write"), "{ran:?}");
    });
}

#[test]
fn arrow_comes_as_a_stream() {
    let python = &probing_testkit::Python::all()[0];
    let sandbox = sandbox();
    let target = sandbox.target(python, "idle.py").start();
    let mut command = sandbox.command();
    command.args([
        "-t",
        &target.pid().to_string(),
        "query",
        "--arrow",
        "SELECT 1 AS n",
    ]);
    let ran = command.output().unwrap();
    // A stream begins with the size of its schema, behind a mark, and ends with a size of nothing.
    assert!(ran.stdout.starts_with(&[0xff, 0xff, 0xff, 0xff]), "{ran:?}");
    assert!(
        ran.stdout.ends_with(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
        "{ran:?}"
    );
}

#[test]
fn whoever_has_seen_enough_may_leave() {
    let python = &probing_testkit::Python::all()[0];
    let sandbox = sandbox();
    let target = sandbox.target(python, "idle.py").start();
    for format in ["--csv", "--json", "--wide", "--arrow"] {
        let mut command = sandbox.command();
        let sql = "SELECT value FROM generate_series(1, 300000)";
        command
            .args(["-t", &target.pid().to_string(), "query", format, sql])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let ran = CommandResult::finished(child);
        assert_eq!(
            (ran.status, ran.stderr.as_str()),
            (0, ""),
            "{format}: {ran:?}"
        );
    }
}

#[test]
fn the_same_is_asked_again_and_again() {
    let python = &probing_testkit::Python::all()[0];
    let sandbox = sandbox();
    let target = sandbox.target(python, "idle.py").start();
    let pid = target.pid().to_string();
    let mut command = sandbox.command();
    command.args([
        "-t",
        &pid,
        "query",
        "--csv",
        "--every",
        "10ms",
        "SELECT pid FROM process.info",
    ]);
    let mut asked = sandbox.target_command(command).start_without_waiting();
    for _ in 0..3 {
        assert_eq!((asked.line().as_str(), asked.line()), ("pid", pid.clone()));
    }
    asked.signal(Signal::INT);
    assert_eq!(asked.wait().status, 0);
}

#[test]
fn a_column_that_is_selected_twice_is_named() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        let ask = |sql: &str| sandbox.probing(["-t", &pid, "query", sql]);
        let ran = ask("SELECT rank, * FROM python.threads");
        let hint = "hint: `*` has it already: leave it out, or rename it: rank AS the_rank\n";
        assert_eq!(
            (ran.status, ran.stderr),
            (1, format!("error: column selected twice: rank\n{hint}"))
        );
        assert_eq!(
            ask("SELECT rank AS the_rank, * FROM python.threads").status,
            0
        );
    });
}

#[test]
fn a_value_that_no_memory_holds_is_an_error_in_words() {
    every_python(|python| {
        let sandbox = sandbox();
        let target = sandbox.probed(python, "idle.py");
        let pid = target.pid().to_string();
        let sql = "SELECT string_agg(repeat('x', 1000000), '') FROM generate_series(1, 100000)";
        let ran = sandbox.probing(["-t", &pid, "query", sql]);
        assert_eq!(ran.status, 1, "{ran:?}");
        assert!(
            ran.stderr
                .starts_with("error: not enough memory for this query: "),
            "{ran:?}"
        );
    });
}
