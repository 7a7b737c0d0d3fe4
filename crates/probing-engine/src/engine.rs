//! The engine: answers queries one after the other, each over its own targets.

pub(crate) mod moment;
pub(crate) mod names;
pub(crate) mod plan_cache;
mod statement;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZero;
use std::panic;
use std::sync::{Arc, Once, OnceLock};
use std::thread;

use datafusion::catalog::{
    CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider, TableProvider,
};
use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use probing_client::Members;
use probing_proto::tables::builtin;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::answer::{Planned, QueryDeadline, QueryLimits, ResultStream, Source};
use crate::engine::plan_cache::{Named, Plan, Plans};
use crate::engine::statement::Question;
use crate::error::EngineError;
use crate::error::spelling::nearest;
use crate::memory;
use crate::session::{self, DEFAULT_SCHEMA, Share};
use crate::snapshot::target_snapshot::TargetSetSnapshot;
use crate::sources::capture_table;
use crate::sources::live::LiveTable;
use crate::sources::recorded::{self, Sharing};
use crate::sources::remote_query::RemoteRows;
use crate::sources::remote_table::{self, NodeMembers, NodeTable};
use crate::tables::ALL;
use crate::tables::definition::Table;

/// A query is a guest on the machine, too: it works with few threads, however many cores there are.
const MAX_THREADS: usize = 4;
/// Expressions are planned by functions that call themselves.
const STACK: usize = 16 << 20;
const PLANNING_STACK: usize = 256 << 20;

/// Names of threads whose panics are answers.
const QUERY: &str = "query";
const PLAN: &str = "plan";

/// Runs queries, any number at the same time.
#[derive(Debug)]
pub struct Engine(Arc<EngineState>);

/// What a query needs beside its targets. A query that nobody waits for any more keeps it until it ends.
struct EngineState {
    /// Both are always there, until they are dropped.
    runtime: Option<Runtime>,
    planning: Option<Runtime>,
    handle: Handle,
    planners: Handle,
    threads: usize,
    /// Functions and rules, which are the same for all queries: they take as long to gather as a small query.
    basis: OnceLock<SessionState>,
    /// The same for plans.
    planned: OnceLock<SessionState>,
    plans: Plans,
}

/// A panic of the engine is the answer to a query: it is told there, and nowhere else.
fn tell_panics_once() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !matches!(thread::current().name(), Some(QUERY | PLAN)) {
                usual(panic);
            }
        }));
    });
}

impl Engine {
    pub fn start() -> Result<Self, EngineError> {
        tell_panics_once();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = cores.min(MAX_THREADS);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(QUERY)
            .thread_stack_size(STACK)
            .enable_time()
            .build();
        let runtime = runtime.map_err(|source| EngineError::NotStarted { source })?;
        // No thread before there is something to plan; then it stays for the next.
        let planning = Builder::new_current_thread()
            .thread_name(PLAN)
            .thread_stack_size(PLANNING_STACK)
            .build();
        let planning = planning.map_err(|source| EngineError::NotStarted { source })?;
        Ok(Self(Arc::new(EngineState {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
            planners: planning.handle().clone(),
            planning: Some(planning),
            threads,
            basis: OnceLock::new(),
            planned: OnceLock::new(),
            plans: Plans::default(),
        })))
    }

    /// Asks the targets. In a runtime of tokio that has a clock.
    pub async fn ask(
        &self,
        sql: &str,
        members: &Members,
        terms: &QueryLimits,
    ) -> Result<ResultStream, EngineError> {
        let patience = QueryDeadline::of(terms);
        let memory_bytes = terms.memory_bytes.unwrap_or_else(memory::usual);
        let (workshop, sql, members) = (Arc::clone(&self.0), sql.to_owned(), members.clone());
        // On a stack of its own: however long an expression is, it must not be the end of the command. And on a thread
        // that can be left behind: planning computes, and reads targets.
        let planned = self
            .0
            .planners
            .spawn_blocking(move || workshop.plan(sql, &members, memory_bytes));
        let planned = patience.wait(planned).await?;
        let planned = planned.map_err(EngineError::panicked)??;
        Ok(ResultStream::start(
            planned,
            self.0.handle.clone(),
            patience,
        ))
    }

