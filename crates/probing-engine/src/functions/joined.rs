//! `string_agg` with a bound on its result, also over windows.
//!
//! `string_agg` with a bound: of the text that it makes little is counted before it is there, and over a window it
//! makes one for each row.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray as _};
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::compute::{cast, sum};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature,
};
use datafusion::physical_expr::expressions::Literal;

use crate::functions::bounded::{MAX_BYTES, too_large};

/// Of a separator: short texts must not become long ones by what stands between them.
const MAX_SEPARATOR_BYTES: usize = 256;

/// The function.
pub(super) fn joined() -> Arc<AggregateUDF> {
    static JOINED: LazyLock<Arc<AggregateUDF>> =
        LazyLock::new(|| Arc::new(AggregateUDF::from(Joined(string_agg_udaf()))));
    Arc::clone(&JOINED)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Joined(Arc<AggregateUDF>);

/// The bytes of a separator that is not too long.
fn separator(call: &AccumulatorArgs<'_>) -> Result<usize> {
    let literal = call.exprs.get(1);
    let literal = literal.and_then(|separator| separator.downcast_ref::<Literal>());
    let text = literal.and_then(|literal| literal.value().try_as_str().flatten());
    let bytes = text.map_or(0, str::len);
    if bytes <= MAX_SEPARATOR_BYTES {
        return Ok(bytes);
    }
    Err(DataFusionError::ResourcesExhausted(format!(
        "string_agg puts at most {MAX_SEPARATOR_BYTES} bytes between texts: {bytes} bytes"
    )))
}

impl AggregateUDFImpl for Joined {
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
        Ok(Box::new(Bounded {
            separator_bytes: separator(&call)?,
            taken: 0,
            made: 0,
            unbounded: self.0.inner().accumulator(call)?,
        }))
    }

    fn groups_accumulator_supported(&self, call: AccumulatorArgs<'_>) -> bool {
        self.0.inner().groups_accumulator_supported(call)
    }

    /// What it holds is counted after each batch of rows.
    fn create_groups_accumulator(
        &self,
        call: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        separator(&call)?;
        self.0.inner().create_groups_accumulator(call)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Reversed(joined())
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}

/// The texts of one group, or of a window.
#[derive(Debug)]
struct Bounded {
    separator_bytes: usize,
    /// Bytes of texts that came, with separators.
    taken: usize,
    /// Bytes of texts that were made of them.
    made: usize,
    unbounded: Box<dyn Accumulator>,
}

fn within_bounds(bytes: usize) -> Result<()> {
    if bytes as i64 <= MAX_BYTES {
        Ok(())
    } else {
        Err(too_large("string_agg", bytes as i64))
    }
}

impl Accumulator for Bounded {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if let Some(texts) = values.first() {
            let lengths = cast(&length(texts)?, &DataType::Int64)?;
            let bytes = sum(lengths.as_primitive::<Int64Type>()).unwrap_or(0) as usize;
            self.taken += bytes + texts.len() * self.separator_bytes;
            within_bounds(self.taken)?;
        }
        self.unbounded.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.unbounded.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.unbounded.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let text = self.unbounded.evaluate()?;
        self.made += text.try_as_str().flatten().map_or(0, str::len);
        within_bounds(self.made)?;
        Ok(text)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.unbounded.size()
    }
}
