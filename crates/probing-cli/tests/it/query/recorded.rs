//! SQL over what programs record, on every Python: while they live, and after.

use std::fs;

use probing_testkit::{Python, Sandbox, Target, every_python};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{column, rows};
use crate::recording::run;
use crate::sandbox;

fn recording(sandbox: &Sandbox, python: &Python) -> Target {
    sandbox.target(python, "recording.py").start()
}

/// The rows of these processes.
#[track_caller]
fn csv(sandbox: &Sandbox, pids: &[u32], sql: &str) -> String {
    let mut command: Vec<String> = pids
        .iter()
        .flat_map(|pid| ["-t".to_owned(), pid.to_string()])
        .collect();
    command.extend(["query", "--csv", sql].map(str::to_owned));
    let ran = sandbox.probing(command);
    assert_eq!(ran.status, 0, "{ran:?}");
    ran.stdout
}

#[test]
fn what_python_records_is_there_in_sql() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = recording(&sandbox, python);
        for row in [
            "step=1, loss=0.5, name='fwd', ok=True",
            "step=2, loss=float('nan'), name='x' * 100_000, ok=None",
            "step=2**70, loss=None, name='ä', ok=False",
            "step=-1, loss=float('-inf'), note='a column that comes later'",
        ] {
            run(&mut target, &format!("probing.record('train', {row})"));
        }
        let sql = "SELECT step, loss, isnan(loss) AS nan, left(name, 3) AS name, length(name) < 100000 AS cut, \
                   name LIKE '%…' AS marked, ok, note FROM train ORDER BY ts";
        assert_eq!(
            csv(&sandbox, &[target.pid()], sql),
            "step,loss,nan,name,cut,marked,ok,note\n\
             1.0,0.5,false,fwd,true,false,true,\n\
             2.0,NaN,true,xxx,true,true,,\n\
             1.1805916207174113e21,,,ä,true,false,false,\n\
             -1.0,-inf,false,,,,,a column that comes later\n"
        );
        // What is no number for JSON is null there.
        let sql = "SELECT loss FROM train ORDER BY ts";
        assert_eq!(
            column(&sandbox, &target, "loss", sql),
            [json!(0.5), json!(null), json!(null), json!(null)]
        );
        // In one question with what is read from the process itself.
        let sql = "SELECT t.pid, i.state, max(t.ts) > i.started_at AS later, count(*) AS rows \
                   FROM train AS t JOIN process.info AS i ON t.pid = i.pid GROUP BY t.pid, i.state, i.started_at";
        assert_eq!(
            Value::from(rows(&sandbox, &target, sql)),
            json!([{"pid": target.pid(), "state": "asleep", "later": true, "rows": 4}])
        );
    });
}

#[test]
fn declared_tables_spans_and_events_are_tables() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = recording(&sandbox, python);
        // There before anything was recorded, with its types.
        let empty = "SELECT count(*) AS n, max(duration_ns) + 1 AS longest, max(ts) AS last FROM python.trace_event";
        assert_eq!(
            Value::from(rows(&sandbox, &target, empty)),
            json!([{"n": 0, "longest": null, "last": null}])
        );
        run(
            &mut target,
            "@probing.table
@dataclasses.dataclass
class TrainStep:
    step: int
    loss: float
    name: 'str | None' = None",
        );
        let empty = "SELECT sum(step) AS steps, avg(loss) AS loss FROM train_step";
        assert_eq!(
            Value::from(rows(&sandbox, &target, empty)),
            json!([{"steps": null, "loss": null}])
        );
        run(
            &mut target,
            "TrainStep(1, 2).record(); TrainStep(2, 0.5, 'n').record()",
        );
        run(
            &mut target,
            "with probing.span('outer', step=3):
    probing.event('saved', path='/x')
    try:
        with probing.span('inner'): raise KeyError('k')
    except KeyError: pass",
        );
        assert_eq!(
            Value::from(rows(
                &sandbox,
                &target,
                "SELECT step, loss, name FROM train_step"
            )),
            json!([{"step": 1, "loss": 2.0, "name": null}, {"step": 2, "loss": 0.5, "name": "n"}])
        );
        let sql = "SELECT c.kind, c.name, p.name AS parent, c.error, c.attributes, c.thread_id = c.pid AS main, \
                   c.duration_ns >= 0 AS lasted, duration(c.duration_ns) IS NOT NULL AS told \
                   FROM python.trace_event AS c LEFT JOIN (SELECT DISTINCT span_id, name FROM python.trace_event) AS p \
                   ON c.parent_id = p.span_id WHERE c.kind <> 'begin' ORDER BY c.name";
        let told = |kind: &str, name: &str| json!({"kind": kind, "name": name, "parent": null, "error": null, "attributes": null, "main": true, "lasted": true, "told": true});
        let mut inner = told("span", "inner");
        inner["parent"] = json!("outer");
        inner["error"] = json!("KeyError");
        let mut outer = told("span", "outer");
        outer["attributes"] = json!("{\"step\":3}");
        let mut saved = told("event", "saved");
        saved["attributes"] = json!("{\"path\":\"/x\"}");
        saved["lasted"] = Value::Null;
        saved["told"] = json!(false);
        assert_eq!(
            Value::from(rows(&sandbox, &target, sql)),
            json!([inner, outer, saved])
        );
        let tables = rows(&sandbox, &target, "SHOW TABLES");
        for name in ["user.train_step", "python.trace_event"] {
            assert!(
                tables.iter().any(|row| row["table_name"] == name),
                "{tables:?}"
            );
        }
        let columns = rows(&sandbox, &target, "DESCRIBE train_step");
        let columns: Vec<&Value> = columns.iter().map(|row| &row["column_name"]).collect();
        assert_eq!(
            columns,
            ["pid", "rank", "host", "ts", "step", "loss", "name"]
        );
    });
}

