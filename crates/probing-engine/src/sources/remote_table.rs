//! Tables of targets on several machines, of which the agents send the rows that a query needs.
//!
//! Columns, conditions and limits go to where the rows are; the rest of the query is done here, over all of them. Each
//! table is a question of its own: what two tables say of a target elsewhere was not so at the same moment.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array as _, AsArray as _, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, SchemaRef, UInt64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, Result, ScalarValue, TableReference};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::prelude::SessionContext;
use datafusion::sql::unparser::expr_to_sql;
use probing_client::{AgentError, ClientError, Member, Members, Node};

use crate::columns::arrays::in_schema;
use crate::error::EngineError;
use crate::snapshot::steps::Basis;
use crate::snapshot::target_snapshot::{ReadFailure, TargetSetSnapshot, UnreadTarget};
use crate::sources::predicate::Condition;
use crate::sources::recorded;
use crate::sources::remote_query::RemoteRows;
use crate::sources::scan::{Part, Scan};

/// Asks an agent for the processes whose steps are counted by an optimizer.
const COUNTING: &str = "SELECT DISTINCT pid FROM python.steps WHERE counted_by = 'optimizer'";

/// The targets of one machine, and who reads them.
pub(crate) type NodeMembers = (Arc<Node>, Members);

/// One table of the targets of another machine.
#[derive(Debug, Clone)]
pub(crate) struct NodeTable {
    there: NodeMembers,
    /// As SQL writes it.
    name: String,
    schema: SchemaRef,
    /// Where it is noted who could not be read.
    sight: Arc<TargetSetSnapshot>,
    /// Whether there are targets of other machines, too, whose steps have numbers of their own.
    has_others: bool,
}

impl NodeTable {
    /// A table whose columns are known.
    pub(crate) fn known(
        reference: &TableReference,
        schema: SchemaRef,
        there: &NodeMembers,
        sight: &Arc<TargetSetSnapshot>,
    ) -> Self {
        Self {
            there: there.clone(),
            name: reference.to_quoted_string(),
            schema,
            sight: Arc::clone(sight),
            has_others: false,
        }
    }

    /// The same beside those of other machines.
    pub(crate) fn beside_others(self) -> Self {
        Self {
            has_others: true,
            ..self
        }
    }

    /// Notes that the agent has aligned steps of its own targets alone: those of ranks that optimizers count.
    fn tell_basis(&self) {
        let Some(why) = Basis::Machine.words() else {
            return;
        };
        let (node, members) = &self.there;
        let counting = counted_by_optimizers(node, members);
        let counting = counting.as_deref();
        for member in members.all.iter().filter(|one| counts_steps(one, counting)) {
            self.sight.lacks(UnreadTarget {
                who: member.who.clone(),
                pid: member.pid,
                why: why.clone(),
            });
        }
    }

    /// A table that programs there have recorded; none when they have not, or nobody can say.
    pub(crate) fn recorded(
        reference: &TableReference,
        there: &NodeMembers,
        sight: &Arc<TargetSetSnapshot>,
    ) -> Option<Self> {
        let (node, members) = there;
        let sql = format!("SELECT * FROM {} LIMIT 0", reference.to_quoted_string());
        match RemoteRows::open(node, &sql, members) {
            Ok((_, batches)) => Some(Self::known(reference, batches.schema(), there, sight)),
            Err(error) if is_answer(&error) => None,
            Err(error) => {
                sight.hears(members, missing(members, &error));
                None
            }
        }
    }
}

/// The processes there whose steps no program counts; `None` when nobody can say.
fn counted_by_optimizers(node: &Arc<Node>, members: &Members) -> Option<Vec<u64>> {
    let (_, batches) = RemoteRows::open(node, COUNTING, members).ok()?;
    let mut pids = Vec::new();
    for batch in batches {
        let batch = batch.ok()?;
        let column = cast(batch.column(0), &DataType::UInt64).ok()?;
        pids.extend(column.as_primitive::<UInt64Type>().iter().flatten());
    }
    Some(pids)
}

