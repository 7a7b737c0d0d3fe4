//! Recorded tables compared with the rows that were written.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::prelude::{SessionConfig, SessionContext};
use probing_client::{Member, Members, Ranks, Target, TargetLabel};
use probing_proto::process::{Pid, ProcessKey};
use probing_store::{Budget, Column, Kind, Schema, Store, Value, Writer};

use crate::optimizer::count_pushdown;
use crate::session::rules;
use crate::snapshot::target_snapshot::TargetSetSnapshot;
use crate::sources::recorded::{RecordedTable, Sharing, merge};

type Rules = Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>;

const BUDGET: u64 = 64 << 20;

fn column(name: &str, kind: Kind, nullable: bool) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        nullable,
        doc: String::new(),
    }
}

/// A ring with these columns beside its time, and rows `0..count`.
fn record(
    folder: &Path,
    columns: &[Column],
    count: i64,
    row: impl Fn(&mut Writer, i64) -> Vec<Value<'static>>,
) {
    let mut all = vec![column("ts", Kind::Time, false)];
    all.extend_from_slice(columns);
    let schema = Schema {
        table: "user.t".to_owned(),
        columns: all,
    };
    let key = ProcessKey {
        pid: Pid(1),
        start_ticks: 1,
    };
    let path = folder.join("0000-t.ring");
    let mut writer = Writer::create(&path, schema, key, 0, &Budget::new(BUDGET)).unwrap();
    for number in 0..count {
        let values = row(&mut writer, number);
        writer.append(number * 1000, &values).unwrap();
    }
}

/// The tables in these folders as one, each folder another target's.
fn table(folders: &[&Path]) -> SessionContext {
    table_by_rules(folders, rules())
}

/// The same, planned by these rules.
fn table_by_rules(folders: &[&Path], rules: Rules) -> SessionContext {
    let member = |pid: usize| Member {
        who: TargetLabel::Pid(Pid(pid as u32 + 1)),
        target: Target::Local(Pid(pid as u32 + 1)),
        pid: Some(Pid(pid as u32 + 1)),
        rank: Some(pid as u32),
    };
    let members = Members {
        all: (0..folders.len()).map(member).collect(),
        missing: Ranks::default(),
    };
    let sight = TargetSetSnapshot::of(&members);
    let (mut columns, mut snapshots) = (Vec::new(), Vec::new());
    for (folder, seen) in folders.iter().zip(&sight.all) {
        let store = Store::open(folder).unwrap();
        let table = store.table("user.t").unwrap();
        merge(&mut columns, table.columns());
        snapshots.push((Arc::clone(seen), table.snapshot().unwrap()));
    }
    let config = SessionConfig::new().with_target_partitions(2);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_physical_optimizer_rules(rules)
        .build();
    let context = SessionContext::new_with_state(state);
    let sharing = Sharing {
        threads: 2,
        rows_for_one: 64 << 10,
    };
    let table = RecordedTable::new("user.t", &columns, snapshots, sharing);
    context.register_table("t", Arc::new(table)).unwrap();
    context
}

fn asked(context: &SessionContext, sql: &str) -> Vec<RecordBatch> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async { context.sql(sql).await.unwrap().collect().await.unwrap() })
}

fn shown(context: &SessionContext, sql: &str) -> String {
    pretty_format_batches(&asked(context, sql))
        .unwrap()
        .to_string()
}

fn every_kind() -> Vec<Column> {
    vec![
        column("yes", Kind::Bool, true),
        column("small", Kind::U8, false),
        column("port", Kind::U16, false),
        column("delta", Kind::I32, true),
        column("line", Kind::U32, false),
        column("step", Kind::I64, false),
        column("loss", Kind::F64, true),
        column("id", Kind::Bytes16, false),
        column("Module", Kind::Symbol, false),
        column("note", Kind::Text, true),
    ]
}

fn a_row(writer: &mut Writer, number: i64) -> Vec<Value<'static>> {
    let names = ["conv", "attention.query_key_value", "mlp"];
    let symbol = writer.symbol(names[number as usize % 3]);
    let notes = ["short", "a text that is longer than twelve bytes: é日"];
    let odd = number % 2 == 1;
    vec![
        if odd {
            Value::Null
        } else {
            Value::Bool(number % 4 == 0)
        },
        Value::I64(number % 200),
        Value::I64(number % 60_000),
        if odd {
            Value::Null
        } else {
            Value::I64(-number)
        },
        Value::I64(number),
        Value::I64(number / 10),
        if odd {
            Value::Null
        } else {
            Value::F64(number as f64 / 4.0)
        },
        Value::Bytes16([number as u8; 16]),
        Value::Symbol(symbol),
        if odd {
            Value::Null
        } else {
            Value::Text(notes[number as usize / 2 % 2])
        },
    ]
}