    /// On targets that may have been looked at already. For a thread that waits, of a large stack.
    pub(crate) fn planned(
        &self,
        sql: &str,
        sight: &Arc<TargetSetSnapshot>,
        terms: &QueryLimits,
    ) -> Result<Planned, EngineError> {
        let memory_bytes = terms.memory_bytes.unwrap_or_else(memory::usual);
        let world = QueryTargets {
            sight: Arc::clone(sight),
            nodes: Vec::new(),
        };
        self.0.plan_at(sql.to_owned(), &world, memory_bytes)
    }

    pub(crate) fn answered(&self, planned: Planned, patience: QueryDeadline) -> ResultStream {
        ResultStream::start(planned, self.0.handle.clone(), patience)
    }

    /// The same for a thread that waits.
    pub fn blocking_ask(
        &self,
        sql: &str,
        members: &Members,
        terms: &QueryLimits,
    ) -> Result<ResultStream, EngineError> {
        self.0.handle.block_on(self.ask(sql, members, terms))
    }

    /// The tables that these targets have recorded.
    pub fn recorded(&self, members: &Members) -> Result<Vec<String>, EngineError> {
        if !members.by_node().1.is_empty() {
            let answer = self.blocking_ask(RECORDED, members, &QueryLimits::default())?;
            let (table, _) = answer.into_json(usize::MAX)?;
            let names = table
                .rows
                .into_iter()
                .filter_map(|row| row.into_iter().next());
            return Ok(names
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect());
        }
        let sight = TargetSetSnapshot::of(members);
        let names = recorded::recorded_names(&sight);
        if sight.is_blind() {
            let missing = sight.missing();
            return Err(EngineError::Blind { missing });
        }
        Ok(names)
    }
}

impl EngineState {
    fn plan(
        &self,
        sql: String,
        members: &Members,
        memory_bytes: usize,
    ) -> Result<Planned, EngineError> {
        if let Some(node) = members.node() {
            let (elsewhere, stream) = RemoteRows::ask(node, &sql, members)?;
            return Ok(Planned {
                sql,
                stream,
                source: Source::Remote(elsewhere),
                memory_bytes,
            });
        }
        let (here, nodes) = members.by_node();
        let world = QueryTargets {
            sight: Arc::new(TargetSetSnapshot::of(&here)),
            nodes,
        };
        self.plan_at(sql, &world, memory_bytes)
    }

    /// Over targets that may have been looked at already.
    fn plan_at(
        &self,
        sql: String,
        world: &QueryTargets,
        memory_bytes: usize,
    ) -> Result<Planned, EngineError> {
        let failed = |error| EngineError::of(error, &sql);
        let basis = self.basis().map_err(failed)?;
        if let Some(known) = self.plans.find(&sql).filter(|_| world.is_plain()) {
            let tables = self.tables(&known.tables, basis, world, memory_bytes)?;
            if let Some(plan) = known.over(&tables.all).map_err(failed)? {
                let share = self.share(&tables, memory_bytes);
                let planned = self
                    .planned
                    .get_or_init(|| session::without_functions(basis));
                let state = session::state(tables.catalog, planned, share);
                let stream = self.handle.block_on(session::run(&plan, &state, share));
                let stream = stream.map_err(failed)?;
                return Ok(Planned::here(sql, stream, &world.sight, memory_bytes));
            }
        }
        let asked = match Question::parse(&sql)? {
            Question::Rows(statement) => *statement,
            Question::Tables => self::shown(SHOW_TABLES)?,
            Question::Columns(table) => {
                let name = named(&table, world)?.replace('\'', "''");
                self::shown(&format!("{DESCRIBE} '{name}' ORDER BY position"))?
            }
        };
        let references = statement::tables_of(basis, &asked)?;
        let tables = self.tables(&references, basis, world, memory_bytes)?;
        let share = self.share(&tables, memory_bytes);
        let state = session::state(tables.catalog, basis, share);
        let stream = self.handle.block_on(async {
            let plan = session::understood(asked, &state).await?;
            let is_lasting = world.is_plain() && plan_cache::is_lasting(&plan)?;
            let plan = state.optimize(&plan)?;
            let stream = session::run(&plan, &state, share).await?;
            if is_lasting {
                self.plans.remember(&sql, Plan::of(plan, references)?);
            }
            Ok(stream)
        });
        let stream = stream.map_err(failed)?;
        Ok(Planned::here(sql, stream, &world.sight, memory_bytes))
    }

    fn share(&self, tables: &Tables, memory_bytes: usize) -> Share {
        Share {
            parts: Sharing::among(self.threads).parts(tables.rows),
            memory_bytes,
        }
    }