/// Whether steps of this one are counted by an optimizer, of a job: by these processes, if that is known.
fn counts_steps(member: &Member, counting: Option<&[u64]>) -> bool {
    let is_counting = |pids: &[u64]| {
        let pid = member.pid.map(|pid| u64::from(pid.0));
        pid.is_some_and(|pid| pids.contains(&pid))
    };
    member.rank.is_some() && counting.is_none_or(is_counting)
}

/// Whether rows have a step.
fn have_steps(batch: &RecordBatch) -> bool {
    let steps = batch.column_by_name(recorded::STEP);
    steps.is_some_and(|steps| steps.null_count() < steps.len())
}

/// Whether the agent has looked, and says that it cannot be so.
fn is_answer(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Remote(ClientError::Agent(AgentError::Refused { status: 400, .. }))
    )
}

/// All of them, for the same reason.
fn missing(members: &Members, error: &EngineError) -> Vec<UnreadTarget> {
    let why = ReadFailure {
        message: error.to_string(),
        hint: error.hint(),
    };
    let one = |member: &Member| UnreadTarget {
        who: member.who.clone(),
        pid: member.pid,
        why: why.clone(),
    };
    members.all.iter().map(one).collect()
}

/// The rows of all of these in one table. What one has no column for is null.
pub(crate) fn united(
    basis: &SessionState,
    parts: Vec<Arc<dyn TableProvider>>,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let context = SessionContext::new_with_state(basis.clone());
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else {
        return Ok(None);
    };
    if parts.len() == 0 {
        return Ok(Some(first));
    }
    let mut all = context.read_table(first)?;
    for part in parts {
        all = all.union_by_name(context.read_table(part)?)?;
    }
    Ok(Some(all.into_view()))
}

#[async_trait]
impl TableProvider for NodeTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match in_words(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(projection) => Arc::new(self.schema.project(projection)?),
            None => Arc::clone(&self.schema),
        };
        let columns = schema.fields().iter();
        let columns: Vec<String> = columns
            .map(|field| Column::from_name(field.name()).quoted_flat_name())
            .collect();
        let columns = match columns.as_slice() {
            [] => "1".to_owned(),
            columns => columns.join(", "),
        };
        let mut sql = format!("SELECT {columns} FROM {}", self.name);
        let conditions: Vec<String> = filters.iter().filter_map(in_words).collect();
        if !conditions.is_empty() {
            sql.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
        }
        if let Some(limit) = limit.filter(|_| conditions.len() == filters.len()) {
            sql.push_str(&format!(" LIMIT {limit}"));
        }
        let note = format!(", at={}: {sql}", self.there.0.endpoint());
        let part = NodePart {
            table: self.clone(),
            sql,
        };
        let parts: Vec<Arc<dyn Part>> = vec![Arc::new(part)];
        Ok(Arc::new(Scan::of(self.name.clone(), note, schema, parts)))
    }
}

/// A condition as the agent's SQL has it; none of those that may mean something else there.
fn in_words(filter: &Expr) -> Option<String> {
    let is_plain = |expression: &Expr| match expression {
        Expr::Literal(value, _) => matches!(
            value,
            ScalarValue::Boolean(Some(_))
                | ScalarValue::Int64(Some(_))
                | ScalarValue::Int32(Some(_))
                | ScalarValue::UInt64(Some(_))
                | ScalarValue::UInt32(Some(_))
                | ScalarValue::Float64(Some(_))
                | ScalarValue::Utf8(Some(_))
                | ScalarValue::Utf8View(Some(_))
        ),
        Expr::Column(_)
        | Expr::BinaryExpr(_)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::InList(_)
        | Expr::Between(_)
        | Expr::Like(_) => true,
        _ => false,
    };
    if filter.exists(|part| Ok(!is_plain(part))).unwrap_or(true) {
        return None;
    }
    let bare = filter.clone().transform(|part| match part {
        Expr::Column(column) => {
            let bare = Column::new_unqualified(column.name);
            Ok(Transformed::yes(Expr::Column(bare)))
        }
        other => Ok(Transformed::no(other)),
    });
    let sql = expr_to_sql(&bare.ok()?.data).ok()?;
    Some(format!("({sql})"))
}

/// What one scan asks of an agent.
#[derive(Clone)]
struct NodePart {
    table: NodeTable,
    sql: String,
}