#[test]
fn values_of_every_kind_come_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &every_kind(), 4, a_row);
    let context = table(&[folder.path()]);
    let sql =
        "SELECT pid, rank, yes, small, port, delta, line, step, loss, id, module, note FROM t";
    insta::assert_snapshot!(shown(&context, sql), @r"
    +-----+------+-------+-------+------+-------+------+------+------+----------------------------------+---------------------------+----------------------------------------------+
    | pid | rank | yes   | small | port | delta | line | step | loss | id                               | module                    | note                                         |
    +-----+------+-------+-------+------+-------+------+------+------+----------------------------------+---------------------------+----------------------------------------------+
    | 1   | 0    | true  | 0     | 0    | 0     | 0    | 0    | 0.0  | 00000000000000000000000000000000 | conv                      | short                                        |
    | 1   | 0    |       | 1     | 1    |       | 1    | 0    |      | 01010101010101010101010101010101 | attention.query_key_value |                                              |
    | 1   | 0    | false | 2     | 2    | -2    | 2    | 0    | 0.5  | 02020202020202020202020202020202 | mlp                       | a text that is longer than twelve bytes: é日 |
    | 1   | 0    |       | 3     | 3    |       | 3    | 0    |      | 03030303030303030303030303030303 | conv                      |                                              |
    +-----+------+-------+-------+------+-------+------+------+------+----------------------------------+---------------------------+----------------------------------------------+
    ");
    let spaced = "SELECT max(ts) - min(ts) = INTERVAL '3 microseconds' AS spaced FROM t";
    assert!(shown(&context, spaced).contains("true"));
}

#[test]
fn many_rows_in_many_parts_are_all_there_once() {
    let folder = tempfile::tempdir().unwrap();
    let count = 200_000;
    record(folder.path(), &every_kind(), count, a_row);
    let context = table(&[folder.path()]);
    let sql = "SELECT count(*) AS n, count(DISTINCT line) AS lines, sum(line) AS s, count(note) AS notes, \
               count(DISTINCT module) AS modules, sum(length(note)) AS letters FROM t";
    let (evens, total) = (count / 2, (0..count).sum::<i64>());
    let letters = evens / 2 * (5 + 43);
    let text = shown(&context, sql);
    let line = text.lines().nth(3).unwrap();
    let numbers: Vec<i64> = line
        .split('|')
        .filter_map(|cell| cell.trim().parse().ok())
        .collect();
    assert_eq!(numbers, [count, count, total, evens, 3, letters]);
    // The first rows come first, and no more chunks are read for them.
    let plan = shown(&context, "EXPLAIN SELECT line FROM t LIMIT 3");
    assert!(plan.contains("limit=3"), "{plan}");
    assert!(shown(&context, "SELECT line FROM t LIMIT 2").contains("| 1    |"));
}

/// The numbers of the first row.
fn numbers(context: &SessionContext, sql: &str) -> Vec<i64> {
    let text = shown(context, sql);
    let line = text.lines().nth(3).unwrap_or_default();
    let cells = line.split('|');
    cells.filter_map(|cell| cell.trim().parse().ok()).collect()
}

#[test]
fn conditions_are_met_where_rows_are_read() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &every_kind(), 20_000, a_row);
    let context = table(&[folder.path()]);
    let check = |sql: &str, wanted: &[i64]| {
        let plan = shown(&context, &format!("EXPLAIN {sql}"));
        assert!(
            plan.contains("where=") && !plan.contains("FilterExec"),
            "{plan}"
        );
        assert_eq!(numbers(&context, sql), wanted, "{sql}");
    };
    check(
        "SELECT count(*), min(line), sum(length(note)) FROM t WHERE delta < -19990",
        &[4, 19_992, 96],
    );
    // What is unknown is not met, nor is its opposite.
    check("SELECT count(*) FROM t WHERE delta < 0", &[9_999]);
    check("SELECT count(*) FROM t WHERE NOT (delta < 0)", &[1]);
    check("SELECT count(*) FROM t WHERE note = 'short'", &[5_000]);
    check("SELECT count(module) FROM t WHERE line % 2 = 0", &[10_000]);
    // Known only while it runs.
    check(
        "SELECT count(*), min(line) FROM t WHERE step > (SELECT max(step) - 5 FROM t)",
        &[50, 19_950],
    );
    check(
        "SELECT line, small FROM t ORDER BY line DESC LIMIT 3",
        &[19_999, 199],
    );
}

