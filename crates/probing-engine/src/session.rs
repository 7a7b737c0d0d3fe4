//! What a statement is planned and run in: functions, rules, the tables that it names, and no files, network or disk.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, CatalogProviderList as _, MemoryCatalogProviderList};
use datafusion::common::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{
    SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext,
};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::Statement;

use crate::functions;
use crate::optimizer::count_pushdown;
use crate::optimizer::exec_override::Rule;
use crate::optimizer::group_by::Groups;
use crate::optimizer::joins::Joins;
use crate::optimizer::sum_pushdown::Sums;

const CATALOG: &str = "targets";
/// Tables that a program recorded need no schema in front of their names.
pub(crate) const DEFAULT_SCHEMA: &str = "user";

/// What is the same for all statements: it takes as long to gather as a small query.
pub(crate) fn basis() -> Result<SessionState> {
    let mut config = SessionConfig::new();
    // To look up each row of one side among those of the other costs more than to read it.
    let optimizer = &mut config.options_mut().optimizer;
    optimizer.enable_join_dynamic_filter_pushdown = false;
    let config = config
        // Scans come in as many parts as are of use; and rows of few stay in their order.
        .with_round_robin_repartition(false)
        .with_default_catalog_and_schema(CATALOG, DEFAULT_SCHEMA)
        .with_create_default_catalog_and_schema(false);
    let no_disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(no_disk)
        .build_arc()?;
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_file_formats(Vec::new())
        .with_physical_optimizer_rules(rules())
        .build();
    let context = SessionContext::new_with_state(state);
    context.deregister_object_store(ObjectStoreUrl::local_filesystem().as_ref())?;
    functions::register(&context);
    Ok(context.state())
}

/// The same without functions, for plans that have theirs in them: it is copied for each query.
pub(crate) fn without_functions(basis: &SessionState) -> SessionState {
    SessionStateBuilder::new_from_existing(basis.clone())
        .with_scalar_functions(Vec::new())
        .with_aggregate_functions(Vec::new())
        .with_window_functions(Vec::new())
        .with_table_functions(HashMap::new())
        .build()
}

/// The rules by which plans get better: those of the engine; before them [`Sums`], which one of them makes use of; and
/// behind them those by which we group and join rows ourselves.
pub(crate) fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    rules.insert(0, Arc::new(Sums));
    rules.push(Arc::new(Rule::<Groups>::new()));
    rules.push(Arc::new(Rule::<Joins>::new()));
    rules
}

/// Whether a catalog is the one that there is.
pub(crate) fn is_catalog(name: &str) -> bool {
    name == CATALOG
}

/// What a statement may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Parts of a table that are worked on at once.
    pub(crate) parts: usize,
    pub(crate) memory_bytes: usize,
}

/// The state that statements over these tables are planned in. What is not in them is not there.
pub(crate) fn state(
    tables: Arc<dyn CatalogProvider>,
    basis: &SessionState,
    share: Share,
) -> SessionState {
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(CATALOG.to_owned(), tables);
    let mut state = basis.clone();
    state.register_catalog_list(Arc::new(catalogs));
    state.config_mut().options_mut().execution.target_partitions = share.parts;
    // It is now.
    state.mark_start_execution();
    state
}

/// What a statement means, which only reads.
pub(crate) async fn understood(asked: Statement, state: &SessionState) -> Result<LogicalPlan> {
    let plan = state.statement_to_plan(asked).await?;
    // Once more, on what came of it: nothing that changes anything is in it, at any depth.
    SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false)
        .verify_plan(&plan)?;
    Ok(plan)
}

/// Runs a plan that has been optimised.
pub(crate) async fn run(
    plan: &LogicalPlan,
    state: &SessionState,
    share: Share,
) -> Result<SendableRecordBatchStream> {
    if let Some(counted) = count_pushdown::count_rows(plan)? {
        return Ok(Box::pin(MemoryStream::try_new(
            vec![counted],
            Arc::clone(plan.schema().inner()),
            None,
        )?));
    }
    let plan = state
        .query_planner()
        .create_physical_plan(plan, state)
        .await?;
    let runtime = RuntimeEnvBuilder::from_runtime_env(state.runtime_env())
        .with_memory_limit(share.memory_bytes, 1.0)
        .build_arc()?;
    // The plan has its functions in it.
    let task = TaskContext::new(
        None,
        state.session_id().to_owned(),
        state.config().clone(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        runtime,
    );
    execute_stream(plan, Arc::new(task))
}
