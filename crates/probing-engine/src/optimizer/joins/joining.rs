//! The probe side of a join: its rows in batches, each with the matching rows of the build side.

use std::sync::Arc;

use datafusion::arrow::array::{
    AsArray as _, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{JoinSide, JoinType, Result, internal_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan as _;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::StreamExt as _;

use crate::optimizer::joins::known::BuildSide;
use crate::optimizer::joins::picked::RowSelection;
use crate::optimizer::key_interning::NONE;

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

/// What is asked of rows that belong together.
#[derive(Debug)]
pub(super) enum JoinOutput {
    Pairs,
    /// Which rows of the known side have another; in the end those are the answer of which it is so, or not so.
    BuildRows {
        have_another: BooleanBufferBuilder,
        is_wanted: bool,
    },
}

impl JoinOutput {
    /// `None` where it is another kind of join.
    pub(super) fn by(join: JoinType) -> Option<Self> {
        let is_wanted = match join {
            JoinType::Inner => return Some(Self::Pairs),
            JoinType::LeftSemi => true,
            JoinType::LeftAnti => false,
            _ => return None,
        };
        Some(Self::BuildRows {
            have_another: BooleanBufferBuilder::new(0),
            is_wanted,
        })
    }

    /// Of so many rows of the known side none has been found to have another yet.
    pub(super) fn begin(mut self, known: usize) -> Self {
        if let Self::BuildRows { have_another, .. } = &mut self {
            have_another.resize(known);
        }
        self
    }
}

/// Both sides, while rows come.
pub(super) struct Joining {
    pub(super) known: BuildSide,
    pub(super) looked_up_by: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) rows: SendableRecordBatchStream,
    pub(super) looking: Option<ProbeCursor>,
    pub(super) asked: Option<JoinOutput>,
    pub(super) cells: Cells,
    pub(super) at_once: usize,
    pub(super) metrics: BaselineMetrics,
    pub(super) _taken: MemoryReservation,
}

/// How far the rows of a batch have been joined.
#[derive(Debug)]
pub(super) struct ProbeCursor {
    batch: RecordBatch,
    row: usize,
    /// What comes next beside that row, when not all could come at once.
    left: Option<u32>,
}

impl Joining {
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.looking.is_none() {
                let Some(batch) = self.next_rows().await? else {
                    return self.finish();
                };
                let _working = self.metrics.elapsed_compute().timer();
                self.known.look_up(&batch, &self.looked_up_by)?;
                self.looking = Some(ProbeCursor {
                    batch,
                    row: 0,
                    left: None,
                });
            }
            let joined = self.join()?.filter(|joined| joined.num_rows() > 0);
            if joined.is_some() {
                return Ok(joined);
            }
        }
    }

    /// Rows that have to be looked up, if any have.
    async fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        match &self.asked {
            Some(_) if self.known.len() > 0 => self.rows.next().await.transpose(),
            _ => Ok(None),
        }
    }

    /// Goes on with the rows of the batch that is at hand.
    fn join(&mut self) -> Result<Option<RecordBatch>> {
        let _working = self.metrics.elapsed_compute().timer();
        let Some(looking) = &mut self.looking else {
            return Ok(None);
        };
        let [known, other] = looking.pairs(&self.known, self.at_once);
        let pairs = Pairs {
            known: RowSelection::of(known),
            other: RowSelection::of(other),
        };
        let sides = [&self.known.rows, &looking.batch];
        let joined = if let Some(JoinOutput::BuildRows { have_another, .. }) = &mut self.asked {
            let pairs = pairs.that_meet(&self.cells, sides, true)?.0;
            pairs.known.each(|row| have_another.set_bit(row, true));
            None
        } else {
            let is_shown = !self.cells.answer.is_empty();
            let (pairs, count) = pairs.that_meet(&self.cells, sides, is_shown)?;
            self.metrics.record_output(count);
            Some(pairs.batch(&self.cells.schema, &self.cells.answer, sides, count)?)
        };
        if looking.row == looking.batch.num_rows() {
            self.looking = None;
        }
        Ok(joined)
    }

    /// What is known when all rows have come.
    fn finish(&mut self) -> Result<Option<RecordBatch>> {
        let Some(JoinOutput::BuildRows {
            mut have_another,
            is_wanted,
        }) = self.asked.take()
        else {
            return Ok(None);
        };
        let _working = self.metrics.elapsed_compute().timer();
        let found = have_another.finish();
        let wanted = BooleanArray::from(if is_wanted { found } else { !&found });
        let count = wanted.true_count();
        self.metrics.record_output(count);
        let columns = self.cells.answer.iter().map(|cell| match cell {
            Cell::Known(place) => Ok(filter(self.known.rows.column(*place), &wanted)?),
            Cell::Other(_) => internal_err!("rows of one side have columns of that side"),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = Arc::clone(&self.cells.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok((count > 0).then_some(batch))
    }
}

impl ProbeCursor {
    /// Rows of both sides that belong together, as many as may come at once.
    fn pairs(&mut self, known: &BuildSide, at_once: usize) -> [Vec<u32>; 2] {
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

/// Rows of both sides that belong together.
#[derive(Debug)]
struct Pairs {
    known: RowSelection,
    other: RowSelection,
}

impl Pairs {
    /// Those that meet the condition, and how many they are. Who only counts them need not know which.
    fn that_meet(
        self,
        cells: &Cells,
        sides: [&RecordBatch; 2],
        is_shown: bool,
    ) -> Result<(Self, usize)> {
        let count = self.known.len();
        let Some((condition, columns)) = cells.filter.as_ref().filter(|_| count > 0) else {
            return Ok((self, count));
        };
        let rows = self.batch(condition.schema(), columns, sides, count)?;
        let met = condition.expression().evaluate(&rows)?.into_array(count)?;
        let met: &BooleanArray = met.as_boolean();
        let left = met.true_count();
        if left == count || !is_shown {
            return Ok((self, left));
        }
        let pairs = Self {
            known: self.known.filtered(met)?,
            other: self.other.filtered(met)?,
        };
        Ok((pairs, left))
    }

    fn batch(
        &self,
        schema: &SchemaRef,
        cells: &[Cell],
        [known, other]: [&RecordBatch; 2],
        count: usize,
    ) -> Result<RecordBatch> {
        let columns = cells.iter().map(|cell| match cell {
            Cell::Known(place) => self.known.of_column(known.column(*place)),
            Cell::Other(place) => self.other.of_column(other.column(*place)),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = Arc::clone(schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}
