//! What our nodes of plans are tested beside: the engine as it is by itself, with the same rows.

use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use tokio::runtime::Runtime;

/// The engine, with rules behind its own.
pub(crate) fn context(
    threads: usize,
    bytes: usize,
    more: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> SessionContext {
    let mut rules = PhysicalOptimizer::new().rules;
    rules.extend(more);
    let mut config = SessionConfig::new()
        .with_target_partitions(threads)
        .with_batch_size(400);
    // As in a session of ours.
    config
        .options_mut()
        .optimizer
        .enable_join_dynamic_filter_pushdown = false;
    let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_default_features()
        .with_physical_optimizer_rules(rules)
        .build();
    SessionContext::new_with_state(state)
}

/// Has these rows in a table `rows` of each, in batches that have their texts apart, as many parts as there are threads.
pub(crate) fn fill(runtime: &Runtime, contexts: &[SessionContext], sql: &str) {
    let rows = async {
        let rows = contexts[0].sql(sql).await.unwrap();
        rows.collect().await.unwrap()
    };
    let rows = runtime.block_on(rows);
    assert!(rows.len() > 2);
    for context in contexts {
        let threads = context.copied_config().target_partitions();
        let share = rows.len().div_ceil(threads);
        let parts = rows.chunks(share).map(<[_]>::to_vec).collect();
        let table = MemTable::try_new(rows[0].schema(), parts).unwrap();
        context.register_table("rows", Arc::new(table)).unwrap();
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

/// What a statement shows.
pub(crate) fn answer(runtime: &Runtime, context: &SessionContext, sql: &str) -> String {
    let rows = async { context.sql(sql).await.unwrap().collect().await.unwrap() };
    let rows = runtime.block_on(rows);
    pretty_format_batches(&rows).unwrap().to_string()
}
