//! The first columns of every table, which name the target; conditions on them select targets.

use std::sync::Arc;

use datafusion::arrow::array::{Array as _, AsArray as _, RecordBatch};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};

use crate::columns::WHOSE;
use crate::columns::rows::{RowsBuilder, Value};
use crate::snapshot::target_snapshot::TargetSnapshot;
use crate::tables::definition::Table;

/// How far a table takes care of conditions: all the way of those about whose a row is, and `otherwise` of the others.
pub(crate) fn pushdown(
    filters: &[&Expr],
    otherwise: TableProviderFilterPushDown,
) -> Vec<TableProviderFilterPushDown> {
    let support = |filter: &&Expr| {
        if is_about_whose(filter) {
            TableProviderFilterPushDown::Exact
        } else {
            otherwise.clone()
        }
    };
    filters.iter().map(support).collect()
}

/// Whether it names no other columns than those that say whose a row is.
pub(crate) fn is_about_whose(filter: &Expr) -> bool {
    let columns = filter.column_refs();
    !columns.is_empty()
        && !filter.is_volatile()
        && columns
            .iter()
            .all(|column| WHOSE.iter().any(|whose| whose.name == column.name))
}

/// The targets that meet the conditions.
pub(crate) fn chosen(
    all: &[Arc<TargetSnapshot>],
    session: &dyn Session,
    filters: &[Expr],
) -> Result<Vec<Arc<TargetSnapshot>>> {
    let filters: Vec<&Expr> = filters
        .iter()
        .filter(|filter| is_about_whose(filter))
        .collect();
    if filters.is_empty() {
        return Ok(all.to_vec());
    }
    let batch = whose_rows(all)?;
    let schema = DFSchema::try_from(batch.schema())?;
    let mut kept = vec![true; all.len()];
    for filter in filters {
        let filter = session.create_physical_expr(filter.clone(), &schema)?;
        let fits = filter.evaluate(&batch)?.into_array(all.len())?;
        let fits = fits.as_boolean();
        for (index, kept) in kept.iter_mut().enumerate() {
            *kept &= fits.is_valid(index) && fits.value(index);
        }
    }
    let kept = all.iter().zip(kept).filter(|(_, kept)| *kept);
    Ok(kept.map(|(seen, _)| Arc::clone(seen)).collect())
}

fn whose_rows(all: &[Arc<TargetSnapshot>]) -> Result<RecordBatch> {
    let table = Table {
        columns: &[],
        ..*crate::tables::ALL[0]
    };
    let mut rows = RowsBuilder::of(&WHOSE, &table.schema(), &[0, 1, 2], None)?;
    for seen in all {
        rows.are_of(whose(seen));
        rows.push([]);
    }
    Ok(rows.batch()?)
}

/// The first values of a target's rows.
pub(crate) fn whose(seen: &TargetSnapshot) -> [Value<'static>; 3] {
    [
        seen.member.pid.map(|pid| pid.0).into(),
        seen.rank().into(),
        seen.host.to_string().into(),
    ]
}
