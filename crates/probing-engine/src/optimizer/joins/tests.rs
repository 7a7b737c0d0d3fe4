//! Joins compared with those of DataFusion, for many keys and conditions.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use tokio::runtime::Runtime;

use crate::optimizer::exec_override::Rule;
use crate::optimizer::joins::*;
use crate::test_baseline::{answer, context, fill, runtime};

const ROWS: &str = "SELECT n, n / 40 AS step, n % 7 AS seventh, \
    CASE WHEN n % 5 = 0 THEN NULL ELSE n / 9 END AS gap, \
    arrow_cast('stage ' || (n % 4), 'Utf8View') AS short, \
    arrow_cast('transformer.layers.' || (n % 20) || '.mlp', 'Utf8View') AS long, \
    arrow_cast(CASE WHEN n % 3 = 0 THEN NULL WHEN n % 3 = 1 THEN '' ELSE 'something ' || (n / 50) END, 'Utf8View') AS maybe, \
    arrow_cast(n / 100, 'UInt8') AS small, \
    CAST(n AS DOUBLE) / 4 AS x, \
    arrow_cast(n / 50 * 1000000000, 'Timestamp(Nanosecond, None)') AS t \
    FROM (SELECT CAST(CAST(m AS VARCHAR) AS BIGINT) AS n FROM generate_series(0, 1199) AS s(m))";

fn ours(bytes: usize) -> SessionContext {
    context(1, bytes, vec![Arc::new(Rule::<Joins>::new())])
}

fn both(runtime: &Runtime) -> [SessionContext; 2] {
    let contexts = [ours(1 << 30), context(1, 1 << 30, Vec::new())];
    fill(runtime, &contexts, ROWS);
    contexts
}

/// The same rows from both, in whatever order, and whether ours joined them here.
fn compare(runtime: &Runtime, contexts: &[SessionContext; 2], sql: &str) -> bool {
    let [ours, usual] = contexts;
    let plan = answer(runtime, ours, &format!("EXPLAIN {sql}"));
    let sorted = |context| {
        let rows = answer(runtime, context, sql);
        let mut lines: Vec<String> = rows.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(ours), sorted(usual), "{sql}\n{plan}");
    plan.contains("Joined")
}

#[test]
fn joined_rows_are_those_that_the_engine_would_join() {
    let runtime = runtime();
    let contexts = both(&runtime);
    let few = "(SELECT * FROM rows WHERE n % 11 = 3)";
    for keys in [
        "n",
        "gap",
        "step",
        "small",
        "t",
        "short, n",
        "long, step",
        "maybe, seventh, step",
        "gap, maybe",
        "long, short, step, seventh",
    ] {
        let on = keys.split(", ").map(|key| format!("a.{key} = b.{key}"));
        let on = on.collect::<Vec<_>>().join(" AND ");
        for sides in [
            format!("rows AS a JOIN {few} AS b"),
            format!("{few} AS a JOIN rows AS b"),
            // Nothing to join with.
            "rows AS a JOIN (SELECT * FROM rows WHERE n < 0) AS b".to_owned(),
        ] {
            for (columns, condition) in [
                ("a.n, b.n", ""),
                ("a.long, b.x, b.maybe, a.t", "WHERE a.x + b.x < 300"),
                ("count(*)", "WHERE a.n <= b.n"),
                ("count(*)", ""),
                ("b.n", "WHERE a.maybe < b.long"),
            ] {
                let sql = format!("SELECT {columns} FROM {sides} ON {on} {condition}");
                assert!(compare(&runtime, &contexts, &sql), "{sql}");
            }
            for (how, condition) in [
                ("LEFT SEMI", ""),
                ("LEFT SEMI", "AND a.n > b.n"),
                ("LEFT ANTI", ""),
                ("LEFT ANTI", "AND a.x < b.x - 1"),
            ] {
                let sides = sides.replace("JOIN", &format!("{how} JOIN"));
                for columns in ["a.n, a.long, a.gap", "count(*)"] {
                    let sql = format!("SELECT {columns} FROM {sides} ON {on} {condition}");
                    compare(&runtime, &contexts, &sql);
                }
            }
        }
    }
}

#[test]
fn what_is_not_for_us_is_left_to_the_engine() {
    let runtime = runtime();
    let contexts = both(&runtime);
    for sql in [
        "SELECT a.n, b.n FROM rows AS a LEFT JOIN rows AS b ON a.gap = b.n",
        "SELECT a.n, b.n FROM rows AS a FULL JOIN rows AS b ON a.gap = b.n AND a.n > 5",
        "SELECT n FROM rows WHERE gap IN (SELECT n FROM rows WHERE n % 2 = 1)",
        "SELECT n FROM rows WHERE n NOT IN (SELECT gap FROM rows WHERE gap IS NOT NULL)",
        "SELECT a.n, b.n FROM rows AS a JOIN rows AS b ON a.x = b.x",
        "SELECT a.n, b.n FROM rows AS a JOIN rows AS b ON (a.maybe IS NOT DISTINCT FROM b.maybe) AND a.n = b.n + 1",
    ] {
        compare(&runtime, &contexts, sql);
    }
    let float = "SELECT a.n FROM rows AS a JOIN rows AS b ON a.x = b.x";
    assert!(!compare(&runtime, &contexts, float));
}

#[test]
fn joined_rows_come_in_the_order_of_the_side_that_is_looked_up() {
    let runtime = runtime();
    let contexts = both(&runtime);
    let sql = "SELECT b.n FROM (SELECT * FROM rows WHERE n % 300 = 0) AS a JOIN rows AS b ON a.small / 3 = b.small / 3 LIMIT 500";
    let [ours, usual] = &contexts;
    assert_eq!(answer(&runtime, ours, sql), answer(&runtime, usual, sql));
}

#[test]
fn more_rows_than_there_is_memory_for_are_an_error() {
    let runtime = runtime();
    let context = ours(50_000);
    fill(&runtime, std::slice::from_ref(&context), ROWS);
    let rows = async {
        let sql = "SELECT a.long, b.long FROM rows AS a JOIN rows AS b ON a.n = b.n";
        context.sql(sql).await.unwrap().collect().await
    };
    let error = runtime.block_on(rows).unwrap_err();
    assert!(error.to_string().contains("rows to join with"), "{error}");
}
