//! Groups compared with those of DataFusion, for many keys and functions.

use std::sync::Arc;

use datafusion::prelude::SessionContext;

use crate::optimizer::exec_override::Rule;
use crate::optimizer::group_by::*;
use crate::test_baseline::{answer, context, fill, runtime};

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

fn ours(threads: usize, bytes: usize) -> SessionContext {
    context(threads, bytes, vec![Arc::new(Rule::<Groups>::new())])
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
        let contexts = [
            ours(threads, 1 << 30),
            context(threads, 1 << 30, Vec::new()),
        ];
        fill(&runtime, &contexts, ROWS);
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
                let plan = answer(&runtime, &ours, &format!("EXPLAIN {sql}"));
                assert_eq!(
                    plan.contains("Grouped"),
                    keys != "x, step" && !values.contains("ORDER BY"),
                    "{plan}"
                );
                assert_eq!(
                    answer(&runtime, &ours, &sql),
                    answer(&runtime, &usual, &sql),
                    "{sql}"
                );
            }
        }
    }
}

#[test]
fn more_groups_than_there_is_memory_for_are_an_error() {
    let runtime = runtime();
    let context = ours(1, 200_000);
    fill(&runtime, std::slice::from_ref(&context), ROWS);
    let groups = async {
        let sql = "SELECT n, count(*) FROM rows GROUP BY n";
        context.sql(sql).await.unwrap().collect().await
    };
    let error = runtime.block_on(groups).unwrap_err();
    assert!(error.to_string().contains("groups of part"), "{error}");
}
