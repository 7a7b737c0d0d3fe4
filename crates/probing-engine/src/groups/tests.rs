//! Groups beside those that the engine makes by itself, whatever the keys and the functions.

use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use tokio::runtime::Runtime;

use super::*;

/// Rows as they are recorded, and as they are not. `n` counts them; that they come in its order is not known.
const ROWS: &str = "SELECT n, n / 800 AS step, n % 7 AS seventh, CAST(n AS DOUBLE) / 4 AS x, \
    CASE WHEN n % 5 = 0 THEN NULL ELSE n / 90 END AS gap, \
    CASE WHEN n = 77 THEN CAST('NaN' AS DOUBLE) ELSE CAST(n % 13 AS DOUBLE) END AS y, \
    arrow_cast('stage ' || (n % 4), 'Utf8View') AS short, \
    arrow_cast('transformer.layers.' || (n / 4 % 200) || '.mlp', 'Utf8View') AS long, \
    arrow_cast(CASE WHEN n % 3 = 0 THEN NULL WHEN n % 3 = 1 THEN '' ELSE 'something ' || (n / 500) END, 'Utf8View') AS maybe, \
    arrow_cast(n / 100, 'UInt8') AS small, \
    arrow_cast(n / 50 * 1000000000, 'Timestamp(Nanosecond, None)') AS t \
    FROM (SELECT CAST(CAST(m AS VARCHAR) AS BIGINT) AS n FROM generate_series(0, 5999) AS s(m))";

fn context(threads: usize, bytes: usize, is_ours: bool) -> SessionContext {
    let mut rules = PhysicalOptimizer::new().rules;
    if is_ours {
        rules.push(Arc::new(Groups));
    }
    let config = SessionConfig::new()
        .with_target_partitions(threads)
        .with_batch_size(400);
    let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_default_features()
        .with_physical_optimizer_rules(rules)
        .build();
    SessionContext::new_with_state(state)
}

/// Has the rows in a table, in batches that have their texts apart.
fn fill(runtime: &Runtime, contexts: &[SessionContext]) {
    let rows = async {
        let rows = contexts[0].sql(ROWS).await.unwrap();
        rows.collect().await.unwrap()
    };
    let rows = runtime.block_on(rows);
    assert!(rows.len() > 10);
    for context in contexts {
        let parts = rows.chunks(8).map(<[_]>::to_vec).collect();
        let table = MemTable::try_new(rows[0].schema(), parts).unwrap();
        context.register_table("rows", Arc::new(table)).unwrap();
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

fn rows(runtime: &Runtime, context: &SessionContext, sql: &str) -> String {
    let rows = async { context.sql(sql).await.unwrap().collect().await.unwrap() };
    let rows = runtime.block_on(rows);
    pretty_format_batches(&rows).unwrap().to_string()
}

#[test]
fn groups_are_those_that_the_engine_would_make() {
    const VALUES: [&str; 3] = [
        "count(*), count(gap), sum(n), sum(seventh), min(n), max(n), avg(x), avg(gap), avg(y), sum(gap), min(y), max(y)",
        "count(DISTINCT seventh), sum(n) FILTER (WHERE n % 2 = 1), avg(x) FILTER (WHERE short = 'stage 1'), min(long), \
         max(maybe), bit_and(n), approx_distinct(long), bit_xor(n), bool_and(n > 3)",
        "first_value(n ORDER BY n)",
    ];
    let runtime = runtime();
    // With two threads there are states to be put together.
    for threads in [1, 2] {
        let contexts = [true, false].map(|ours| context(threads, 1 << 30, ours));
        fill(&runtime, &contexts);
        let [ours, usual] = contexts;
        for keys in [
            "step",
            "n",
            "gap",
            "short",
            "long",
            "maybe",
            "step % 3",
            "short, long",
            "step, long",
            "maybe, gap",
            "gap, maybe, short",
            "step, long, short, seventh",
            "small, t",
            "x, step",
        ] {
            for values in VALUES {
                let count = keys.split(", ").count();
                let order = (1..=count).map(|place| place.to_string());
                let order = order.collect::<Vec<_>>().join(", ");
                let sql =
                    format!("SELECT {keys}, {values} FROM rows GROUP BY {keys} ORDER BY {order}");
                let plan = rows(&runtime, &ours, &format!("EXPLAIN {sql}"));
                assert_eq!(
                    plan.contains("Grouped"),
                    keys != "x, step" && !values.contains("ORDER BY"),
                    "{plan}"
                );
                assert_eq!(
                    rows(&runtime, &ours, &sql),
                    rows(&runtime, &usual, &sql),
                    "{sql}"
                );
            }
        }
    }
}

#[test]
fn more_groups_than_there_is_memory_for_are_an_error() {
    let runtime = runtime();
    let context = context(1, 200_000, true);
    fill(&runtime, std::slice::from_ref(&context));
    let answer = async {
        let sql = "SELECT n, count(*) FROM rows GROUP BY n";
        context.sql(sql).await.unwrap().collect().await
    };
    let error = runtime.block_on(answer).unwrap_err();
    assert!(error.to_string().contains("groups of part"), "{error}");
}