    fn basis(&self) -> datafusion::common::Result<&SessionState> {
        if let Some(basis) = self.basis.get() {
            return Ok(basis);
        }
        let basis = session::basis()?;
        Ok(self.basis.get_or_init(|| basis))
    }

    /// The tables that a statement names, and nothing else.
    fn tables(
        &self,
        references: &[TableReference],
        basis: &SessionState,
        world: &QueryTargets,
        memory_bytes: usize,
    ) -> Result<Tables, EngineError> {
        let failed = |error| EngineError::of(error, "");
        let catalog = MemoryCatalogProvider::new();
        let (mut all, mut rows) = (Vec::new(), 0);
        for reference in references {
            if basis.table_functions().contains_key(reference.table()) {
                continue;
            }
            let (table, count) = self.table(reference, world, memory_bytes)?;
            rows = rows.max(count);
            all.push(Named {
                name: reference.clone(),
                provider: Arc::clone(&table),
            });
            // As the statement writes them.
            let schema = reference.schema().unwrap_or(DEFAULT_SCHEMA);
            let name = reference.table();
            if catalog.schema(schema).is_none() {
                let empty = Arc::new(MemorySchemaProvider::new());
                catalog.register_schema(schema, empty).map_err(failed)?;
            }
            if let Some(schema) = catalog
                .schema(schema)
                .filter(|schema| !schema.table_exist(name))
            {
                schema
                    .register_table(name.to_owned(), table)
                    .map_err(failed)?;
            }
        }
        Ok(Tables {
            catalog: Arc::new(catalog),
            all,
            rows,
        })
    }

    /// The table that is meant, over these targets; and how many rows of it are recorded.
    fn table(
        &self,
        reference: &TableReference,
        world: &QueryTargets,
        memory_bytes: usize,
    ) -> Result<(Arc<dyn TableProvider>, usize), EngineError> {
        let QueryTargets { sight, nodes } = world;
        let kept = if is_ours(reference) {
            capture_table::table(&full_name(reference), &sight.captures, memory_bytes)?
        } else {
            None
        };
        match (self.table_of_living(reference, world), kept) {
            (living, None) => living,
            (Ok((living, rows)), Some(kept)) if !sight.all.is_empty() || !nodes.is_empty() => {
                let both = capture_table::together(living, kept);
                Ok((both.map_err(|error| EngineError::of(error, ""))?, rows))
            }
            (_, Some(kept)) => Ok((kept, 0)),
        }
    }

    /// The same over those that live, or have left their recordings.
    fn table_of_living(
        &self,
        reference: &TableReference,
        QueryTargets { sight, nodes }: &QueryTargets,
    ) -> Result<(Arc<dyn TableProvider>, usize), EngineError> {
        if !nodes.is_empty() {
            return Ok((self.united(reference, sight, nodes)?, 0));
        }
        if let Some(table) = live(reference) {
            return Ok((Arc::new(LiveTable::new(table, Arc::clone(sight))), 0));
        }
        match recorded::table(&full_name(reference), sight, Sharing::among(self.threads)) {
            Some(table) if is_ours(reference) => {
                let rows = table.rows();
                Ok((Arc::new(table), rows))
            }
            _ => Err(no_table(reference, sight)),
        }
    }

    /// The same over targets of several machines.
    fn united(
        &self,
        reference: &TableReference,
        sight: &Arc<TargetSetSnapshot>,
        nodes: &[NodeMembers],
    ) -> Result<Arc<dyn TableProvider>, EngineError> {
        let mut parts: Vec<Arc<dyn TableProvider>> = Vec::new();
        if let Some(table) = live(reference) {
            let schema = table.schema();
            let there = nodes
                .iter()
                .map(|there| NodeTable::known(reference, Arc::clone(&schema), there, sight));
            parts.extend(there.map(|part| Arc::new(part) as _));
            if !sight.all.is_empty() {
                parts.push(Arc::new(LiveTable::new(table, Arc::clone(sight))));
            }
        } else {
            let sharing = Sharing::among(self.threads);
            let here = recorded::table(&full_name(reference), sight, sharing);
            let here = here.filter(|_| is_ours(reference) && !sight.all.is_empty());
            parts.extend(here.map(|part| Arc::new(part) as _));
            let there = nodes.iter();
            let there = there.filter_map(|there| NodeTable::recorded(reference, there, sight));
            // A table of the program's has steps of the program's.
            let is_own = builtin::named(&full_name(reference)).is_some();
            let has_others = is_own && nodes.len() + usize::from(!sight.all.is_empty()) > 1;
            let there = there.map(|part| {
                if has_others {
                    part.beside_others()
                } else {
                    part
                }
            });
            parts.extend(there.map(|part| Arc::new(part) as _));
        }
        let united = self
            .basis()
            .and_then(|basis| remote_table::united(basis, parts));
        let united = united.map_err(|error| EngineError::of(error, ""))?;
        united.ok_or_else(|| no_table(reference, sight))
    }
}

