//! Runs of neighbours in one group, whose values are combined before they reach the group.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray as _, Int64Array, PrimitiveArray, UInt64Array,
};
use datafusion::arrow::compute::{max, min, sum};
use datafusion::arrow::datatypes::{ArrowNumericType, DataType, Float64Type, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

/// Rows of a group that have to stand together, on average.
const MIN_RUN_LENGTH: usize = 16;

/// Rows of a batch that stand together.
#[derive(Debug)]
pub(super) struct Runs {
    rows: Vec<Range<usize>>,
    /// Of each run.
    groups: Vec<usize>,
}

impl Runs {
    /// `None` when they are too short to be of use.
    pub(super) fn of(groups: &[u32]) -> Option<Self> {
        let changes = groups.windows(2).filter(|pair| pair[0] != pair[1]).count();
        if changes * MIN_RUN_LENGTH > groups.len() {
            return None;
        }
        let mut runs = Self {
            rows: Vec::with_capacity(changes + 1),
            groups: Vec::with_capacity(changes + 1),
        };
        let mut begin = 0;
        for run in groups.chunk_by(|one, next| one == next) {
            runs.rows.push(begin..begin + run.len());
            runs.groups.push(run[0] as usize);
            begin += run.len();
        }
        Some(runs)
    }

    fn reduced<T: ArrowPrimitiveType>(
        &self,
        values: &ArrayRef,
        how: impl Fn(&PrimitiveArray<T>) -> Option<T::Native>,
    ) -> PrimitiveArray<T> {
        let values = values.as_primitive::<T>();
        let runs = self.rows.iter();
        runs.map(|run| how(&values.slice(run.start, run.len())))
            .collect()
    }

    fn sums<T: ArrowNumericType>(&self, values: &ArrayRef) -> PrimitiveArray<T>
    where
        T::Native: std::ops::Add<Output = T::Native>,
    {
        self.reduced::<T>(values, |run| sum(run))
    }
}

/// An aggregate whose values may be put together before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunAggregate {
    Sum,
    Min,
    Max,
    Count,
    Average,
}

impl RunAggregate {
    pub(super) fn of(aggregate: &AggregateFunctionExpr) -> Option<Self> {
        if aggregate.is_distinct() {
            return None;
        }
        match aggregate.fun().name() {
            "sum" => Some(Self::Sum),
            "min" => Some(Self::Min),
            "max" => Some(Self::Max),
            "count" => Some(Self::Count),
            "avg" => Some(Self::Average),
            _ => None,
        }
    }

    /// Brings the values of a batch to their groups, run by run; `false` when these cannot be.
    pub(super) fn take(
        self,
        values: &[ArrayRef],
        runs: &Runs,
        total: usize,
        into: &mut dyn GroupsAccumulator,
    ) -> Result<bool> {
        let [values] = values else {
            return Ok(false);
        };
        if values.null_count() > 0 {
            return Ok(false);
        }
        let lengths = runs.rows.iter().map(ExactSizeIterator::len);
        let (is_int, is_float) = match values.data_type() {
            DataType::Int64 => (true, false),
            DataType::Float64 => (false, true),
            _ => (false, false),
        };
        let groups = &runs.groups;
        match self {
            Self::Sum if is_int => {
                let sums: ArrayRef = Arc::new(runs.sums::<Int64Type>(values));
                into.update_batch(&[sums], groups, None, total)?;
            }
            Self::Sum if is_float => {
                let sums: ArrayRef = Arc::new(runs.sums::<Float64Type>(values));
                into.update_batch(&[sums], groups, None, total)?;
            }
            Self::Min if is_int => {
                let least: ArrayRef = Arc::new(runs.reduced::<Int64Type>(values, min));
                into.update_batch(&[least], groups, None, total)?;
            }
            Self::Max if is_int => {
                let most: ArrayRef = Arc::new(runs.reduced::<Int64Type>(values, max));
                into.update_batch(&[most], groups, None, total)?;
            }
            Self::Count => {
                let counts: Int64Array = lengths.map(|length| Some(length as i64)).collect();
                into.merge_batch(&[Arc::new(counts)], groups, total)?;
            }
            Self::Average if is_float => {
                let counts: UInt64Array = lengths.map(|length| Some(length as u64)).collect();
                let sums = Arc::new(runs.sums::<Float64Type>(values));
                into.merge_batch(&[Arc::new(counts), sums], groups, total)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// What is kept of the groups, as rows of a state or as answers.
pub(super) fn finished(
    mut kept: Box<dyn GroupsAccumulator>,
    is_state: bool,
) -> Result<Vec<ArrayRef>> {
    if is_state {
        kept.state(EmitTo::All)
    } else {
        kept.evaluate(EmitTo::All).map(|answers| vec![answers])
    }
}
