//! What ends a query before its end, and how its rows come.

use std::time::Duration;

use probing_client::{Members, Ranks};

use crate::answer::QueryLimits;
use crate::engine::Engine;
use crate::error::EngineError;

/// Computes for years.
const ENDLESS: &str =
    "SELECT count(*) FROM generate_series(1, 1000000000000) AS a(x) WHERE x % 7 = 3";

fn nobody() -> Members {
    Members {
        all: Vec::new(),
        missing: Ranks::default(),
    }
}

fn outcome(sql: &str, terms: &QueryLimits) -> Result<usize, EngineError> {
    let engine = Engine::start()?;
    let mut answer = engine.blocking_ask(sql, &nobody(), terms)?;
    let mut rows = 0;
    while let Some(batch) = answer.blocking_next()? {
        rows += batch.num_rows();
    }
    assert_eq!(answer.end()?.rows, rows);
    Ok(rows)
}

#[test]
fn a_query_ends_when_its_time_is_over() {
    let terms = QueryLimits {
        time: Some(Duration::from_millis(50)),
        ..QueryLimits::default()
    };
    let outcome = outcome(ENDLESS, &terms);
    assert!(matches!(outcome, Err(EngineError::TooLong { .. })));
}

#[test]
fn a_query_takes_no_more_memory_than_it_may() {
    let terms = QueryLimits {
        memory_bytes: Some(4 << 20),
        ..QueryLimits::default()
    };
    let series = "generate_series(1, 1000000000) AS s(x)";
    for sql in [
        format!("SELECT x % 1000000, count(*) FROM {series} GROUP BY 1"),
        format!("SELECT x FROM {series} ORDER BY x % 1000"),
        format!("SELECT count(*) FROM {series} JOIN (SELECT x AS y FROM {series}) ON x = y"),
    ] {
        let outcome = outcome(&sql, &terms);
        let is_told = matches!(outcome, Err(EngineError::TooLarge { .. }));
        assert!(is_told, "{sql}: {outcome:?}");
    }
}

#[test]
fn a_short_text_does_not_become_one_that_fills_the_memory() {
    for (call, rows) in [
        ("repeat('x', 2000000000)", "1"),
        (
            "repeat('ab', x * 10000)",
            "generate_series(1, 4000) AS s(x)",
        ),
        ("lpad('x', 1000000000)", "1"),
        (
            "rpad('x', x, 'ab')",
            "generate_series(100000000, 100000001) AS s(x)",
        ),
        (
            "string_agg(repeat('x', 1000000), ',')",
            "generate_series(1, 100)",
        ),
        (
            "string_agg(repeat('x', 1000000), ',' ORDER BY x)",
            "generate_series(1, 100) AS s(x)",
        ),
        (
            "string_agg(repeat('x', 10000), ',') OVER (ORDER BY x)",
            "generate_series(1, 1000) AS s(x)",
        ),
    ] {
        let from = if rows == "1" {
            String::new()
        } else {
            format!(" FROM {rows}")
        };
        let outcome = outcome(
            &format!("SELECT length({call}){from}"),
            &QueryLimits::default(),
        );
        let is_told =
            matches!(&outcome, Err(EngineError::TooLarge { message }) if message.contains("64 MB"));
        assert!(is_told, "{call}: {outcome:?}");
    }
    for call in [
        "repeat('ab', 1000)",
        "lpad('x', 10, '-')",
        "rpad(NULL, 10)",
        "repeat('x', NULL)",
        "string_agg('x', ',')",
        "string_agg(NULL, ',')",
    ] {
        let outcome = outcome(&format!("SELECT {call}"), &QueryLimits::default());
        assert!(matches!(outcome, Ok(1)), "{call}: {outcome:?}");
    }
    let long = "SELECT string_agg('x', repeat(',', 300)) FROM generate_series(1, 3)";
    let outcome = outcome(long, &QueryLimits::default());
    assert!(matches!(outcome, Err(EngineError::TooLarge { .. })));
}

#[test]
fn texts_are_joined_in_the_order_that_is_asked_for() {
    let (engine, terms) = (Engine::start().unwrap(), QueryLimits::default());
    for (call, text) in [
        ("string_agg(DISTINCT t, ', ' ORDER BY t DESC)", "c, b, a"),
        ("string_agg(t, '-' ORDER BY t)", "a-b-b-c"),
        ("string_agg(t, '')", "bacb"),
    ] {
        let sql = format!("SELECT {call} FROM (VALUES ('b'), ('a'), (NULL), ('c'), ('b')) AS v(t)");
        let answer = engine.blocking_ask(&sql, &nobody(), &terms).unwrap();
        let (table, _) = answer.into_json(1).unwrap();
        assert_eq!(table.rows[0][0], text, "{call}");
    }
}

#[test]
fn a_stopped_query_fails_also_when_it_was_stopped_before_it_began() {
    let terms = QueryLimits::default();
    terms.stopper.stop();
    assert!(matches!(
        outcome("SELECT 1", &terms),
        Err(EngineError::Stopped)
    ));
    let terms = QueryLimits::default();
    let engine = Engine::start().unwrap();
    let mut answer = engine.blocking_ask(ENDLESS, &nobody(), &terms).unwrap();
    let stopping = std::thread::spawn({
        let stopper = terms.stopper;
        move || stopper.stop()
    });
    assert!(matches!(answer.blocking_next(), Err(EngineError::Stopped)));
    stopping.join().unwrap();
    // Neither waits for it.
    drop(answer);
    drop(engine);
}

#[test]
fn batches_come_one_by_one_in_a_runtime_of_somebody_else() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    runtime.block_on(async {
        let engine = Engine::start().unwrap();
        let sql = "SELECT value FROM generate_series(1, 20000)";
        let terms = QueryLimits::default();
        let mut answer = engine.ask(sql, &nobody(), &terms).await.unwrap();
        assert_eq!(answer.schema().field(0).name(), "value");
        let mut sizes = Vec::new();
        while let Some(batch) = answer.next().await.unwrap() {
            sizes.push(batch.num_rows());
        }
        assert!(sizes.len() > 1, "{sizes:?}");
        assert_eq!(sizes.iter().sum::<usize>(), 20_000);
        assert_eq!(answer.end().unwrap().rows, 20_000);
        // Several at the same time; one that is dropped ends.
        let endless = engine.ask(ENDLESS, &nobody(), &terms).await.unwrap();
        let mut other = engine.ask(sql, &nobody(), &terms).await.unwrap();
        assert!(other.next().await.unwrap().is_some());
        drop(endless);
    });
}

#[test]
fn what_goes_wrong_after_the_first_rows_is_told() {
    let sql = "SELECT 1 / (9999 - value) FROM generate_series(1, 20000)";
    let outcome = outcome(sql, &QueryLimits::default());
    assert!(matches!(outcome, Err(EngineError::Failed { .. })));
}