/// What a query can see: targets of this machine, and those of others through their agents.
struct QueryTargets {
    sight: Arc<TargetSetSnapshot>,
    nodes: Vec<NodeMembers>,
}

impl QueryTargets {
    /// Whether each table is the one that its name says: nothing is put together of several.
    fn is_plain(&self) -> bool {
        self.nodes.is_empty() && self.sight.captures.is_empty()
    }
}

/// The tables of a statement.
struct Tables {
    catalog: Arc<dyn CatalogProvider>,
    all: Vec<Named>,
    /// Of the largest.
    rows: usize,
}

impl Drop for EngineState {
    fn drop(&mut self) {
        // Without waiting for what still computes.
        let runtimes = [self.runtime.take(), self.planning.take()];
        for runtime in runtimes.into_iter().flatten() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for EngineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workshop")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// What `SHOW TABLES` asks.
pub const SHOW_TABLES: &str =
    "SELECT DISTINCT table_name, kind, description FROM probing.tables ORDER BY table_name";
/// What a target has recorded, as its own machine tells.
const RECORDED: &str =
    "SELECT DISTINCT table_name FROM probing.tables WHERE kind = 'recorded' ORDER BY table_name";
const DESCRIBE: &str = "SELECT column_name, data_type, description FROM (SELECT DISTINCT table_name, column_name, data_type, description, \
     position FROM probing.columns) WHERE table_name =";

/// The statement that stands for another.
fn shown(sql: &str) -> Result<Statement, EngineError> {
    match Question::parse(sql)? {
        Question::Rows(statement) => Ok(*statement),
        Question::Tables | Question::Columns(_) => Err(EngineError::Empty),
    }
}

/// The name of the table that is meant, as `probing.tables` has it.
fn named(
    reference: &TableReference,
    QueryTargets { sight, nodes }: &QueryTargets,
) -> Result<String, EngineError> {
    let wanted = full_name(reference);
    if !nodes.is_empty() {
        // They know theirs.
        return Ok(wanted);
    }
    let is_wanted = |name: &String| name.to_lowercase() == wanted.to_lowercase();
    let mut names = all_names(sight).into_iter();
    let found = names.find(|name| is_ours(reference) && is_wanted(name));
    found.ok_or_else(|| no_table(reference, sight))
}

/// With its schema.
fn full_name(reference: &TableReference) -> String {
    let schema = reference.schema().unwrap_or(DEFAULT_SCHEMA);
    format!("{schema}.{}", reference.table())
}

fn is_ours(reference: &TableReference) -> bool {
    reference.catalog().is_none_or(session::is_catalog)
}

fn live(reference: &TableReference) -> Option<&'static Table> {
    let name = full_name(reference);
    let mut tables = ALL.into_iter();
    tables.find(|table| is_ours(reference) && table.name == name)
}

/// Those that are read from targets, and those that targets have recorded.
fn all_names(sight: &TargetSetSnapshot) -> Vec<String> {
    let live = ALL.iter().map(|table| table.name.to_owned());
    let captures = sight.captures.iter();
    let kept = captures.flat_map(|capture| capture.manifest().tables.clone());
    live.chain(recorded::names(sight)).chain(kept).collect()
}

fn no_table(reference: &TableReference, sight: &TargetSetSnapshot) -> EngineError {
    let missing = recorded::unreadable(&full_name(reference), sight);
    if !missing.is_empty() && is_ours(reference) {
        return EngineError::Blind { missing };
    }
    let names = all_names(sight);
    if sight.is_blind() {
        let missing = sight.missing();
        return EngineError::Blind { missing };
    }
    let nearest = nearest(&reference.to_string(), names.iter().map(String::as_str));
    EngineError::NoTable {
        nearest: nearest.map(str::to_owned),
        name: reference.to_string(),
    }
}
