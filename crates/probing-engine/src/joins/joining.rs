//! The rows of the other side, one batch after the other, each beside those that are known of its keys.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray as _, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{JoinSide, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan as _;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::StreamExt as _;

use super::known::Known;
use super::picked::Picked;
use crate::keys::NONE;

/// Where the columns of an answer come from.
#[derive(Debug)]
pub(super) struct Cells {
    /// Columns of the known side that anybody wants.
    pub(super) known: Vec<usize>,
    schema: SchemaRef,
    answer: Vec<Cell>,
    filter: Option<(JoinFilter, Vec<Cell>)>,
}

#[derive(Debug, Clone, Copy)]
enum Cell {
    /// By its place in [`Cells::known`].
    Known(usize),
    Other(usize),
}

impl Cells {
    pub(super) fn of(plan: &HashJoinExec) -> Self {
        let width = plan.left().schema().fields().len();
        let all = plan.join_schema().fields().len();
        let projection = plan.projection.as_ref();
        let answer: Vec<usize> =
            projection.map_or_else(|| (0..all).collect(), |them| them.to_vec());
        let filter = plan.filter().map(|filter| {
            let columns = filter.column_indices().iter();
            let place = columns.map(|column| match column.side {
                JoinSide::Left => column.index,
                _ => width + column.index,
            });
            (filter.clone(), place.collect::<Vec<usize>>())
        });
        let mut known = answer.clone();
        known.extend(filter.iter().flat_map(|(_, columns)| columns));
        known.retain(|column| *column < width);
        known.sort_unstable();
        known.dedup();
        let cell = |column: usize| match known.binary_search(&column) {
            Ok(place) => Cell::Known(place),
            Err(_) => Cell::Other(column - width),
        };
        let cells = |columns: Vec<usize>| columns.into_iter().map(cell).collect();
        Self {
            answer: cells(answer),
            filter: filter.map(|(filter, columns)| (filter, cells(columns))),
            schema: plan.schema(),
            known,
        }
    }
}

/// Both sides, while rows come.
pub(super) struct Joining {
    pub(super) known: Known,
    pub(super) looked_up_by: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) rows: SendableRecordBatchStream,
    pub(super) looking: Option<Looking>,
    pub(super) cells: Cells,
    pub(super) at_once: usize,
    pub(super) metrics: BaselineMetrics,
    pub(super) _taken: MemoryReservation,
}

/// How far the rows of a batch have been joined.
#[derive(Debug)]
pub(super) struct Looking {
    batch: RecordBatch,
    row: usize,
    /// What comes next beside that row, when not all could come at once.
    left: Option<u32>,
}

impl Joining {
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.known.is_empty() {
            return Ok(None);
        }
        loop {
            if self.looking.is_none() {
                let Some(batch) = self.rows.next().await else {
                    return Ok(None);
                };
                let batch = batch?;
                let _working = self.metrics.elapsed_compute().timer();
                self.known.look_up(&batch, &self.looked_up_by)?;
                self.looking = Some(Looking {
                    batch,
                    row: 0,
                    left: None,
                });
            }
            let _working = self.metrics.elapsed_compute().timer();
            if let Some(looking) = &mut self.looking {
                let [known, other] = looking.pairs(&self.known, self.at_once);
                let joined = joined(&self.cells, &self.known.rows, &looking.batch, known, other)?;
                if looking.row == looking.batch.num_rows() {
                    self.looking = None;
                }
                if joined.num_rows() > 0 {
                    self.metrics.record_output(joined.num_rows());
                    return Ok(Some(joined));
                }
            }
        }
    }
}

impl Looking {
    /// Rows of both sides that belong together, as many as may come at once.
    fn pairs(&mut self, known: &Known, at_once: usize) -> [Vec<u32>; 2] {
        let rows = self.batch.num_rows();
        let likely = at_once.min(rows - self.row);
        let mut pairs = [Vec::with_capacity(likely), Vec::with_capacity(likely)];
        while self.row < rows {
            let mut found = self.left.take().unwrap_or_else(|| known.first(self.row));
            while found != NONE {
                if pairs[0].len() == at_once {
                    self.left = Some(found);
                    return pairs;
                }
                pairs[0].push(found);
                pairs[1].push(self.row as u32);
                found = known.next(found);
            }
            self.row += 1;
        }
        pairs
    }
}

/// The answer's columns of the rows that belong together and meet the condition.
fn joined(
    cells: &Cells,
    known: &RecordBatch,
    other: &RecordBatch,
    known_rows: Vec<u32>,
    other_rows: Vec<u32>,
) -> Result<RecordBatch> {
    let mut count = known_rows.len();
    let mut picked = [Picked::of(known_rows), Picked::of(other_rows)];
    let batch = |schema: &SchemaRef, cells: &[Cell], picked: &[Picked; 2], count| {
        let columns = cells.iter().map(|cell| match cell {
            Cell::Known(place) => picked[0].of_column(known.column(*place)),
            Cell::Other(place) => picked[1].of_column(other.column(*place)),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = Arc::clone(schema);
        Ok::<_, datafusion::common::DataFusionError>(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    };
    if let Some((filter, cells_of_filter)) = cells.filter.as_ref().filter(|_| count > 0) {
        let rows = batch(filter.schema(), cells_of_filter, &picked, count)?;
        let met = filter.expression().evaluate(&rows)?.into_array(count)?;
        let met: &BooleanArray = met.as_boolean();
        let left = met.true_count();
        // Who only counts rows need not know which.
        if left < count && !cells.answer.is_empty() {
            let [one, two] = picked;
            picked = [one.filtered(met)?, two.filtered(met)?];
        }
        count = left;
    }
    batch(&cells.schema, &cells.answer, &picked, count)
}