impl NodePart {
    /// Gives the rows on as they come, and notes whose are missing.
    fn read_all(&self, schema: &SchemaRef, give: impl Fn(RecordBatch) -> bool) -> Result<()> {
        let NodeTable { there, sight, .. } = &self.table;
        let (node, members) = there;
        let (elsewhere, batches) = match RemoteRows::open(node, &self.sql, members) {
            Ok(opened) => opened,
            Err(error) if is_answer(&error) => return Err(external(error)),
            Err(error) => {
                sight.hears(members, missing(members, &error));
                return Ok(());
            }
        };
        let mut is_basis_told = !self.table.has_others;
        for batch in batches {
            let batch = fitted(&batch?, schema)?;
            if !is_basis_told && have_steps(&batch) {
                // Before the rows: who has enough of them waits for nothing that is said later.
                self.table.tell_basis();
                is_basis_told = true;
            }
            if !give(batch) {
                // They have answered, though they were not heard to the end.
                sight.hears(members, Vec::new());
                return Ok(());
            }
        }
        sight.hears(members, elsewhere.missing().map_err(external)?);
        Ok(())
    }
}

fn external(error: EngineError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Texts come as everybody can read them; and of rows without columns, how many there are.
fn fitted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if schema.fields().is_empty() {
        let count = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        return RecordBatch::try_new_with_options(Arc::clone(schema), Vec::new(), &count);
    }
    in_schema(batch, schema)
}

impl Part for NodePart {
    fn read(&self, schema: &SchemaRef) -> Result<SendableRecordBatchStream> {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(schema), 2);
        let (sender, part, schema) = (stream.tx(), self.clone(), Arc::clone(schema));
        stream.spawn_blocking(move || {
            // When nobody listens any more, enough rows were read.
            part.read_all(&schema, |batch| sender.blocking_send(Ok(batch)).is_ok())
        });
        Ok(stream.build())
    }

    fn rows(&self) -> Option<usize> {
        None
    }

    fn with_condition(&self, _: Condition) -> Option<Arc<dyn Part>> {
        None
    }
}

impl fmt::Debug for NodePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodePart").field(&self.sql).finish()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, Int64Array};
    use datafusion::prelude::{col, lit};
    use probing_client::{Target, TargetLabel};
    use probing_proto::process::Pid;

    use super::*;

    #[test]
    fn a_condition_is_told_in_words_when_it_means_the_same_everywhere() {
        let check =
            |filter: Expr, words: &str| assert_eq!(in_words(&filter).as_deref(), Some(words));
        check(col("depth").lt(lit(5_i64)), "((depth < 5))");
        check(col("t.func").eq(lit("it's")), "((func = 'it''s'))");
        check(
            col("rank")
                .in_list(vec![lit(1_i64)], true)
                .and(col("file").is_null()),
            r#"(("rank" NOT IN (1) AND "file" IS NULL))"#,
        );
        assert_eq!(in_words(&datafusion::prelude::now().lt(col("ts"))), None);
        assert_eq!(
            in_words(&col("ts").lt(lit(ScalarValue::TimestampNanosecond(Some(1), None)))),
            None
        );
    }

    #[test]
    fn only_ranks_whose_optimizer_counts_steps_are_aligned_by_machine() {
        let member = |pid: u32, rank: Option<u32>| Member {
            who: TargetLabel::Pid(Pid(pid)),
            target: Target::Local(Pid(pid)),
            pid: Some(Pid(pid)),
            rank,
        };
        assert!(counts_steps(&member(1, Some(0)), Some(&[1])));
        assert!(!counts_steps(&member(2, Some(1)), Some(&[1])));
        assert!(!counts_steps(&member(1, None), Some(&[1])));
        // Nobody knows.
        assert!(counts_steps(&member(1, Some(0)), None));

        let rows = |name: &str, steps: Vec<Option<i64>>| {
            let steps: ArrayRef = Arc::new(Int64Array::from(steps));
            RecordBatch::try_from_iter([(name, steps)]).unwrap()
        };
        assert!(have_steps(&rows("step", vec![None, Some(3)])));
        assert!(!have_steps(&rows("step", vec![None, None])));
        assert!(!have_steps(&rows("n", vec![Some(3)])));
    }
}