#[test]
fn a_killed_process_answers_until_it_is_cleaned() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = sandbox
            .target(python, "recording.py")
            .env("RANK", "3")
            .start();
        run(
            &mut target,
            "for n in range(10_000): probing.record('t', n=n, name=f'row {n % 3}')",
        );
        let pid = target.pid();
        target.signal(Signal::KILL);
        target.wait();
        let listed = sandbox.probing(["list", "--dead", "--json"]).json();
        assert_eq!(
            listed[0]["tables"],
            json!([{"name": "user.t", "rows": 10_000}])
        );
        let sql = "SELECT rank, name, count(*) AS rows, sum(n) AS sum FROM t GROUP BY rank, name ORDER BY name";
        assert_eq!(
            csv(&sandbox, &[pid], sql),
            "rank,name,rows,sum\n3,row 0,3334,16668333\n3,row 1,3333,16661667\n3,row 2,3333,16665000\n"
        );
        // Beside one that lives.
        let mut living = recording(&sandbox, python);
        run(&mut living, "probing.record('t', n=-1, other=True)");
        let sql = "SELECT pid, min(n) AS least, count(other) AS others FROM t GROUP BY pid ORDER BY least";
        let other = living.pid();
        assert_eq!(
            csv(&sandbox, &[pid, other], sql),
            format!("pid,least,others\n{other},-1,1\n{pid},0,0\n")
        );
        let pid = pid.to_string();
        // What is read from a process that lives cannot be read from this one.
        let ran = sandbox.probing(["-t", &pid, "query", "SELECT * FROM python.backtrace"]);
        assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{ran:?}");
        assert_eq!(sandbox.probing(["clean"]).status, 0);
        let ran = sandbox.probing(["-t", &pid, "query", "SELECT * FROM t"]);
        assert_eq!((ran.status, ran.stdout.as_str()), (3, ""), "{ran:?}");
        assert!(ran.stderr.contains(&pid), "{ran:?}");
    });
}

#[test]
fn everything_that_was_recorded_is_exported() {
    every_python(|python| {
        let sandbox = sandbox();
        let mut target = recording(&sandbox, python);
        let pid = target.pid().to_string();
        let folder = sandbox.path().join("kept/rows");
        let export =
            || sandbox.probing(["-t", &pid, "export", "--parquet", folder.to_str().unwrap()]);
        let ran = export();
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{ran:?}");
        assert!(ran.stderr.contains("no recorded rows"), "{ran:?}");
        run(&mut target, "for n in range(5): probing.record('t', n=n)");
        run(
            &mut target,
            "probing.record('metrics.Loss', loss=0.5); probing.event('saved')",
        );
        let ran = export();
        let files = ["metrics.Loss", "python.trace_event", "user.t"]
            .map(|table| folder.join(format!("{table}.parquet")));
        let told: Vec<&str> = ran.ok().lines().collect();
        assert_eq!(told.len(), 3, "{ran:?}");
        for ((file, line), count) in files.iter().zip(told).zip([1, 1, 5]) {
            let bytes = fs::read(file).unwrap();
            assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
            let noun = if count == 1 { "row" } else { "rows" };
            assert_eq!(
                line,
                format!("{}: {count} {noun}, {} bytes", file.display(), bytes.len())
            );
        }
        // Nothing half-written is beside them.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
    });
}