#[test]
fn the_greatest_is_known_without_reading_all() {
    let folder = tempfile::tempdir().unwrap();
    // The last chunk is not full.
    record(folder.path(), &every_kind(), 10_000, a_row);
    let context = table(&[folder.path()]);
    let sql = "SELECT min(line), max(line), max(step), min(small), max(delta), min(delta) FROM t";
    assert_eq!(numbers(&context, sql), [0, 9_999, 999, 0, 0, -9_998]);
    let plan = shown(&context, &format!("EXPLAIN {sql}"));
    assert!(!plan.contains("Scan: user.t"), "{plan}");
    let plan = shown(
        &context,
        "EXPLAIN SELECT max(loss), max(note), max(yes) FROM t",
    );
    assert!(plan.contains("Scan: user.t"), "{plan}");
    // The same of sums and of how many have a value.
    let sql = "SELECT sum(step), count(step), count(delta), count(*) FROM t";
    let sum = (0..10_000).map(|number| number / 10).sum();
    assert_eq!(numbers(&context, sql), [sum, 10_000, 5_000, 10_000]);
    let plan = shown(&context, &format!("EXPLAIN {sql}"));
    assert!(!plan.contains("Scan: user.t"), "{plan}");
    let none = "SELECT count(*), max(line) FROM t WHERE step > 500";
    assert_eq!(numbers(&context, none), [4_990, 9_999]);
}

#[test]
fn sums_wrap_as_those_of_rows_that_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let columns = [column("x", Kind::I64, true)];
    record(folder.path(), &columns, 5_000, |_, number| {
        let values = [Value::I64(i64::MAX), Value::I64(3), Value::Null];
        vec![values[number as usize % 3]]
    });
    let context = table(&[folder.path()]);
    let known = numbers(&context, "SELECT sum(x), count(x) FROM t");
    // With a condition that all rows meet they are read.
    let read = "SELECT sum(x), count(x) FROM t WHERE x > 0";
    assert_eq!(known, numbers(&context, read));
    assert_eq!(known[1], 3_334);
}

/// Whatever stands between the rows and who counts them.
#[test]
fn what_is_known_without_reading_is_what_reading_tells() {
    let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let columns = [
        column("x", Kind::I64, true),
        column("port", Kind::U16, false),
        column("y", Kind::F64, true),
        column("none", Kind::I64, true),
    ];
    for (folder, count) in folders.iter().zip([4_500, 300]) {
        record(folder.path(), &columns, count, |_, number| {
            let y = match number % 5 {
                0 => Value::Null,
                1 => Value::F64(f64::NAN),
                _ => Value::F64(number as f64),
            };
            let x = if number % 3 == 0 {
                Value::Null
            } else {
                Value::I64(number % 100 - 7)
            };
            vec![x, Value::I64(number % 9), y, Value::Null]
        });
    }
    let is_known =
        |rule: &Arc<dyn PhysicalOptimizerRule + Send + Sync>| rule.name() == "aggregate_statistics";
    let reading: Rules = rules().into_iter().filter(|rule| !is_known(rule)).collect();
    assert_eq!(reading.len() + 1, rules().len());
    let one: &[&Path] = &[folders[0].path()];
    let both: &[&Path] = &[folders[0].path(), folders[1].path()];
    let everything = "sum(x), count(x), min(x), max(x), sum(port), min(port), max(port), \
         count(none), sum(none), min(none), max(none), count(y), min(y), max(y), count(*), min(ts), max(ts)";
    // Alone: with something that must be read, all is.
    let sums = "sum(a.x)";
    for folders in [one, both] {
        let known = table(folders);
        let read = table_by_rules(folders, reading.clone());
        for sql in [
            format!("SELECT {everything} FROM t"),
            format!("SELECT {everything} FROM t WHERE port > 3"),
            format!("SELECT {everything} FROM t WHERE x IS NULL"),
            format!("SELECT {everything} FROM t WHERE pid = 2"),
            format!("SELECT {everything} FROM t WHERE pid = 7"),
            format!("SELECT {everything} FROM (SELECT * FROM t LIMIT 10)"),
            format!("SELECT {everything} FROM (SELECT * FROM t ORDER BY ts OFFSET 4490)"),
            format!("SELECT {everything} FROM (SELECT DISTINCT ts, x, port, y, none FROM t)"),
            format!("SELECT {everything} FROM (SELECT * FROM t UNION ALL SELECT * FROM t)"),
            format!("SELECT {everything}, row_number() OVER () FROM t"),
            format!("SELECT {sums} FROM t AS a JOIN t AS b ON a.ts = b.ts AND a.pid = b.pid"),
            format!("SELECT {sums} FROM t AS a JOIN t AS b ON a.x = b.port"),
            format!("SELECT {sums} FROM t AS a LEFT JOIN t AS b ON a.x = b.port"),
            format!("SELECT {sums} FROM t AS b RIGHT JOIN t AS a ON a.x = b.none"),
            format!("SELECT {sums} FROM t AS b LEFT JOIN t AS a ON a.x = b.none"),
            format!("SELECT {sums} FROM t AS a, (SELECT * FROM t LIMIT 3) AS b"),
            format!("SELECT {sums} FROM t AS a WHERE x IN (SELECT port FROM t)"),
            format!("SELECT {sums} FROM t AS a WHERE x NOT IN (SELECT port FROM t)"),
            format!("SELECT {sums} FROM t AS a HAVING max(port) > 3"),
            "SELECT sum(DISTINCT x), count(DISTINCT x), count(DISTINCT none) FROM t".to_owned(),
            "SELECT sum(x) FILTER (WHERE port = 3), count(x) FILTER (WHERE x > 5) FROM t"
                .to_owned(),
            "SELECT sum(x), sum(x + 1), avg(x), sum(x) / count(x) FROM t".to_owned(),
            "SELECT sum(CAST(x AS DOUBLE)), sum(CAST(port AS BIGINT)) FROM t".to_owned(),
            "SELECT sum(CAST(x AS INT)) FROM t".to_owned(),
            "SELECT count(*) FROM t WHERE x > (SELECT sum(x) / count(x) FROM t)".to_owned(),
            "SELECT sum(total) FROM (SELECT port, sum(x) AS total FROM t GROUP BY port)".to_owned(),
            "SELECT port, sum(x), max(x) FROM t GROUP BY ROLLUP (port) ORDER BY port".to_owned(),
        ] {
            assert_eq!(shown(&known, &sql), shown(&read, &sql), "{sql}");
        }
    }
}

