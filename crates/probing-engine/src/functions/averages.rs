//! `avg`, which is quicker where neighbours belong to one group: what was recorded in one step stands together, and to add
//! its values to each other takes less time than to add each to what is kept of the group.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, Float64Array, UInt64Array,
};
use datafusion::arrow::compute::sum;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::Result;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    ReversedUDAF, Signature,
};

/// Rows of a group that have to stand together, on average.
const LONG: usize = 16;

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Average(Arc<AggregateUDF>);

impl Average {
    pub(super) fn new() -> Self {
        Self(avg_udaf())
    }
}

/// All but one thing is as it is.
impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.0.inner().return_type(types)
    }

    fn state_fields(&self, call: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.0.inner().state_fields(call)
    }

    fn accumulator(&self, call: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.0.inner().accumulator(call)
    }

    fn groups_accumulator_supported(&self, call: AccumulatorArgs<'_>) -> bool {
        self.0.inner().groups_accumulator_supported(call)
    }

    fn create_groups_accumulator(
        &self,
        call: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let is_float = *call.expr_fields[0].data_type() == DataType::Float64;
        let groups = self.0.inner().create_groups_accumulator(call)?;
        Ok(if is_float {
            Box::new(ByRuns(groups))
        } else {
            groups
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.inner().reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}

/// Averages of floats, which are kept as counts and sums.
struct ByRuns(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for ByRuns {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        let numbers = values[0].as_primitive::<Float64Type>();
        let changes = groups.windows(2).filter(|pair| pair[0] != pair[1]).count();
        if filter.is_some() || numbers.null_count() > 0 || changes * LONG > groups.len() {
            return self.0.update_batch(values, groups, filter, total);
        }
        let (mut of, mut counts, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        let mut begin = 0;
        for run in groups.chunk_by(|one, next| one == next) {
            of.push(run[0]);
            counts.push(run.len() as u64);
            sums.push(sum(&numbers.slice(begin, run.len())));
            begin += run.len();
        }
        let counts = Arc::new(UInt64Array::from(counts));
        let sums = Arc::new(Float64Array::from(sums));
        self.0.merge_batch(&[counts, sums], &of, total)
    }

    fn evaluate(&mut self, which: EmitTo) -> Result<ArrayRef> {
        self.0.evaluate(which)
    }

    fn state(&mut self, which: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(which)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.0.merge_batch(states, groups, total)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    #[test]
    fn averages_are_the_same_whether_neighbours_belong_together_or_not() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        // With two threads there are counts and sums to be put together.
        for threads in [1, 2] {
            let config = || SessionConfig::new().with_target_partitions(threads);
            let usual = SessionContext::new_with_config(config());
            let ours = SessionContext::new_with_config(config());
            ours.register_udaf(AggregateUDF::from(Average::new()));
            for (group, value) in [
                ("x / 800", "x"),
                ("x / 800 % 10", "x"),
                ("x % 7", "x"),
                ("x / 7", "x"),
                ("1", "x"),
                ("x / 800", "CASE WHEN x % 3 = 0 THEN NULL ELSE x END"),
                ("x / 800", "CASE WHEN x < 5000 THEN NULL ELSE x END"),
                (
                    "x / 800",
                    "CASE WHEN x = 5 THEN CAST('NaN' AS DOUBLE) ELSE x END",
                ),
                ("x / 800", "arrow_cast(x, 'Duration(Second)')"),
            ] {
                let sql = format!(
                    "SELECT {group} AS part, avg({value}), avg({value}) FILTER (WHERE x % 2 = 1), avg(DISTINCT x % 5) \
                     FROM generate_series(1, 20000) AS s(x) GROUP BY part ORDER BY part"
                );
                let rows = |context: &SessionContext| {
                    let rows = async { context.sql(&sql).await.unwrap().collect().await.unwrap() };
                    let rows = runtime.block_on(rows);
                    pretty_format_batches(&rows).unwrap().to_string()
                };
                assert_eq!(rows(&ours), rows(&usual), "{sql}");
            }
        }
    }
}