#[test]
fn a_count_of_all_rows_needs_no_plan() {
    let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
    for (folder, count) in folders.iter().zip([4_500, 300]) {
        let columns = [column("x", Kind::I64, true)];
        record(folder.path(), &columns, count, |_, number| {
            vec![Value::I64(number % 5)]
        });
    }
    let context = table(&[folders[0].path(), folders[1].path()]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for (sql, is_known) in [
        ("SELECT count(*) FROM t", true),
        ("SELECT count(*) AS n, count(1) AS m FROM t", true),
        (
            "SELECT a.n AS rows FROM (SELECT count(*) AS n FROM t) AS a",
            false,
        ),
        ("SELECT count(*) + 1 FROM t", false),
        ("SELECT count(*), sum(x) FROM t", false),
        ("SELECT count(x) FROM t", false),
        ("SELECT count(NULL) FROM t", false),
        ("SELECT count(DISTINCT 1) FROM t", false),
        ("SELECT count(*) FILTER (WHERE x > 2) FROM t", false),
        ("SELECT count(*) FROM t WHERE x > 2", false),
        ("SELECT count(*) FROM t WHERE pid = 1", false),
        ("SELECT count(*) FROM (SELECT * FROM t LIMIT 7)", false),
        ("SELECT count(*) FROM t GROUP BY x", false),
        ("SELECT count(*) FROM t AS a, t AS b", false),
    ] {
        let plan = runtime.block_on(async {
            let frame = context.sql(sql).await.unwrap();
            frame.into_optimized_plan().unwrap()
        });
        let counted = count_pushdown::count_rows(&plan).unwrap();
        assert_eq!(counted.is_some(), is_known, "{sql}");
        if let Some(counted) = counted {
            let text = pretty_format_batches(&[counted]).unwrap().to_string();
            assert_eq!(text, shown(&context, sql), "{sql}");
        }
    }
}

#[test]
fn the_first_rows_by_a_column_are_right_whatever_chunks_are_read_first() {
    let folder = tempfile::tempdir().unwrap();
    let columns = [
        column("x", Kind::I64, false),
        column("y", Kind::F64, true),
        column("none", Kind::I64, true),
    ];
    // Each value once, scattered over many chunks.
    let count = 100_003;
    record(folder.path(), &columns, count, |_, number| {
        let value = number * 7919 % count;
        let y = match value % 10 {
            0 => Value::Null,
            1 => Value::F64(f64::NAN),
            _ => Value::F64(-(value as f64)),
        };
        vec![Value::I64(value), y, Value::Null]
    });
    let context = table(&[folder.path()]);
    let first = |sql: &str| -> Vec<String> {
        let text = shown(&context, sql);
        let rows = text.lines().skip(3);
        rows.filter_map(|line| Some(line.split('|').nth(1)?.trim().to_owned()))
            .collect()
    };
    let check = |order: &str, wanted: [&str; 3]| {
        let sql = format!("SELECT {order} LIMIT 3");
        assert_eq!(first(&sql), wanted, "{sql}");
    };
    check("x FROM t ORDER BY x DESC", ["100002", "100001", "100000"]);
    check("x FROM t ORDER BY x", ["0", "1", "2"]);
    let last = (count - 3..count).rev();
    let last: Vec<String> = last.map(|n| (n * 7919 % count).to_string()).collect();
    assert_eq!(first("SELECT x FROM t ORDER BY ts DESC LIMIT 3"), last);
    check("y FROM t ORDER BY y DESC NULLS LAST", ["NaN", "NaN", "NaN"]);
    check("y FROM t ORDER BY y", ["-100002.0", "-99999.0", "-99998.0"]);
    check("y FROM t ORDER BY y DESC", ["", "", ""]);
    check(
        "x FROM t WHERE x % 2 = 1 ORDER BY x DESC",
        ["100001", "99999", "99997"],
    );
    check("x FROM t ORDER BY none DESC, x", ["0", "1", "2"]);
}

/// How many chunks a query reads, of how many.
fn chunks(context: &SessionContext, condition: &str) -> (usize, usize) {
    let plan = shown(
        context,
        &format!("EXPLAIN SELECT note FROM t WHERE {condition}"),
    );
    let (_, found) = plan
        .split_once("chunks=")
        .unwrap_or_else(|| panic!("{plan}"));
    let mut numbers = found
        .split(|letter: char| !letter.is_ascii_digit())
        .filter(|word| !word.is_empty());
    let mut number = || numbers.next().unwrap().parse().unwrap();
    (number(), number())
}

#[test]
fn chunks_that_cannot_matter_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &every_kind(), 200_000, a_row);
    let context = table(&[folder.path()]);
    let (_, all) = chunks(&context, "true");
    assert!(all > 8, "{all}");
    for (condition, most) in [
        ("line < 10", 1),
        ("line = 100000", 1),
        ("line BETWEEN 5000 AND 6000", 2),
        ("step > 19990", 1),
        ("loss < 1.0", 1),
        ("ts < to_timestamp_nanos(0)", 0),
        ("delta > 5", 0),
        ("line < 10 OR step > 19990", 2),
        ("line IN (3, 199999)", 2),
        ("pid = 2", 0),
        ("pid = 1 AND line < 10", 1),
    ] {
        let (read, of) = chunks(&context, condition);
        assert!(read <= most, "{condition}: {read} of {of}");
    }
    // The chunk that is still being written has no bounds but those of its time; what it may hold is read.
    let sql = "SELECT count(*) AS n FROM t WHERE line IN (3, 199999) OR loss = 25000.0";
    assert!(
        shown(&context, sql).contains("| 3 |"),
        "{}",
        shown(&context, sql)
    );
}

#[test]
fn targets_that_recorded_other_columns_are_one_table() {
    let [one, other] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    record(
        one.path(),
        &[
            column("x", Kind::I64, false),
            column("a", Kind::Text, false),
        ],
        2,
        |_, number| vec![Value::I64(number), Value::Text("one")],
    );
    record(
        other.path(),
        &[
            column("X", Kind::F64, false),
            column("b", Kind::Bool, false),
        ],
        2,
        |_, number| vec![Value::F64(number as f64 + 0.5), Value::Bool(true)],
    );
    let context = table(&[one.path(), other.path()]);
    insta::assert_snapshot!(shown(&context, "SELECT rank, x, a, b FROM t ORDER BY x"), @r"
    +------+-----+-----+------+
    | rank | x   | a   | b    |
    +------+-----+-----+------+
    | 0    | 0.0 | one |      |
    | 1    | 0.5 |     | true |
    | 0    | 1.0 | one |      |
    | 1    | 1.5 |     | true |
    +------+-----+-----+------+
    ");
    assert!(
        shown(
            &context,
            "SELECT count(*) AS n FROM t WHERE x > 0.7 AND rank = 0"
        )
        .contains("| 1 |")
    );
}
